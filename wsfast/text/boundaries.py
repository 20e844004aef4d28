"""Where a reader sees characters and words begin, in any script (Unicode annex 29).

A place p in a text is in front of its character p.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from wsfast._extras import import_extra

# Letters and digits hold together, but for the scripts that Unicode leaves to dictionaries. So do
# an apostrophe between two of them (also in its usual misspellings), the middle dot of Catalan, the
# gershayim of Hebrew, and the point or comma of a number. Not so a full stop between letters, where
# annex 29 joins: reviews leave out the blank after it more often than they write "U.S.A". And no
# word ends with a mark where a letter follows, in any script but those of ideographs.
_LETTER = r"[\p{WB=ALetter}\p{WB=Hebrew_Letter}\p{WB=Numeric}]"
_BEFORE = rf"{_LETTER}\p{{WB=Extend}}*"
_APOSTROPHE = "['’‘＇`´·״]"
_POINT = "[.,٫٬]"
_JOINED = (
    rf"(?<={_BEFORE})(?={_LETTER}|{_APOSTROPHE}{_LETTER})"
    rf"|(?<={_BEFORE}{_APOSTROPHE})(?={_LETTER})"
    rf"|(?<=\p{{Nd}})(?={_POINT}\p{{Nd}})"
    rf"|(?<=\p{{Nd}}{_POINT})(?=\p{{Nd}})"
    r"|(?<=(?!\p{Ideographic})\p{L}\p{M}+)(?!\p{Ideographic})(?=\p{L})"
)

_PUNCTUATION = r"[\p{P}$+<=>^`|~]"  # as BERT has it
_OTHER = r"[^\s\p{P}$+<=>^`|~]"
_TOUCHING = rf"(?<={_OTHER})(?={_OTHER})"
_WORD = r"[\p{L}\p{N}]"
_PARTED = rf"(?<={_PUNCTUATION}\p{{M}}*)(?={_WORD})|(?<={_WORD}\p{{M}}*)(?={_PUNCTUATION})"


@lru_cache
def _compiled(pattern: str) -> Any:
    return import_extra("regex", "text").compile(pattern)


def joined(text: str, place: int) -> bool:
    """Whether the place is inside a word, as both in "I've" are, whatever a tokenizer says."""
    return _compiled(_JOINED).match(text, place) is not None


def parted(text: str, place: int) -> bool:
    """Whether punctuation meets a word there."""
    return _compiled(_PARTED).match(text, place) is not None and not joined(text, place)


def touching(text: str, place: int) -> bool:
    """Whether a tokenizer may read what stands before and behind the place as one word."""
    return _compiled(_TOUCHING).match(text, place) is not None


def inner_places(text: str) -> set[int]:
    """Places inside a character as a reader sees it: a letter and its marks, a joined emoji.

    A mark after white space belongs to no character.
    """
    if text.isascii():
        return set()
    spans = [
        character.span()
        for run in _compiled(r"\S+").finditer(text)
        if not run.group().isascii()
        for character in _compiled(r"\X").finditer(text, *run.span())
    ]
    return {place for start, stop in spans for place in range(start + 1, stop)}


def whole_characters(offsets: list[tuple[int, int]], inner: set[int]) -> list[tuple[int, int]]:
    """Spans of tokens, grown to the characters that they hold a part of.

    Tokenizers leave out marks, and the spans end before them. Where two tokens share a character,
    each grows up to the other.

    Parameters
    ----------
    offsets : list of (start, stop)
        In the order of the text; an empty span stays as it is.
    inner : set of int
        What :func:`inner_places` gives for the text.
    """
    if not inner:
        return offsets
    starts = {start for start, stop in offsets if start < stop}
    grown = []
    ends = {0}
    for start, stop in offsets:
        if start < stop:
            while stop in inner and stop not in starts:
                stop += 1
            while start in inner and start not in ends:
                start -= 1
            ends.add(stop)
        grown.append((start, stop))
    return grown
