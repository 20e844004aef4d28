"""Text for a terminal: the table of words, the line of coloured words, one-line summaries."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from wsfast.report.shade import shades
from wsfast.report.view import View, view_of
from wsfast.sensitivity.arrays import to_numpy

if TYPE_CHECKING:
    from wsfast.sensitivity.result import SensitivityResult

# xterm-256 backgrounds from pale yellow to red; black text is readable on all of them.
_BACKGROUNDS = (230, 229, 222, 215, 208, 202, 196)


def word_table(view: View) -> str:
    """Columns position, word, S_i (and the half width of its interval), the worst word marked."""
    worst = view.worst
    header = ["position", "word", "S_i"] + (["±"] if view.draws else [])
    lines = [header]
    for row in view.rows:
        cells = [str(row.position), printable(row.label), f"{row.value:.4f}"]
        if row.low is not None and row.high is not None:
            cells.append(f"{(row.high - row.low) / 2:.4f}")
        lines.append(cells)
    widths = [max(_width(line[column]) for line in lines) for column in range(len(header))]
    marks = [""] + ["  <- worst" if row is worst else "" for row in view.rows]
    return "\n".join(_aligned(line, widths) + mark for line, mark in zip(lines, marks, strict=True))


def summary(view: View) -> str:
    """One line: S, and the word that attains it."""
    worst = view.worst
    if worst is None:
        return f"S = {view.value:.4f}"
    name = f"{printable(worst.word)!r} at position" if worst.word else "the word at position"
    if view.draws and view.low is not None and view.high is not None:
        return (
            f"S = {view.value:.4f} ± {(view.high - view.low) / 2:.4f} (mean of {view.draws} draws "
            f"of W, 95 % interval), worst word on average: {name} {worst.position}"
        )
    return f"S = {view.value:.4f}, worst word: {name} {worst.position}"


def colored_text(
    text: str, offsets: Sequence[tuple[int, int]], view: View, *, color: bool = True
) -> str:
    """Show the text, each word on a background from pale (smallest S_i) to red (largest).

    `offsets` holds the characters (start, stop) of each row of `view`. The worst word is also
    underlined. Without `color` the text is only made fit for one line of a terminal.
    """
    worst, end, pieces = view.worst, 0, []
    for row, shade, (start, stop) in zip(view.rows, shades(view.rows), offsets, strict=True):
        pieces.append(printable(text[end:start]))
        word, end = printable(text[start:stop]), max(end, stop)
        if not color or shade is None or not word:
            pieces.append(word)
            continue
        background = _BACKGROUNDS[round(shade * (len(_BACKGROUNDS) - 1))]
        style = f"\x1b[{'1;4;' if row is worst else ''}30;48;5;{background}m"
        pieces.append(f"{style}{word}\x1b[0m")
    rest = text[end:].strip()
    return "".join(pieces).strip() + (" …" if rest else "")


def wants_color(stream: TextIO) -> bool:
    """Colour for a terminal, unless NO_COLOR (no-color.org) is set to anything."""
    return stream.isatty() and not os.environ.get("NO_COLOR")


def printable(text: str) -> str:
    """Put a text on one line, control characters (which could drive a terminal) made visible."""
    spaced = "".join(" " if char.isspace() else char for char in text)
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in spaced)


def describe(result: SensitivityResult) -> str:
    """Two lines: S and its word (or the range of S), then sizes, radius and backend."""
    values = to_numpy(result.value)
    sizes = dict(zip(result.axes, values.shape, strict=True))
    n, d = int(result.per_word.shape[-1]), int(result.delta.shape[-1])
    if values.size == 1:
        head = summary(view_of(result, draw=0))
    else:
        known = values[values == values]
        low, high = (known.min(), known.max()) if known.size else (float("nan"), float("nan"))
        head = f"S from {low:.4f} to {high:.4f}"
    parts = [f"{count} {_plural(axis[:-1], count)}" for axis, count in sizes.items()]
    parts.append(f"{'up to ' if 'texts' in sizes else ''}{n} {_plural('word', n)}")
    parts += [f"d = {d}", f"radius {result.radius:.4g}"]
    if "backend" in result.info:
        parts.append(f"backend {result.info['backend']}")
    return f"SensitivityResult({head}\n  {', '.join(parts)})"


def _plural(word: str, count: int) -> str:
    return word if count == 1 else f"{word}s"


def _aligned(cells: list[str], widths: list[int]) -> str:
    """Words to the left, numbers to the right."""
    padded = []
    for column, (cell, width) in enumerate(zip(cells, widths, strict=True)):
        space = " " * (width - _width(cell))
        padded.append(cell + space if column == 1 else space + cell)
    return "  ".join(padded).rstrip()


def _width(text: str) -> int:
    """Columns that a terminal gives to the text: two for wide characters, none for marks."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )
