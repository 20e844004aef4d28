"""One text of a result, in the form that every table and picture takes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from wsfast.report.scope import scope
from wsfast.results.arrays import to_numpy
from wsfast.results.axes import index, joined, size, words_of

if TYPE_CHECKING:
    from wsfast.results.sensitivity import SensitivityResult


@dataclass(frozen=True)
class Row:
    """S_i of one position.

    Where draws were averaged, `low` and `high` end its interval, and `share_worst` is the share of
    the draws in which the word is the worst.
    """

    position: int
    word: str
    value: float
    low: float | None = None
    high: float | None = None
    share_worst: float | None = None

    @property
    def label(self) -> str:
        """The word, or its position where the result has no words."""
        return self.word or f"#{self.position}"


@dataclass(frozen=True)
class View:
    """S of one text and a row for each of its words.

    `draws` is how many draws of W were averaged, None where the figures are those of one W; `scope`
    says what S is one of.
    """

    rows: list[Row]
    value: float
    low: float | None
    high: float | None
    draws: int | None
    scope: str = ""
    place: str = "position"  # what a row has the number of

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
    draws = size(result, "draws")
    one = index(result, "texts", text)
    which = index(result, "draws", draw or 0, also="None or ")

    if draw is None and draws is not None and draws > 1:
        # Of this text alone: those of a long list are summed up one by one.
        alone = replace(
            result,
            upper=None,
            words=None,
            value=result.value[one],
            per_word=result.per_word[one],
            position=result.position[one],
            delta=result.delta[one],
            site=None,
            axes=("draws",),
        )
        each, whole = alone.over_draws(of="per_word"), alone.over_draws()
        value, low, high = (float(part) for part in (whole.mean, whole.low, whole.high))
        parts = (each.mean, each.low, each.high, each.share_worst)
        columns = [part.tolist() for part in parts if part is not None]
        words = _words(result, text, len(columns[0]))
        cells = zip(words, *columns, strict=False)
        rows = [Row(i, word, *numbers) for i, (word, *numbers) in enumerate(cells)]
        return View(rows, value, low, high, draws, scope(result.info), _place(result))

    per_word, s = (to_numpy(values)[one + which] for values in (result.per_word, result.value))
    words = _words(result, text, len(per_word))
    pairs = zip(words, per_word.tolist(), strict=False)
    rows = [Row(i, word, v) for i, (word, v) in enumerate(pairs)]
    return View(rows, float(s), None, None, None, scope(result.info), _place(result))


def _place(result: SensitivityResult) -> str:
    return "position" if result.sites is None else "site"


def _words(result: SensitivityResult, text: int, n: int) -> list[str]:
    """Labels; of sites without words, their positions."""
    if result.words is None and result.sites is not None:
        return [joined(site) for site in result.sites]
    return words_of(result, text, n)
