"""Checks of a vocabulary and of the options of a substitution."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from wsfast._checks import values
from wsfast._checks.search import searched
from wsfast._checks.texts import Inputs
from wsfast._checks.values import (
    HALF,
    Array,
    dense,
    finite,
    flag,
    has_values,
    host_array,
    integer,
    match,
    real_tensor,
    shape_of,
)


def candidate_table(E: Any, inputs: Inputs) -> Array:
    """E (V, d) for texts of dimension d; its values are checked when they are read."""
    if isinstance(E, np.ndarray):
        if E.dtype.kind != "f" or E.dtype.itemsize > 8 or isinstance(E, np.ma.MaskedArray):
            kind = "a masked" if isinstance(E, np.ma.MaskedArray) else "an"
            raise TypeError(
                f"E must hold real floating-point numbers, got {kind} array of {E.dtype}"
            )
        dtype = torch.from_numpy(np.empty(0, E.dtype.newbyteorder("="))).dtype
        device = torch.device("cpu")
    else:
        half = isinstance(E, Tensor) and E.dtype in HALF
        E = tensor = dense("E", E) if half else real_tensor("E", E)
        dtype, device = tensor.dtype, tensor.device
    if E.ndim != 2 or E.shape[1] != inputs.d or 0 in E.shape:
        raise ValueError(
            f"E must have shape (V, {inputs.d}), V >= 1, for X with d = {inputs.d}, "
            f"got {shape_of(E)}"
        )
    if (torch.float32 if dtype in HALF else dtype) != inputs.dtype:
        raise TypeError(f"E must have the dtype of X, {inputs.dtype}, got {dtype}")
    if device != inputs.device:
        raise ValueError(f"E must be on the device of X, {inputs.device}, got {device}")
    if isinstance(E, Tensor):
        has_values("E", E)
    table: Array = E
    return table


def candidate_rows(numbers: Tensor, rows: Tensor) -> None:
    """Raise ValueError where a candidate is not finite; `numbers` (m,) are the rows of E."""
    norms = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64)
    if bool(norms.square().isfinite().all()):
        return
    broken = (~rows.isfinite()).any(1).nonzero()[:, 0]
    if len(broken) == 0:
        raise ValueError("E must have rows whose squared norm a double can hold")
    listed = ", ".join(map(str, numbers[broken[:5]].tolist()))
    more = f" and {len(broken) - 5} more" if len(broken) > 5 else ""
    raise ValueError(f"E must be finite, got NaN or infinity in row {listed}{more}")


class Candidates(NamedTuple):
    """Which rows of E may stand where."""

    numbers: Tensor | None  # (C,) int64, ascending; None: all of them
    allowed: Tensor | None  # (n, C) bool, for each position; None: all everywhere


def candidates(value: Any, V: int, inputs: Inputs) -> Candidates:
    """Rows of E: indices or bool (V,), or one of either for each of the n positions."""
    if value is None:
        return Candidates(None, None)
    per_position = isinstance(value, (list, tuple)) and any(
        isinstance(one, (list, tuple, range, Tensor, np.ndarray)) and not _scalar(one)
        for one in value
    )
    if isinstance(value, (Tensor, np.ndarray)) and value.ndim == 2:
        per_position = True
    if not per_position:
        chosen = _chosen("candidates", value, V)
        if not bool(chosen.any()):
            raise ValueError("candidates must hold at least one row of E, got none")
        return Candidates(chosen.nonzero()[:, 0].to(inputs.device), None)
    if len(value) != inputs.length:
        raise ValueError(
            f"candidates must hold one choice for each of {inputs.length} positions, "
            f"got {len(value)}"
        )
    rows = torch.stack([_chosen(f"candidates[{i}]", one, V) for i, one in enumerate(value)])
    used = rows.any(0)
    if not bool(used.any()):
        raise ValueError("candidates must hold at least one row of E, got none")
    numbers = used.nonzero()[:, 0]
    return Candidates(numbers.to(inputs.device), rows[:, numbers].to(inputs.device))


def _scalar(value: Any) -> bool:
    return isinstance(value, (Tensor, np.ndarray)) and value.ndim == 0


def _chosen(name: str, value: Any, V: int) -> Tensor:
    """Rows of E that `value`, indices or a bool mask, chooses: (V,) bool."""
    if isinstance(value, Tensor):
        value = host_array(name, value)
    if not isinstance(value, (list, tuple, range, np.ndarray)):
        raise TypeError(
            f"{name} must be indices of rows of E or a bool mask over them, "
            f"got {type(value).__name__}"
        )
    array = np.asarray(value)
    if array.size == 0:
        return torch.zeros(V, dtype=torch.bool, device="cpu")
    if array.ndim != 1 or array.dtype.kind not in "bui":
        raise TypeError(
            f"{name} must be a sequence of integers or bool, got {array.dtype} of shape "
            f"{array.shape}"
        )
    if array.dtype.kind == "b":
        if len(array) != V:
            raise ValueError(f"{name} must have length {V}, one bool a row of E, got {len(array)}")
        return torch.from_numpy(array.copy())
    wrong = (array < 0) | (array >= V)
    if wrong.any():
        raise ValueError(f"{name} must be from 0 to {V - 1}, got {array[wrong][0]}")
    chosen = torch.zeros(V, dtype=torch.bool, device="cpu")
    chosen[torch.from_numpy(array.astype(np.int64))] = True
    return chosen


def own_scores(value: Any, draws: int | None, V: int, inputs: Inputs) -> Tensor:
    """Scores of the rows of E with themselves, (V,) or with draws (R, V), as (R, V)."""
    tensor = real_tensor("self_scores", value)
    shape = (V,) if draws is None else (draws, V)
    if tuple(tensor.shape) != shape:
        raise ValueError(f"self_scores must have shape {shape}, got {shape_of(tensor)}")
    match("self_scores", tensor, inputs.texts[0])
    finite("self_scores", tensor)
    return tensor.detach().reshape(-1, V)


class SubstitutionOptions(NamedTuple):
    """Where to substitute, and what to return."""

    positions: list[Tensor]  # of each text, int64, ascending: words that were asked for
    top_k: int
    largest: bool
    full: bool
    seed: int
    memory_budget: int


def substitution_options(
    inputs: Inputs,
    *,
    positions: Any,
    top_k: Any,
    largest: Any,
    full: Any,
    seed: Any,
    memory_budget: Any,
) -> SubstitutionOptions:
    """The options of a substitution; positions None everywhere."""
    return SubstitutionOptions(
        positions=searched(positions, inputs),
        top_k=integer("top_k", top_k, low=1),
        largest=flag("largest", largest),
        full=flag("full", full),
        seed=values.seed(seed),
        memory_budget=integer("memory_budget", memory_budget, low=1),
    )


def enough_pairs(top_k: int, pairs: list[int]) -> None:
    """Raise ValueError where a text has fewer pairs of position and candidate than `top_k`."""
    fewest = min(pairs, default=top_k)
    if fewest < top_k:
        raise ValueError(
            "top_k must be at most the number of pairs of position and candidate of a text, "
            f"{fewest}, got {top_k}"
        )
