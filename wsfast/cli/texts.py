"""The texts of a command: where they come from, and what becomes of one that cannot be done."""

from __future__ import annotations

import argparse
import os
import select
import stat
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, suppress
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

from wsfast.cli import errors, streams
from wsfast.cli.errors import InputError

if TYPE_CHECKING:
    from wsfast._read_texts import Row
    from wsfast.text.tokens import TooLongError

_FAULT = 1
_BAD_INPUT = 2
_LEFT_OUT = 3

_PATIENCE = 2.0  # seconds without a text on standard input, until a hint


def add_texts(parser: argparse.ArgumentParser) -> None:
    """Texts from the command line, from a file or from a pipe; see `Batch`."""
    source = parser.add_argument_group(
        "texts", "Without TEXT and --file texts are read from a pipe, one a line."
    )
    source.add_argument(
        "text", nargs="*", metavar="TEXT", help="a text, in quotes; - for standard input"
    )
    source.add_argument(
        "--file", type=Path, help="read texts from a table (.csv, .tsv, .jsonl, .ndjson, .parquet) "
        "or from any other file, one a line; compressed ones end in .gz",
    )  # fmt: skip
    source.add_argument(
        "--column", help='column of the table that holds the texts (default "text")'
    )
    source.add_argument(
        "--long", choices=("cut", "skip", "fail"), default="cut",
        help="what to do with a text of more tokens than --max-tokens or the model takes: cut it, "
        "leave it out, or end there (default cut)",
    )  # fmt: skip


class UnfitTextError(InputError):
    """A text that cannot be done, where others may be."""


class Batch:
    """The texts that a command was given, done one after another.

    One that cannot be done is left out: a line on stderr says which and why, and the others are
    done. So is one at which wsfast itself fails, after its traceback.

    Attributes
    ----------
    several : bool
        Whether there is more than one.
    done : int
        How many have been done.
    """

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        rows = _rows(args)
        first = list(islice(rows, 2))
        if not first:
            raise InputError(f"there are no texts in {args.file or 'standard input'}")
        self.several = len(first) > 1
        self.done = 0
        self._rows = chain(first, rows)
        self._left_out = self._faults = 0
        self._say = streams.say

    def run(self, do: Callable[[int, str], str]) -> int:
        """Do each text and print at once what comes of it; returns the exit status.

        Parameters
        ----------
        do : function
            From the number of a text in its file and the text to what is printed.
        """
        with closing(self._progress()) as rows:
            for row in rows:
                printed = self._done(row, do)
                if printed is not None:
                    streams.write(printed)
                    self.done += 1
        if self._left_out:
            were = "1 text was" if self._left_out == 1 else f"{self._left_out} texts were"
            streams.say(f"{were} left out, {self.done} done")
        if self._faults:
            return _FAULT
        return 0 if not self._left_out else _LEFT_OUT if self.done else _BAD_INPUT

    def _done(self, row: Row, do: Callable[[int, str], str]) -> str | None:
        """What is printed of a text; None where it is left out."""
        try:
            if row.problem is not None:
                raise UnfitTextError(row.problem)
            return self._within(row, do)
        except Exception as error:
            self._leave_out(row.number, error)
        return None

    def _within(self, row: Row, do: Callable[[int, str], str]) -> str:
        """What is printed of a text; a refusal of its length says what --long is."""
        from wsfast.text.tokens import TooLongError

        try:
            return do(row.number, row.text)
        except TooLongError as error:
            raise self._too_long(row.number, error) from error

    def _leave_out(self, number: int, error: Exception) -> None:
        """Count a text that could not be done and say why; the error, where it ends the run."""
        refused = errors.is_refusal(error)
        if errors.is_interruption(error) or not (refused or self.several):
            raise error
        reason = errors.with_flags(error, number)
        if isinstance(error, UnfitTextError):
            reason = f"text {number}: {reason}"
        if refused and (not self.several or self._ends(error)):
            raise InputError(reason) from error
        if not refused:
            if not self._faults:
                self._say(errors.report(error))
            self._faults += 1
            reason = f"{type(error).__name__}: {reason}"
        self._left_out += 1
        reason = reason.removeprefix(f"text {number}: ")
        if reason.startswith(f"text {number} must"):
            reason = f"it{reason.removeprefix(f'text {number}')}"
        self._say(f"text {number} is left out: {reason}")

    def _ends(self, error: Exception) -> bool:
        return not isinstance(error, UnfitTextError) and errors.is_of_all_texts(error)

    def _progress(self) -> Generator[Row, None, None]:
        """Show a bar on stderr where the results go elsewhere: a terminal shows them as it is."""
        hidden = self._args.no_progress or not self.several
        if hidden or sys.stdout.isatty() or not sys.stderr.isatty():
            yield from self._rows
            return
        from tqdm import tqdm

        # A file is not read to its end only to count it.
        total = len(self._args.text) if self._args.text not in ([], ["-"]) else None
        with tqdm(self._rows, total=total, unit="text", file=sys.stderr) as bar:
            self._say = lambda line: bar.write(f"wsfast: {line}", file=sys.stderr)
            yield from bar

    def say_cut(self, number: int, tokens: int, kept: int) -> None:
        """Say that only the beginning of a text was done."""
        self._say(f"text {number}: {tokens} tokens, cut to the first {kept} (--long)")

    def _too_long(self, number: int, error: TooLongError) -> InputError:
        """What is said of a text that --long does not let be cut."""
        message = f"{error.count} tokens are more than {error.limit}"
        if self._args.long == "skip":
            return UnfitTextError(f"{message} (--long skip)")
        return InputError(f"text {number}: {message} (--long fail)")


def read_words(path: Path) -> list[str]:
    """The words of a file, one a line or in a table; an error for one that is no text."""
    from wsfast._read_texts import read_texts

    words = []
    for number, word, problem, _ in read_texts(path):
        if problem is not None:
            raise InputError(f"--candidates: row {number} of {str(path)!r}: {problem}")
        words.append(word)
    return words


# -- where they come from --------------------------------------------------------------------------


def _rows(args: argparse.Namespace) -> Iterator[Row]:
    from wsfast._read_texts import Columns, read_stream, read_texts, row_of

    if args.text and args.file is not None:
        raise InputError("give either TEXT or --file")
    if args.column is not None and args.file is None:
        raise InputError("--column goes with --file")
    piped = args.text == ["-"] or str(args.file) == "-"
    if args.file is not None and not piped:
        return read_texts(args.file, args.column)
    if piped or not args.text:
        if sys.stdin is None or not (piped or _is_piped()):
            raise InputError("give a TEXT in quotes, --file FILE, or texts from a pipe")
        _hint_if_nothing_comes()
        return read_stream(sys.stdin.buffer, "standard input", Columns(args.column))
    if "-" in args.text:
        raise InputError("- stands for standard input, and goes with no other TEXT")
    if len(args.text) > 1 and not any(len(text.split()) > 1 for text in args.text):
        sentence = " ".join(args.text[:8]) + (" ..." if len(args.text) > 8 else "")
        streams.say(
            f"hint: these are {len(args.text)} texts of one word; one text of them all has quotes "
            f'around it: "{sentence}"'
        )
    return (row_of(number, text) for number, text in enumerate(args.text))


def _is_piped() -> bool:
    """Whether something is piped in: not a terminal, and not the /dev/null of a scheduled job."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError):  # not a stream of the system
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


def _hint_if_nothing_comes() -> None:
    """Say what is awaited, at once on a terminal, after a while where a pipe stays silent."""
    waiting = sys.stdin.isatty()
    with suppress(OSError, ValueError):  # Windows selects among sockets only
        waiting = waiting or not select.select([sys.stdin], [], [], _PATIENCE)[0]
    if waiting:
        streams.say("reading texts from standard input, one a line (Ctrl-D ends them)")
