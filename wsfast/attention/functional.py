"""A linear functional of the change of φ, by the closed form (docs/design.md, section 2).

For Θ (n, d) it is ⟨φ(X^i(Δ)) - φ(X), Θ⟩ = Σ_j θ_j·δ_j. Rows j ≠ i add q_j θ_j·c_ji + α_j θ_j·Δ, of
which Δ moves q_j, α_j and θ_j·Δ alone; the own row adds Σ_l (P_l - A_l) x_l·θ_i + P_i θ_i·Δ.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from wsfast.attention import closed_form
from wsfast.attention.state import PositionState
from wsfast.engines import compiled
from wsfast.engines.ascent_kernels import position_struct
from wsfast.search.objective import (
    ClosedForm,
    Definition,
    Evaluator,
    value_and_gradient_of,
)


@dataclass(frozen=True)
class ClosedFunctional(ClosedForm):
    """The functional Θ of random attention features, by the closed form.

    `state.rows` holds queries, Θ and keys: what Δ is multiplied with.
    """

    by_shift: Tensor  # (P, n) θ_j · c_ji; any number in the position's own row
    by_word: Tensor  # (P, n) θ_i · x_l

    def evaluator(self, starts: int) -> Evaluator:
        return (NativeFunctional if self.native else TorchFunctional)(self, starts)

    def select(self, keep: Tensor) -> ClosedFunctional:
        return replace(
            self,
            state=self.state.select(keep),
            by_shift=self.by_shift[keep],
            by_word=self.by_word[keep],
        )


@dataclass(frozen=True)
class DefinedFunctional(Definition):
    """The functional Θ of any feature map, by its definition."""

    theta: Tensor = field(kw_only=True)  # (D,) float64

    def _changes(self, rows: Tensor, delta: Tensor) -> Tensor:
        return (self._change(rows, delta) @ self.theta).to(delta.dtype)


def has_kernel(device: torch.device) -> bool:
    """Whether ``backend="native"`` has a kernel of the functional: for the CPU it has."""
    return not compiled.kernels(device).gpu


def functional_at(
    exact: PositionState, state: PositionState, theta: Tensor, *, native: bool
) -> ClosedFunctional:
    """The functional `theta` (n, d) at the positions of `state`.

    `exact` is the same state in float64, as `theta` is, of all of which the constants are formed.
    """
    n = exact.n
    phi = exact.rows[n : 2 * n]  # 0 when unnormalised: c_ji is x_i itself
    difference = exact.word @ theta.mT - (theta * phi).sum(-1)
    k, j = exact.dominated_position, exact.dominated_row
    dominated = (theta[j] * (exact.word[k] - exact.dominated_mean)).sum(-1)
    by_shift = (difference * exact.inv_b).index_put((k, j), dominated)
    dtype = state.word.dtype
    rows = torch.cat([state.rows[:n], theta.to(dtype), state.rows[2 * n :]])
    return ClosedFunctional(
        replace(state, rows=rows),
        native,
        by_shift.to(dtype),
        (theta[exact.index] @ exact.words.mT).to(dtype),
    )


def values(functional: ClosedFunctional, delta: Tensor) -> Tensor:
    """⟨φ(X^i(Δ)) - φ(X), Θ⟩ (P, s) for Δ (P, s, d), in PyTorch operations."""
    state = functional.state
    t, theta_delta, r = closed_form.scores(state, delta)
    alpha, q = closed_form.pair_change(state, t)
    others = q * functional.by_shift[:, None] + alpha * theta_delta
    weight, change = closed_form.own_attention(state, r)
    index = state.index[:, None, None].expand(-1, delta.shape[1], 1)
    own = (change * functional.by_word[:, None]).sum(-1)
    own = own + (weight.gather(-1, index) * theta_delta.gather(-1, index))[..., 0]
    return others.sum(-1) + own


class TorchFunctional:
    """The functional in PyTorch operations, its gradient by autograd."""

    def __init__(self, functional: ClosedFunctional, starts: int) -> None:
        self._functional = functional

    def value_and_gradient(self, delta: Tensor) -> tuple[Tensor, Tensor]:
        """For Δ (P, s, d): the values (P, s) and their gradient (P, s, d)."""
        return value_and_gradient_of(partial(values, self._functional), delta)


class NativeFunctional:
    """The functional by one compiled kernel between two products; CPU only.

    Holds the work space, so that a step of the search allocates nothing.
    """

    def __init__(self, functional: ClosedFunctional, starts: int) -> None:
        state = functional.state
        kind: Any = {"dtype": state.word.dtype, "device": state.word.device}
        self._kernels = compiled.kernels(state.word.device)
        # One contiguous copy of each array lives as long as the kernel may read it.
        self._held = held = {
            name: value.contiguous()
            for name, value in (*vars(state).items(), *vars(functional).items())
            if isinstance(value, Tensor)
        }
        n, d, positions = state.n, state.d, len(state.index)
        self._state = position_struct(self._kernels, state, starts, held)
        self._rows_type = self._kernels.struct("FunctionalRows", state.word.dtype)
        self._shape = (positions, starts)
        count = positions * starts
        self._products = torch.empty(count, 3 * n + d, **kind)
        self._by_rows, self._by_bilinear = self._products.split((3 * n, d), 1)
        self._own_weight, self._own_change, self._own_slope = torch.empty(3, count, n, **kind)
        self._value = torch.empty(count, **kind)
        self._gradient = torch.empty(count, d, **kind)

    def value_and_gradient(self, delta: Tensor) -> tuple[Tensor, Tensor]:
        """For Δ (P, s, d): values (P, s) and gradient (P, s, d); overwritten by the next call."""
        flat = delta.reshape(-1, delta.shape[-1]).contiguous()
        rows = self._held["rows"]
        torch.mm(flat, rows.mT, out=self._by_rows)
        torch.mm(flat, self._held["bilinear"], out=self._by_bilinear)
        arguments = self._rows_type(
            by_shift=self._held["by_shift"].data_ptr(),
            by_word=self._held["by_word"].data_ptr(),
            delta=flat.data_ptr(),
            products=self._products.data_ptr(),
            own_weight=self._own_weight.data_ptr(),
            own_change=self._own_change.data_ptr(),
            own_slope=self._own_slope.data_ptr(),
            value=self._value.data_ptr(),
        )
        self._kernels.launch("functional_ascent", self._state, arguments)
        # What the bilinear form adds lies where its product lay.
        torch.addmm(self._by_bilinear, self._by_rows, rows, out=self._gradient)
        return self._value.view(self._shape), self._gradient.view(*self._shape, -1)
