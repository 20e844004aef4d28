"""Real words in place of others: text, figures and pages of what `substitute` found."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

from wsfast.report import html
from wsfast.report.digits import column, percent, significant
from wsfast.report.export import finite, to_json, writer
from wsfast.report.html import html_table, small
from wsfast.report.scope import OF_POOLED, OTHER_ROWS, of_changes
from wsfast.report.substitution import next_best, save_figure
from wsfast.report.table import aligned, counted, printable
from wsfast.results.arrays import to_numpy

if TYPE_CHECKING:
    from wsfast.results.replacements import Replacement, Replacements

CSV_COLUMNS = (
    "text", "rank", "position", "old", "new", "value", "distance", "replaced", "rows",
    "model_change",
)  # fmt: skip
_SHOWN = 5  # replacements in a repr
_SHOWN_IN_HTML = 10
_MOST_IN_REPR = 80  # characters of the text there
_MOST_CHARACTERS = 160  # of a text that is shown again for each of its replacements


# -- text ------------------------------------------------------------------------------------------


def describe(found: Replacements) -> str:
    """Lines: the text, its first replacements, and where the first stands."""
    rows = found.replacements
    lines = [printable(row) for row in map(_arrow, rows[:_SHOWN])]
    if len(rows) > _SHOWN:
        lines.append(f"… and {len(rows) - _SHOWN} more")
    text = printable(found.embedded.text)
    head = text if len(text) <= _MOST_IN_REPR else f"{text[: _MOST_IN_REPR - 1]}…"
    body = "\n  ".join([head, *lines, *attained_lines(found)])
    return f"Replacements({body})"


def table(rows: Sequence[Replacement]) -> str:
    """Columns rank (from 1), position, old word, new word, change, distance; the model's change."""
    lines = [["rank", "position", "word", "", "new word", *_figures(rows)]]
    lines += [[rank, at, old, "->", new, *rest] for rank, at, old, new, *rest in _cells(rows)]
    return "\n".join(aligned(lines, {2, 3, 4}))


def attained_lines(found: Replacements) -> list[str]:
    """Where the first word stands against the worst case over the ball, and what was left out.

    Where the changes are of the other rows alone, which no ball bounds, that is said instead.
    """
    split, punctuation, unmatched = found.left_out
    left = [counted(split, "word") + " of several tokens"] if split else []
    left += [counted(punctuation, "punctuation mark")] if punctuation else []
    left += [counted(unmatched, "word") + " of as many tokens as no candidate"] if unmatched else []
    return [
        *_attained(found),
        *_through_model(found),
        *([f"not replaced: {', '.join(left)}"] if left else []),
    ]


def _attained(found: Replacements) -> list[str]:
    first, ball = found.replacements[0], found.sensitivity
    if ball is None:
        return [
            f"changes are {OTHER_ROWS}:",
            "they do not compare with changes of all rows, nor with S",
        ]
    S = float(ball.value.mean())
    everywhere = not np.isnan(to_numpy(ball.per_word)).any()
    if ball.sites is not None:
        everywhere = sum(map(len, ball.sites)) == len(found.embedded)
    return [
        f"{printable(first.new)!r} makes {percent(found.share_attained)} of S = {significant(S)}, "
        f"the worst case found{'' if everywhere else ' at these words'} "
        f"over the ball of radius sqrt(d) = {significant(ball.radius, 3)}",
        f"and {percent(found.share_attained_at_distance)} of the worst case found over the ball of "
        f"its own distance, {significant(first.distance, 3)}",
    ]


def _through_model(found: Replacements) -> list[str]:
    """What the model's change is of, and how far the two orders agree; nothing where none was run.

    A correlation over the ends of a ranking is not that of all words, which is said beside it.
    """
    count = sum(map(_was_run, found.replacements))
    if not count:
        return []
    lines = [f"model change: {OF_POOLED}"]
    if not math.isnan(found.model_correlation):
        lines.append(
            f"rank correlation of both changes: {found.model_correlation:.2f} over the {count} "
            "that were run, one end of the ranking: not that of all words"
        )
    return lines


def _was_run(row: Replacement) -> bool:
    return not math.isnan(row.model_change)


def _figures(rows: Sequence[Replacement]) -> list[str]:
    """What the columns of figures are headed with."""
    change = "change" if rows[0].rows == "all" else "change of other rows"
    return [change, "distance", *(["model change"] if any(map(_was_run, rows)) else [])]


def _arrow(row: Replacement) -> str:
    change = f"{row.old} -> {row.new} at position {row.position}: {significant(row.value, 4)}"
    model = f", of the model {significant(row.model_change, 4)}" if _was_run(row) else ""
    return change + model


def _cells(rows: Sequence[Replacement]) -> list[tuple[str, ...]]:
    values = column([row.value for row in rows], 4)
    figures = [values, column([row.distance for row in rows], 3)]
    if any(map(_was_run, rows)):
        changes = column([row.model_change for row in rows], 4)
        figures.append(
            [cell if _was_run(row) else "" for row, cell in zip(rows, changes, strict=True)]
        )
    return [
        (str(rank), str(row.position), printable(row.old), printable(row.new), *cells)
        for rank, (row, *cells) in enumerate(zip(rows, *figures, strict=True), 1)
    ]


# -- figures for other programs --------------------------------------------------------------------


def write_csv_header(stream: TextIO) -> None:
    """Write the names of the columns."""
    writer(stream).writerow(CSV_COLUMNS)


def write_csv_rows(stream: TextIO, text: int, rows: Sequence[Replacement]) -> None:
    """Write the replacements of text number `text`, in full precision; NaN is an empty cell."""
    lines = writer(stream)
    for rank, row in enumerate(rows, 1):
        lines.writerow([text, rank, *_record(row).values()])


def json_line(text: int, found: Replacements) -> str:
    """One line of JSON for text number `text`; NaN becomes null.

    Keys: text; replacements (position, old, new, value, distance, replaced: the text with the
    replacement in it, rows: "all", or "others" where the value is of the other words alone,
    model_change: null where the model was not run), in order; model_correlation; left_out (split,
    punctuation, unmatched: words not replaced); share_attained, share_attained_at_distance, and
    both as gap, gap_at_distance, as version 0.1 called them; S (the worst case over the ball; with
    draws, the mean), radius (of that ball); model, layer, info.
    """
    ball = found.sensitivity
    attained, at_distance = (
        finite(share) for share in (found.share_attained, found.share_attained_at_distance)
    )
    record = {
        "text": text,
        "replacements": [_record(row) for row in found.replacements],
        "model_correlation": finite(found.model_correlation),
        "left_out": found.left_out._asdict(),
        "share_attained": attained,
        "share_attained_at_distance": at_distance,
        "gap": attained,
        "gap_at_distance": at_distance,
        "S": None if ball is None else finite(float(ball.value.mean())),
        "radius": None if ball is None else ball.radius,
        "model": found.embedded.model,
        "layer": found.embedded.layer,
        "info": found.result.info,
    }
    return to_json(record)


def _record(row: Replacement) -> dict[str, Any]:
    cells = row._asdict()
    cells |= {"value": finite(row.value), "distance": finite(row.distance)}
    replaced, rows, model = (cells.pop(name) for name in ("text", "rows", "model_change"))
    return {**cells, "replaced": replaced, "rows": rows, "model_change": finite(model)}


# -- HTML ------------------------------------------------------------------------------------------


def to_html(found: Replacements) -> str:
    """HTML of the first replacements and of where the first stands. All of it is escaped."""
    return f'<div class="wsfast">{_block(found, found.replacements[:_SHOWN_IN_HTML])}</div>'


def page(all_found: Sequence[Replacements]) -> str:
    """Write a page of its own that needs no other file; with heat maps where matplotlib is."""
    blocks = [_block(found, found.replacements) + _picture(found) for found in all_found]
    return html.page("Word replacements", blocks)


def _block(found: Replacements, rows: Sequence[Replacement]) -> str:
    text = found.embedded.text
    names = ["rank", "position", "word", "new word", *_figures(rows)]
    again = len(text) <= _MOST_CHARACTERS
    lines = [
        [*cells, *([printable(row.text)] if again else [])]
        for cells, row in zip(_cells(rows), rows, strict=True)
    ]
    attained = "".join(f"<p>{escape(line)}</p>" for line in attained_lines(found))
    shown = f'<p dir="auto">{escape(printable(text))}</p>'
    table = html_table([*names, *(["text"] if again else [])], lines)
    more = next_best(found.result, 0, (row.new for row in rows))
    note = small(f"(changes {'; '.join(of_changes(found.result.info))})")
    return f"{shown}{table}{more}{attained}{note}"


def _picture(found: Replacements) -> str:
    """Heat map of the replacements as a picture in the page; nothing without matplotlib."""
    label = "Heat map: the change that each new word makes at every position"
    if "draws" in found.result.axes:
        label += ", under the first draw of W"
    return html.picture(label, partial(save_figure, found.result))
