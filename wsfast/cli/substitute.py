"""``wsfast substitute``: the real words that change a text most."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from wsfast.cli import arguments

if TYPE_CHECKING:
    from wsfast.text.substitute import Replacements


def add_to(commands: arguments.Commands) -> None:
    """Add the command and its options."""
    parser = commands.add_parser(
        "substitute",
        help="print the real words that change a text most",
        description="Replace every word of a text by every word of the model's vocabulary, and "
        "print the replacements that change random attention features most, and how near they come "
        "to the worst case over all vectors.",
    )
    parser.set_defaults(run=_run)
    arguments.add_texts(parser)

    search = parser.add_argument_group("search")
    search.add_argument(
        "--position", type=_position, metavar="WORD|i", help="replace this word of the text, or "
        "the token of this number (default: each of them)",
    )  # fmt: skip
    search.add_argument(
        "--top", type=arguments.positive, default=20, metavar="K",
        help="how many replacements to print (default 20)",
    )  # fmt: skip
    search.add_argument(
        "--candidates", type=Path, metavar="FILE", help="try the words of this file, one a line"
    )
    search.add_argument(
        "--tokens", choices=("words", "whole", "all"), default="words",
        help="else try all words of the vocabulary, also numbers and punctuation (whole), or also "
        "pieces of words (all)",
    )  # fmt: skip
    search.add_argument(
        "--harmless", action="store_true", help="print those that change it least instead"
    )

    output = parser.add_argument_group("output")
    form = output.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print a JSON object a line, one a text")
    form.add_argument("--csv", action="store_true", help="print CSV, one row a replacement")
    output.add_argument(
        "--html", type=Path, metavar="OUT.html", help="also write a page that shows it offline"
    )
    output.add_argument(
        "--plot", type=Path, metavar="OUT.png",
        help="also draw a heat map; several texts: OUT-0.png, …",
    )  # fmt: skip
    arguments.add_progress(output)

    setting = parser.add_argument_group("model")
    arguments.add_model(setting)
    arguments.add_max_tokens(setting)
    arguments.add_draws(setting)
    arguments.add_seed(setting)


def _position(text: str) -> int | str:
    return int(text) if text.isdecimal() else text


def _run(args: argparse.Namespace) -> None:
    import wsfast
    from wsfast._extras import import_extra

    if args.plot is not None:
        import_extra("matplotlib", "plots")  # before the work, not after it
    texts = arguments.texts(args)
    candidates = None if args.candidates is None else _words(args.candidates)
    several = len(texts) > 1
    all_found = []
    for count, (number, text) in enumerate(arguments.progress(texts, args)):
        try:
            found = wsfast.substitute(
                text,
                args.model,
                position=args.position,
                candidates=candidates,
                top_k=args.top,
                largest=not args.harmless,
                tokens=args.tokens,
                max_tokens=args.max_tokens,
                draws=args.draws,
                seed=args.seed,
            )
        except ValueError as error:
            raise arguments.numbered_error(error, number) from error
        shown = number if several else None
        _print(args, shown, found, first=count == 0)
        if args.html is not None:
            all_found.append(found)
        if args.plot is not None:
            from wsfast.report.substitution import save_figure

            save_figure(found.result, arguments.numbered_path(args.plot, shown))
    if args.html is not None:
        from wsfast.report.replacements import page

        args.html.write_text(page(all_found), encoding="utf-8")


def _words(path: Path) -> list[str]:
    from wsfast.text.files import read_texts

    return [word for _, word in read_texts(path)]


def _print(
    args: argparse.Namespace, number: int | None, found: Replacements, *, first: bool
) -> None:
    from wsfast.report import replacements
    from wsfast.report.table import printable

    if args.csv:
        if first:
            replacements.write_csv_header(sys.stdout)
        replacements.write_csv_rows(sys.stdout, number or 0, found.replacements)
        return
    if args.json:
        print(replacements.json_line(number or 0, found))
        return
    if number is not None:
        print(f"{'' if first else chr(10)}text {number}")
    print(printable(found.embedded.text))
    print(replacements.table(found.replacements))
    for line in replacements.gap_lines(found):
        print(line)
