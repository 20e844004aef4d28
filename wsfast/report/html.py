"""A result in a notebook: its words, coloured by S_i."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import TYPE_CHECKING

from wsfast.report.digits import significant
from wsfast.report.shade import legend, shades
from wsfast.report.table import summary
from wsfast.report.view import View, view_of
from wsfast.results.axes import HasAxes, size

if TYPE_CHECKING:
    from wsfast.results.sensitivity import SensitivityResult

_MOST_TEXTS = 10  # of a batch; a notebook cell with hundreds would be slow to open


def to_html(result: SensitivityResult) -> str:
    """HTML of the first texts: the summary, then the words. Everything from outside is escaped."""
    view = view_of(result)
    note = f"({legend(view)}; {view.scope})"
    return first_texts(result, lambda text: _block(view_of(result, text=text)), note=note)


def first_texts(
    result: HasAxes, block: Callable[[int], str], *, head: str = "", note: str = ""
) -> str:
    """HTML: `head`, the first texts of a result as `block` writes each, the rest's number, `note`.

    `note` is a text, in small letters; the others are HTML.
    """
    texts = size(result, "texts") or 1
    shown = min(texts, _MOST_TEXTS)
    blocks = [block(text) for text in range(shown)]
    if texts > shown:
        blocks.append(f"<p>… and {texts - shown} more texts</p>")
    if note:
        blocks.append(small(note))
    return f'<div class="wsfast">{head}{"".join(blocks)}</div>'


def small(note: str) -> str:
    """Write a line about the figures above it."""
    return f'<p style="font-size:smaller;opacity:0.8">{escape(note)}</p>'


def html_table(names: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Write a table of texts, which are escaped, below names of its columns, which are not."""
    head = "".join(f"<th>{name}</th>" for name in names)
    # dir="auto": words of a script that runs from right to left
    rows = "".join(
        "<tr>" + "".join(f'<td dir="auto">{escape(cell)}</td>' for cell in line) + "</tr>"
        for line in lines
    )
    return f"<table><tr>{head}</tr>{rows}</table>"


def _block(view: View) -> str:
    words = " ".join(
        _span(row.label, row.value, shade, worst=row is view.worst)
        for row, shade in zip(view.rows, shades(view), strict=True)
    )
    return f'<p>{escape(summary(view))}</p><p style="line-height:1.8">{words}</p>'


def _span(label: str, value: float, shade: float | None, *, worst: bool) -> str:
    if shade is None:
        return f'<span style="opacity:0.5" title="not searched">{escape(label)}</span>'
    # A transparent background keeps the page's own text colour readable, light theme or dark.
    style = f"background:rgba(255,90,0,{0.08 + 0.62 * shade:.2f});padding:1px 3px;border-radius:3px"
    if worst:
        style += ";font-weight:bold;text-decoration:underline"
    return f'<span style="{style}" title="S_i = {significant(value)}">{escape(label)}</span>'
