"""Fonts that have the characters of a picture's words."""

from __future__ import annotations

import unicodedata
import warnings
from collections.abc import Sequence

from wsfast._extras import import_extra

_BOX = "\u25a1"  # the usual sign for what a font lacks
_LAST_RESORT = "Last Resort"  # it has a box for everything
_PREFERRED = "Noto Sans"  # plain, and there is one for every script
_WEIGHTS = (400, 700)  # the best word's label is bold
_family_of: dict[str, str | None] = {}  # of every character that was looked for


def fit(labels: Sequence[str]) -> tuple[list[str], list[str]]:
    """Give labels as they can be drawn, and the font families that they need.

    Families of installed fonts follow those that matplotlib is set to, which it asks in this order.
    What no font has becomes a box, with one warning that says what to install.
    """
    families = [*import_extra("matplotlib", "plots").rcParams["font.family"]]
    missing = {*"".join(labels)}
    for family in families:
        missing -= _have(_files(family), missing)
    _look_for(missing)
    families += sorted({name for c in missing if (name := _family_of[c])})
    boxes = {c for c in missing if _family_of[c] is None}
    if nowhere := {c for c in boxes if not _invisible(c)}:
        scripts = sorted({unicodedata.name(c, "unnamed").split()[0] for c in nowhere})
        warnings.warn(
            f"no installed font has some characters ({', '.join(scripts)}): they are drawn as "
            "boxes. Install one that has them, such as Noto Sans, https://fonts.google.com/noto "
            "(Debian and Ubuntu: apt install fonts-noto-core fonts-noto-cjk)",
            UserWarning,
            stacklevel=2,
        )
    signs = {ord(c): None if _invisible(c) else _BOX for c in boxes}
    return [label.translate(signs) for label in labels], families


def _invisible(char: str) -> bool:
    """Whether a character only changes its neighbours: joiners, selectors of a variant."""
    return unicodedata.category(char) == "Cf" or "\ufe00" <= char <= "\ufe0f"


def _files(family: str) -> list[str]:
    """Font files that matplotlib takes for a family that it is set to."""
    manager = import_extra("matplotlib.font_manager", "plots")
    # As a list: a family's name alone would be read as a pattern.
    return [
        str(manager.findfont(manager.FontProperties(family=[family], weight=weight)))
        for weight in _WEIGHTS
    ]


def _look_for(chars: set[str]) -> None:
    """Learn which installed family has each character, None where none has."""
    wanted = chars - _family_of.keys()
    for family, paths in _installed() if wanted else []:
        found = _have(paths, wanted)
        _family_of.update(dict.fromkeys(found, family))
        wanted -= found
        if not wanted:
            return
    _family_of.update(dict.fromkeys(wanted))


def _installed() -> list[tuple[str, list[str]]]:
    """Families of the installed fonts and their upright files, plain families first."""
    manager = import_extra("matplotlib.font_manager", "plots")
    files: dict[str, dict[int, str]] = {}
    for entry in manager.fontManager.ttflist:
        if entry.style == "normal" and not entry.name.startswith(_LAST_RESORT):
            weight = manager.weight_dict.get(entry.weight, entry.weight)
            files.setdefault(entry.name, {})[int(weight)] = entry.fname
    families = [
        (name, [of[min(of, key=lambda has: abs(has - wanted))] for wanted in _WEIGHTS])
        for name, of in files.items()
    ]
    # matplotlib says so where it draws a bold label in a family that has no bold face.
    return sorted(
        families, key=lambda one: (not one[0].startswith(_PREFERRED), -len({*one[1]}), one)
    )


def _have(paths: Sequence[str], chars: set[str]) -> set[str]:
    """Those of the characters that all of these files have."""
    ft2font = import_extra("matplotlib.ft2font", "plots")
    try:
        faces = [ft2font.FT2Font(path) for path in {*paths}]
    except (OSError, RuntimeError):  # taken away since matplotlib saw it, or broken
        return set()
    # Pictures of emoji in one size cannot be drawn.
    return {c for c in chars if all(one.scalable and one.get_char_index(ord(c)) for one in faces)}
