"""``wsfast score``: word sensitivity of texts."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wsfast.cli import arguments, outputs
from wsfast.cli.errors import InputError
from wsfast.cli.texts import Batch, add_texts

_WEIGHT_FNS: dict[str, dict[str, Any]] = {
    "softmax": {"weight_fn": "softmax"},
    "relu": {"weight_fn": "relu"},
    "relu-unnormalized": {"weight_fn": "relu", "normalize": False},
}

# As in perturbation/change.py, which the command does not import for its help.
_PERTURBATIONS = ("ball", "mask", "zero", "mean")

if TYPE_CHECKING:
    from wsfast.results.scores import Scores


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
    arguments.add_form(output, "a word")
    output.add_argument(
        "--plot", type=Path, metavar="OUT.png", help="also draw it; several texts: OUT-0.png, ..."
    )
    arguments.add_progress(output)

    setting = parser.add_argument_group("model")
    arguments.add_model(setting)
    arguments.add_layer(setting)
    arguments.add_max_tokens(setting)
    arguments.add_unit(setting)
    setting.add_argument(
        "--no-scale", action="store_true",
        help="take the model's vectors as they are, and do not scale each to norm sqrt(d)",
    )  # fmt: skip
    setting.add_argument(
        "--weight-fn", choices=_WEIGHT_FNS, default="softmax",
        help="what makes attention weights of scores (default softmax)",
    )  # fmt: skip
    setting.add_argument(
        "--perturbation", choices=_PERTURBATIONS, default="ball",
        help="how a word changes: to any within --radius (default), hidden from all attention, "
        "replaced by 0 or by the mean word",
    )  # fmt: skip
    setting.add_argument(
        "--radius", type=arguments.radius, metavar="r",
        help="how far a word may move (default sqrt(d), the norm of a scaled word)",
    )  # fmt: skip
    setting.add_argument(
        "--bound", action="store_true",
        help="also prove an upper bound of every S_i, which takes longer; only of the ball",
    )  # fmt: skip
    arguments.add_draws(setting)
    arguments.add_seed(setting)


def _run(args: argparse.Namespace) -> int:
    if args.bound and args.perturbation != "ball":
        raise InputError(f"--bound goes with --perturbation ball, got {args.perturbation}")
    outputs.check_picture("--plot", args.plot)
    batch = Batch(args)
    import wsfast

    def do(number: int, text: str) -> str:
        scores = wsfast.score(
            text,
            args.model,
            args.layer,
            unit=args.unit,
            radius=args.radius,
            perturbation=args.perturbation,
            bound=args.bound,
            scale=not args.no_scale,
            draws=args.draws,
            seed=args.seed,
            max_tokens=args.max_tokens,
            long=args.long,
            **_WEIGHT_FNS[args.weight_fn],
        )
        for cut in scores.cut.values():
            batch.say_cut(number, *cut)
        if args.plot is not None:
            from wsfast.report.sensitivity import save_figure

            shown = number if batch.several else None
            save_figure(scores.result, arguments.numbered_path(args.plot, shown))
        return _shown(args, number, scores, batch)

    return batch.run(do)


def _shown(args: argparse.Namespace, number: int, scores: Scores, batch: Batch) -> str:
    """What is printed of one text."""
    from wsfast.report import scores as report
    from wsfast.report.table import wants_color

    first = batch.done == 0
    if args.csv:
        return report.csv_rows(scores, 0, number=number, header=first)
    if args.json:
        return f"{report.json_line(scores, 0, number=number)}\n"
    lines = report.lines(scores, 0, color=wants_color(sys.stdout))
    return arguments.headed(number, lines, first=first, several=batch.several)
