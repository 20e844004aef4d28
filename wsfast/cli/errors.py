"""Whose fault an error is, and how the command line says it."""

from __future__ import annotations

import argparse
import dis
import os
import re
import traceback

# Arguments of the library that the command line calls otherwise, as a message shows them.
_WRITTEN = {
    "top_k": "--top",
    "scale=False": "--no-scale",
    "largest=False": "--harmless",
    "rules must": "--rule must",
    'weight_fn="relu", normalize=False': "--weight-fn relu-unnormalized",
}
_ARGUMENTS = (
    "baseline", "bound", "candidates", "column", "draws", "file", "heads", "layer", "layers",
    "max_tokens", "model", "out", "perturbation", "position", "radius", "relative_radius",
    "replace", "seed", "through_model", "tokens", "weight_fn",
)  # fmt: skip
# Also an entry of a list, `layers[0]`: an option has no numbers.
_FIRST = re.compile(rf"\A({'|'.join(_ARGUMENTS)})(?:\[\d+\])?(?=:| must| and )")
_GIVEN = re.compile(rf"""\b({"|".join(_ARGUMENTS)})=(["']?)([\w.-]+)\2""")
# Options of every text alike; what is said of one of them ends the run.
_OF_ALL = (
    "--bound", "--candidates", "--draws", "--heads", "--layer", "--layers", "--model", "--out",
    "--perturbation", "--radius", "--relative-radius", "--seed",
)  # fmt: skip
_TEXT = "texts[0]"
_NO_MEMORY = "can't allocate memory"  # how PyTorch says it


class InputError(ValueError):
    """What the command line was given is at fault; the message is for its user."""


def is_refusal(error: BaseException) -> bool:
    """Whether the library, or this command line, refuses what it was given.

    It does so in a ``raise`` statement of its own. An error of the same class that Python, PyTorch
    or NumPy found (two lengths that differ, a value that is no number) is a fault of wsfast, and
    its traceback must be seen.
    """
    if isinstance(error, (ImportError, MemoryError, OSError)) or _NO_MEMORY in str(error):
        return True  # of the machine
    place = error.__traceback__
    if not isinstance(error, (RuntimeError, TypeError, ValueError)) or place is None:
        return False
    while place.tb_next is not None:
        place = place.tb_next
    package = str(place.tb_frame.f_globals.get("__name__", "")).partition(".")[0]
    raised = place.tb_frame.f_code.co_code[place.tb_lasti] == dis.opmap["RAISE_VARARGS"]
    return package == "wsfast" and raised


def is_interruption(error: BaseException) -> bool:
    """Whether Ctrl-C is behind an error: an import that it stops may fail in its own way."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, KeyboardInterrupt):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def report(error: BaseException) -> str:
    """The traceback of a fault of wsfast, and what to do with it."""
    lines = "".join(traceback.format_exception(error))
    return f"internal error:\n{lines}wsfast: please report this, it is a fault of wsfast"


def read_as_utf_8(args: argparse.Namespace) -> None:
    """Read texts and options as UTF-8, whatever the locale; refuse an option that is none.

    Names of files are left as they are. So are texts: one that is not UTF-8 is left out like any
    other that cannot be done.
    """
    for name, value in vars(args).items():
        if isinstance(value, list):  # of texts, or of numbers
            read = [_decoded(one) if isinstance(one, str) else one for one in value]
            setattr(args, name, read)
        elif isinstance(value, str):
            setattr(args, name, _decoded(value))
            check_utf_8("TEXT" if name in ("a", "b") else _flag(name), getattr(args, name))


def _decoded(value: str) -> str:
    """An argument as UTF-8 reads it; as Python did, which knows the locale, where that fails."""
    try:
        return os.fsencode(value).decode()
    except UnicodeError:
        return value


def check_utf_8(argument: str, value: str) -> None:
    """Refuse what no file in UTF-8 can hold: bytes of an argument in another encoding."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InputError(f"{argument} must be UTF-8, got {value!r}") from None


def is_of_all_texts(error: Exception) -> bool:
    """Whether the next text would meet the same refusal: it is of a file or an option."""
    if isinstance(error, (ImportError, InputError, OSError)):
        return True
    return _TEXT not in str(error) and with_flags(error).startswith(_OF_ALL)


def with_flags(error: BaseException, number: int = 0) -> str:
    """The message of an error, with options in place of Python's arguments.

    The library knows of one text, `texts[0]`; it is number `number` of those that were given.
    """
    message = " ".join(str(error).splitlines()) or type(error).__name__
    if isinstance(error, MemoryError) or _NO_MEMORY in message:
        return f"there is not enough memory, --max-tokens makes texts shorter: {message}"
    if isinstance(error, InputError):
        return message
    message = _FIRST.sub(lambda found: _flag(found[1]), message)
    for argument, flag in _WRITTEN.items():
        message = message.replace(argument, flag)
    message = _GIVEN.sub(lambda found: f"{_flag(found[1])} {found[3]}", message)
    message = message.replace("max_tokens", "--max-tokens")
    return message.replace(_TEXT, f"text {number}", 1)


def _flag(argument: str) -> str:
    return f"--{argument.replace('_', '-')}"
