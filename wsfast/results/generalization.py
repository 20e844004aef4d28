"""The result of a generalisation experiment."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from wsfast import _values
from wsfast._extras import import_extra
from wsfast.results import storage
from wsfast.results.arrays import Array, to_numpy
from wsfast.results.intervals import DrawSummary, summarize
from wsfast.results.shown import shown_by

if TYPE_CHECKING:
    from pandas import DataFrame

FIGURES = (
    "output_before",
    "output_after",
    "changed_before",
    "changed_after",
    "loss",
    "error",
    "alignment",
    "gamma",
    "lower_bound",
)
_ARRAYS = (*FIGURES, "position", "delta", "condition")
_NAME = "GeneralizationResult"
_FORMAT = 1


@dataclass(frozen=True, eq=False, repr=False)
class GeneralizationResult:
    """How one more sample (X, y) is learnt, and what is left of it when one word of X changes.

    T trials (texts X) and R draws of the weights give leading axes (T, R), each only if it was
    asked for; `axes` names them. The two axes after them are those of `trainings` and `losses`.
    θ* is the solution before training on (X, y), θ the one after, f(X, θ) = ⟨φ(X), θ⟩, and Δ the
    change of one word that minimises the loss. All arrays are tensors, or all are NumPy arrays, as
    the input was; figures are float64 whatever the dtype of the texts.

    Attributes
    ----------
    output_before, output_after : (T?, R?, training, loss)
        f(X, θ*) and f(X, θ), the latter y but for rounding.
    changed_before, changed_after : (T?, R?, training, loss)
        f(X^i(Δ), θ*) and f(X^i(Δ), θ).
    loss : (T?, R?, training, loss)
        The loss at Δ.
    error : (T?, R?, training, loss)
        (f(X^i(Δ), θ) + y)²: the changed text has the label -y.
    alignment : (T?, R?, training, loss)
        ⟨φ(X^i(Δ)), v⟩ / ⟨φ(X), v⟩ with v = φ(X) for fine-tuning and P⊥φ(X) for re-training: f(X',
        θ) = f(X', θ*) + alignment · (y - f(X, θ*)).
    gamma : (T?, R?, training, loss)
        |f(X^i(Δ), θ*) - f(X, θ*)|.
    lower_bound : (T?, R?, training, loss)
        max(0, 2 - gamma)², what the error is at least where alignment is 1 (arXiv 2402.02969).
    position : (T?, R?, training, loss), int64
        The word that changes.
    delta : (T?, R?, training, loss, d)
        Δ, in the dtype of X.
    condition : (R?)
        Condition number of ΦΦᵀ.
    trainings : tuple of str
        "fine_tuning" and "retraining", as asked for.
    losses : tuple of str
        "feature", "alignment" and "error", as asked for.
    radius : float
        Largest norm a change may have.
    info : dict
        Where the numbers come from: map, N texts, D features, seed, backend, versions. JSON can
        hold it.
    axes : tuple of str
        (), ("trials",), ("draws",) or ("trials", "draws").
    """

    output_before: Array
    output_after: Array
    changed_before: Array
    changed_after: Array
    loss: Array
    error: Array
    alignment: Array
    gamma: Array
    lower_bound: Array
    position: Array
    delta: Array
    condition: Array
    trainings: tuple[str, ...]
    losses: tuple[str, ...]
    radius: float
    info: dict[str, Any]
    axes: tuple[str, ...] = ()

    def summary(self, confidence: float = 0.95) -> dict[str, DrawSummary]:
        """Mean and Student t interval of every figure over all trials and draws together.

        The interval takes the T·R figures for independent; those of one draw, or of one trial,
        are only nearly so.

        Parameters
        ----------
        confidence : float
            Coverage of the interval, between 0 and 1.

        Returns
        -------
        dict from "output_before", …, "lower_bound" to DrawSummary
            With arrays (training, loss), `draws` the number T·R of figures.

        Raises
        ------
        ValueError
            If there is only one trial of one draw, or `confidence` is not between 0 and 1.
        """
        confidence = _values.confidence(confidence)
        count = int(np.prod(self.error.shape[:-2]))
        if count < 2:
            raise ValueError(
                "summary: an interval needs several trials or draws, this result has one of each: "
                "pass several X, or draws=R"
            )
        shape = (count, len(self.trainings), len(self.losses))
        return {
            name: summarize(getattr(self, name).reshape(shape), 0, confidence) for name in FIGURES
        }

    def to_frame(self) -> DataFrame:
        """Give all figures as a pandas DataFrame, a row for each trial, draw, training and loss.

        Its columns are trial and draw (their numbers, each only if the result has the axis),
        training, minimised (which loss Δ minimises), position, the figures, ‖Δ‖ as delta_norm, and
        condition.

        Raises
        ------
        ImportError
            If pandas is not installed; the message has the pip command.
        """
        pandas = import_extra("pandas", "tables")
        shape = to_numpy(self.error).shape
        places = np.indices(shape).reshape(len(shape), -1)
        columns: dict[str, Any] = {
            axis[:-1]: numbers for axis, numbers in zip(self.axes, places, strict=False)
        }
        columns["training"] = np.array(self.trainings)[places[-2]]
        columns["minimised"] = np.array(self.losses)[places[-1]]
        for name in ("position", *FIGURES):
            columns[name] = to_numpy(getattr(self, name)).ravel()
        delta = to_numpy(self.delta).astype(np.float64)
        columns["delta_norm"] = np.linalg.norm(delta, axis=-1).ravel()
        condition = to_numpy(self.condition)
        columns["condition"] = np.broadcast_to(condition[..., None, None], shape).ravel()
        frame: DataFrame = pandas.DataFrame(columns)
        return frame

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to `path`, a .npz file with JSON metadata and no pickle.

        The file is replaced as a whole: a reader never sees half of it.
        """
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        meta = {
            "trainings": list(self.trainings),
            "losses": list(self.losses),
            "radius": float(self.radius),
            "info": self.info,
            "axes": list(self.axes),
        }
        storage.save_result(path, _NAME, _FORMAT, arrays, meta)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> GeneralizationResult:
        """Read a file of :meth:`save`. Tensors come back on the CPU.

        Raises
        ------
        OSError
            If the file cannot be read.
        ValueError
            If it is not such a file, or of a later version.
        """
        arrays, meta = storage.load_result(path, _NAME, _FORMAT, _ARRAYS)
        return cls(
            **arrays,
            trainings=tuple(meta["trainings"]),
            losses=tuple(meta["losses"]),
            radius=meta["radius"],
            info=meta["info"],
            axes=tuple(meta["axes"]),
        )

    def __repr__(self) -> str:
        return shown_by("generalization").describe(self)
