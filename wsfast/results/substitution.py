"""The result of a search for the word of a vocabulary that changes the features most."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from wsfast import _values
from wsfast.results import axes, frames, storage
from wsfast.results.arrays import Array, to_numpy
from wsfast.results.shown import shown_by

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

_ARRAYS = (
    "value",
    "best_candidate",
    "best_value",
    "top_position",
    "top_candidate",
    "top_value",
    "grid_candidate",
    "grid_value",
)
_NAME = "SubstitutionResult"
_FORMAT = 3  # 2 knew no sites

LEADERS = 8
"""So many candidates are known at every position, where there are as many: those whose best change,
anywhere, is best."""


class Substitution(NamedTuple):
    """One word put in place of another.

    Attributes
    ----------
    position : int
        Where in the text.
    candidate : int
        Row of E that comes there.
    value : float
        Relative change of the features.
    word, name : str
        Labels of the position and of the row of E; "" where the result has none.
    """

    position: int
    candidate: int
    value: float
    word: str = ""
    name: str = ""


@dataclass(frozen=True, eq=False, repr=False)
class SubstitutionResult:
    """Relative change of the features as one word of a text becomes one of V candidates.

    B texts and R draws give leading axes (B, R), each only if it was asked for; `axes` names them.
    All arrays are tensors, or all are NumPy arrays, as the input was. A candidate is a row of E.

    Attributes
    ----------
    value : (B?, R?)
        The largest change of all pairs of a position and a candidate, the smallest where `largest`
        is False. NaN where the features are zero.
    best_candidate : (B?, R?, n), int64
        The candidate of largest (smallest) change at every position; -1 where the position is
        masked, not searched, or padding of a shorter text.
    best_value : (B?, R?, n)
        Its change; NaN there.
    top_position, top_candidate : (B?, R?, k), int64
        The k pairs of largest (smallest) change, sorted: values within 1e-9 of each other count as
        equal, and stand in the order of their positions, then of their candidates. -1 where a text
        has fewer pairs than k.
    top_value : (B?, R?, k)
        Their changes; NaN there.
    grid_candidate : (B?, R?, c), int64
        Candidates whose changes are known at every position: those of the top pairs, then the best
        of each position, best first, up to 60 in all; then, up to 8, those whose largest (smallest)
        change anywhere is the next. -1 where a text has fewer of them than another.
    grid_value : (B?, R?, n, c)
        Their changes at every position; NaN where a pair was not searched.
    table : (B?, R?, n, V), optional
        The change of every pair, where all were asked for; NaN for those not searched.
    largest : bool
        Whether the largest changes were searched, or the smallest.
    info : dict
        Where the numbers come from: seed, backend, versions, and under "candidates" the number V of
        rows of E. JSON can hold it.
    axes : tuple of str
        (), ("texts",), ("draws",) or ("texts", "draws").
    words : list of str, or a list of them for a batch, optional
        Label of every position, for tables and pictures.
    names : list of str, length V, optional
        Label of every row of E.
    sites : list of tuple of int, optional
        The sites that were asked for: n is then their number, and a position is one of them.
    tuples : list of tuple of int, optional
        The rows of E that each candidate for a site is: V is then their number.
    """

    value: Array
    best_candidate: Array
    best_value: Array
    top_position: Array
    top_candidate: Array
    top_value: Array
    grid_candidate: Array
    grid_value: Array
    table: Array | None
    largest: bool
    info: dict[str, Any]
    axes: tuple[str, ...] = ()
    words: list[str] | list[list[str]] | None = field(default=None)
    names: list[str] | None = field(default=None)
    sites: list[tuple[int, ...]] | None = None
    tuples: list[tuple[int, ...]] | None = None

    def with_words(self, words: Sequence[str] | Sequence[Sequence[str]]) -> SubstitutionResult:
        """Label every position (one list for each text of a batch); a new result.

        Where sites were asked for, as :meth:`wsfast.SensitivityResult.with_words`.

        Raises
        ------
        ValueError
            If there are more or fewer labels than words in a text.
        """
        if self.sites is not None:
            words = axes.labels_of_sites(words, self.sites, batched="texts" in self.axes)
        return replace(self, words=axes.labels(words, self.best_value, self.axes))

    def with_names(self, names: Sequence[str]) -> SubstitutionResult:
        """Label every row of E, or every candidate for sites; a new result.

        Raises
        ------
        ValueError
            If there are more or fewer labels than rows.
        """
        count = self.info["candidates"]
        if len(names) != count:
            raise ValueError(
                f"names must hold a label for each of {count} rows of E, got {len(names)}"
            )
        return replace(self, names=[str(name) for name in names])

    def top(self, text: int = 0, draw: int = 0) -> list[Substitution]:
        """List the substitutions of largest (smallest) change, in this order.

        Parameters
        ----------
        text, draw : int
            Which text of a batch, and which draw of W.

        Raises
        ------
        ValueError
            If there is no such text or draw.
        """
        one = axes.index(self, "texts", text) + axes.index(self, "draws", draw)
        words = axes.words_of(self, text, int(self.best_value.shape[-1]))
        columns = (
            to_numpy(array)[one].tolist()
            for array in (self.top_position, self.top_candidate, self.top_value)
        )
        return [
            Substitution(i, v, value, words[i], "" if self.names is None else self.names[v])
            for i, v, value in zip(*columns, strict=True)
            if v >= 0
        ]

    def to_frame(self, of: str = "top") -> DataFrame:
        """Give the substitutions as a pandas DataFrame.

        Its columns are text and draw (their numbers, each only if the result has the axis),
        position, word, candidate, name and value.

        Parameters
        ----------
        of : {"top", "positions"}
            The rows: the substitutions of largest (smallest) change in their order, or the best
            candidate of every position that was searched.

        Raises
        ------
        ImportError
            If pandas is not installed; the message has the pip command.
        ValueError
            For any other `of`.
        """
        _values.one_of("of", of, ("top", "positions"))
        candidates, values = (
            to_numpy(array)
            for array in (
                (self.top_candidate, self.top_value)
                if of == "top"
                else (self.best_candidate, self.best_value)
            )
        )
        known = np.nonzero(candidates >= 0)
        position = to_numpy(self.top_position)[known] if of == "top" else known[-1]
        candidate = candidates[known]
        columns = frames.places(self, known, position, int(self.best_value.shape[-1]))
        columns["candidate"] = candidate
        columns["name"] = ["" if self.names is None else self.names[v] for v in candidate]
        columns["value"] = values[known]
        return frames.frame(columns)

    def plot(self, ax: Axes | None = None, *, text: int = 0, draw: int = 0) -> Axes:
        """Draw what the best candidates change at every position as a heat map.

        Rows are the positions of a text that were searched, columns its candidates in
        `grid_candidate`: those of the top pairs, the best of each position, and the next best, at
        least eight where there are as many. Pairs that were not searched are grey; the best of all
        has a frame and bold labels. Shades are absolute: the bar beside the picture has the values.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; pyplot is then not touched. Without it a new pyplot figure is made, which
            a notebook shows by itself, as pandas does.
        text, draw : int
            Which text of a batch, and which draw of W.

        Returns
        -------
        matplotlib Axes

        Raises
        ------
        ImportError
            If matplotlib is not installed; the message has the pip command.
        ValueError
            If there is no such text or draw.
        """
        drawn: Axes = shown_by("substitution").plot(self, ax, text=text, draw=draw)
        return drawn

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to `path`, a .npz file with JSON metadata and no pickle.

        The file is replaced as a whole: a reader never sees half of it.
        """
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        if self.table is not None:
            arrays["table"] = self.table
        meta = {
            "largest": bool(self.largest),
            "info": self.info,
            "axes": list(self.axes),
            "words": self.words,
            "names": self.names,
            "sites": self.sites,
            "tuples": self.tuples,
        }
        storage.save_result(path, _NAME, _FORMAT, arrays, meta)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> SubstitutionResult:
        """Read a file of :meth:`save`. Tensors come back on the CPU.

        Raises
        ------
        OSError
            If the file cannot be read.
        ValueError
            If it is not such a file, or of a later version.
        """
        arrays, meta = storage.load_result(path, _NAME, _FORMAT, _ARRAYS, optional={"table"})
        return cls(
            **{"table": None, **arrays},
            largest=meta["largest"],
            info=meta["info"],
            axes=tuple(meta["axes"]),
            words=meta["words"],
            names=meta["names"],
            sites=storage.tuples(meta, "sites"),
            tuples=storage.tuples(meta, "tuples"),
        )

    def __float__(self) -> float:
        return axes.single(self, "value")

    def __repr__(self) -> str:
        return shown_by("substitution").describe(self)

    def _repr_html_(self) -> str:
        return shown_by("substitution").to_html(self)
