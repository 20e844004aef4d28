"""Text for a terminal: the table of words, the line of coloured words, one-line summaries."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Container, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, TextIO

from wsfast.report import digits
from wsfast.report.html import MOST_TEXTS
from wsfast.report.shade import legend, shades
from wsfast.report.view import View
from wsfast.results.axes import HasAxes, size

if TYPE_CHECKING:
    import numpy as np

    from wsfast.results.scores import Cut

# xterm-256 backgrounds from pale yellow to red; black text is readable on all of them.
_BACKGROUNDS = (230, 229, 222, 215, 208, 202, 196)

# They shape letters of Persian or Hindi and join emoji, and drive no terminal.
_JOINERS = "\u200c\u200d"


def word_table(view: View) -> str:
    """Columns position, word and S_i, the worst word marked.

    Of draws also the half width of the interval, and in which share of them a word is the worst;
    the upper bounds where there are some.
    """
    worst = view.worst
    of_draws, bounds = view.draws is not None, view.upper is not None
    header = [view.place, "word", "S_i", *["±"] * of_draws, *["at most"] * bounds]
    lines = [[*header, *["worst in"] * of_draws]]
    places = digits.decimals(row.value for row in view.rows)
    for row in view.rows:
        cells = [str(row.position), printable(row.label), digits.write(row.value, places)]
        if row.low is not None and row.high is not None:
            cells.append(digits.write((row.high - row.low) / 2, places))
        if row.upper is not None:
            cells.append(digits.write_up(row.upper, places))
        if row.share_worst is not None:
            cells.append(digits.percent(row.share_worst))
        lines.append(cells)
    marks = [""] + ["  <- worst" if row is worst else "" for row in view.rows]
    return "\n".join(line + mark for line, mark in zip(aligned(lines, {1}), marks, strict=True))


def summary(view: View) -> str:
    """One line: S, what it is at most where that is known, and the word that attains it."""
    worst, bracket = view.worst, at_most(view.upper, view.ratio, several=view.draws is not None)
    if worst is None:
        return f"S = {digits.significant(view.value)}"
    kind = "word" if view.place == "position" else view.place
    name = (
        f"{printable(worst.word)!r} at {view.place}"
        if worst.word
        else f"the {kind} at {view.place}"
    )
    if view.draws and view.low is not None and view.high is not None:
        S = digits.plus_minus(view.value, (view.high - view.low) / 2)
        return (
            f"S = {S} (mean of {view.draws} draws of W, 95 % interval){bracket}, "
            f"worst {kind} on average: {name} {worst.position}"
        )
    return f"S = {digits.significant(view.value)}{bracket}, worst {kind}: {name} {worst.position}"


def at_most(upper: float | None, ratio: float | None, *, several: bool) -> str:
    """Give the upper bound of S to write after it, and how far S may be off, if that is known.

    `several` says that the ratio is the largest of several.
    """
    if upper is None or ratio is None or not math.isfinite(upper):
        return ""
    bound, factor = (
        digits.write_up(number, digits.decimals([number], most), most)
        for number, most in ((upper, 5), (ratio, 4))
    )
    return f", at most {bound} (ratio {'up to ' if several else ''}{factor})"


def colored_text(
    text: str, offsets: Sequence[tuple[int, int]], view: View, *, color: bool = True
) -> str:
    """Show the text, each word on a background from pale (smallest S_i) to red (largest).

    `offsets` holds the characters (start, stop) of each row of `view`. The worst word is also
    underlined; a line below says what the shades mean. Without `color` the text is only made fit
    for one line of a terminal.
    """
    worst, end, pieces = view.worst, 0, []
    for row, shade, (start, stop) in zip(view.rows, shades(view), offsets, strict=True):
        pieces.append(printable(text[end:start]))
        word, end = printable(text[start:stop]), max(end, stop)
        if not color or shade is None or not word:
            pieces.append(word)
            continue
        background = _BACKGROUNDS[round(shade * (len(_BACKGROUNDS) - 1))]
        style = f"\x1b[{'1;4;' if row is worst else ''}30;48;5;{background}m"
        pieces.append(f"{style}{word}\x1b[0m")
    line = "".join(pieces).strip() + (" …" if text[end:].strip() else "")
    return f"{line}\n\x1b[2m({legend(view)}; {view.scope})\x1b[0m" if color else line


def wants_color(stream: TextIO) -> bool:
    """Colour for a terminal, unless NO_COLOR (no-color.org) is set to anything."""
    return stream.isatty() and not os.environ.get("NO_COLOR")


def printable(text: str) -> str:
    """Put a text on one line, control characters (which could drive a terminal) made visible."""
    spaced = "".join(" " if char.isspace() else char for char in text)
    shown = (
        c if c.isprintable() or c in _JOINERS else c.encode("unicode_escape").decode()
        for c in spaced
    )
    return "".join(shown)


def first_texts(
    count: int, not_done: Mapping[int, str], lines: Callable[[int], Sequence[str]]
) -> str:
    """Write the first of `count` texts, each below its number; `not_done` says why some are not."""
    blocks = [
        printable(left_out(text, not_done[text]))
        if text in not_done
        else "\n".join([f"text {text}", *lines(text)])
        for text in range(min(count, MOST_TEXTS))
    ]
    if (more := count - MOST_TEXTS) > 0:
        blocks.append(f"… and {counted(more, 'text')} more")
    return "\n\n".join(blocks)


def left_out(text: int, reason: str) -> str:
    """Say that text number `text` of a list could not be done."""
    return f"text {text} is left out: it {reason}"


def incomplete(not_done: Mapping[int, str], cut: Mapping[int, Cut]) -> list[str]:
    """How many texts are left out, and how many were cut, with the first of either."""
    lines = []
    if not_done:
        text, reason = next(iter(not_done.items()))
        count = counted(len(not_done), "text")
        lines.append(f"{count} left out, the first of them text {text}: it {printable(reason)}")
    if cut:
        text, (tokens, kept) = next(iter(cut.items()))
        lines.append(
            f"{counted(len(cut), 'text')} cut, the first of them text {text}: {tokens} tokens, cut "
            f"to the first {kept}"
        )
    return lines


def in_part(lines: Sequence[str], most: int) -> list[str]:
    """Give the first and the last of many lines, `most` of them, and how many are between."""
    if len(lines) <= most:
        return list(lines)
    half = most // 2
    return [*lines[:half], f"... {len(lines) - 2 * half} more", *lines[-half:]]


def extremes(values: np.ndarray[Any, Any]) -> tuple[float, float]:
    """Smallest and largest of the known values; NaN where none is known."""
    known = values[values == values]
    return (float(known.min()), float(known.max())) if known.size else (math.nan, math.nan)


def sizes(result: HasAxes, n: int, place: str = "word") -> list[str]:
    """How many texts, draws and words, or other places, (at most n in a text) there are."""
    counts = [(axis[:-1], size(result, axis) or 0) for axis in result.axes]
    parts = [counted(count, name) for name, count in counts]
    return [*parts, f"{'up to ' if 'texts' in result.axes else ''}{counted(n, place)}"]


def counted(count: int, name: str) -> str:
    """Write a number of things: "1 word", "2 words"."""
    return f"{count} {name}{'' if count == 1 else 's'}"


def aligned(lines: Sequence[Sequence[str]], left: Container[int]) -> list[str]:
    """Lines of cells as lines of text: columns `left` to the left, the others to the right."""
    widths = [max(map(width, column)) for column in zip(*lines, strict=True)]
    return [_padded(line, widths, left) for line in lines]


def _padded(cells: Sequence[str], widths: list[int], left: Container[int]) -> str:
    padded = []
    for column, (cell, most) in enumerate(zip(cells, widths, strict=True)):
        space = " " * (most - width(cell))
        padded.append(cell + space if column in left else space + cell)
    return "  ".join(padded).rstrip()


def width(text: str) -> int:
    """Columns that a terminal gives to a text that is `printable`."""
    from wcwidth import wcswidth

    return wcswidth(text)


def shortened(text: str, columns: int) -> str:
    """Cut a `printable` text to so many columns of a terminal, between whole characters."""
    from wcwidth import iter_graphemes

    if width(text) <= columns:
        return text
    pieces = list(iter_graphemes(text))
    ends = accumulate(map(width, pieces))
    kept = [piece for piece, end in zip(pieces, ends, strict=True) if end < columns]
    return f"{''.join(kept)}…"
