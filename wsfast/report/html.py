"""A result in a notebook: its words, coloured by S_i."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING

from wsfast.report.shade import shades
from wsfast.report.table import summary
from wsfast.report.view import View, view_of
from wsfast.sensitivity.axes import HasAxes, size

if TYPE_CHECKING:
    from wsfast.sensitivity.result import SensitivityResult

_MOST_TEXTS = 10  # of a batch; a notebook cell with hundreds would be slow to open


def to_html(result: SensitivityResult) -> str:
    """HTML of the first texts: the summary, then the words. Everything from outside is escaped."""
    return first_texts(result, lambda text: _block(view_of(result, text=text)))


def first_texts(result: HasAxes, block: Callable[[int], str], *, head: str = "") -> str:
    """HTML: `head`, the first texts of a result as `block` writes each, how many are left out."""
    texts = size(result, "texts") or 1
    shown = min(texts, _MOST_TEXTS)
    blocks = [block(text) for text in range(shown)]
    if texts > shown:
        blocks.append(f"<p>… and {texts - shown} more texts</p>")
    return f'<div class="wsfast">{head}{"".join(blocks)}</div>'


def _block(view: View) -> str:
    words = " ".join(
        _span(row.label, row.value, shade, worst=row is view.worst)
        for row, shade in zip(view.rows, shades(view.rows), strict=True)
    )
    return f'<p>{escape(summary(view))}</p><p style="line-height:1.8">{words}</p>'


def _span(label: str, value: float, shade: float | None, *, worst: bool) -> str:
    if shade is None:
        return f'<span style="opacity:0.5" title="not searched">{escape(label)}</span>'
    # A transparent background keeps the page's own text colour readable, light theme or dark.
    style = f"background:rgba(255,90,0,{0.08 + 0.62 * shade:.2f});padding:1px 3px;border-radius:3px"
    if worst:
        style += ";font-weight:bold;text-decoration:underline"
    return f'<span style="{style}" title="S_i = {value:.4f}">{escape(label)}</span>'
