"""Figures for other programs: CSV rows and JSON objects."""

from __future__ import annotations

import csv
import json
import math
from typing import Any, TextIO

from wsfast.report.view import View

CSV_COLUMNS = ("text", "position", "word", "S_i")
CSV_COLUMNS_DRAWS = (*CSV_COLUMNS, "S_i_low", "S_i_high", "share_worst")


def write_csv_header(stream: TextIO, *, draws: bool) -> None:
    """Write the names of the columns; `draws` adds the interval and the share of the draws."""
    writer(stream).writerow(CSV_COLUMNS_DRAWS if draws else CSV_COLUMNS)


def write_csv_rows(stream: TextIO, text: int, view: View) -> None:
    """Write a row for each word of text number `text`; what is not finite is an empty cell."""
    rows = writer(stream)
    for row in view.rows:
        numbers: list[float | None] = [row.value]
        if view.draws is not None:
            numbers += [row.low, row.high, row.share_worst]
        rows.writerow([text, row.position, row.word, *map(finite, numbers)])


def json_line(text: int, view: View, extra: dict[str, Any]) -> str:
    """One line of JSON for text number `text`; what is not finite becomes null.

    Keys: text, S, position, word (of the largest S_i), words (position, word, S_i for each), then
    those of `extra`. With draws, S and S_i are means, the word is the one with the largest mean,
    and draws, S_low, S_high and, for each word, S_i_low, S_i_high and share_worst are added.
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
    words = []
    for row in view.rows:
        cells: dict[str, Any] = {
            "position": row.position,
            "word": row.word,
            "S_i": row.value,
        }
        if view.draws is not None:
            cells |= {"S_i_low": row.low, "S_i_high": row.high, "share_worst": row.share_worst}
        words.append(cells)
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
