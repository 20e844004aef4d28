"""Figures for other programs: CSV rows and JSON objects."""

from __future__ import annotations

import csv
import json
import math
from typing import Any, TextIO

from wsfast.report.view import View

CSV_COLUMNS = ("text", "position", "word", "S_i")
CSV_COLUMNS_DRAWS = (*CSV_COLUMNS, "S_i_low", "S_i_high")


def write_csv_header(stream: TextIO, *, draws: bool) -> None:
    """Write the names of the columns; `draws` adds the ends of the interval."""
    writer(stream).writerow(CSV_COLUMNS_DRAWS if draws else CSV_COLUMNS)


def write_csv_rows(stream: TextIO, text: int, view: View) -> None:
    """Write a row for each word of text number `text`, in full precision; NaN is an empty cell."""
    rows = writer(stream)
    for row in view.rows:
        numbers = [row.value] if view.draws is None else [row.value, row.low, row.high]
        rows.writerow([text, row.position, row.word, *map(finite, numbers)])


def json_line(text: int, view: View, extra: dict[str, Any]) -> str:
    """One line of JSON for text number `text`; NaN becomes null.

    Keys: text, S, position, word (of the largest S_i), words (position, word, S_i for each), then
    those of `extra`. With draws, S and S_i are means, the word is the one with the largest mean,
    and draws, S_low, S_high and, for each word, S_i_low and S_i_high are added.
    """
    worst = view.worst
    record: dict[str, Any] = {
        "text": text,
        "S": finite(view.value),
        "position": worst.position if worst else None,
        "word": worst.word if worst else None,
    }
    if view.draws is not None:
        record |= {"draws": view.draws, "S_low": finite(view.low), "S_high": finite(view.high)}
    words = []
    for row in view.rows:
        cells: dict[str, Any] = {
            "position": row.position,
            "word": row.word,
            "S_i": finite(row.value),
        }
        if view.draws is not None:
            cells |= {"S_i_low": finite(row.low), "S_i_high": finite(row.high)}
        words.append(cells)
    return json.dumps({**record, "words": words, **extra}, allow_nan=False)


def writer(stream: TextIO) -> Any:
    """CSV writer whose lines end the same way on every system."""
    return csv.writer(stream, lineterminator="\n")


def finite(number: float | None) -> float | None:
    """Give None, an empty cell or null, for NaN."""
    return None if number is None or math.isnan(number) else number
