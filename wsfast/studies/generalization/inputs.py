"""What a generalisation experiment takes: the training set and what is asked of it, checked."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from wsfast._inputs import Inputs
from wsfast._values import finite, has_values, host_array, match, real_tensor, shape_of, some

TRAININGS = ("fine_tuning", "retraining")
LOSSES = ("feature", "alignment", "error")


class TrainingSet(NamedTuple):
    """N texts of n words and their labels."""

    texts: Tensor  # (N, n, d)
    labels: Tensor  # (N,) float64, ±1


def training_set(texts: Any, labels: Any, inputs: Inputs) -> TrainingSet:
    """The texts to train on; those of `inputs`, the trials, are of the same length."""
    lengths = sorted({len(text) for text in inputs.texts})
    if len(lengths) > 1:
        raise ValueError(f"X must hold texts of one length, got texts of {lengths} words")
    n, d = lengths[0], inputs.d
    tensor = real_tensor("texts", texts)
    if tensor.ndim != 3 or tensor.shape[1:] != (n, d) or len(tensor) == 0:
        raise ValueError(
            f"texts must have shape (N, {n}, {d}), N >= 1, for X of {n} words with d = {d}, got "
            f"{shape_of(tensor)}"
        )
    match("texts", tensor, inputs.texts[0])
    finite("texts", tensor)
    return TrainingSet(tensor.detach(), signs("labels", labels, len(tensor), inputs.device))


def signs(name: str, value: Any, count: int, device: torch.device, *, one: bool = False) -> Tensor:
    """`count` labels, each 1 or -1, float64; `one` stands for all where it is allowed."""
    expected = "1 or -1" if one and count == 1 else f"{count} labels, each 1 or -1"
    if isinstance(value, (str, bytes)):
        raise TypeError(f"{name} must be {expected}, got {value!r}")
    if isinstance(value, Tensor):
        has_values(name, value)
    try:
        array = host_array(name, value) if isinstance(value, Tensor) else np.asarray(value)
    except (TypeError, ValueError):
        got = value.dtype if isinstance(value, Tensor) else "something else"
        raise TypeError(f"{name} must be {expected}, got {got}") from None
    if array.dtype.kind not in "iuf":
        raise TypeError(f"{name} must be {expected}, got {array.dtype}")
    if array.shape != (count,) and not (one and array.shape == ()):
        raise ValueError(f"{name} must be {expected}, got shape {array.shape}")
    wrong = array[np.abs(array) != 1]
    if wrong.size:
        raise ValueError(f"{name} must be {expected}, got {wrong.flat[0]}")
    labels = torch.from_numpy(array.astype(np.float64)).to(device)
    return labels.expand(count)


def choices(name: str, value: Any, known: tuple[str, ...]) -> tuple[str, ...]:
    """One of the names `known`, or several, each once."""
    chosen = (value,) if isinstance(value, str) else value
    if not isinstance(chosen, (list, tuple)):
        raise TypeError(f"{name} must be a name or a sequence of them, got {type(value).__name__}")
    once = all(isinstance(one, str) and chosen.count(one) == 1 for one in chosen)
    if not chosen or not once or not set(chosen) <= set(known):
        raise ValueError(f"{name} must hold one or more of {some(known)}, each once, got {value!r}")
    return tuple(chosen)
