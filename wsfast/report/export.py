"""Figures for other programs: CSV rows and JSON objects."""

from __future__ import annotations

import csv
import json
import math
from typing import Any, TextIO

from wsfast.report.view import View


def write_csv_header(stream: TextIO, view: View) -> None:
    """Write the names of the columns of `write_csv_rows`."""
    writer(stream).writerow(["text", "position", "word", *_figures(view)])


def write_csv_rows(stream: TextIO, text: int, view: View) -> None:
    """Write a row for each word of text number `text`; what is not finite is an empty cell."""
    rows = writer(stream)
    for row in view.rows:
        numbers = [finite(getattr(row, held)) for held in _figures(view).values()]
        rows.writerow([text, row.position, row.word, *numbers])


def _figures(view: View) -> dict[str, str]:
    """Names of the figures of a word, and of what holds each in a row of the view."""
    figures = {"S_i": "value"}
    if view.draws is not None:
        figures |= {"S_i_low": "low", "S_i_high": "high", "share_worst": "share_worst"}
    return figures if view.upper is None else figures | {"upper": "upper"}


def json_line(text: int, view: View, extra: dict[str, Any]) -> str:
    """One line of JSON for text number `text`; what is not finite becomes null.

    Keys: text, S, position, word (of the largest S_i), words (position, word, S_i for each), then
    those of `extra`. With draws, S and S_i are means, the word is the one with the largest mean,
    and draws, S_low, S_high and, for each word, S_i_low, S_i_high and share_worst are added. With
    upper bounds upper is added, for S and each word, and ratio: how far S may be from its bound.
    """
    worst = view.worst
    record: dict[str, Any] = {
        "text": text,
        "S": view.value,
        "position": worst.position if worst else None,
        "word": worst.word if worst else None,
    }
    if view.draws is not None:
        record |= {"draws": view.draws, "S_low": view.low, "S_high": view.high}
    if view.upper is not None:
        record |= {"upper": view.upper, "ratio": view.ratio}
    figures = _figures(view)
    words = [
        {"position": row.position, "word": row.word}
        | {name: getattr(row, held) for name, held in figures.items()}
        for row in view.rows
    ]
    return to_json({**record, "words": words, **extra})


def to_json(record: dict[str, Any]) -> str:
    """A record as one line of JSON, which has no NaN and no infinity: null stands for both."""
    return json.dumps(_with_null(record), allow_nan=False)


def _with_null(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_null(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_with_null(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class _Lines:
    """A stream for `csv.writer` whose records end in one character on every system."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, record: str) -> None:
        self._stream.write(f"{record[:-2]}\n")


def writer(stream: TextIO) -> Any:
    """CSV writer of records that end in a line feed; a cell with a return or a feed is quoted."""
    # It quotes the characters of its line end only: a lone return would split a record.
    return csv.writer(_Lines(stream), lineterminator="\r\n")


def finite(number: float | None) -> float | None:
    """Give None, an empty cell or null, for NaN and infinity."""
    return number if number is not None and math.isfinite(number) else None
