"""The command ``wsfast``: reads texts, calls the library, prints what it returns."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from wsfast.cli import compare, reproduce, score, substitute

_BAD_INPUT = 2
_INTERRUPTED = 130
_BROKEN_PIPE = 141


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments after the program's name; those of the process by default.

    Returns
    -------
    int
        0; 2 for bad input or a missing extra (one line on stderr says which); 130 after Ctrl-C.
    """
    args = _parser().parse_args(argv)
    try:
        # A terminal may lack a character of a text; that must not end the run.
        if hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(errors="backslashreplace")
        args.run(args)
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("wsfast: interrupted", file=sys.stderr)
        return _INTERRUPTED
    except BrokenPipeError:
        # The reader (head, less) has left: nothing more to say, also not when Python exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _BROKEN_PIPE
    except (ImportError, OSError, ValueError) as error:
        print(f"wsfast: error: {error}", file=sys.stderr)
        return _BAD_INPUT
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="wsfast", description="How much does an attention layer react when one word changes?"
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    info = commands.add_parser("info", help="print versions, what was built and what is used")
    info.set_defaults(run=_info)
    score.add_to(commands)
    substitute.add_to(commands)
    compare.add_to(commands)
    reproduce.add_to(commands)
    return parser


def _info(_: argparse.Namespace) -> None:
    from wsfast import show_config

    show_config()
