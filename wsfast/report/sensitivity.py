"""A result of the word sensitivity: text, HTML of its words, coloured by S_i, and bars of S_i."""

from __future__ import annotations

import math
from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from wsfast.report import fonts
from wsfast.report.digits import column, decimals, percent, significant, write_up
from wsfast.report.html import first_texts
from wsfast.report.plot import new_axes, save_drawing
from wsfast.report.scope import scope
from wsfast.report.shade import legend, shades
from wsfast.report.table import at_most, extremes, printable, sizes, summary
from wsfast.report.view import Row, View, view_of
from wsfast.results.arrays import to_numpy

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes

    from wsfast.results.sensitivity import SensitivityResult

_MOST_LABELS = 60  # more words than this do not fit under the axis
_NAMED = 8  # then only those with the largest S_i are named, above their bars
_INCHES_PER_WORD = 0.28
_BOUND = "tab:blue"


# -- text ------------------------------------------------------------------------------------------


def describe(result: SensitivityResult) -> str:
    """What a result says of itself in a prompt."""
    return f"SensitivityResult({facts(result)})"


def facts(result: SensitivityResult) -> str:
    """S and its word (or the range of S) and bound; sizes, radius and backend; what S is one of."""
    values = to_numpy(result.value)
    if values.size == 1:
        view = view_of(result, draw=0)
        head, what = summary(view), view.scope
    else:
        low, high = column(extremes(values))
        bracket = _bracket(result)
        head = f"S from {low} to {high}{bracket}"
        what = scope(result.info, bounded=bool(bracket))
    parts = [
        *sizes(result, result.per_word.shape[-1], "word" if result.sites is None else "site"),
        f"d = {int(result.delta.shape[-1])}",
    ]
    if not math.isnan(result.radius):
        parts.append(f"radius {result.radius:.4g}")
    if "backend" in result.info:
        parts.append(f"backend {result.info['backend']}")
    return f"{head}\n  {', '.join(parts)}\n  {what}"


def _bracket(result: SensitivityResult) -> str:
    """The largest bound and ratio of several S, if each has one."""
    if result.upper_value is None or result.ratio is None:
        return ""
    known = ~np.isnan(to_numpy(result.value))
    upper, ratio = (to_numpy(part)[known] for part in (result.upper_value, result.ratio))
    if not known.any():
        return ""
    return at_most(float(upper.max()), float(ratio.max()), several=True)


# -- HTML ------------------------------------------------------------------------------------------


def to_html(result: SensitivityResult, left_out: Mapping[int, str] | None = None) -> str:
    """HTML of the first texts: the summary, then the words. Everything from outside is escaped.

    `left_out` has a sentence in place of every text that is not in the result.
    """
    view = view_of(result)
    note = f"({legend(view)}; {view.scope})"

    def block(text: int) -> str:
        if left_out is not None and text in left_out:
            return f"<p>{escape(left_out[text])}</p>"
        return _block(view_of(result, text=text))

    return first_texts(result, block, note=note)


def _block(view: View) -> str:
    return f'<p>{escape(summary(view))}</p><p style="line-height:1.8">{shaded(view)}</p>'


def shaded(view: View, name: str = "S_i") -> str:
    """HTML of words on backgrounds from pale (smallest value) to dark; `name` is of the value."""
    return " ".join(
        _span(row, shade, name, worst=row is view.worst)
        for row, shade in zip(view.rows, shades(view), strict=True)
    )


def _span(row: Row, shade: float | None, name: str, *, worst: bool) -> str:
    label = escape(row.label)
    if shade is None:
        return f'<span style="opacity:0.5" title="not searched">{label}</span>'
    # A transparent background keeps the page's own text colour readable, light theme or dark.
    style = f"background:rgba(255,90,0,{0.08 + 0.62 * shade:.2f});padding:1px 3px;border-radius:3px"
    if worst:
        style += ";font-weight:bold;text-decoration:underline"
    title = f"{name} = {significant(row.value)}"
    if row.upper is not None and not math.isnan(row.upper):
        title += f", at most {write_up(row.upper, decimals([row.upper]))}"
    if row.share_worst is not None:
        title += f", worst in {percent(row.share_worst)} of the draws"
    return f'<span style="{style}" title="{title}">{label}</span>'


# -- picture ---------------------------------------------------------------------------------------


def plot(
    result: SensitivityResult, ax: Axes | None = None, *, text: int = 0, draw: int | None = None
) -> Axes:
    """Bars of S_i; see :meth:`wsfast.SensitivityResult.plot`."""
    view = view_of(result, text=text, draw=draw)
    return draw_bars(view, new_axes(figure_size(view)) if ax is None else ax)


def save_figure(result: SensitivityResult, path: str | Path) -> None:
    """Draw text 0 of `result` into the picture file `path`, without pyplot or a display."""
    view = view_of(result)
    save_drawing(path, figure_size(view), lambda ax: draw_bars(view, ax))


def figure_size(view: View) -> tuple[float, float]:
    """Inches; grows with the number of words between a small figure and a page's width."""
    return min(max(6.0, 1.2 + _INCHES_PER_WORD * len(view.rows)), 14.0), 3.6


def draw_bars(view: View, ax: Axes) -> Axes:
    """Draw on `ax`: a bar for each row, darker for larger S_i, to its bound; the worst in bold."""
    known = [
        (row, shade)
        for row, shade in zip(view.rows, shades(view), strict=True)
        if shade is not None
    ]
    xs = [row.position for row, _ in known]
    ax.bar(
        xs,
        [row.value for row, _ in known],
        width=0.8 if len(view.rows) <= _MOST_LABELS else 1.0,
        color=[_color(shade) for _, shade in known],
        yerr=_errors([row for row, _ in known]) if view.draws else None,
        ecolor="0.3",
    )
    if len(view.rows) <= _MOST_LABELS:
        _label_all(view, ax)
    else:
        _label_worst(view, ax)
    bounds = [
        (row.position, row.value, row.upper)
        for row, _ in known
        if row.upper is not None and math.isfinite(row.upper)
    ]
    if bounds:
        _draw_bounds(bounds, ax)
    ax.set_xlim(-0.75, len(view.rows) - 0.25)
    shown = r"$S_i$" if view.draws is None else r"$S_i$, mean and 95 % interval"
    ax.set_ylabel(f"{shown}, upper bound" if bounds else shown)
    bracket = at_most(view.upper, view.ratio, several=view.draws is not None)
    scope = view.scope.replace("; ", "\n")
    ax.set_title(
        f"word sensitivity S = {significant(view.value, 4)}{bracket}\n{scope}", fontsize="medium"
    )
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _color(shade: float) -> tuple[float, float, float]:
    """From pale orange to dark red, as in the terminal and in notebooks."""
    return 1.0 - 0.3 * shade, 0.82 - 0.75 * shade, 0.55 - 0.45 * shade


def _draw_bounds(bounds: list[tuple[int, float, float]], ax: Axes) -> None:
    """At each position a thin line from S_i to its upper bound, with a cap there."""
    xs, found, upper = zip(*bounds, strict=True)
    ax.vlines(xs, found, upper, color=_BOUND, linewidth=0.8)
    ax.plot(xs, upper, "_", color=_BOUND, markersize=4)


def _errors(rows: list[Row]) -> list[float]:
    return [
        (row.high - row.low) / 2 for row in rows if row.high is not None and row.low is not None
    ]


def _label_all(view: View, ax: Axes) -> None:
    ax.set_xticks(range(len(view.rows)))
    # parse_math=False: a word may hold dollar signs
    labels, families = fonts.fit([printable(row.label) for row in view.rows])
    ax.set_xticklabels(
        labels, rotation=90 if len(labels) > 12 else 0, parse_math=False, fontfamily=families
    )
    for row, label in zip(view.rows, ax.get_xticklabels(), strict=True):
        label.set_fontweight("bold" if row is view.worst else "normal")


def _label_worst(view: View, ax: Axes) -> None:
    ax.set_xlabel("position")
    known = [row for row in view.rows if not math.isnan(row.value)]
    named = sorted(known, key=lambda row: row.value, reverse=True)[:_NAMED]
    labels, families = fonts.fit([printable(row.label) for row in named])
    for row, label in zip(named, labels, strict=True):
        ax.annotate(
            label,
            (row.position, row.top),
            xytext=(0, 3),
            textcoords="offset points",
            rotation=90,
            ha="center",
            va="bottom",
            fontweight="bold" if row is view.worst else "normal",
            parse_math=False,
            fontfamily=families,
        )
    ax.margins(y=0.25)  # room for the names
