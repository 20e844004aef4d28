"""One text of a result, in the form that every table and picture takes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from wsfast.report.scope import scope
from wsfast.results.arrays import to_numpy
from wsfast.results.axes import index, joined, size, words_of
from wsfast.results.intervals import summarize

if TYPE_CHECKING:
    from wsfast.results.sensitivity import SensitivityResult


@dataclass(frozen=True)
class Row:
    """S_i of one position.

    Where draws were averaged, `low` and `high` end its interval, and `share_worst` is the share of
    the draws in which the word is the worst. `upper` is its upper bound, NaN where none is known,
    and None in a result without bounds; the mean over the draws bounds the mean.
    """

    position: int
    word: str
    value: float
    low: float | None = None
    high: float | None = None
    share_worst: float | None = None
    upper: float | None = None

    @property
    def label(self) -> str:
        """The word, or its position where the result has no words."""
        return self.word or f"#{self.position}"

    @property
    def top(self) -> float:
        """The largest of what is known of S_i: itself, the end of its interval, its bound."""
        parts = (self.value, self.high, self.upper)
        return max(part for part in parts if part is not None and math.isfinite(part))


@dataclass(frozen=True)
class View:
    """S of one text and a row for each of its words.

    `draws` is how many draws of W were averaged, None where the figures are those of one W; `scope`
    says what S is one of. `upper` and `ratio` are as those of a row and of the result: of draws,
    the mean and the largest.
    """

    rows: list[Row]
    value: float
    low: float | None
    high: float | None
    draws: int | None
    scope: str = ""
    place: str = "position"  # what a row has the number of
    upper: float | None = None
    ratio: float | None = None

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

    averaged = draw is None and draws is not None and draws > 1
    at = one if averaged else one + which
    # Of this text alone: those of a long list are summed up one by one.
    alone = replace(
        result,
        upper=None if result.upper is None else result.upper[at],
        words=None,
        value=result.value[at],
        per_word=result.per_word[at],
        position=result.position[at],
        delta=result.delta[at],
        site=None,
        axes=("draws",) if averaged else (),
    )
    words = _words(result, text, int(alone.per_word.shape[-1]))
    about = scope(result.info), _place(result)
    if averaged:
        each, whole = alone.over_draws(of="per_word"), alone.over_draws()
        value, low, high = (float(part) for part in (whole.mean, whole.low, whole.high))
        parts = (each.mean, each.low, each.high, each.share_worst)
        columns = [part.tolist() for part in parts if part is not None]
        cells = zip(words, *columns, strict=False)
        rows = [Row(i, word, *numbers) for i, (word, *numbers) in enumerate(cells)]
        return _with_bounds(View(rows, value, low, high, draws, *about), alone)
    value = float(to_numpy(alone.value))
    pairs = zip(words, to_numpy(alone.per_word).tolist(), strict=False)
    rows = [Row(i, word, v) for i, (word, v) in enumerate(pairs)]
    return _with_bounds(View(rows, value, None, None, None, *about), alone)


def _with_bounds(view: View, alone: SensitivityResult) -> View:
    """The view of what is `alone` in a result, with its bounds."""
    upper, whole, ratio = alone.upper, alone.upper_value, alone.ratio
    if upper is None or whole is None or ratio is None:
        return view
    if view.draws is not None:
        upper, whole = (summarize(part, 0, 0.95).mean for part in (upper, whole))
        ratio = ratio.max()
    most, factor = float(to_numpy(whole)), float(to_numpy(ratio))
    known = zip(view.rows, to_numpy(upper).tolist(), strict=False)
    return replace(
        view,
        rows=[replace(row, upper=bound) for row, bound in known],
        upper=most,
        ratio=factor,
        scope=scope(alone.info, bounded=not math.isnan(most)),
    )


def _place(result: SensitivityResult) -> str:
    return "position" if result.sites is None else "site"


def _words(result: SensitivityResult, text: int, n: int) -> list[str]:
    """Labels; of sites without words, their positions."""
    if result.words is None and result.sites is not None:
        return [joined(site) for site in result.sites]
    return words_of(result, text, n)
