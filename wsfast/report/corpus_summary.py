"""Summaries of a corpus: tables and pictures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from wsfast._extras import import_extra
from wsfast.report.digits import column
from wsfast.report.plot import save_drawing
from wsfast.report.scope import OF_CORPUS
from wsfast.report.table import aligned, counted, printable, shortened
from wsfast.results.corpus_summary import OF_LENGTH

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from wsfast.results.corpus_summary import CorpusSummary, Group

_MOST = 10  # groups of a table, and words at either end
_LONGEST = 24  # columns of a word
_TITLES = {"position": "position", "length": "tokens", "label": "label", "word": "word"}


def to_text(found: CorpusSummary) -> str:
    """Tables of all groupings, the first rows of each."""
    errors = f", {found.errors} with an error" if found.errors else ""
    lines = [f"{counted(found.rows, 'text')}{errors}; {found.of}"]
    if found.overall is None:
        return f"{lines[0]}: no text has a value"
    lines += ["", *_table("all texts", [found.overall], names=[""])]
    most, least = found.extreme_words(_MOST)
    for title, words in (("most sensitive words", most), ("least sensitive words", least)):
        lines += ["", f"{title} (in {found.least_texts} texts or more)", *_table("word", words)]
    for by in ("position", "length", "label"):
        if by in found.groups:
            groups = found.groups[by]
            lines += ["", *_table(_TITLES[by], groups[:_MOST], names=_classes(by, groups[:_MOST]))]
            if len(groups) > _MOST:
                lines.append(f"… and {len(groups) - _MOST} more")
    return "\n".join([*lines, "", OF_CORPUS])


def _table(title: str, groups: Sequence[Group], names: Sequence[str] | None = None) -> list[str]:
    if names is None:
        names = [shortened(printable(str(one.key)), _LONGEST) for one in groups]
    figures = [
        column(getattr(one, name) for one in groups)
        for name in ("mean", "low", "high", "q05", "median", "q95", "largest")
    ]
    heads = ["mean", "95 % interval", "", "5 %", "median", "95 %", "largest"]
    rows = [
        [name, str(one.texts), str(one.count), *cells]
        for name, one, *cells in zip(names, groups, *figures, strict=True)
    ]
    return aligned([[title, "texts", "values", *heads], *rows], {0})


def _classes(by: str, groups: Sequence[Group]) -> list[str] | None:
    """Names of classes of length; None where groups are named by their keys."""
    if by != "length":
        return None
    return [f"{one.key} to {int(one.key) + OF_LENGTH - 1}" for one in groups]


def save_pictures(found: CorpusSummary, folder: Path) -> list[Path]:
    """Draw the words at either end, and the means by position and length.

    None without matplotlib.
    """
    try:
        import_extra("matplotlib", "plots")
    except ImportError:
        return []
    written = [folder / "words.png"]
    most, least = found.extreme_words(_MOST)
    words = list(dict.fromkeys([*most, *reversed(least)]))
    save_drawing(
        written[0], (6.0, 1.0 + 0.25 * max(4, len(words))), lambda ax: _bars(ax, words, found.of)
    )
    for by in ("position", "length"):
        written.append(folder / f"{by}.png")
        groups = found.groups[by]
        save_drawing(written[-1], (6.0, 3.5), lambda ax: _band(ax, groups, by, found.of))  # noqa: B023
    return written


def _bars(ax: Axes, words: Sequence[Group], of: str) -> None:
    """Means and their intervals, the largest at the top."""
    names = [shortened(printable(str(one.key)), _LONGEST) for one in words]
    halves = [0.0 if math.isnan(one.high) else one.high - one.mean for one in words]
    places = range(len(words))
    ax.barh(places, [one.mean for one in words], xerr=halves, color="tab:orange")
    ax.set_yticks(places, names)
    ax.invert_yaxis()
    ax.set_xlabel(f"mean of {of} over texts, 95 % interval")
    ax.set_title("most and least sensitive words", fontsize="medium")


def _band(ax: Axes, groups: Sequence[Group], by: str, of: str) -> None:
    """The mean with its interval, and the quantiles."""
    keys = [int(one.key) for one in groups]
    ax.fill_between(
        keys, [one.q05 for one in groups], [one.q95 for one in groups], alpha=0.2, label="5 to 95 %"
    )
    ax.plot(keys, [one.median for one in groups], "--", label="median")
    ax.plot(keys, [one.mean for one in groups], label="mean")
    ax.set_xlabel(_TITLES[by])
    ax.set_ylabel(of)
    ax.legend()
