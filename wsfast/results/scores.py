"""What :func:`wsfast.score` returns: word sensitivity of real text."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch

from wsfast._files import write_whole
from wsfast.results.sensitivity import SensitivityResult
from wsfast.results.shown import shown_by

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame


class Cut(NamedTuple):
    """A text of more tokens than the model takes.

    Attributes
    ----------
    tokens : int
        How many it has, special ones not counted.
    kept : int
        How many were kept, from its beginning.
    """

    tokens: int
    kept: int


@dataclass(frozen=True, eq=False, repr=False)
class Scores:
    """Word sensitivity of one text, or of each text of a list.

    ``print`` shows what ``wsfast score`` shows of the first ten texts.

    Attributes
    ----------
    result : SensitivityResult
        S, S_i and the position of the worst word, labelled with the words. Of a list, its first
        axis is that of the texts as they were given: NaN, and position -1, where one is left out.
    texts : list of str
        The texts; "" where one is left out.
    offsets : list of lists of (start, stop)
        Characters of each word, or token, of each text.
    left_out : dict of int to str
        Texts of a list that could not be done, by their numbers: what each must be, and is not.
    cut : dict of int to Cut
        Texts of more tokens than the model takes, by their numbers: only their beginning was done.
    model : str
        Model that the vectors come from.
    layer : int or "words"
        Layer that the vectors come from.
    scale : bool
        Whether the vectors were scaled to norm √d.
    unit : {"word-max", "word", "token"}
        What S_i is of. Of "word", ``result.site`` has the tokens of the worst word.
    """

    result: SensitivityResult
    texts: list[str]
    offsets: list[list[tuple[int, int]]]
    left_out: dict[int, str]
    cut: dict[int, Cut]
    model: str
    layer: int | str
    scale: bool
    unit: str

    def to_frame(self) -> DataFrame:
        """Give every S_i as a pandas DataFrame; see :meth:`wsfast.SensitivityResult.to_frame`.

        Of a list, the column text has the numbers of the texts; one that is left out has no rows.

        Raises
        ------
        ImportError
            If pandas is not installed; the message has the pip command.
        """
        return self.result.to_frame()

    def plot(self, ax: Axes | None = None, *, text: int = 0, draw: int | None = None) -> Axes:
        """Draw S_i of one text as bars; see :meth:`wsfast.SensitivityResult.plot`."""
        return self.result.plot(ax, text=text, draw=draw)

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write what ``wsfast score --csv`` prints: a row for each word.

        With draws of W, S_i is the mean, and its 95 % interval stands beside it. The file is
        replaced as a whole: a reader never sees half of it.
        """
        write_whole(Path(path), shown_by("scores").to_csv(self).encode())

    def to_jsonl(self, path: str | os.PathLike[str]) -> None:
        """Write what ``wsfast score --json`` prints: a line of JSON for each text.

        The file is replaced as a whole: a reader never sees half of it.
        """
        write_whole(Path(path), shown_by("scores").to_jsonl(self).encode())

    def __str__(self) -> str:
        return shown_by("scores").to_text(self)

    def __repr__(self) -> str:
        return shown_by("scores").describe(self)

    def _repr_html_(self) -> str:
        return shown_by("scores").to_html(self)


def batch_of(parts: Sequence[SensitivityResult | None]) -> SensitivityResult:
    """Results of single texts as one with an axis of texts, which may be of any lengths.

    Parameters
    ----------
    parts : sequence of SensitivityResult or None
        Tensors with words, of the same settings; None for a text without a result. At least one is
        a result.
    """
    done = {text: part for text, part in enumerate(parts) if part is not None}
    first = next(iter(done.values()))
    lead = (len(parts), *first.value.shape)
    longest = max(part.per_word.shape[-1] for part in done.values())
    like = torch.as_tensor(first.value)
    value = like.new_full(lead, torch.nan)
    per_word = like.new_full((*lead, longest), torch.nan)
    position = like.new_full(lead, -1, dtype=torch.int64)
    shape = tuple(map(max, zip(*(part.delta.shape for part in done.values()), strict=True)))
    delta = like.new_full((len(parts), *shape), torch.nan)
    sites = None if first.site is None else like.new_full((*lead, shape[-2]), -1, dtype=torch.int64)
    bounded = any(part.upper is not None for part in done.values())
    upper = torch.full_like(per_word, torch.nan) if bounded else None
    words: list[list[str]] = [[] for _ in parts]
    for text, part in done.items():
        n = part.per_word.shape[-1]
        value[text] = torch.as_tensor(part.value)
        per_word[text, ..., :n] = torch.as_tensor(part.per_word)
        position[text] = torch.as_tensor(part.position)
        if upper is not None and part.upper is not None:
            upper[text, ..., :n] = torch.as_tensor(part.upper)
        if sites is None or part.site is None:
            delta[text] = torch.as_tensor(part.delta)
        else:  # as many words as the site of the text that has most
            m = part.site.shape[-1]
            sites[text, ..., :m] = torch.as_tensor(part.site)
            delta[text, ..., :m, :] = torch.as_tensor(part.delta)
            delta[text, ..., m:, :] = 0.0
        words[text] = [str(word) for word in part.words or ()]
    steps = [part.info["steps"] for part in done.values() if "steps" in part.info]
    return replace(
        first,
        value=value,
        per_word=per_word,
        position=position,
        delta=delta,
        upper=upper,
        site=sites,
        info=first.info | ({"steps": max(steps)} if steps else {}),
        axes=("texts", *first.axes),
        words=words,
    )


def texts_of(batch: SensitivityResult) -> list[SensitivityResult]:
    """Results of the texts of a batch, of one length, each alone."""
    arrays = {
        name: getattr(batch, name)
        for name in ("value", "per_word", "position", "delta", "upper")
        if getattr(batch, name) is not None
    }
    return [
        replace(batch, axes=batch.axes[1:], **{name: array[k] for name, array in arrays.items()})
        for k in range(len(batch.value))
    ]
