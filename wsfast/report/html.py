"""HTML that results of several kinds are shown in. Everything from outside is escaped."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory

from wsfast._extras import import_extra
from wsfast.results.axes import HasAxes, size

# No script, no font, no address: the page works offline, in a light theme and in a dark one.
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>
body {{ font-family: sans-serif; margin: 2em auto; max-width: 60em; padding: 0 1em }}
table {{ border-collapse: collapse }}
th, td {{ padding: 0.2em 0.8em; text-align: left; border-bottom: 1px solid #8884 }}
img {{ max-width: 100%; background: white }}
</style>
</head>
<body>
<h1>{title}</h1>
{body}
</body>
</html>
"""

MOST_TEXTS = 10  # of a batch; a notebook cell with hundreds would be slow to open


def first_texts(
    result: HasAxes, block: Callable[[int], str], *, head: str = "", note: str = ""
) -> str:
    """HTML: `head`, the first texts of a result as `block` writes each, the rest's number, `note`.

    `note` is a text, in small letters; the others are HTML.
    """
    texts = size(result, "texts") or 1
    shown = min(texts, MOST_TEXTS)
    blocks = [block(text) for text in range(shown)]
    if texts > shown:
        blocks.append(f"<p>… and {texts - shown} more texts</p>")
    if note:
        blocks.append(small(note))
    return f'<div class="wsfast">{head}{"".join(blocks)}</div>'


def page(title: str, blocks: Sequence[str]) -> str:
    """Write a page of its own that needs no other file, of blocks of HTML."""
    return _PAGE.format(title=title, body="\n<hr>\n".join(blocks))


def picture(label: str, save: Callable[[Path], None]) -> str:
    """Put what `save` draws into a file into the page; nothing without matplotlib."""
    try:
        import_extra("matplotlib", "plots")
    except ImportError:
        return ""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "picture.png"
        save(path)
        data = b64encode(path.read_bytes()).decode()
    return f'<p><img alt="{escape(label)}" src="data:image/png;base64,{data}"></p>'


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
