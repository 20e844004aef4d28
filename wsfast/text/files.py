"""Texts from a file."""

from __future__ import annotations

import csv
import io
import sys
from pathlib import Path

DEFAULT_COLUMN = "text"


def read_texts(path: Path, column: str | None = None) -> list[tuple[int, str]]:
    """Read the texts of a file, numbered from 0; blank ones are left out but counted.

    Parameters
    ----------
    path : Path
        A ``.csv`` file with a header and one text a row, or any other file with one text a line;
        UTF-8.
    column : str, optional
        Column of the ``.csv`` file; ``text`` by default.

    Returns
    -------
    list of (number, text)

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If it is not UTF-8 or not CSV, has no such column, or no texts.
    """
    if path.suffix.lower() == ".csv":
        texts = _read_column(path, DEFAULT_COLUMN if column is None else column)
    elif column is not None:
        raise ValueError(f"column: only a .csv file has columns, got {str(path)!r}")
    else:
        texts = list(io.StringIO(_read(path)))
    numbered = [(number, text.strip()) for number, text in enumerate(texts) if text.strip()]
    if not numbered:
        raise ValueError(f"file: no texts in {str(path)!r}")
    return numbered


def _read_column(path: Path, column: str) -> list[str]:
    # The default of 128 KiB a cell is less than a long document.
    before = csv.field_size_limit(sys.maxsize)
    try:
        rows = list(csv.reader(io.StringIO(_read(path), newline="")))
    except csv.Error as error:
        raise ValueError(f"file: {str(path)!r} is not CSV: {error}") from error
    finally:
        csv.field_size_limit(before)
    header = rows[0] if rows else []
    if column not in header:
        raise ValueError(f"column: no {column!r} in {str(path)!r}, which has {header}")
    index = header.index(column)
    return [row[index] if index < len(row) else "" for row in rows[1:] if row]


def _read(path: Path) -> str:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return file.read()
    except UnicodeDecodeError as error:
        raise ValueError(f"file: {str(path)!r} is not UTF-8: {error}") from error
