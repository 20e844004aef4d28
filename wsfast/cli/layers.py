"""``wsfast layers``: word sensitivity of the heads of a trained model, on texts."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wsfast.cli import arguments, outputs
from wsfast.cli.errors import InputError
from wsfast.cli.texts import Batch, add_texts

# As in studies/layers.py, maps/layer_input.py, perturbation/change.py and
# text/layer_sensitivity.py, which the command does not import for its help.
_COMBINE = ("each", "concatenated", "projected")
_AT = ("attention", "residual")
_PERTURBATIONS = ("ball", "mask", "zero", "mean")
_RADII = (0.1, 1.0)
_CONTROL_DRAWS = 8

if TYPE_CHECKING:
    from wsfast.results.layers import LayerSensitivityResult


def add_to(commands: arguments.Commands) -> None:
    """Add the command and its options."""
    parser = commands.add_parser(
        "layers",
        help="print the word sensitivity of every attention head of a trained model",
        description="Print, for every attention head of a trained model, S_i: the largest relative "
        "change of its output when the vector of word i moves, all else that the layer reads kept. "
        "A layer's sensitivity is not the model's.",
        epilog="TEXT stands before --layers, --heads and the radii, which take several values, or "
        "after -- behind them.",
    )
    parser.set_defaults(run=_run)
    add_texts(parser)

    what = parser.add_argument_group("what is measured")
    what.add_argument(
        "--layers", type=arguments.natural, nargs="+", metavar="l",
        help="these layers, from 0 (default: all)",
    )  # fmt: skip
    what.add_argument(
        "--heads", type=arguments.natural, nargs="+", metavar="h",
        help="these heads of each, from 0 (default: all)",
    )  # fmt: skip
    what.add_argument(
        "--combine", choices=_COMBINE, default="each",
        help="each head (default), all of them side by side, or what the output map makes of them",
    )  # fmt: skip
    what.add_argument(
        "--at", choices=_AT, default="attention",
        help="where words move: at the input of the attention module (default), or in the residual "
        "stream before it",
    )  # fmt: skip
    what.add_argument(
        "--perturbation", choices=_PERTURBATIONS, default="ball",
        help="how a word changes: to any within a radius (default), hidden from all attention, "
        "replaced by 0 or by the mean word",
    )  # fmt: skip
    distance = what.add_mutually_exclusive_group()
    distance.add_argument(
        "--relative-radius", type=arguments.radius, nargs="+", metavar="r",
        help="how far a word may move, in units of the norm of its own vector; each of several is "
        f"searched (default {' and '.join(f'{radius:g}' for radius in _RADII)})",
    )  # fmt: skip
    distance.add_argument(
        "--radius", type=arguments.radius, nargs="+", metavar="r", help="how far, as a plain length"
    )
    what.add_argument(
        "--bound", action="store_true",
        help="also prove an upper bound of every S_i of single heads, which takes longer",
    )  # fmt: skip
    what.add_argument(
        "--control", choices=("shuffled",),
        help="the same with weights whose entries are shuffled, on the same hidden states",
    )  # fmt: skip
    what.add_argument(
        "--control-draws", type=arguments.positive, metavar="N",
        help=f"how often they are shuffled (default {_CONTROL_DRAWS})",
    )  # fmt: skip

    output = parser.add_argument_group("output")
    arguments.add_form(output, "an S_i")
    arguments.add_html(output)
    output.add_argument(
        "--plot", type=Path, metavar="OUT.png",
        help="also draw a heat map of the heads at the first radius; several texts: OUT-0.png, ...",
    )  # fmt: skip
    arguments.add_progress(output)

    setting = parser.add_argument_group("model")
    arguments.add_model(setting)
    arguments.add_max_tokens(setting)
    arguments.add_seed(setting, "the search and of the shuffles")


def _run(args: argparse.Namespace) -> int:
    outputs.check_picture("--plot", args.plot)
    outputs.check_page("--html", args.html)
    options = _options(args)
    batch = Batch(args)
    import wsfast
    from wsfast.report import layers as report
    from wsfast.text.layer_sensitivity import Prepared

    model = Prepared(args.model)
    # Several texts have a bar of their own.
    progress = not args.no_progress and not batch.several and sys.stderr.isatty()
    results = []

    def do(number: int, text: str) -> str:
        result = wsfast.layer_sensitivity(model, text, progress=progress, **options)
        for cut in result.cut.values():
            batch.say_cut(number, *cut)
        if args.plot is not None:
            shown = number if batch.several else None
            report.save_figure(result, arguments.numbered_path(args.plot, shown))
        if args.html is not None:
            results.append(result)
        return _shown(args, number, result, batch)

    status = batch.run(do)
    if results:
        outputs.write_page(args.html, report.page(results))
    return status


def _options(args: argparse.Namespace) -> dict[str, Any]:
    """What the library is asked for, of every text alike."""
    if args.control_draws is not None and args.control is None:
        raise InputError("--control-draws goes with --control")
    return {
        "layers": args.layers,
        "heads": args.heads,
        "combine": args.combine,
        "perturbation": args.perturbation,
        "radius": args.radius,
        "relative_radius": args.relative_radius,
        "at": args.at,
        "bound": args.bound,
        "control": args.control,
        "control_draws": args.control_draws or _CONTROL_DRAWS,
        "seed": args.seed,
        "max_tokens": args.max_tokens,
        "long": args.long,
    }


def _shown(
    args: argparse.Namespace, number: int, result: LayerSensitivityResult, batch: Batch
) -> str:
    """What is printed of one text."""
    from wsfast.report import layers as report

    first = batch.done == 0
    if args.csv:
        return report.csv_rows(result, number=number, header=first)
    if args.json:
        return f"{report.json_line(result, number=number)}\n"
    return arguments.headed(number, report.lines(result), first=first, several=batch.several)
