"""``wsfast score``: word sensitivity of texts."""

from __future__ import annotations

import argparse
import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wsfast.cli import arguments, outputs
from wsfast.cli.texts import Batch, add_texts

_WEIGHT_FNS: dict[str, dict[str, Any]] = {
    "softmax": {"weight_fn": "softmax"},
    "relu": {"weight_fn": "relu"},
    "relu-unnormalized": {"weight_fn": "relu", "normalize": False},
}

if TYPE_CHECKING:
    from wsfast.results.sensitivity import SensitivityResult
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
    add_texts(parser)

    output = parser.add_argument_group("output")
    form = output.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print a JSON object a line, one a text")
    form.add_argument("--csv", action="store_true", help="print CSV, one row a word")
    output.add_argument(
        "--plot", type=Path, metavar="OUT.png", help="also draw it; several texts: OUT-0.png, ..."
    )
    arguments.add_progress(output)

    setting = parser.add_argument_group("model")
    arguments.add_model(setting)
    setting.add_argument(
        "--layer", type=_layer, default=0, help='hidden state to take, or "words" for the raw '
        "word embeddings (default 0)",
    )  # fmt: skip
    arguments.add_max_tokens(setting)
    setting.add_argument(
        "--no-scale", action="store_true",
        help="take the model's vectors as they are, and do not scale each to norm sqrt(d)",
    )  # fmt: skip
    setting.add_argument(
        "--weight-fn", choices=_WEIGHT_FNS, default="softmax",
        help="what makes attention weights of scores (default softmax)",
    )  # fmt: skip
    setting.add_argument(
        "--radius", type=arguments.radius, metavar="r",
        help="how far a word may move (default sqrt(d), the norm of a scaled word)",
    )  # fmt: skip
    arguments.add_draws(setting)
    arguments.add_seed(setting)


def _layer(text: str) -> int | str:
    if text == "words" or text.isdecimal():
        return text if text == "words" else int(text)
    raise argparse.ArgumentTypeError(f'expected "words" or 0, 1, …, got {text!r}')


def _run(args: argparse.Namespace) -> int:
    outputs.check_picture("--plot", args.plot)
    batch = Batch(args)
    import wsfast

    def do(number: int, text: str) -> str:
        def embed(most: int | None) -> Embedded:
            return wsfast.embed(
                text, args.model, args.layer, max_tokens=most, scale=not args.no_scale
            )

        embedded = batch.fitted(number, text, embed)
        result = wsfast.raf_sensitivity(
            embedded.X,
            radius=args.radius,
            draws=args.draws,
            seed=args.seed,
            **_WEIGHT_FNS[args.weight_fn],
        )
        result = result.whole_words(embedded)
        if args.plot is not None:
            from wsfast.report.plot import save_figure

            shown = number if batch.several else None
            save_figure(result, arguments.numbered_path(args.plot, shown))
        return _shown(args, number, embedded, result, batch)

    return batch.run(do)


def _shown(
    args: argparse.Namespace,
    number: int,
    embedded: Embedded,
    result: SensitivityResult,
    batch: Batch,
) -> str:
    """What is printed of one text."""
    from wsfast.report import export, table
    from wsfast.report.view import view_of

    view = view_of(result)
    if args.csv:
        stream = io.StringIO()
        if batch.done == 0:
            export.write_csv_header(stream, draws=view.draws is not None)
        export.write_csv_rows(stream, number, view)
        return stream.getvalue()
    if args.json:
        source = {
            "model": embedded.model,
            "layer": embedded.layer,
            "scale": not args.no_scale,
            "radius": result.radius,
            "info": result.info,
        }
        return export.json_line(number, view, source) + "\n"
    color = table.wants_color(sys.stdout)
    lines = [
        table.colored_text(embedded.text, embedded.word_offsets, view, color=color),
        table.word_table(view),
        table.summary(view),
    ]
    return arguments.headed(number, lines, first=batch.done == 0, several=batch.several)
