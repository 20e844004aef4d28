"""``wsfast compare``: attention of two texts that differ in one word."""

from __future__ import annotations

import argparse
from pathlib import Path

from wsfast.cli import arguments, outputs, streams
from wsfast.cli.errors import InputError


def add_to(commands: arguments.Commands) -> None:
    """Add the command and its options."""
    parser = commands.add_parser(
        "compare",
        help="print how much attention changes between two texts that differ in one word",
        description="Print how much random attention features and the attention maps of trained "
        "heads change between two texts that differ in one word.",
    )
    parser.set_defaults(run=_run)
    parser.add_argument("a", metavar="TEXT", help="a text, in quotes")
    parser.add_argument("b", metavar="TEXT", help="the same with one word replaced")

    output = parser.add_argument_group("output")
    output.add_argument("--json", action="store_true", help="print a JSON object, with the maps")
    output.add_argument("--plot", type=Path, metavar="OUT.png", help="also draw the attention maps")

    setting = parser.add_argument_group("model")
    arguments.add_model(setting)
    arguments.add_seed(setting)


def _run(args: argparse.Namespace) -> int:
    outputs.check_picture("--plot", args.plot)
    import wsfast
    from wsfast.report import comparison as report
    from wsfast.text.tokens import TooLongError

    try:
        comparison = wsfast.compare(args.a, args.b, args.model, seed=args.seed)
    except TooLongError as error:
        raise InputError(
            f"TEXT must have at most {error.limit} tokens, special ones included, as the model has "
            f"positions, got {error.count}"
        ) from error
    if args.plot is not None:
        report.save_figure(comparison, args.plot)
    lines = [report.json_line(comparison)] if args.json else report.lines(comparison)
    streams.write("\n".join([*lines, ""]))
    return 0
