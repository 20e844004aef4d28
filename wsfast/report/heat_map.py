"""Heat maps of results: figures in rows and columns that have labels, the best one framed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from wsfast._extras import import_extra
from wsfast.report import fonts
from wsfast.report.plot import new_axes, save_drawing
from wsfast.report.table import printable, shortened, width

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from matplotlib.axes import Axes

_MOST_LABELS = 60  # more than this do not fit along an axis
_LONGEST_LABEL = 20  # columns of a terminal; a longer one would leave no room for the picture
_UPRIGHT = 2  # columns; longer labels of columns would run into one another


class HeatMap(NamedTuple):
    """What a heat map shows; where no value is known there is no best one."""

    values: np.ndarray[Any, Any]  # (rows, columns), NaN for what is not known
    rows: list[str]
    columns: list[str]
    best: tuple[int, int] | None
    title: str
    of_rows: str
    of_columns: str
    of_values: str


def draw(shown: HeatMap, ax: Axes | None) -> Axes:
    """Draw on `ax`, or on the axes of a new pyplot figure."""
    shown = _fitted(shown)
    return _draw(shown, new_axes(_inches(shown)) if ax is None else ax)


def save(shown: HeatMap, path: str | Path) -> None:
    """Draw into the picture file `path`, without pyplot or a display."""
    shown = _fitted(shown)
    save_drawing(path, _inches(shown), lambda ax: _draw(shown, ax))


def _fitted(shown: HeatMap) -> HeatMap:
    """With labels that fit beside the picture."""
    rows, columns = (
        [shortened(printable(label), _LONGEST_LABEL) for label in side]
        for side in (shown.rows, shown.columns)
    )
    return shown._replace(rows=rows, columns=columns)


def _inches(shown: HeatMap) -> tuple[float, float]:
    """Room for the cells, which grow to a page, and for the longest label of either side."""
    beside, below = (0.1 * max(map(width, side), default=0) for side in (shown.rows, shown.columns))
    return (
        beside + 1.7 + min(max(3.5, 0.3 * len(shown.columns)), 12.0),
        below + 1.0 + min(max(1.6, 0.22 * len(shown.rows)), 12.0),
    )


def _draw(shown: HeatMap, ax: Axes) -> Axes:
    ax.set_ylabel(shown.of_rows)
    ax.set_xlabel(shown.of_columns)
    ax.set_title(shown.title, fontsize="medium")
    if shown.best is None:
        ax.set_xticks([])
        ax.set_yticks([])
        return ax
    row, column = shown.best
    image = ax.imshow(shown.values, cmap="Oranges", aspect="auto", interpolation="nearest")
    image.set_cmap(image.get_cmap().with_extremes(bad="0.85"))  # NaN is none of the oranges
    ax.figure.colorbar(image, ax=ax, label=shown.of_values)
    corner = (column - 0.5, row - 0.5)
    patches = import_extra("matplotlib.patches", "plots")
    ax.add_patch(patches.Rectangle(corner, 1, 1, fill=False, edgecolor="tab:blue", linewidth=2))
    # parse_math=False: a word may hold dollar signs
    labels, families = fonts.fit([*shown.columns, *shown.rows])
    columns, rows = labels[: len(shown.columns)], labels[len(shown.columns) :]
    style: dict[str, Any] = {"parse_math": False, "fontfamily": families}
    ticks = _ticks(len(columns), column)
    turned = 90 if max(map(width, columns)) > _UPRIGHT else 0
    ax.set_xticks(ticks, labels=[columns[k] for k in ticks], rotation=turned, **style)
    ax.get_xticklabels()[ticks.index(column)].set_fontweight("bold")
    ticks = _ticks(len(rows), row)
    ax.set_yticks(ticks, labels=[rows[k] for k in ticks], **style)
    ax.get_yticklabels()[ticks.index(row)].set_fontweight("bold")
    return ax


def _ticks(count: int, named: int) -> list[int]:
    """Evenly spaced ones of `count`, as many as can have a label; `named` is among them."""
    step = math.ceil(count / _MOST_LABELS)
    return list(range(named % step, count, step))
