"""``wsfast reproduce``: the paper's experiments and a study of trained heads, with a report."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

from wsfast.cli import arguments, outputs, streams
from wsfast.cli.errors import InputError

_MODEL = "minilm"


def add_to(commands: arguments.Commands) -> None:
    """Add the command and its options."""
    parser = commands.add_parser(
        "reproduce",
        help="run the paper's experiments again, or the study of trained heads, and report",
        description="Run an experiment of Bombari & Mondelli (arXiv 2402.02969) again, or the "
        "study of the heads of a trained model (layers): tables (CSV, Parquet), pictures (PNG, "
        "SVG), and report.md, which puts each claim beside what was measured. A run that was "
        "stopped goes on when it is started again.",
    )
    experiments = parser.add_subparsers(required=True, metavar="EXPERIMENT", dest="experiment")
    for name, about in (
        ("sensitivity", "word sensitivity against the number of words (Theorems 1 to 3)"),
        ("generalization", "error on texts whose label one word turns round"),
        ("attention-map", "attention maps of two texts that differ in one word (Figure 1)"),
        ("layers", "word sensitivity of trained heads on IMDb reviews, beside shuffled twins"),
    ):
        experiment = experiments.add_parser(name, help=about, description=f"Reproduce: {about}.")
        experiment.set_defaults(run=_run)
        setting = experiment.add_argument_group("setting")
        if name in ("sensitivity", "generalization"):
            setting.add_argument(
                "--dataset", choices=("imdb", "synthetic"), default="imdb",
                help="IMDb reviews, or random texts that need no model (default imdb)",
            )  # fmt: skip
        arguments.add_model(setting)
        experiment.set_defaults(model=None)  # none was given: random texts have no model
        arguments.add_seed(setting)
        setting.add_argument(
            "--quick", action="store_true",
            help="smaller and fewer texts, at most two minutes on two cores",
        )  # fmt: skip
        if name == "sensitivity":
            setting.add_argument(
                "--bound", action="store_true",
                help="also prove S of random attention from above; that of random features is",
            )  # fmt: skip
        output = experiment.add_argument_group("output")
        output.add_argument(
            "--out", type=Path, required=True, metavar="DIR", help="folder to write into"
        )
        arguments.add_progress(output)


def _run(args: argparse.Namespace) -> int:
    from wsfast._extras import import_extra

    outputs.check_folder("--out", args.out)
    import_extra("matplotlib", "plots")  # before the work, not after it
    options = {
        "out": args.out,
        "command": _command(args),
        "progress": sys.stderr.isatty() and not args.no_progress,
    }
    if args.experiment == "attention-map":
        from wsfast.reproduce import attention_map

        chosen = attention_map.settings(args.model or _MODEL, args.seed, quick=args.quick)
        attention_map.run(chosen, **options)
    elif args.experiment == "layers":
        from wsfast.reproduce import layers

        heads = layers.settings(args.model or _MODEL, args.seed, quick=args.quick)
        layers.run(heads, **options)
    elif args.experiment == "sensitivity":
        from wsfast.reproduce import sensitivity

        study = sensitivity.settings(
            args.dataset, _model(args), args.seed, quick=args.quick, bound=args.bound
        )
        sensitivity.run(study, **options)
    else:
        from wsfast.reproduce import generalization

        trial = generalization.settings(args.dataset, _model(args), args.seed, quick=args.quick)
        generalization.run(trial, **options)
    streams.write(f"{args.out / 'report.md'}\n")
    return 0


def _model(args: argparse.Namespace) -> str | None:
    """The encoder of real texts; None for random ones."""
    if args.dataset == "imdb":
        return args.model or _MODEL
    if args.model is not None:
        raise InputError("--model goes with --dataset imdb")
    return None


def _command(args: argparse.Namespace) -> str:
    """The command that does the same again."""
    words = ["wsfast", "reproduce", args.experiment]
    for name in ("dataset", "model", "seed", "out"):
        if getattr(args, name, None) is not None:
            words += [f"--{name}", str(getattr(args, name))]
    flags = [f"--{name}" for name in ("quick", "bound") if getattr(args, name, False)]
    return shlex.join([*words, *flags])
