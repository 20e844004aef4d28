"""Texts of a list: how much of each is kept, and which are left out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from wsfast.maps.attention_text import TOGETHER
from wsfast.results.embedded import Embedded
from wsfast.results.scores import Cut
from wsfast.text import tokens
from wsfast.text.tokens import Encoding, TooLongError, UnfitTextError

LONG = ("cut", "skip", "fail")
"""What may be done with a text of too many tokens."""


# Texts of more tokens share nothing that takes time (`Engine.joins`).
_LONGEST = 90

# How many numbers may wait for texts of their length.
_WAITING = 1 << 22

Key = TypeVar("Key")


def by_length(texts: Iterable[tuple[Key, Embedded]]) -> Iterator[list[tuple[Key, Embedded]]]:
    """Texts in groups of one length each, which can share work; few are held at a time."""
    waiting: dict[int, list[tuple[Key, Embedded]]] = {}
    numbers = 0
    for key, embedded in texts:
        if len(embedded) > _LONGEST:
            yield [(key, embedded)]
            continue
        group = waiting.setdefault(len(embedded), [])
        group.append((key, embedded))
        numbers += embedded.X.numel()
        if len(group) < TOGETHER and numbers <= _WAITING:
            continue
        if len(group) < TOGETHER:
            group = max(waiting.values(), key=lambda group: len(group) * len(group[0][1]))
        del waiting[len(group[0][1])]
        numbers -= sum(one.X.numel() for _, one in group)
        yield group
    yield from waiting.values()


def fitted(
    index: int, encoding: Encoding, max_tokens: int | None, limit: int | None, long: str
) -> tuple[Encoding, Cut | None]:
    """What is kept of a text, and what the model could not take of it.

    `limit` counts special tokens too.

    Raises
    ------
    TooLongError
        For a text with too many tokens, unless `long` is "cut".
    """
    most = encoding.count if max_tokens is None else min(encoding.count, max_tokens)
    kept = most if limit is None else min(most, limit - (len(encoding.tokens) - encoding.count))
    if long != "cut":
        tokens.check_room(index, encoding.count, kept)
    # What `max_tokens` cuts, the caller knows.
    cut = None if kept in (encoding.count, max_tokens) else Cut(encoding.count, kept)
    return encoding.first(kept), cut


def why_left_out(error: UnfitTextError, long: str, *, single: bool) -> str:
    """Why a text is left out; the error itself where it is to end all."""
    if single or (long == "fail" and isinstance(error, TooLongError)):
        raise error
    return error.reason


def check_some_done(count: int, left_out: Mapping[int, str]) -> None:
    """Refuse a list of `count` texts of which all are left out."""
    if len(left_out) == count:
        raise ValueError(
            f"texts must hold one that can be done, got {count} that cannot: texts[0] {left_out[0]}"
        )
