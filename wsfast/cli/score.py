"""``wsfast score``: word sensitivity of texts."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from wsfast.cli import arguments

if TYPE_CHECKING:
    from wsfast.sensitivity.result import SensitivityResult
    from wsfast.text import Embedded


def add_to(commands: arguments.Commands) -> None:
    """Add the command and its options."""
    parser = commands.add_parser(
        "score",
        help="print the word sensitivity of texts",
        description="Print S_i, the largest relative change of random attention features when "
        "word i moves by at most the norm of an embedding, for every word, and the worst word.",
    )
    parser.set_defaults(run=_run)
    arguments.add_texts(parser)

    output = parser.add_argument_group("output")
    form = output.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print a JSON object a line, one a text")
    form.add_argument("--csv", action="store_true", help="print CSV, one row a word")
    output.add_argument(
        "--plot", type=Path, metavar="OUT.png", help="also draw it; several texts: OUT-0.png, …"
    )
    arguments.add_progress(output)

    setting = parser.add_argument_group("model")
    arguments.add_model(setting)
    setting.add_argument(
        "--layer", type=_layer, default=0, help='hidden state to take, or "words" for the raw '
        "word embeddings (default 0)",
    )  # fmt: skip
    arguments.add_max_tokens(setting)
    arguments.add_draws(setting)
    arguments.add_seed(setting)


def _layer(text: str) -> int | str:
    if text == "words" or text.isdecimal():
        return text if text == "words" else int(text)
    raise argparse.ArgumentTypeError(f'expected "words" or 0, 1, …, got {text!r}')


def _run(args: argparse.Namespace) -> None:
    import wsfast
    from wsfast._extras import import_extra

    if args.plot is not None:
        import_extra("matplotlib", "plots")  # before the work, not after it
    texts = arguments.texts(args)
    several = len(texts) > 1
    for count, (number, text) in enumerate(arguments.progress(texts, args)):
        try:
            embedded = wsfast.embed(text, args.model, args.layer, max_tokens=args.max_tokens)
        except ValueError as error:
            raise arguments.numbered_error(error, number) from error
        result = wsfast.raf_sensitivity(embedded.X, draws=args.draws, seed=args.seed)
        result = result.whole_words(embedded)
        shown = number if several else None
        _print(args, shown, embedded, result, first=count == 0)
        if args.plot is not None:
            from wsfast.report.plot import save_figure

            save_figure(result, arguments.numbered_path(args.plot, shown))


def _print(
    args: argparse.Namespace,
    number: int | None,
    embedded: Embedded,
    result: SensitivityResult,
    *,
    first: bool,
) -> None:
    from wsfast.report import export, table
    from wsfast.report.view import view_of

    view = view_of(result)
    if args.csv:
        if first:
            export.write_csv_header(sys.stdout, draws=view.draws is not None)
        export.write_csv_rows(sys.stdout, number or 0, view)
        return
    if args.json:
        source = {
            "model": embedded.model,
            "layer": embedded.layer,
            "radius": result.radius,
            "info": result.info,
        }
        print(export.json_line(number or 0, view, source))
        return
    if number is not None:
        print(f"{'' if first else chr(10)}text {number}")
    color = table.wants_color(sys.stdout)
    print(table.colored_text(embedded.text, embedded.word_offsets, view, color=color))
    print(table.word_table(view))
    print(table.summary(view))
