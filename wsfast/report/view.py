"""One text of a result, in the form that every table and picture takes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from wsfast.sensitivity.arrays import Array, to_numpy

if TYPE_CHECKING:
    from wsfast.sensitivity.result import SensitivityResult


@dataclass(frozen=True)
class Row:
    """S_i of one position; `low` and `high` end the interval where draws were averaged."""

    position: int
    word: str
    value: float
    low: float | None = None
    high: float | None = None

    @property
    def label(self) -> str:
        """The word, or its position where the result has no words."""
        return self.word or f"#{self.position}"


@dataclass(frozen=True)
class View:
    """S of one text and a row for each of its words.

    `draws` is how many draws of W were averaged, None where the figures are those of one W.
    """

    rows: list[Row]
    value: float
    low: float | None
    high: float | None
    draws: int | None

    @property
    def worst(self) -> Row | None:
        """The row with the largest S_i; None where every S_i is NaN."""
        known = [row for row in self.rows if not math.isnan(row.value)]
        return max(known, key=lambda row: row.value, default=None)


def view_of(result: SensitivityResult, *, text: int = 0, draw: int | None = None) -> View:
    """Text number `text` under draw number `draw`; the mean over draws where `draw` is None.

    Raises
    ------
    ValueError
        If there is no such text or draw.
    """
    texts = _size(result, "texts")
    draws = _size(result, "draws")
    if not 0 <= text < (texts or 1):
        raise ValueError(f"text: expected 0 to {(texts or 1) - 1}, got {text}")
    if draw is not None and not 0 <= draw < (draws or 1):
        raise ValueError(f"draw: expected None or 0 to {(draws or 1) - 1}, got {draw}")

    if draw is None and draws is not None and draws > 1:
        each, whole = result.over_draws(of="per_word"), result.over_draws()
        value, low, high = (
            float(_text(part, texts, text)) for part in (whole.mean, whole.low, whole.high)
        )
        columns = [_text(part, texts, text).tolist() for part in (each.mean, each.low, each.high)]
        words = _words(result, text, len(columns[0]))
        cells = zip(words, *columns, strict=False)
        rows = [Row(i, word, *numbers) for i, (word, *numbers) in enumerate(cells)]
        return View(rows, value, low, high, draws)

    per_word, s = _text(result.per_word, texts, text), _text(result.value, texts, text)
    if draws is not None:
        per_word, s = per_word[draw or 0], s[draw or 0]
    words = _words(result, text, len(per_word))
    pairs = zip(words, per_word.tolist(), strict=False)
    return View([Row(i, word, v) for i, (word, v) in enumerate(pairs)], float(s), None, None, None)


def _size(result: SensitivityResult, axis: str) -> int | None:
    return int(result.value.shape[result.axes.index(axis)]) if axis in result.axes else None


def _text(values: Array, texts: int | None, text: int) -> Any:
    array = to_numpy(values)
    return array if texts is None else array[text]


def _words(result: SensitivityResult, text: int, n: int) -> list[str]:
    """Labels of one text, which leave the padding of a batch out; empty ones if there are none."""
    if result.words is None:
        return [""] * n
    words: Any = result.words[text] if "texts" in result.axes else result.words
    return list(words)
