"""A vocabulary, and the options of a substitution, checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from wsfast import _values
from wsfast._inputs import Inputs, searched
from wsfast._values import (
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
    some,
)
from wsfast.search.options import DEFAULT_BUDGET
from wsfast.studies.substitution.table import sent


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
        raise ValueError(
            f"E must have rows whose squared norm a double holds, got a norm of "
            f"{float(norms.max()):g}"
        )
    raise ValueError(
        f"E must be finite, got NaN or infinity in row {some(numbers[broken].tolist())}"
    )


class Allowed:
    """Which rows of E each position may take, looked up in what the user gave: never copied whole.

    Parameters
    ----------
    choices : Tensor or ndarray, shape (n, V), or list of ndarray
        bool; or for each position a bool mask (V,) or ascending rows of E.
    own : Tensor of int64, shape (n,), optional
        The one row that a position may not take all the same; -1 for none.
    """

    def __init__(
        self, choices: Array | list[np.ndarray[Any, Any]], own: Tensor | None = None
    ) -> None:
        self._choices = choices
        self._own = own

    def at(self, positions: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
        """Tells of rows of E (m,) whether the positions (P,) may take them, (P, m) bool.

        It is given the rows on the device of the positions and on the CPU, and waits for neither.
        """
        where = positions, positions.cpu()
        own = None if self._own is None else self._own[positions][:, None]

        def allowed(rows: Tensor, on_host: Tensor) -> Tensor:
            chosen = self._chosen(where, (rows, on_host))
            return chosen if own is None else chosen & (rows != own)

        return allowed

    def _chosen(self, positions: tuple[Tensor, Tensor], rows: tuple[Tensor, Tensor]) -> Tensor:
        """The same of positions and rows on their device and on the CPU, own rows aside."""
        choices, device = self._choices, rows[0].device
        if isinstance(choices, Tensor):
            at, which = (both[choices.device.type == "cpu"] for both in (positions, rows))
            return sent(choices[at[:, None], which], device)
        numbers = rows[1].numpy()
        if isinstance(choices, np.ndarray):
            found = choices[positions[1].numpy()[:, None], numbers]
        else:
            found = np.zeros((len(positions[1]), len(numbers)), dtype=bool)
            for row, position in zip(found, positions[1].tolist(), strict=True):
                choice = choices[position]
                if _is_mask(choice):
                    row[:] = choice[numbers]
                elif len(choice):
                    place = np.searchsorted(choice, numbers).clip(max=len(choice) - 1)
                    row[:] = choice[place] == numbers
        return sent(torch.from_numpy(found), device)

    def count(self, positions: Tensor) -> int:
        """Pairs of a position and a row that it may take."""
        choices = (self._choices[i] for i in positions.tolist())
        chosen = sum(int(one.sum()) if _is_mask(one) else len(one) for one in choices)
        if self._own is None:
            return chosen
        own = self._own[positions]
        positions, own = positions[own >= 0], own[own >= 0]
        own_chosen = self._chosen((positions, positions.cpu()), (own, own.cpu()))
        return chosen - int(own_chosen.diagonal().sum())

    def used(self, V: int) -> Tensor:
        """Rows that some position may take, (V,) bool."""
        if isinstance(self._choices, Tensor):
            some = torch.zeros(V, dtype=torch.bool, device=self._choices.device)
            for mask in self._choices:
                some |= mask
            return some
        found = np.zeros(V, dtype=bool)
        for choice in self._choices:
            if _is_mask(choice):
                found |= choice
            else:
                found[choice] = True
        return torch.from_numpy(found)


class Candidates(NamedTuple):
    """Which rows of E may stand where."""

    numbers: Tensor | None  # (C,) int64, ascending; None: all of them
    allowed: Allowed | None  # for each position; None: all of them everywhere


def candidates_of(value: Any, own: Any, V: int, inputs: Inputs) -> Candidates:
    """Rows of E: indices or bool (V,), or one of either for each of the n positions.

    `own` (n,) names the row that is no candidate at each.
    """
    rows = None if own is None else own_rows(own, V, inputs)
    if value is None:
        return Candidates(None, None if rows is None else _everywhere(slice(None), V, rows))
    per_position = isinstance(value, (list, tuple)) and any(
        isinstance(one, (list, tuple, range, Tensor, np.ndarray)) and not _scalar(one)
        for one in value
    )
    if isinstance(value, (Tensor, np.ndarray)) and value.ndim == 2:
        per_position = True
    if not per_position:
        choice = _choice("candidates", value, V)
        numbers = torch.from_numpy(choice.nonzero()[0] if _is_mask(choice) else choice)
        if len(numbers) == 0:
            raise ValueError("candidates must hold at least one row of E, got none")
        allowed = None if rows is None else _everywhere(numbers, V, rows)
        return Candidates(numbers.to(inputs.device), allowed)
    if len(value) != inputs.length:
        raise ValueError(
            f"candidates must hold one choice for each of {inputs.length} positions, "
            f"got {len(value)}"
        )
    if isinstance(value, (Tensor, np.ndarray)) and _is_mask(value) and value.shape[1] == V:
        allowed = Allowed(value, rows)
    else:
        choices = [_choice(f"candidates[{i}]", one, V) for i, one in enumerate(value)]
        allowed = Allowed(choices, rows)
    numbers = allowed.used(V).nonzero()[:, 0].to(inputs.device)
    if len(numbers) == 0:
        raise ValueError("candidates must hold at least one row of E, got none")
    return Candidates(None if len(numbers) == V else numbers, allowed)


def _everywhere(chosen: Tensor | slice, V: int, own: Tensor) -> Allowed:
    """The same rows at all positions, but each position's own."""
    mask = torch.zeros(V, dtype=torch.bool, device="cpu")
    mask[chosen] = True
    return Allowed(mask.to(own.device).expand(len(own), V), own)


def own_rows(value: Any, V: int, inputs: Inputs) -> Tensor:
    """Rows of E that the words of one text are, (n,) int64; -1 for none."""
    if len(inputs.texts) != 1:
        raise ValueError(f"own must be left out for several texts, got {len(inputs.texts)} texts")
    array = np.asarray(host_array("own", value) if isinstance(value, Tensor) else value)
    if array.ndim != 1 or array.dtype.kind not in "ui":
        raise TypeError(
            f"own must be a sequence of integers, got {array.dtype} of shape {array.shape}"
        )
    if len(array) != inputs.length:
        raise ValueError(f"own must have length {inputs.length}, one a position, got {len(array)}")
    wrong = (array < -1) | (array >= V)
    if wrong.any():
        raise ValueError(f"own must be from -1 to {V - 1}, got {array[wrong][0]}")
    return torch.from_numpy(array.astype(np.int64)).to(inputs.device)


def _scalar(value: Any) -> bool:
    return isinstance(value, (Tensor, np.ndarray)) and value.ndim == 0


def _is_mask(choice: Array) -> bool:
    return choice.dtype in (torch.bool, np.dtype(bool))


def _choice(name: str, value: Any, V: int) -> np.ndarray[Any, Any]:
    """Rows of E: a bool mask (V,) as it was given, or indices, ascending and each once, int64."""
    if isinstance(value, Tensor):
        value = host_array(name, value)
    if not isinstance(value, (list, tuple, range, np.ndarray)):
        raise TypeError(
            f"{name} must be indices of rows of E or a bool mask over them, "
            f"got {type(value).__name__}"
        )
    array = np.asarray(value)
    if array.size == 0:
        return np.empty(0, dtype=np.int64)
    if array.ndim != 1 or array.dtype.kind not in "bui":
        raise TypeError(
            f"{name} must be a sequence of integers or bool, got {array.dtype} of shape "
            f"{array.shape}"
        )
    if array.dtype.kind == "b":
        if len(array) != V:
            raise ValueError(f"{name} must have length {V}, one bool a row of E, got {len(array)}")
        return array
    wrong = (array < 0) | (array >= V)
    if wrong.any():
        raise ValueError(f"{name} must be from 0 to {V - 1}, got {array[wrong][0]}")
    return np.unique(array).astype(np.int64)


def given_scores(value: Any, draws: int | None, V: int, inputs: Inputs) -> Tensor:
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
    positions: Any = None,
    top_k: Any = 10,
    largest: Any = True,
    full: Any = False,
    seed: Any = 0,
    memory_budget: Any = DEFAULT_BUDGET,
) -> SubstitutionOptions:
    """The options of a substitution; positions None everywhere."""
    return SubstitutionOptions(
        positions=searched(positions, inputs),
        top_k=integer("top_k", top_k, low=1),
        largest=flag("largest", largest),
        full=flag("full", full),
        seed=_values.seed(seed),
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
