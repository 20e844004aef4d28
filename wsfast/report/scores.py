"""Word sensitivity of real text: lines for a terminal, CSV and JSON of what `score` found."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from wsfast.report import export, sensitivity, table
from wsfast.report.view import view_of

if TYPE_CHECKING:
    from wsfast.results.scores import Scores


def lines(scores: Scores, text: int, *, color: bool) -> list[str]:
    """Text number `text` of what was scored, its table of words, and S."""
    view = view_of(scores.result, text=text)
    return [
        table.colored_text(scores.texts[text], scores.offsets[text], view, color=color),
        table.word_table(view),
        table.summary(view),
    ]


def csv_rows(scores: Scores, text: int, *, number: int, header: bool) -> str:
    """Rows of CSV for text number `text`, which is called `number`; with a header above them."""
    view = view_of(scores.result, text=text)
    stream = io.StringIO()
    if header:
        export.write_csv_header(stream, view)
    export.write_csv_rows(stream, number, view)
    return stream.getvalue()


def json_line(scores: Scores, text: int, *, number: int) -> str:
    """A line of JSON for text number `text`, which is called `number`; see `export.json_line`.

    Added are model, layer, scale, unit, radius and info.
    """
    source = {
        "model": scores.model,
        "layer": scores.layer,
        "scale": scores.scale,
        "unit": scores.unit,
        "radius": scores.result.radius,
        "info": scores.result.info,
    }
    return export.json_line(number, view_of(scores.result, text=text), source)


def to_csv(scores: Scores) -> str:
    """Rows for each word of each text that was done, below a header."""
    done = _done(scores)
    return "".join(csv_rows(scores, text, number=text, header=text == done[0]) for text in done)


def to_jsonl(scores: Scores) -> str:
    """A line for each text that was done."""
    return "".join(f"{json_line(scores, text, number=text)}\n" for text in _done(scores))


def to_html(scores: Scores) -> str:
    """HTML of the first texts, and of those left out among them."""
    return sensitivity.to_html(
        scores.result, {text: table.left_out(text, why) for text, why in scores.left_out.items()}
    )


def to_text(scores: Scores) -> str:
    """What ``wsfast score`` prints of the first texts, without colour."""
    if "texts" not in scores.result.axes:
        return "\n".join(lines(scores, 0, color=False))
    return table.first_texts(
        len(scores.texts), scores.left_out, lambda text: lines(scores, text, color=False)
    )


def describe(scores: Scores) -> str:
    """S and its word, or the range of S, and which texts are left out or cut."""
    found = [sensitivity.facts(scores.result), *table.incomplete(scores.left_out, scores.cut)]
    body = "\n  ".join(found)
    return f"Scores({body})"


def _done(scores: Scores) -> list[int]:
    return [text for text in range(len(scores.texts)) if text not in scores.left_out]
