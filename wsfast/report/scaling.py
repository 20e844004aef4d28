"""Scaling laws: text and picture."""

from __future__ import annotations

import math
from itertools import groupby
from typing import TYPE_CHECKING

from wsfast._extras import import_extra
from wsfast.report import digits
from wsfast.report.plot import new_axes
from wsfast.report.table import aligned, counted, in_part
from wsfast.results.slope import NoSlopeError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.ticker import Formatter

    from wsfast.results.scaling import ScalingResult

_MOST_LINES = 20  # of a table in a terminal
_INCHES = (6.0, 4.0)
_AXIS = {"n": "number of words n", "d": "dimension d"}


def describe(result: ScalingResult) -> str:
    """What there is, then a table of means, shortened in the middle where it is long."""
    means = result.means()
    head = f"ScalingResult({counted(len(result), 'cell')}"
    if not means:
        return f"{head})"
    lines = [["map", "n", "d", "mean S", "±", "replicates"]]
    places = digits.decimals(one.mean for one in means)
    lines += [
        [
            one.map,
            str(one.n),
            str(one.d),
            digits.write(one.mean, places),
            "" if math.isnan(one.low) else digits.write((one.high - one.low) / 2, places),
            str(one.replicates),
        ]
        for one in means
    ]
    names, *table = aligned(lines, {0})
    return "\n  ".join([head, names, *in_part(table, _MOST_LINES)]) + ")"


def plot(result: ScalingResult, ax: Axes | None = None, *, along: str) -> Axes:
    """Draw means over n or d; see :meth:`wsfast.ScalingResult.plot`."""
    ax = new_axes(_INCHES) if ax is None else ax
    ax.set_xscale("log")
    # An interval may reach below zero.
    ax.set_yscale("log", nonpositive="clip")
    other = "d" if along == "n" else "n"

    maps = list(dict.fromkeys(cell.map for cell in result.rows))
    # Sorting is stable: the points of a line stay in the order of their sizes.
    means = sorted(result.means(), key=lambda one: (maps.index(one.map), getattr(one, other)))
    for (name, fixed), line in groupby(means, key=lambda one: (one.map, getattr(one, other))):
        points = list(line)
        ax.errorbar(
            [getattr(one, along) for one in points],
            [one.mean for one in points],
            yerr=[(one.high - one.low) / 2 for one in points],
            marker="o",
            markersize=4,
            capsize=3,
            label=f"{name}, {other} = {fixed}{_slope(result, along, fixed, name)}",
        )
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(_plain_numbers())
        axis.set_minor_formatter(_plain_numbers())
    ax.set_xlabel(_AXIS[along])
    ax.set_ylabel("word sensitivity S, mean and 95 % interval")
    if result.rows:
        ax.legend()
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _plain_numbers() -> Formatter:
    """Labels of a logarithmic axis, where matplotlib sets them, but 40 and 0.6 for 4 × 10¹."""
    ticker = import_extra("matplotlib.ticker", "plots")

    class PlainNumbers(ticker.LogFormatter):  # type: ignore[misc, name-defined]
        def __call__(self, x: float, pos: int | None = None) -> str:
            return f"{x:g}" if super().__call__(x, pos) else ""

    formatter: Formatter = PlainNumbers()
    return formatter


def _slope(result: ScalingResult, along: str, at: int, name: str) -> str:
    """The slope of one line, for its label."""
    try:
        law = result.slope(along, at=at, map=name)
    except NoSlopeError as error:
        return f": no slope, {error.reason}"
    interval = "" if math.isnan(law.low) else f" [{law.low:.2f}, {law.high:.2f}]"
    return f": slope {law.value:.2f}{interval}"
