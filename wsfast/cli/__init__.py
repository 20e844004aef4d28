"""The command ``wsfast``: reads texts, calls the library, prints what it returns."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
from collections.abc import Sequence
from importlib import import_module

from wsfast._version import __version__
from wsfast.cli import compare, corpus, errors, layers, reproduce, score, streams, substitute

_INTERNAL = 1
_BAD_INPUT = 2
_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments after the program's name; those of the process by default.

    Returns
    -------
    int
        0; 1 for a fault of wsfast itself (its traceback is on stderr); 2 for bad input, a missing
        extra or an output that cannot be written (one line on stderr says which); 3 where texts
        were left out and the others done (a line for each); 130 after Ctrl-C; 141 where the reader
        of stdout has left.
    """
    try:
        with streams.prepared():
            try:
                status = _status(argv)
                streams.write("")  # what show_config and argparse have printed
            except streams.UnwritableError as failure:
                failure.tell()
                status = failure.status
            return status
    except KeyboardInterrupt:
        streams.say("interrupted")
        return _INTERRUPTED


def _status(argv: Sequence[str] | None) -> int:
    try:
        parser = _parser()
        _complete(parser)
        args = parser.parse_args(argv)
        errors.read_as_utf_8(args)
        status: int = args.run(args)
    except SystemExit as stop:  # of argparse, which has printed the help or the error
        return stop.code if isinstance(stop.code, int) else _BAD_INPUT
    except streams.UnwritableError:
        raise
    except Exception as error:
        if errors.is_interruption(error):
            raise KeyboardInterrupt from error
        if errors.is_refusal(error):
            streams.say(f"error: {errors.with_flags(error)}")
            return _BAD_INPUT
        streams.say(errors.report(error))
        return _INTERNAL
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="wsfast", description="How much does an attention layer react when one word changes?"
    )
    parser.add_argument("--version", action="version", version=f"wsfast {__version__}")
    parser.set_defaults(run=lambda _: parser.parse_args(["--help"]))
    commands = parser.add_subparsers(metavar="COMMAND")

    info = commands.add_parser("info", help="print versions, what was built and what is used")
    info.set_defaults(run=_info)
    score.add_to(commands)
    substitute.add_to(commands)
    layers.add_to(commands)
    compare.add_to(commands)
    corpus.add_to(commands)
    reproduce.add_to(commands)
    return parser


def _complete(parser: argparse.ArgumentParser) -> None:
    """Answer a shell that asks for completions, where argcomplete is installed; does not return."""
    if "_ARGCOMPLETE" not in os.environ:
        return
    with contextlib.suppress(ImportError):
        import_module("argcomplete").autocomplete(parser)


def _info(_: argparse.Namespace) -> int:
    from wsfast import show_config

    with contextlib.redirect_stdout(io.StringIO()) as printed:
        show_config()
    streams.write(printed.getvalue())
    return 0
