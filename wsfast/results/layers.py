"""What :func:`wsfast.layer_sensitivity` returns."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from wsfast import _values
from wsfast._files import write_whole
from wsfast.results import bounds, frames, storage
from wsfast.results.scores import Cut
from wsfast.results.shown import shown_by

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

_ARRAYS = ("value", "per_word", "position", "delta")
_OPTIONAL = ("control", "upper")
_META = (
    "layers", "heads", "combine", "at", "perturbation", "radius", "relative", "words", "texts",
    "left_out", "cut", "info", "batched", "sites",
)  # fmt: skip
_NAME = "LayerSensitivityResult"
_FORMAT = 1


@dataclass(frozen=True, eq=False, repr=False)
class LayerSensitivityResult:
    """Word sensitivity of the heads of trained layers, each for itself, on real texts.

    T texts, L layers, H heads and R radii give leading axes (T?, L, H, R); that of the texts only
    if a list was given. H is 1 where the heads of a layer are taken together, R where nothing is
    searched. A layer's sensitivity is not the model's, and a search gives a lower bound. ``print``
    shows tables of the first ten texts.

    Attributes
    ----------
    value : Tensor, shape (T?, L, H, R), float64
        S: the largest relative change of the output of the head that one word can cause.
    per_word : Tensor, shape (T?, L, H, R, n), float64
        S_i of every token, or site; NaN where it is not moved, and beyond the end of a text.
    position : Tensor, shape (T?, L, H, R), int64
        Where S is attained, as a place of `per_word`; -1 where S is NaN.
    delta : Tensor, shape (T?, L, H, R, m, d), float32
        The change of that word, or of the m words of that site, at `at`. NaN for hidden words.
    layers : list of int
        Numbers of the layers.
    heads : list of int, optional
        Numbers of the heads; None where they are taken together.
    combine : {"each", "concatenated", "projected"}
        What is measured: each head; all side by side; what the output map W_O makes of them.
    at : {"attention", "residual"}
        Where the words are moved: at the input of the attention module, or in the residual stream.
    perturbation : str
        How a word changes: "ball", "mask", "zero", "mean", or the name of a function.
    radius : list of float
        Largest norms of a change, one for each entry of the axis; [NaN] where nothing is searched.
    relative : bool
        Whether they are in units of the norm of the word's own vector.
    words : list of list of str
        Label of every token, or site, of each text.
    texts : list of str
        The texts; "" where one is left out.
    left_out : dict of int to str
        Texts of a list that could not be done, by their numbers: what each must be, and is not.
    cut : dict of int to Cut
        Texts of more tokens than the model takes, by their numbers: only their beginning was done.
    sites : list of tuple of int, optional
        The sites that were asked for, in the order of `per_word`.
    control : Tensor, shape (C, T?, L, H, R), optional
        S of the same layers, on the same hidden states, in C draws of shuffled weights.
    upper : Tensor, shape (T?, L, H, R, n), float64, optional
        What no S_i exceeds, with ``bound=True``; NaN where `per_word` is, and where no bound is
        known (``info["bound"]`` says why).
    info : dict
        Where the numbers come from. JSON can hold it.
    """

    value: Tensor
    per_word: Tensor
    position: Tensor
    delta: Tensor
    layers: list[int]
    heads: list[int] | None
    combine: str
    at: str
    perturbation: str
    radius: list[float]
    relative: bool
    words: list[list[str]]
    texts: list[str]
    info: dict[str, Any]
    left_out: dict[int, str]
    cut: dict[int, Cut]
    batched: bool = False
    sites: list[tuple[int, ...]] | None = None
    control: Tensor | None = None
    upper: Tensor | None = None

    @property
    def upper_value(self) -> Tensor | None:
        """An upper bound of S, (T?, L, H, R): the largest of `upper` among the words that move.

        NaN where one of these has no bound, or none moves; None where `upper` is None.
        """
        found = bounds.of_value(self.upper, self.per_word, self.value)
        return None if found is None else torch.as_tensor(found)

    @property
    def ratio(self) -> Tensor | None:
        """How many times larger than `value` S can be at most, (T?, L, H, R); 1 where it is exact.

        NaN where `upper_value` is; None where `upper` is None.
        """
        found = bounds.ratio(self.upper_value, self.value)
        return None if found is None else torch.as_tensor(found)

    @property
    def axes(self) -> tuple[str, ...]:
        """Names of the leading axes."""
        lead = ("texts",) if self.batched else ()
        return (*lead, "layers", "heads", "radii")

    def control_quantiles(self, q: tuple[float, ...] = (0.05, 0.5, 0.95)) -> Tensor:
        """Quantiles of S over the draws of shuffled weights, (len(q), T?, L, H, R).

        Raises
        ------
        ValueError
            If there is no control, or a quantile outside of 0 and 1.
        """
        if self.control is None:
            raise ValueError(
                'control_quantiles: this result has no control; pass control="shuffled"'
            )
        levels = [_values.number(f"q[{k}]", one, low=0) for k, one in enumerate(q)]
        if max(levels, default=0) > 1:
            raise ValueError(f"q must hold numbers from 0 to 1, got {tuple(q)}")
        quantiles: Tensor = self.control.nanquantile(
            torch.tensor(levels, dtype=self.control.dtype), 0
        )
        return quantiles

    def to_frame(self) -> DataFrame:
        """Give every S_i as a pandas DataFrame, a row for each that is known.

        Its columns are text (only if there is an axis of texts), layer, head (not where the heads
        are taken together), radius (not where nothing is searched), position, word, S_i, upper
        (only if there are bounds), site (only if there are sites), and worst: whether S is attained
        there. With a control there is also
        S_control, the median over its draws of S of that head.

        Raises
        ------
        ImportError
            If pandas is not installed; the message has the pip command.
        """
        return frames.frame(columns(self))

    def plot(
        self, ax: Axes | None = None, *, of: str = "heads", text: int | None = None, radius: int = 0
    ) -> Axes:
        """Draw a heat map: layers × heads, or layers × words.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; by default a new pyplot figure.
        of : {"heads", "words"}
            S of every head, over S of its control where there is one; or S_i of every word, the
            mean over the heads.
        text : int, optional
            Which text of a list. By default the median over the texts for "heads", the first that
            was done for "words".
        radius : int
            Which of the radii, by its place.

        Returns
        -------
        matplotlib Axes

        Raises
        ------
        ImportError
            If matplotlib is not installed; the message has the pip command.
        ValueError
            If there is no such picture, text or radius, or the text is left out.
        """
        drawn: Axes = shown_by("layers").plot(self, ax, of=of, text=text, radius=radius)
        return drawn

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write a row of CSV for each S_i that is known.

        Its columns are those of :meth:`to_frame`, and the number of the text. The file is replaced
        as a whole: a reader never sees half of it.
        """
        write_whole(Path(path), shown_by("layers").to_csv(self).encode())

    def to_jsonl(self, path: str | os.PathLike[str]) -> None:
        """Write a line of JSON for each text that was done.

        The file is replaced as a whole: a reader never sees half of it.
        """
        write_whole(Path(path), shown_by("layers").to_jsonl(self).encode())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to `path`, a .npz file with JSON metadata and no pickle.

        The file is replaced as a whole: a reader never sees half of it.
        """
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        for name in _OPTIONAL:
            if getattr(self, name) is not None:
                arrays[name] = getattr(self, name)
        meta = {name: getattr(self, name) for name in _META}
        storage.save_result(path, _NAME, _FORMAT, arrays, meta)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> LayerSensitivityResult:
        """Read a file of :meth:`save`.

        Raises
        ------
        OSError
            If the file cannot be read.
        ValueError
            If it is not such a file, or of a later version.
        """
        arrays, meta = storage.load_result(path, _NAME, _FORMAT, _ARRAYS, _OPTIONAL)
        given = {name: meta[name] for name in _META}
        # JSON knows neither numbers as keys nor tuples.
        given["left_out"] = {int(text): why for text, why in meta["left_out"].items()}
        given["cut"] = {int(text): Cut(*counts) for text, counts in meta["cut"].items()}
        given["sites"] = storage.tuples(meta, "sites")
        return cls(**arrays, **given)

    def __str__(self) -> str:
        return shown_by("layers").to_text(self)

    def __repr__(self) -> str:
        return shown_by("layers").describe(self)

    def _repr_html_(self) -> str:
        return shown_by("layers").to_html(self)


def columns(result: LayerSensitivityResult) -> dict[str, Any]:
    """Give every S_i that is known; see :meth:`LayerSensitivityResult.to_frame`."""
    S = result.per_word if result.batched else result.per_word[None]
    position = result.position if result.batched else result.position[None]
    known = tuple(axis.numpy() for axis in (~S.isnan()).nonzero(as_tuple=True))
    text, layer, head, radius, place = known
    found: dict[str, Any] = {}
    if result.batched:
        found["text"] = text
    found["layer"] = np.array(result.layers)[layer]
    if result.heads is not None:
        found["head"] = np.array(result.heads)[head]
    if result.perturbation == "ball":
        found["radius"] = np.array(result.radius)[radius]
    found["position"] = place
    found["word"] = [result.words[t][i] for t, i in zip(text, place, strict=True)]
    found["S_i"] = S[known].numpy()
    if result.upper is not None:
        upper = result.upper if result.batched else result.upper[None]
        found["upper"] = upper[known].numpy()
    if result.sites is not None:
        found["site"] = [" ".join(map(str, result.sites[i])) for i in place]
    found["worst"] = place == position[known[:-1]].numpy()
    if result.control is not None:
        median = result.control_quantiles((0.5,))[0]
        found["S_control"] = (median if result.batched else median[None])[known[:-1]].numpy()
    return found
