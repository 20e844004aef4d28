"""Heads of trained layers: tables, words shaded layer by layer, heat maps, CSV and JSON."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from wsfast import _values
from wsfast.report import heat_map, html, table
from wsfast.report.digits import column, significant, write_up
from wsfast.report.export import finite, to_json, writer
from wsfast.report.heat_map import HeatMap
from wsfast.report.html import first_texts, html_table
from wsfast.report.scope import of_change
from wsfast.report.sensitivity import shaded
from wsfast.report.table import aligned, counted, extremes, in_part, printable, shortened
from wsfast.report.view import Row, View
from wsfast.results.arrays import to_numpy
from wsfast.results.axes import index, size
from wsfast.results.layers import columns

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes
    from torch import Tensor

    from wsfast.results.layers import LayerSensitivityResult

_AT = {"attention": "where the attention reads", "residual": "in the residual stream"}
_MEASURED = {
    "each": "single heads",
    "concatenated": "all heads of single layers",
    "projected": "the attention of single layers",
}
_LONGEST_NAME = 30  # of a model, which may be the path of a folder
_PICTURES = ("heads", "words")
_QUANTILES = (0.05, 0.5, 0.95)  # of the control, in JSON
_MOST_LAYERS = 24  # in a repr, and of shaded words: a page of a thousand lines would be slow


# -- what is counted -------------------------------------------------------------------------------


def _alone(result: LayerSensitivityResult, text: int) -> LayerSensitivityResult:
    """Text number `text` by itself, without the padding of a list.

    Raises
    ------
    ValueError
        If there is no such text, or it is left out.
    """
    one: tuple[Any, ...] = index(result, "texts", text)
    if text in result.left_out:
        raise ValueError(
            f"text must be one that was done, got {text}: it {printable(result.left_out[text])}"
        )
    control = result.control
    return replace(
        result,
        value=result.value[one],
        per_word=result.per_word[one][..., : len(result.words[text])],
        upper=None if result.upper is None else result.upper[one][..., : len(result.words[text])],
        position=result.position[one],
        delta=result.delta[one],
        control=None if control is None else control[(slice(None), *one)],
        words=[result.words[text]],
        texts=[result.texts[text]],
        cut={0: result.cut[text]} if text in result.cut else {},
        left_out={},
        batched=False,
    )


def _done(result: LayerSensitivityResult) -> list[int]:
    return [text for text in range(len(result.texts)) if text not in result.left_out]


def _shuffled(result: LayerSensitivityResult) -> Tensor | None:
    """The median of the control over its draws, which has the axes of S; None without one."""
    return None if result.control is None else result.control_quantiles((0.5,))[0]


def _medians(values: Tensor, result: LayerSensitivityResult) -> Tensor:
    """The median over heads, and texts, at each layer and radius (L, R)."""
    lead = values.movedim(-2, 0).reshape(-1, len(result.layers), len(result.radius))
    return lead.nanquantile(0.5, 0)


def _radius_name(result: LayerSensitivityResult) -> str:
    return "relative radius" if result.relative else "radius"


def _radii(result: LayerSensitivityResult) -> list[str]:
    """Names of the radii; one that is empty where nothing is searched."""
    return ["" if math.isnan(radius) else f"{radius:.4g}" for radius in result.radius]


def _place(result: LayerSensitivityResult) -> str:
    return "position" if result.sites is None else "site"


def _scope(result: LayerSensitivityResult) -> list[str]:
    """What S tells, in two lines."""
    model = shortened(printable(result.info["model"]), _LONGEST_NAME)
    measured = f"S of {_MEASURED[result.combine]} of {model}"
    # A layer reads hidden states: there is no word to exchange beyond the first.
    deeper = "; beyond layer 0 the vector of a row moves, not a word" if any(result.layers) else ""
    return [
        f"{measured}; a layer's sensitivity is not the model's",
        f"{of_change(result.perturbation, result.info.get('rows', 'all'))}{deeper}",
        *_proved(result),
    ]


def _proved(result: LayerSensitivityResult) -> list[str]:
    """How far S may be off at most, at each radius, where that is known."""
    if result.ratio is None:
        return []
    largest = [one[~one.isnan()] for one in result.ratio.unbind(-1)]
    if not all(len(one) for one in largest):
        return [f"no upper bound: {result.info['bound']['none']}"]
    each = [write_up(float(one.max()), 3) for one in largest]
    return [f"S is at most {' and '.join(each)} times as large, which is proved"]


# -- text ------------------------------------------------------------------------------------------


def describe(result: LayerSensitivityResult) -> str:
    """S, or its range; sizes; the medians over heads at each layer and radius; what S tells."""
    lines = [
        _range(result),
        ", ".join(_about(result)),
        *table.incomplete(result.left_out, result.cut),
        *_median_lines(result),
        *_scope(result),
    ]
    body = "\n  ".join(lines)
    return f"LayerSensitivityResult({body})"


def _range(result: LayerSensitivityResult) -> str:
    if result.value.numel() == 1:
        one = _alone(result, 0)
        return table.summary(_view(one, 0, 0, float(one.value)))
    low, high = column(extremes(to_numpy(result.value)))
    return f"S from {low} to {high}"


def _about(result: LayerSensitivityResult) -> list[str]:
    texts = size(result, "texts")
    parts = [] if texts is None else [counted(texts, "text")]
    parts.append(counted(len(result.layers), "layer"))
    if result.heads is not None:
        parts.append(counted(len(result.heads), "head"))
    n = counted(int(result.per_word.shape[-1]), "word" if result.sites is None else "site")
    parts.append(n if texts is None else f"up to {n}")
    parts.append(f"moved {_AT[result.at]}")
    if "backend" in result.info:
        parts.append(f"backend {result.info['backend']}")
    if result.control is not None:
        parts.append(f"{counted(len(result.control), 'draw')} of shuffled weights")
    return parts


def _median_lines(result: LayerSensitivityResult) -> list[str]:
    """A table of medians, a line for each layer; none where it would repeat S."""
    if result.value.numel() == 1:
        return []
    over = [*(["texts"] if result.batched else []), *(["heads"] if result.heads else [])]
    shuffled = _shuffled(result)
    medians = _medians(result.value, result)
    cells = [["layer", *map(str, result.layers)]]
    for k, name in enumerate(_radii(result)):
        head = f"{_radius_name(result)} {name}" if name else "S"
        cells.append([head, *column(medians[:, k].tolist())])
        if shuffled is not None:
            ratios = medians[:, k] / _medians(shuffled, result)[:, k]
            cells.append(["over shuffled", *column(ratios.tolist(), 3)])
    names, *lines = aligned(list(zip(*cells, strict=True)), ())
    title = f"medians over {' and '.join(over)}:" if over else "S:"
    return [title, names, *in_part(lines, _MOST_LAYERS)]


def to_text(result: LayerSensitivityResult) -> str:
    """Tables of the first texts."""
    if not result.batched:
        return "\n".join(lines(result))
    return table.first_texts(
        len(result.texts), result.left_out, lambda text: lines(_alone(result, text))
    )


def lines(result: LayerSensitivityResult) -> list[str]:
    """One text, the table of its layers, and what S tells."""
    cells = _table(result)
    left = {k for k, name in enumerate(cells[0]) if name == "word"}
    return [
        printable(result.texts[0]),
        *_cut(result),
        *aligned(cells, left),
        *_scope(result),
    ]


def _cut(result: LayerSensitivityResult) -> list[str]:
    """A line about a single text that was cut."""
    return [f"({tokens} tokens, cut to the first {kept})" for tokens, kept in result.cut.values()]


def _table(result: LayerSensitivityResult) -> list[list[str]]:
    """Names of columns, then a line for each layer and radius of one text."""
    layers, radii = len(result.layers), len(result.radius)
    median, shuffled = _medians(result.value, result), _shuffled(result)
    worst = result.value.nan_to_num(-math.inf).argmax(1)  # (L, R), among the heads
    largest = result.value.gather(1, worst[:, None])[:, 0]
    place = result.position.gather(1, worst[:, None])[:, 0].flatten().tolist()
    searched = result.perturbation == "ball"
    cells = [["layer", *(str(number) for number in result.layers for _ in range(radii))]]
    if searched:
        cells.append([_radius_name(result), *(_radii(result) * layers)])
    cells.append(["median over heads" if result.heads else "S", *column(median.flatten().tolist())])
    if shuffled is not None:
        control = _medians(shuffled, result)
        cells.append(["shuffled", *column(control.flatten().tolist())])
        cells.append(["ratio", *column((median / control).flatten().tolist(), 3)])
    if result.heads is not None:
        cells.append(["largest", *column(largest.flatten().tolist())])
        cells.append(["head", *(str(result.heads[k]) for k in worst.flatten().tolist())])
    cells.append([_place(result), *("" if at < 0 else str(at) for at in place)])
    words = result.words[0]
    cells.append(["word", *("" if at < 0 else printable(words[at]) for at in place)])
    return list(map(list, zip(*cells, strict=True)))


# -- HTML ------------------------------------------------------------------------------------------


def to_html(result: LayerSensitivityResult) -> str:
    """HTML of the first texts: the table of layers, then the words shaded layer by layer."""
    means = ", mean over heads" if result.heads else ""
    at = f", at {_radius_name(result)} {name}" if (name := _radii(result)[0]) else ""
    note = "; ".join(
        [
            f"(words: S_i{means}{at}, shades relative, from the smallest of a layer to its largest",
            *_scope(result),
        ]
    )

    def block(text: int) -> str:
        if text in result.left_out:
            return f"<p>{escape(table.left_out(text, result.left_out[text]))}</p>"
        head = f"<p>text {text}</p>" if result.batched else ""
        return head + _block(_alone(result, text))

    return first_texts(result, block, note=f"{note})")


def page(results: Sequence[LayerSensitivityResult]) -> str:
    """Write a page of its own, of results of one text each; with heat maps where matplotlib is."""
    blocks = [
        f'<p dir="auto">{escape(printable(one.texts[0]))}</p>{to_html(one)}{_picture(one)}'
        for one in results
    ]
    return html.page("Sensitivity of attention layers", blocks)


def _picture(result: LayerSensitivityResult) -> str:
    """Heat map of the heads as a picture in the page; nothing without matplotlib."""
    of = "every head of every layer" if result.heads else "every layer"
    over = "" if result.control is None else ", over S of shuffled weights"
    return html.picture(f"Heat map: S of {of}{over}", partial(save_figure, result))


def _block(result: LayerSensitivityResult) -> str:
    names, *cells = _table(result)
    name = "mean S_i" if result.heads else "S_i"
    words = [
        f"layer {layer}: {shaded(_view(result, k, 0), name)}"
        for k, layer in enumerate(result.layers)
    ]
    shown = [
        f'<p style="line-height:1.8" dir="auto">{line}</p>' for line in in_part(words, _MOST_LAYERS)
    ]
    cut = "".join(f"<p>{line}</p>" for line in _cut(result))
    return f"{html_table(names, cells)}{cut}{''.join(shown)}"


def _view(result: LayerSensitivityResult, layer: int, radius: int, value: float = math.nan) -> View:
    """The words of one text in one layer, by the place of the layer: means over heads."""
    means = result.per_word[layer, :, radius].nanmean(0).tolist()
    rows = [Row(i, *one) for i, one in enumerate(zip(result.words[0], means, strict=True))]
    return View(rows, value, None, None, None, place=_place(result))


# -- picture ---------------------------------------------------------------------------------------


def plot(
    result: LayerSensitivityResult,
    ax: Axes | None = None,
    *,
    of: str = "heads",
    text: int | None = None,
    radius: int = 0,
) -> Axes:
    """Heat map of a result; see :meth:`wsfast.LayerSensitivityResult.plot`."""
    _values.one_of("of", of, _PICTURES)
    radius = _values.integer("radius", radius, low=0, high=len(result.radius) - 1)
    made = _heads if of == "heads" else _words
    return heat_map.draw(made(result, text, radius), ax)


def save_figure(result: LayerSensitivityResult, path: str | Path) -> None:
    """Draw the heads at the first radius into the picture file `path`, without pyplot."""
    heat_map.save(_heads(result, None, 0), path)


def _heads(result: LayerSensitivityResult, text: int | None, radius: int) -> HeatMap:
    """Layers × heads; where heads are taken together they are one column."""
    if text is not None or not result.batched:
        result = _alone(result, text or 0)
    values, shuffled = result.value, _shuffled(result)
    over = shuffled is not None
    if shuffled is not None:
        values = values / shuffled
    values = values[..., radius]
    if result.batched:
        values = values.nanquantile(0.5, 0)
    return _map(
        result,
        to_numpy(values),
        radius,
        columns=[result.combine] if result.heads is None else list(map(str, result.heads)),
        of_columns="head" if result.heads else "all heads",
        of_values="S / shuffled" if over else "S",
        of="S over S of shuffled weights" if over else "S",
        about=["median over texts"] if result.batched else [],
    )


def _words(result: LayerSensitivityResult, text: int | None, radius: int) -> HeatMap:
    """Layers × the words that were moved, of one text."""
    one = _alone(result, _done(result)[0] if text is None else text)
    values = to_numpy(one.per_word[..., radius, :].nanmean(1))
    moved = np.nonzero(~np.isnan(values).all(0))[0].tolist()
    return _map(
        one,
        values[:, moved],
        radius,
        columns=[one.words[0][i] for i in moved],
        of_columns="word" if one.sites is None else "site",
        of_values="S_i",
        of="S_i, mean over heads" if one.heads else "S_i",
        about=[],
    )


def _map(
    result: LayerSensitivityResult,
    values: np.ndarray[Any, Any],
    radius: int,
    *,
    columns: list[str],
    of_columns: str,
    of_values: str,
    of: str,
    about: list[str],
) -> HeatMap:
    known = not np.isnan(values).all()
    best = divmod(int(np.nanargmax(values)), len(columns)) if known else None
    if name := _radii(result)[radius]:
        about = [*about, f"{_radius_name(result)} {name}"]
    about = [*about, f"up to {significant(float(values[best]), 4)}" if best else "none is known"]
    # The lines of the text would be too long for a picture of a few columns.
    scope = "\n".join(_scope(result)).replace("; ", "\n")
    return HeatMap(
        values=values,
        rows=list(map(str, result.layers)),
        columns=columns,
        best=best,
        title=f"{of}\n{', '.join(about)}\n{scope}",
        of_rows="layer",
        of_columns=of_columns,
        of_values=of_values,
    )


# -- figures for other programs --------------------------------------------------------------------


def csv_rows(result: LayerSensitivityResult, *, number: int = 0, header: bool = True) -> str:
    """Rows of CSV; a single text is called `number`. What is not finite is an empty cell."""
    found = columns(result)
    text = found.pop("text", np.full(len(found["word"]), number))
    stream = io.StringIO()
    rows = writer(stream)
    if header:
        rows.writerow(["text", *found])
    cells = (one if isinstance(one, list) else one.tolist() for one in (text, *found.values()))
    for row in zip(*cells, strict=True):
        rows.writerow([finite(cell) if isinstance(cell, float) else cell for cell in row])
    return stream.getvalue()


def to_csv(result: LayerSensitivityResult) -> str:
    """A row for each S_i that is known, below a header."""
    return csv_rows(result)


def json_line(result: LayerSensitivityResult, *, number: int) -> str:
    """One line of JSON for a single text, which is called `number`; what is not known is null.

    Keys: text; layers, heads (null where they are taken together), radii, relative; words; sites
    (null, or the words of each); S, S_i and upper (null without bounds), nested along layers,
    heads, radii and words; position and word, nested likewise, where S is attained; control (null,
    or draws, levels and quantiles of S at each level); model, combine, at, perturbation, info.
    """
    words = result.words[0]
    place = result.position.tolist()
    record: dict[str, Any] = {
        "text": number,
        "layers": result.layers,
        "heads": result.heads,
        "radii": result.radius,
        "relative": result.relative,
        "words": words,
        "sites": result.sites,
        "S": result.value.tolist(),
        "S_i": result.per_word.tolist(),
        "upper": None if result.upper is None else result.upper.tolist(),
        "position": _nested(place, lambda at: None if at < 0 else at),
        "word": _nested(place, lambda at: None if at < 0 else words[at]),
        "control": None,
        "model": result.info["model"],
        "combine": result.combine,
        "at": result.at,
        "perturbation": result.perturbation,
        "info": result.info,
    }
    if result.control is not None:
        record["control"] = {
            "draws": len(result.control),
            "levels": _QUANTILES,
            "quantiles": result.control_quantiles(_QUANTILES).tolist(),
        }
    return to_json(record)


def _nested(places: Any, name: Callable[[int], Any]) -> Any:
    """`name` of every place in nested lists."""
    return [_nested(one, name) for one in places] if isinstance(places, list) else name(places)


def to_jsonl(result: LayerSensitivityResult) -> str:
    """A line for each text that was done."""
    done = _done(result)
    return "".join(f"{json_line(_alone(result, text), number=text)}\n" for text in done)
