"""Two attention maps side by side: text, pictures and HTML of a comparison."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

from wsfast import _values
from wsfast._extras import import_extra
from wsfast.report import fonts
from wsfast.report.digits import column, significant
from wsfast.report.export import to_json
from wsfast.report.plot import write_figure
from wsfast.report.table import printable
from wsfast.results.arrays import to_numpy

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from matplotlib.axes import Axes

    from wsfast.results.comparison import Comparison

_MOST_LABELS = 40  # more tokens than this do not fit along a map
_MOST_CELLS = 24  # tokens of a map in HTML: its cells are elements of the page


class _Pair(NamedTuple):
    """Two maps (m, m) with their tokens, and one line about them."""

    a: np.ndarray[Any, Any]
    b: np.ndarray[Any, Any]
    tokens_a: list[str]
    tokens_b: list[str]
    title: str


def describe(comparison: Comparison) -> str:
    """Write the lines of a comparison as one text."""
    body = "\n  ".join(lines(comparison))
    return f"Comparison({body})"


def lines(comparison: Comparison) -> list[str]:
    """Lines: what was changed, and by how much random features and trained heads change."""
    random = comparison.random
    shown = [
        f"{_change(comparison)} in {printable(comparison.text_a)!r}",
        f"random features: change {significant(random.change, 4)}, "
        f"of their attention map {significant(random.map_change, 4)}",
    ]
    if comparison.trained is None or comparison.head is None:
        return [*shown, "trained heads: the model returns no attention"]
    change = comparison.trained.change
    layers, heads = change.shape
    layer, head = comparison.head
    least, most, here = column(
        [float(number) for number in (change.min(), change.max(), change[layer, head])], 4
    )
    shown.append(
        f"{layers} x {heads} trained heads: change of their maps {least} to {most}; "
        f"layer {layer}, head {head}: {here}"
    )
    return shown


def plot(comparison: Comparison, head: tuple[int, int] | str | None = None) -> np.ndarray[Any, Any]:
    """Heat maps of a comparison; see :meth:`wsfast.text.Comparison.plot`."""
    pairs = _pairs(comparison, head)
    figure = import_extra("matplotlib.pyplot", "plots").figure(
        figsize=_size(pairs), layout="constrained"
    )
    return _draw(pairs, figure)


def save_figure(comparison: Comparison, path: str | Path) -> None:
    """Draw the default picture into the file `path`, without pyplot or a display."""
    pairs = _pairs(comparison, None)
    figure = import_extra("matplotlib.figure", "plots").Figure(
        figsize=_size(pairs), layout="constrained"
    )
    _draw(pairs, figure)
    write_figure(figure, path)


def to_html(comparison: Comparison) -> str:
    """HTML of a comparison: the lines of `describe`, then the maps of a short text."""
    said = "".join(f"<p>{escape(line)}</p>" for line in lines(comparison))
    maps = [
        f'<p>{escape(pair.title)}</p><div style="display:flex;gap:2em">'
        f"{_table(pair.a, pair.tokens_a)}{_table(pair.b, pair.tokens_b)}</div>"
        for pair in _pairs(comparison, None)
        if len(pair.tokens_a) <= _MOST_CELLS
    ]
    return f'<div class="wsfast">{said}{"".join(maps)}</div>'


def json_line(comparison: Comparison) -> str:
    """One line of JSON.

    Keys: a, b, tokens_a, tokens_b, position (of the word), row (of the maps), old, new; random
    (change, map_change, a, b: the maps); heads (tokens_a, tokens_b, change: a list for each layer,
    layer and head of the head that is shown, a, b: its maps), null where the model returns no
    attention; info.
    """
    record: dict[str, Any] = {
        "a": comparison.text_a,
        "b": comparison.text_b,
        "tokens_a": comparison.tokens_a,
        "tokens_b": comparison.tokens_b,
        "position": comparison.position,
        "row": comparison.row,
        "old": comparison.old,
        "new": comparison.new,
        "random": {
            "change": comparison.random.change,
            "map_change": comparison.random.map_change,
            "a": comparison.random.a.tolist(),
            "b": comparison.random.b.tolist(),
        },
        "heads": None,
        "info": comparison.info,
    }
    if comparison.trained is not None and comparison.head is not None:
        record["heads"] = {
            "tokens_a": comparison.trained.tokens_a,
            "tokens_b": comparison.trained.tokens_b,
            "change": comparison.trained.change.tolist(),
            "layer": comparison.head[0],
            "head": comparison.head[1],
            "a": comparison.trained.a[comparison.head].tolist(),
            "b": comparison.trained.b[comparison.head].tolist(),
        }
    return to_json(record)


def _change(comparison: Comparison) -> str:
    old, new = map(printable, (comparison.old, comparison.new))
    return f"{old!r} -> {new!r} at position {comparison.position}"


def _pairs(comparison: Comparison, head: Any) -> list[_Pair]:
    """What to show, each pair a row of the picture."""
    if head is None:
        shown = [] if comparison.head is None else [_head(comparison, comparison.head)]
        return [_random(comparison), *shown]
    if isinstance(head, str) and head == "random":
        return [_random(comparison)]
    if not (isinstance(head, tuple) and len(head) == 2):
        raise TypeError(f'head must be None, "random" or a pair (layer, head), got {head!r}')
    layers, heads = comparison.heads.change.shape
    layer = _values.integer("head[0] (layer)", head[0], low=0, high=layers - 1)
    return [_head(comparison, (layer, _values.integer("head[1]", head[1], low=0, high=heads - 1)))]


def _random(comparison: Comparison) -> _Pair:
    random = comparison.random
    return _Pair(
        to_numpy(random.a),
        to_numpy(random.b),
        comparison.tokens_a,
        comparison.tokens_b,
        f"random features: map changes by {significant(random.map_change, 4)}, features by "
        f"{significant(random.change, 4)}",
    )


def _head(comparison: Comparison, head: tuple[int, int]) -> _Pair:
    heads = comparison.heads
    return _Pair(
        to_numpy(heads.a[head]),
        to_numpy(heads.b[head]),
        heads.tokens_a,
        heads.tokens_b,
        f"layer {head[0]}, head {head[1]}: map changes by "
        f"{significant(float(heads.change[head]), 4)}",
    )


# -- picture ---------------------------------------------------------------------------------------


def _size(pairs: list[_Pair]) -> tuple[float, float]:
    """Inches; a map grows with its tokens up to half a page's width."""
    side = min(max(2.6, 0.32 * max(len(pair.tokens_a) for pair in pairs)), 6.5)
    return 2 * side + 1.6, (side + 0.9) * len(pairs)


def _draw(pairs: list[_Pair], figure: Any) -> np.ndarray[Any, Any]:
    axes: np.ndarray[Any, Any] = figure.subplots(len(pairs), 2, squeeze=False)
    for row, pair in zip(axes, pairs, strict=True):
        top = float(max(pair.a.max(), pair.b.max()))
        for ax, values, tokens in zip(
            row, (pair.a, pair.b), (pair.tokens_a, pair.tokens_b), strict=True
        ):
            image = ax.imshow(values, vmin=0.0, vmax=top, cmap="Oranges")
            _label(ax, tokens)
        figure.colorbar(image, ax=list(row), shrink=0.8)
        row[0].set_title(pair.title, loc="left", fontsize="medium")
    return axes


def _label(ax: Axes, tokens: list[str]) -> None:
    if len(tokens) > _MOST_LABELS:
        ax.set_xlabel("position")
        return
    # parse_math=False: a word may hold dollar signs
    labels, families = fonts.fit([printable(token) for token in tokens])
    style: dict[str, Any] = {"labels": labels, "parse_math": False, "fontfamily": families}
    ax.set_xticks(range(len(tokens)), rotation=90, **style)
    ax.set_yticks(range(len(tokens)), **style)


# -- HTML ------------------------------------------------------------------------------------------


def _table(values: np.ndarray[Any, Any], tokens: list[str]) -> str:
    head = "".join(f'<th style="writing-mode:vertical-rl">{escape(token)}</th>' for token in tokens)
    rows = "".join(
        f'<tr><th style="text-align:right">{escape(token)}</th>{"".join(map(_cell, row))}</tr>'
        for token, row in zip(tokens, values.tolist(), strict=True)
    )
    return f"<table><tr><th></th>{head}</tr>{rows}</table>"


def _cell(weight: float) -> str:
    # A transparent background keeps the page's own text colour readable, light theme or dark.
    style = f"background:rgba(255,90,0,{weight:.2f});width:1.2em"
    return f'<td style="{style}" title="{significant(weight, 4)}"></td>'
