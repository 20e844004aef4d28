"""Words that can stand for others: text, pictures, HTML and data frames of a substitution."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from wsfast.report import heat_map
from wsfast.report.digits import column, significant
from wsfast.report.heat_map import HeatMap
from wsfast.report.html import first_texts, html_table
from wsfast.report.scope import of_changes
from wsfast.report.table import counted, extremes, printable, sizes
from wsfast.results.arrays import to_numpy
from wsfast.results.axes import index, words_of
from wsfast.results.substitution import LEADERS

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes

    from wsfast.results.substitution import Substitution, SubstitutionResult

_MOST_ROWS = 50  # of a table in HTML


# -- text ------------------------------------------------------------------------------------------


def summary(rows: Sequence[Substitution], *, largest: bool) -> str:
    """One line: the largest (smallest) change, and the substitution that makes it."""
    head = f"{_extreme(largest)} change"
    if not rows:
        return f"{head}: none is known"
    best = rows[0]
    old = f"{printable(best.word)!r} -> " if best.word else ""
    new = repr(printable(best.name)) if best.name else f"candidate {best.candidate}"
    return f"{head} {significant(best.value)}: {old}{new} at position {best.position}"


def describe(result: SubstitutionResult) -> str:
    """The change and its words (or the range of changes), sizes and backend, of what it is one."""
    values = to_numpy(result.value)
    if values.size == 1:
        head = summary(result.top(), largest=result.largest)
    else:
        low, high = column(extremes(values))
        head = f"{_extreme(result.largest)} change from {low} to {high}"
    lines = [head, ", ".join(_about(result)), *of_changes(result.info)]
    body = "\n  ".join(lines)
    return f"SubstitutionResult({body})"


def _about(result: SubstitutionResult) -> list[str]:
    parts = sizes(result, int(result.best_value.shape[-1]))
    parts.append(counted(result.info["candidates"], "candidate"))
    if "backend" in result.info:
        parts.append(f"backend {result.info['backend']}")
    return parts


def _extreme(largest: bool) -> str:
    return "largest" if largest else "smallest"


def _label(number: int, label: str) -> str:
    return printable(label) or f"#{number}"


def _cells(rows: Sequence[Substitution]) -> list[tuple[str, str, str, str]]:
    """Position, old word, new word and change of each row."""
    return [
        (str(row.position), _label(row.position, row.word), _label(row.candidate, row.name), value)
        for row, value in zip(rows, column([row.value for row in rows]), strict=True)
    ]


# -- picture ---------------------------------------------------------------------------------------


def plot(
    result: SubstitutionResult, ax: Axes | None = None, *, text: int = 0, draw: int = 0
) -> Axes:
    """Heat map of a result; see :meth:`wsfast.SubstitutionResult.plot`."""
    return heat_map.draw(_map(result, text, draw), ax)


def save_figure(result: SubstitutionResult, path: str | Path) -> None:
    """Draw text 0 under draw 0 into the picture file `path`, without pyplot or a display."""
    heat_map.save(_map(result, 0, 0), path)


def _map(result: SubstitutionResult, text: int, draw: int) -> HeatMap:
    top = result.top(text, draw)
    one = index(result, "texts", text) + index(result, "draws", draw)
    words = words_of(result, text, int(result.best_value.shape[-1]))
    candidates = [v for v in to_numpy(result.grid_candidate)[one].tolist() if v >= 0]
    values = to_numpy(result.grid_value)[one][: len(words), : len(candidates)]
    searched = np.nonzero(~np.isnan(values).all(1))[0].tolist()
    known = f" {significant(top[0].value, 4)}" if top else ": none is known"
    head = f"{_extreme(result.largest)} relative change{known}"
    return HeatMap(
        values=values[searched],
        rows=[words[i] or str(i) for i in searched],
        columns=[_name(result, v) or str(v) for v in candidates],
        # The first candidate is that of the best pair.
        best=(searched.index(top[0].position), 0) if top else None,
        title="\n".join([head, *of_changes(result.info)]),
        of_rows="position" if result.words is None else "word",
        of_columns="candidate" if result.names is None else "new word",
        of_values="relative change",
    )


def _name(result: SubstitutionResult, candidate: int) -> str:
    return "" if result.names is None else result.names[candidate]


# -- HTML ------------------------------------------------------------------------------------------


def to_html(result: SubstitutionResult) -> str:
    """HTML of the first texts: sizes of the result, then the substitutions of each under draw 0.

    Where these have fewer than eight candidates, the next best candidates follow.
    """
    head = f"<p>{escape(', '.join(_about(result)))}</p>" if result.axes else ""
    note = f"(changes {'; '.join(of_changes(result.info))})"
    return first_texts(result, lambda text: _block(result, text), head=head, note=note)


def next_best(result: SubstitutionResult, text: int, shown: Iterable[str | int]) -> str:
    """HTML of the best change of candidates after those shown, so that they are eight in all.

    `shown` holds their names, or their numbers where the result has no names. Of draws, the first.
    """
    one = index(result, "texts", text) + index(result, "draws", 0)
    words = words_of(result, text, int(result.best_value.shape[-1]))
    values = to_numpy(result.grid_value)[one]
    known = {*shown}
    rows = []
    for k, v in enumerate(to_numpy(result.grid_candidate)[one].tolist()):
        name = _name(result, v) or v
        if v < 0 or name in known or len(known) >= LEADERS:
            continue
        known.add(name)
        changes = values[:, k]
        at = int(np.nanargmax(changes) if result.largest else np.nanargmin(changes))
        rows.append((words[at] or f"#{at}", str(name), float(changes[at])))
    if not rows:
        return ""
    draw = ", under the first draw of W" if "draws" in result.axes else ""
    lines = [
        (printable(old), printable(new), change)
        for (old, new, _), change in zip(rows, column([row[2] for row in rows]), strict=True)
    ]
    return (
        f"<p>the next candidates, each where it changes {_most(result.largest)}{draw}:</p>"
        f"{html_table(('word', 'new word', 'change'), lines)}"
    )


def _most(largest: bool) -> str:
    return "most" if largest else "least"


def _block(result: SubstitutionResult, text: int) -> str:
    top = result.top(text)
    where = [f"text {text}"] if "texts" in result.axes else []
    where += ["draw 0"] if "draws" in result.axes else []
    title = f"{', '.join(where)}: " if where else ""
    line = f"<p>{escape(title + summary(top, largest=result.largest))}</p>"
    if not top:
        return line
    rest = len(top) - _MOST_ROWS
    more = f"<p>… and {rest} more substitutions</p>" if rest > 0 else ""
    table = html_table(("position", "word", "new word", "change"), _cells(top[:_MOST_ROWS]))
    shown = (row.name or row.candidate for row in top)
    return f"{line}{table}{more}{next_best(result, text, shown)}"
