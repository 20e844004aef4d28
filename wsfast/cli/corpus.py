"""``wsfast corpus``: many texts measured, summed up, and held against rules."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from wsfast.cli import arguments, outputs, streams

# As in the modules of corpus/, which the command does not import for its help.
_WHAT = ("ball", "mask", "substitute", "layers")
_ENGINES = ("local", "ray")
_SHARD_ROWS = 256
_RADIUS = 0.1
_LISTS = ("S_i", "mask_i", "substitute_i")
_LEAST_TEXTS = 5

_FAILED = 1
_LEFT_OUT = 3


def add_to(commands: arguments.Commands) -> None:
    """Add the command and its parts."""
    parser = commands.add_parser(
        "corpus",
        help="measure many texts, in a folder that a run which was stopped goes on with",
        description="Measure many texts, on all cores or on a Ray cluster.",
    )
    parts = parser.add_subparsers(required=True, metavar="PART")
    _add_score(parts)
    _add_summary(parts)
    _add_audit(parts)


def _add_score(parts: arguments.Commands) -> None:
    parser = parts.add_parser(
        "score",
        help="measure every text of some files",
        description="Measure every text of some files. A run that was stopped goes on where it "
        "was when the same command is given again. A row that cannot be done has an error.",
    )
    parser.set_defaults(run=_score)
    source = parser.add_argument_group("texts")
    source.add_argument(
        "files", type=Path, nargs="+", metavar="FILE", help="tables (.csv, .tsv, .jsonl, .ndjson, "
        ".parquet), or files with one text a line; compressed ones end in .gz",
    )  # fmt: skip
    source.add_argument(
        "--column", default="text", help='column that holds the texts (default "text")'
    )
    source.add_argument("--id", help="column of identifiers, which the shards keep")
    source.add_argument("--label", help="column of labels, which the shards keep")
    source.add_argument(
        "--limit", type=arguments.positive, metavar="N", help="only the first N rows"
    )

    what = parser.add_argument_group("what is measured")
    what.add_argument(
        "--what", choices=_WHAT, nargs="+", default=["ball"],
        help="the worst case over the ball (default), each word hidden, each word replaced by the "
        "best of the vocabulary, or the heads of the trained model",
    )  # fmt: skip
    arguments.add_layer(what)
    arguments.add_unit(what)
    what.add_argument(
        "--radius", type=arguments.radius, metavar="r",
        help="how far a word may move (default sqrt(d), the norm of a word)",
    )  # fmt: skip
    what.add_argument(
        "--full", action="store_true",
        help="search at every word as long as where S is attained, which takes about twice as long",
    )  # fmt: skip
    what.add_argument(
        "--bound", action="store_true", help="also prove upper bounds, which takes longer"
    )
    what.add_argument(
        "--layers", type=arguments.natural, nargs="+", metavar="l",
        help="with --what layers: these alone, from 0",
    )  # fmt: skip
    what.add_argument(
        "--heads", type=arguments.natural, nargs="+", metavar="h",
        help="with --what layers: these of each, from 0",
    )  # fmt: skip
    what.add_argument(
        "--relative-radius", type=arguments.radius, default=_RADIUS, metavar="r",
        help="with --what layers: how far a word may move, in units of the norm of its own vector "
        f"(default {_RADIUS})",
    )  # fmt: skip

    setting = parser.add_argument_group("model")
    arguments.add_model(setting)
    arguments.add_max_tokens(setting)
    setting.add_argument(
        "--long", choices=("cut", "skip"), default="cut",
        help="whether a text of more tokens than the model takes is cut (default), or has an error",
    )  # fmt: skip
    arguments.add_seed(setting)

    running = parser.add_argument_group("run")
    running.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="folder to write into"
    )
    running.add_argument(
        "--engine", choices=_ENGINES, default="local",
        help="processes of this machine (default), or actors of Ray",
    )  # fmt: skip
    running.add_argument(
        "--address", help="of a Ray cluster (default: RAY_ADDRESS, or this machine alone)"
    )
    running.add_argument(
        "--workers", type=arguments.positive, metavar="N",
        help="processes, with a core each (default: as many as there are cores); 1 begins none",
    )  # fmt: skip
    running.add_argument(
        "--shard-rows", type=arguments.positive, default=_SHARD_ROWS, metavar="N",
        help="rows of a Parquet file, and what is measured again where a process is killed "
        f"(default {_SHARD_ROWS})",
    )  # fmt: skip
    arguments.add_progress(running)


def _score(args: argparse.Namespace) -> int:
    outputs.check_folder("--out", args.out)
    from wsfast import corpus

    scorer = corpus.Scorer(
        args.model,
        args.what,
        column=args.column,
        layer=args.layer,
        unit=args.unit,
        radius=args.radius,
        quick=not args.full,
        bound=args.bound,
        layers=args.layers,
        heads=args.heads,
        relative_radius=args.relative_radius,
        max_tokens=args.max_tokens,
        long=args.long,
        seed=args.seed,
    )
    done = corpus.score(
        args.files,
        args.out,
        scorer,
        id=args.id,
        label=args.label,
        engine=args.engine,
        address=args.address,
        workers=args.workers,
        shard_rows=args.shard_rows,
        limit=args.limit,
        progress=sys.stderr.isatty() and not args.no_progress,
    )
    if done.errors:
        were = "1 text has" if done.errors == 1 else f"{done.errors} texts have"
        streams.say(f"{were} an error, {done.rows - done.errors} have none")
    streams.write(f"{done.path}\n")
    return _LEFT_OUT if done.errors else 0


def _add_summary(parts: arguments.Commands) -> None:
    parser = parts.add_parser(
        "summary",
        help="sum up a folder of measured texts: by word, position, length and label",
        description="Sum up a folder that `score` has filled: counts, means with intervals over "
        "texts, and quantiles, by word, position, length and label.",
    )
    parser.set_defaults(run=_summary)
    parser.add_argument("corpus", type=Path, metavar="DIR", help="the folder")
    parser.add_argument(
        "--of", choices=_LISTS, help="which values (default: the first of these that there are)"
    )
    parser.add_argument(
        "--least-texts", type=arguments.positive, default=_LEAST_TEXTS, metavar="N",
        help="how many texts must have a word to be listed among the most and the least sensitive "
        f"(default {_LEAST_TEXTS})",
    )  # fmt: skip
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="also write the tables as Parquet, and pictures"
    )


def _summary(args: argparse.Namespace) -> int:
    if args.out is not None:
        outputs.check_folder("--out", args.out)
    from wsfast import corpus

    found = corpus.Corpus(args.corpus).summary(args.of, least_texts=args.least_texts)
    if args.out is not None:
        found.save(args.out)
    streams.write(f"{found}\n")
    return 0


def _add_audit(parts: arguments.Commands) -> None:
    parser = parts.add_parser(
        "audit",
        help="hold rules against a folder of measured texts; exit status 1 where one fails",
        description="Hold rules against a folder that `score` has filled, and compare it with "
        "another run, text by text. Exit status: 0; 1 where a rule fails; 2 for bad usage.",
    )
    parser.set_defaults(run=_audit)
    parser.add_argument("corpus", type=Path, metavar="DIR", help="the folder")
    parser.add_argument(
        "--rule", action="append", default=[], metavar="SQL", help="a condition on aggregates over "
        'the texts, such as "quantile_cont(upper, 0.95) < 4.5"; several: give it again',
    )  # fmt: skip
    parser.add_argument(
        "--baseline", type=Path, metavar="DIR", help="the same texts by another model, checkpoint "
        "or version; rules know its values as base_S and so on",
    )  # fmt: skip
    arguments.add_html(parser)
    parser.add_argument(
        "--junit", type=Path, metavar="OUT.xml", help="also write JUnit XML, as Jenkins reads it"
    )


def _audit(args: argparse.Namespace) -> int:
    outputs.check_page("--html", args.html)
    outputs.check_xml("--junit", args.junit)
    from wsfast import corpus

    baseline = None if args.baseline is None else corpus.Corpus(args.baseline)
    found = corpus.Corpus(args.corpus).audit(args.rule, baseline)
    if args.html is not None:
        found.to_html(args.html)
    if args.junit is not None:
        found.to_junit(args.junit)
    streams.write(f"{found}\n")
    return 0 if found.passed else _FAILED
