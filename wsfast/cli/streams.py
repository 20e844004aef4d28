"""Standard streams that are there and take every character, and whose failures are one line."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from typing import TextIO

_FAILED = 2
_BROKEN_PIPE = 141  # as a shell has it for a program that SIGPIPE ended


@contextlib.contextmanager
def prepared() -> Iterator[None]:
    """Make stdout and stderr fit to print on; afterwards they are as they were.

    A character that a stream cannot encode is written as an escape. A stream that was closed is
    replaced by one that forgets.
    """
    with contextlib.ExitStack() as stack:
        if None in (sys.stdin, sys.stdout, sys.stderr):
            _take_numbers()
        for name in ("stdout", "stderr"):
            if getattr(sys, name) is None:
                stack.callback(setattr, sys, name, None)
                opened = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
                setattr(sys, name, stack.enter_context(opened))
                continue
            stream = getattr(sys, name)
            if hasattr(stream, "reconfigure"):
                stack.callback(_restore, stream, stream.errors)
                stream.reconfigure(errors="backslashreplace")
        yield


def _restore(stream: io.TextIOWrapper, errors: str | None) -> None:
    try:
        stream.reconfigure(errors=errors)  # flushes first
    except OSError:
        _abandon(stream)
        stream.reconfigure(errors=errors)


def _take_numbers() -> None:
    """Keep a file that is opened later from being 0, 1 or 2: a C library may print there."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)


def say(line: str) -> None:
    """Print a line on stderr; where that fails there is nowhere to say so."""
    try:
        print(f"wsfast: {line}", file=sys.stderr, flush=True)
    except OSError:
        _abandon(sys.stderr)


def write(text: str) -> None:
    """Print a text on stdout, at once, so that a reader sees each result when it is there.

    Raises
    ------
    UnwritableError
        If the system takes no more of it.
    """
    try:
        print(text, end="", flush=True)
    except OSError as error:
        # Python would try once more when it exits, and say so in many lines.
        _abandon(sys.stdout)
        raise UnwritableError(error) from error


class UnwritableError(Exception):
    """Standard output cannot be written; `status` is what the command exits with."""

    def __init__(self, error: OSError) -> None:
        self.status = _BROKEN_PIPE if isinstance(error, BrokenPipeError) else _FAILED
        super().__init__(f"standard output cannot be written: {error.strerror or error}")

    def tell(self) -> None:
        """Say so, unless the reader (head, less) has left: then there is nobody to tell."""
        if self.status == _FAILED:
            say(f"error: {self}")


def _abandon(stream: TextIO) -> None:
    with contextlib.suppress(OSError, ValueError):
        devnull = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(devnull, stream.fileno())
        finally:
            os.close(devnull)
