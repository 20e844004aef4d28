"""A picture of S_i, one bar for each word."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from wsfast._extras import import_extra
from wsfast._files import write_whole
from wsfast.report import fonts
from wsfast.report.digits import significant
from wsfast.report.shade import shades
from wsfast.report.table import printable
from wsfast.report.view import Row, View, view_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from wsfast.results.sensitivity import SensitivityResult

_MOST_LABELS = 60  # more words than this do not fit under the axis
_NAMED = 8  # then only those with the largest S_i are named, above their bars
_INCHES_PER_WORD = 0.28


def plot_words(
    result: SensitivityResult, ax: Axes | None = None, *, text: int = 0, draw: int | None = None
) -> Axes:
    """Bars of S_i; see :meth:`wsfast.SensitivityResult.plot`."""
    view = view_of(result, text=text, draw=draw)
    return draw_bars(view, new_axes(figure_size(view)) if ax is None else ax)


def save_figure(result: SensitivityResult, path: str | Path) -> None:
    """Draw text 0 of `result` into the picture file `path`, without pyplot or a display."""
    view = view_of(result)
    save_drawing(path, figure_size(view), lambda ax: draw_bars(view, ax))


def new_axes(inches: tuple[float, float]) -> Axes:
    """Axes of a new pyplot figure."""
    ax: Axes
    _, ax = import_extra("matplotlib.pyplot", "plots").subplots(
        figsize=inches, layout="constrained"
    )
    return ax


def save_drawing(
    path: str | Path, inches: tuple[float, float], draw: Callable[[Axes], object]
) -> None:
    """Write the picture file `path` of what `draw` draws, without pyplot or a display."""
    figure = import_extra("matplotlib.figure", "plots").Figure(figsize=inches, layout="constrained")
    draw(figure.subplots())
    write_figure(figure, path)


def write_figure(figure: Figure, path: str | Path) -> None:
    """Write the picture file `path`, all of it or none, in the format that its suffix says."""
    stream = io.BytesIO()
    figure.savefig(stream, format=Path(path).suffix[1:].lower(), dpi=150)
    write_whole(Path(path), stream.getvalue())


def figure_size(view: View) -> tuple[float, float]:
    """Inches; grows with the number of words between a small figure and a page's width."""
    return min(max(6.0, 1.2 + _INCHES_PER_WORD * len(view.rows)), 14.0), 3.6


def draw_bars(view: View, ax: Axes) -> Axes:
    """Draw on `ax`: a bar for each row, darker for larger S_i, the worst word in bold."""
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
    ax.set_xlim(-0.75, len(view.rows) - 0.25)
    ax.set_ylabel(r"$S_i$" if view.draws is None else r"$S_i$, mean and 95 % interval")
    scope = view.scope.replace("; ", "\n")
    ax.set_title(f"word sensitivity S = {significant(view.value, 4)}\n{scope}", fontsize="medium")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _color(shade: float) -> tuple[float, float, float]:
    """From pale orange to dark red, as in the terminal and in notebooks."""
    return 1.0 - 0.3 * shade, 0.82 - 0.75 * shade, 0.55 - 0.45 * shade


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
            (row.position, row.value if row.high is None else row.high),
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
