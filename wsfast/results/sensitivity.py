"""The result of a search for the word sensitivity S."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

from wsfast import _values
from wsfast.results import axes, bounds, frames, storage
from wsfast.results.arrays import Array, like, to_numpy
from wsfast.results.intervals import DrawSummary, share_of_draws, summarize
from wsfast.results.merge import merge_positions
from wsfast.results.shown import shown_by

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

_ARRAYS = ("value", "per_word", "position", "delta")
_OPTIONAL = ("upper", "site")
_NAME = "SensitivityResult"
_FORMAT = 2  # 1 knew no sites


class HasWords(Protocol):
    """Words of one text and the token positions of each; :class:`wsfast.text.Embedded` is one."""

    @property
    def words(self) -> list[str]:
        """Whole words."""

    @property
    def word_spans(self) -> list[tuple[int, int]]:
        """Tokens (start, stop) of each word."""


@dataclass(frozen=True, eq=False, repr=False)
class SensitivityResult:
    """Word sensitivity of one or more texts under one or more draws of W.

    B texts and R draws give leading axes (B, R), each only if it was asked for; `axes` names them.
    All arrays are tensors, or all are NumPy arrays, as the input was.

    Attributes
    ----------
    value : (B?, R?)
        S, the largest relative change of the features that one word can cause (arXiv 2402.02969).
        NaN where the features are zero.
    per_word : (B?, R?, n)
        S_i at every position; NaN where it is masked, not searched, or padding of a shorter text.
        Where sites of several words were asked for, of every site, (B?, R?, P).
    position : (B?, R?), int64
        Where S is attained, as a place of `per_word`; -1 where S is NaN.
    delta : (B?, R?, d)
        The change of that word which attains S; of a site (B?, R?, m, d), with zeros beyond its own
        words.
    radius : float
        Largest norm a change may have.
    info : dict
        Where the numbers come from: seed, backend, steps, versions. JSON can hold it.
    axes : tuple of str
        (), ("texts",), ("draws",) or ("texts", "draws").
    words : list of str, or a list of them for a batch, optional
        Label of every position, for tables and pictures.
    upper : (B?, R?, n), optional
        An upper bound of every S_i, which no change within the radius exceeds: of random features,
        from Lipschitz constants; of attention, where ``bound=True`` asked for it, by a proof
        (docs/design.md, 8), and ``info["bound"]`` says more. NaN where `per_word` is, and where no
        bound is known.
        :attr:`upper_value` is that of S, and :attr:`ratio` how far `value` may be from it.
    site : (B?, R?, m), int64, optional
        The words of the site at which S is attained, ascending, and -1 beyond them.
    sites : list of tuple of int, optional
        The sites that were asked for, in the order of `per_word`.
    """

    value: Array
    per_word: Array
    position: Array
    delta: Array
    radius: float
    info: dict[str, Any]
    axes: tuple[str, ...] = ()
    words: list[str] | list[list[str]] | None = field(default=None)
    upper: Array | None = None
    site: Array | None = None
    sites: list[tuple[int, ...]] | None = None

    @property
    def upper_value(self) -> Array | None:
        """An upper bound of S, (B?, R?): the largest of `upper` among the searched positions.

        NaN where one of these has no bound, or none was searched; None where `upper` is None.
        """
        return bounds.of_value(self.upper, self.per_word, self.value)

    @property
    def ratio(self) -> Array | None:
        """How many times larger than `value` S can be at most, (B?, R?); 1 where `value` is exact.

        NaN where `upper_value` is; None where `upper` is None.
        """
        return bounds.ratio(self.upper_value, self.value)

    def with_words(self, words: Sequence[str] | Sequence[Sequence[str]]) -> SensitivityResult:
        """Label every position (one list for each text of a batch); a new result.

        Where sites were asked for, every site: a list of another length than theirs is taken for
        the words of the text, of which a site gets its own, joined by " + ".

        Raises
        ------
        ValueError
            If there are more or fewer labels than words in a text.
        """
        if self.sites is not None:
            words = axes.labels_of_sites(words, self.sites, batched="texts" in self.axes)
        return replace(self, words=axes.labels(words, self.per_word, self.axes))

    def whole_words(self, texts: HasWords | Sequence[HasWords]) -> SensitivityResult:
        """Merge subword tokens to whole words, and label them; a new result.

        S_i of a word is the largest S_i of its tokens, so S stays what it was; `position` then
        counts words. So is the bound of a word, NaN where one of its searched tokens has none.
        `delta` still changes one token.

        Parameters
        ----------
        texts : Embedded, or a list of them for a batch
            What :func:`wsfast.embed` gave for the texts.

        Raises
        ------
        ValueError
            If the spans do not fit the number of texts or positions.
        """
        if self.sites is not None:
            raise ValueError("whole_words: this result is of sites, which are words already")
        if "texts" in self.axes:
            listed = list(texts) if isinstance(texts, Sequence) else [texts]
            if len(listed) != self.per_word.shape[0]:
                raise ValueError(
                    f"texts must hold {self.per_word.shape[0]} embedded texts, got {len(listed)}"
                )
            spans = [text.word_spans for text in listed]
            words: list[Any] = [list(text.words) for text in listed]
        else:
            if isinstance(texts, Sequence):
                raise ValueError(f"texts must be one embedded text, got {len(texts)} in a list")
            spans, words = [texts.word_spans], list(texts.words)
        batched = "texts" in self.axes

        def merged(values: Array) -> tuple[Array, Array]:
            if batched:
                return merge_positions(values, self.position, spans)
            by_word, at = merge_positions(values[None], self.position[None], spans)
            return by_word[0], at[0]

        per_word, position = merged(self.per_word)
        upper = None
        if self.upper is not None:
            of_tokens = torch.as_tensor(self.upper)
            unknown = of_tokens.isnan() & ~torch.as_tensor(self.per_word).isnan()
            # Infinite: the largest of a word with such a token.
            largest = merged(like(self.upper, of_tokens.masked_fill(unknown, torch.inf)))[0]
            largest = torch.as_tensor(largest)
            upper = like(self.upper, largest.masked_fill(largest.isinf(), torch.nan))
        return replace(self, per_word=per_word, position=position, words=words, upper=upper)

    def over_draws(self, confidence: float = 0.95, *, of: str = "value") -> DrawSummary:
        """Mean, standard deviation and Student t interval of the mean, along the draws.

        Parameters
        ----------
        confidence : float
            Coverage of the interval, between 0 and 1.
        of : {"value", "per_word"}
            Summarize S, (B?, R) to (B?,), or every S_i, (B?, R, n) to (B?, n). Of every S_i the
            summary also has `share_worst`: the word that is worst under one W may be so by chance.

        Raises
        ------
        ValueError
            If there is no draws axis, or fewer than two draws.
        """
        confidence = _values.confidence(confidence)
        _values.one_of("of", of, ("value", "per_word"))
        if "draws" not in self.axes:
            raise ValueError("over_draws: this result has one W and no draws; pass draws=R, R >= 2")
        axis = self.axes.index("draws")
        if of == "value":
            return summarize(self.value, axis, confidence)
        summary = summarize(self.per_word, axis, confidence)
        share = share_of_draws(self.position, axis, summary.mean)
        return replace(summary, share_worst=share)

    def to_frame(self) -> DataFrame:
        """Give every S_i as a pandas DataFrame, a row for each position that was searched.

        Its columns are text and draw (their numbers, each only if the result has the axis),
        position, word ("" where the result has no words), S_i, upper (only if there are upper
        bounds), site (its positions, only if there are sites, which `position` then numbers), and
        worst: whether S is attained there.

        Raises
        ------
        ImportError
            If pandas is not installed; the message has the pip command.
        """
        S = to_numpy(self.per_word)
        known = np.nonzero(~np.isnan(S))
        columns = frames.places(self, known, known[-1], S.shape[-1])
        columns["S_i"] = S[known]
        if self.upper is not None:
            columns["upper"] = to_numpy(self.upper)[known]
        if self.sites is not None:
            columns["site"] = [" ".join(map(str, self.sites[k])) for k in known[-1]]
        columns["worst"] = known[-1] == to_numpy(self.position)[known[:-1]]
        return frames.frame(columns)

    def plot(self, ax: Axes | None = None, *, text: int = 0, draw: int | None = None) -> Axes:
        """Draw S_i of one text as bars.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; pyplot is then not touched. Without it a new pyplot figure is made, which
            a notebook shows by itself, as pandas does.
        text : int
            Which text of a batch.
        draw : int, optional
            Which draw of W. By default the mean over draws, with its 95 % interval.

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
        drawn: Axes = shown_by("sensitivity").plot(self, ax, text=text, draw=draw)
        return drawn

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to `path`, a .npz file with JSON metadata and no pickle.

        The file is replaced as a whole: a reader never sees half of it.
        """
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        for name in _OPTIONAL:
            if getattr(self, name) is not None:
                arrays[name] = getattr(self, name)
        meta = {
            "radius": float(self.radius),
            "info": self.info,
            "axes": list(self.axes),
            "words": self.words,
            "sites": self.sites,
        }
        storage.save_result(path, _NAME, _FORMAT, arrays, meta)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> SensitivityResult:
        """Read a file of :meth:`save`. Tensors come back on the CPU.

        Raises
        ------
        OSError
            If the file cannot be read.
        ValueError
            If it is not such a file, or of a later version.
        """
        arrays, meta = storage.load_result(path, _NAME, _FORMAT, _ARRAYS, _OPTIONAL)
        return cls(
            **arrays,
            radius=meta["radius"],
            info=meta["info"],
            axes=tuple(meta["axes"]),
            words=meta["words"],
            sites=storage.tuples(meta, "sites"),
        )

    def __float__(self) -> float:
        return axes.single(self, "S")

    def __repr__(self) -> str:
        return shown_by("sensitivity").describe(self)

    def _repr_html_(self) -> str:
        return shown_by("sensitivity").to_html(self)
