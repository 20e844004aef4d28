"""What every result has: axes of texts and draws, and a label for each position."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np

from wsfast.results.arrays import Array, to_numpy


class HasAxes(Protocol):
    """A result: `value` has the axes that `axes` names, and no other."""

    @property
    def value(self) -> Array:
        """One figure for each text and draw."""

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes "texts" and "draws", in this order, each only if it is there."""

    @property
    def words(self) -> list[str] | list[list[str]] | None:
        """Label of every position."""


def size(result: HasAxes, axis: str) -> int | None:
    """Length of the axis "texts" or "draws"; None without it."""
    return int(result.value.shape[result.axes.index(axis)]) if axis in result.axes else None


def index(result: HasAxes, axis: str, number: int, *, also: str = "") -> tuple[int, ...]:
    """Where number `number` lies along an axis, as an index: () for a result without the axis.

    `also` names what else the caller would take, for the message.

    Raises
    ------
    ValueError
        If there is no such text or draw.
    """
    count = size(result, axis)
    last = (count or 1) - 1
    if not 0 <= number <= last:
        raise ValueError(f"{axis[:-1]} must be {also}from 0 to {last}, got {number}")
    return () if count is None else (number,)


def words_of(result: HasAxes, text: int, n: int) -> list[str]:
    """Labels of one text, without the padding of a batch; n empty ones if there are none."""
    if result.words is None:
        return [""] * n
    words: Any = result.words[text] if "texts" in result.axes else result.words
    return list(words)


def labels(
    words: Sequence[str] | Sequence[Sequence[str]], values: Array, axes: tuple[str, ...]
) -> list[Any]:
    """Check `words`, a label for each position of `values` (B?, R?, n), NaN at padding.

    Raises
    ------
    ValueError
        If there are more or fewer labels than words in a text.
    """
    if "texts" not in axes:
        labelled: list[Any] = [str(word) for word in words]
        _check(labelled, values, "words")
        return labelled
    if len(words) != values.shape[0]:
        raise ValueError(
            f"words must hold {values.shape[0]} lists, one for each text, got {len(words)}"
        )
    labelled = [[str(word) for word in one] for one in words]
    for text, one in enumerate(labelled):
        _check(one, values[text], f"words[{text}]")
    return labelled


def labels_of_sites(
    words: Sequence[Any], sites: Sequence[tuple[int, ...]], *, batched: bool
) -> list[Any]:
    """A label for each site: `words` as they are, or those of the text that stand in it.

    Raises
    ------
    ValueError
        If a site has a word beyond the labels.
    """
    if batched:
        return [labels_of_sites(one, sites, batched=False) for one in words]
    if len(words) == len(sites):
        return list(words)
    last = max(map(max, sites))
    if len(words) <= last:
        raise ValueError(
            f"words must hold a label for each of {len(sites)} sites, or for each word of the "
            f"text, got {len(words)}"
        )
    return [joined(words[i] for i in site) for site in sites]


def joined(parts: Iterable[object]) -> str:
    """One label for the words, or the numbers, of a site."""
    return " + ".join(map(str, parts))


def single(result: HasAxes, name: str) -> float:
    """Give the one figure of a result; `name` is what it is called in the message.

    Raises
    ------
    ValueError
        If there are several.
    """
    values = to_numpy(result.value)
    if values.size != 1:
        raise ValueError(
            f"float() must be of a single {name}, got {values.size} (axes {result.axes})"
        )
    return float(values.reshape(()))


def _check(labelled: list[str], values: Array, name: str) -> None:
    """As many labels as positions; a text shorter than the longest of its batch has fewer."""
    n = int(values.shape[-1])
    padding = to_numpy(values)[..., len(labelled) :]
    if len(labelled) > n or not np.isnan(padding).all():
        raise ValueError(f"{name} must hold a label for each of {n} positions, got {len(labelled)}")
