"""Files that `save` of 0.1 wrote, and what they hold."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from wsfast import ScalingResult, SensitivityResult, SubstitutionResult
from wsfast.generalization import GeneralizationResult

FOLDER = Path(__file__).parents[1] / "data" / "saved_0_1"


class Saved(NamedTuple):
    """The result of a case, with labels."""

    kind: Any
    case: str
    words: Any = None
    names: list[str] | None = None

    def labelled(self, result: Any) -> Any:
        result = result if self.words is None else result.with_words(self.words)
        return result if self.names is None else result.with_names(self.names)


RESULTS = {
    "sensitivity.npz": Saved(SensitivityResult, "softmax S", list("wordsens")),
    "sensitivity_list.npz": Saved(
        SensitivityResult,
        "softmax S, list, two random W, NumPy",
        [["one", "word", "of", "six", "is", "Δ"], ["and", "of", "three"], ["one"]],
    ),
    "random_features.npz": Saved(SensitivityResult, "rf S, tanh, batch, float32"),
    "substitution.npz": Saved(
        SubstitutionResult,
        "softmax substitution, all values",
        ["the", "film", "was", "not", "good", "."],
        [f"candidate {v}" for v in range(30)],
    ),
    "substitution_least.npz": Saved(
        SubstitutionResult, "relu substitution, least, masked batch, NumPy"
    ),
    "generalization.npz": Saved(GeneralizationResult, "rf experiment, two trials, NumPy"),
    "scaling.npz": Saved(ScalingResult, "raf scaling"),
}


def describe(result: Any) -> dict[str, Any]:
    """All fields of a result as JSON has them, arrays with their kind and dtype."""
    return {field.name: _plain(getattr(result, field.name)) for field in dataclasses.fields(result)}


def statistics(result: Any) -> dict[str, Any]:
    """What is computed of a result's numbers: means, intervals, slopes."""
    if isinstance(result, ScalingResult):
        law = result.slope()
        means = [list(mean[1:]) for mean in result.means()]
        return {"means": means, "slope": [law.value, law.low, law.high, law.intercept]}
    if isinstance(result, GeneralizationResult):
        summaries = result.summary()
    elif isinstance(result, SensitivityResult) and "draws" in result.axes:
        summaries = {"S": result.over_draws(), "S_i": result.over_draws(of="per_word")}
    else:
        return {}
    return {
        name: [one.mean.tolist(), one.low.tolist(), one.high.tolist()]
        for name, one in summaries.items()
    }


def _plain(value: Any) -> Any:
    if isinstance(value, (Tensor, np.ndarray)):
        kind = "torch" if isinstance(value, Tensor) else "numpy"
        dtype = str(value.dtype).removeprefix("torch.")
        return {"kind": kind, "dtype": dtype, "values": value.tolist()}
    if isinstance(value, tuple):  # axes, or the rows of a study
        return [_plain(one) for one in value]
    return value
