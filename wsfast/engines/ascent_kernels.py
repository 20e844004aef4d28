"""The closed form with torch's matrix products and one compiled kernel between any two of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor

from wsfast.attention.functional import FunctionalState
from wsfast.attention.state import BilinearState, HeadState, PositionState
from wsfast.engines import compiled
from wsfast.engines.engine import Climb

_SCALARS = 5  # kScalars of csrc/arguments.h


def position_struct(
    kernels: compiled.Kernels, state: PositionState, starts: int, held: dict[str, Tensor]
) -> Any:
    """The kernels' view of `state`, whose tensors `held` has, contiguous, and keeps alive."""
    names = (
        "index", "word", "logit", "a", "b", "inv_b", "c2", "reach", "own_logit", "own_a",
        "own_top", "dominated_start", "dominated_row", "dominated_mean",
    )  # fmt: skip
    return kernels.struct("PositionState", state.word.dtype)(
        weight_fn=state.weight_fn.code,
        curve=state.weight_fn.curve,
        positions=len(state.index),
        starts=starts,
        n=state.n,
        d=state.d,
        others=held["rest"].data_ptr(),
        **{name: held[name].data_ptr() for name in names},
    )


class NativeEvaluator(ABC):
    """Evaluates the change of φ, and its gradient, at `starts` points for each position of a state.

    Holds the work space, so that a step of the search allocates nothing.
    """

    def __init__(self, state: PositionState, starts: int) -> None:
        dtype, device = state.word.dtype, state.word.device
        self._kernels = compiled.kernels(device)
        # One contiguous copy of each array lives as long as the kernels may read it.
        self._held = {
            name: value.contiguous()
            for name, value in vars(state).items()
            if isinstance(value, Tensor)
        }
        n, d, positions = state.n, state.d, len(state.index)
        self._words = self._held["words"]
        self._state = position_struct(self._kernels, state, starts, self._held)
        self._rows_type = self._kernels.struct("AscentRows", dtype)
        rows = positions * starts
        self._shape = (positions, starts)
        # One row for each point: what it is multiplied into lies side by side for the kernels.
        self._products = torch.empty(rows, 3 * n + d, dtype=dtype, device=device)
        self._by_rows, self._by_bilinear = self._products.split((3 * n, d), 1)
        self._own_weight = torch.empty(rows, n, dtype=dtype, device=device)
        self._own_change = torch.empty(rows, n, dtype=dtype, device=device)
        exponential = state.weight_fn.exponential
        self._own_slope = (
            self._own_weight if exponential else torch.empty(rows, n, dtype=dtype, device=device)
        )
        self._own_products = torch.empty(rows, n, dtype=dtype, device=device)
        self._own_delta = torch.empty(rows, d, dtype=dtype, device=device)
        self._dominated_coef = torch.empty(
            starts, len(state.dominated_row), dtype=dtype, device=device
        )
        self._scalars = torch.empty(rows, _SCALARS, dtype=dtype, device=device)
        self._value = torch.empty(rows, dtype=dtype, device=device)
        self._size = torch.empty(rows, dtype=dtype, device=device)
        self._gradient = torch.empty(rows, d, dtype=dtype, device=device)

    @abstractmethod
    def _multiply(self, delta: Tensor) -> Tensor:
        """Fill the products of Δ (rows, D), contiguous; how the values change, (rows, d)."""

    @abstractmethod
    def _pull_back(self) -> None:
        """Multiply back the coefficients that took the place of the products."""

    def _complete(self) -> Tensor:
        """The gradient (rows, D), once that by the values is complete."""
        return self._gradient

    def squared_norms(self, delta: Tensor) -> tuple[Tensor, Tensor]:
        """As `closed_form.squared_norms`; the tensors returned are overwritten by the next call."""
        rows = self._forward(delta, with_size=True)
        self._kernels.launch("delta_norms", self._state, rows)
        self._own_row(rows)
        return self._value.view(self._shape), self._size.view(self._shape)

    def value_and_gradient(self, delta: Tensor) -> tuple[Tensor, Tensor]:
        """Σ_j ‖δ_j‖² (P, s) and its gradient (P, s, D); overwritten by the next call."""
        rows = self._forward(delta, with_size=False)
        self._kernels.launch("ascent_forward", self._state, rows)
        self._own_row(rows)
        torch.mm(self._own_delta, self._words.mT, out=self._own_products)
        self._kernels.launch("ascent_backward", self._state, rows, self._own_products.data_ptr())
        self._pull_back()
        self._kernels.launch(
            "ascent_gradient",
            self._state,
            rows,
            self._own_delta.data_ptr(),
            self._gradient.data_ptr(),
        )
        return self._value.view(self._shape), self._complete().view(*self._shape, -1)

    def _forward(self, delta: Tensor, *, with_size: bool) -> Any:
        flat = self._held["delta"] = delta.reshape(-1, delta.shape[-1]).contiguous()
        values = self._multiply(flat)
        return self._rows_type(
            delta=values.data_ptr(),
            products=self._products.data_ptr(),
            own_weight=self._own_weight.data_ptr(),
            own_change=self._own_change.data_ptr(),
            own_slope=self._own_slope.data_ptr(),
            dominated_coef=self._dominated_coef.data_ptr(),
            scalars=self._scalars.data_ptr(),
            value=self._value.data_ptr(),
            size=self._size.data_ptr() if with_size else 0,
        )

    def _own_row(self, rows: Any) -> None:
        torch.mm(self._own_change, self._words, out=self._own_delta)
        self._kernels.launch("own_row", self._state, rows, self._own_delta.data_ptr())


class _Bilinear(NativeEvaluator):
    """Of words that are their own keys and values."""

    def _multiply(self, delta: Tensor) -> Tensor:
        torch.mm(delta, self._held["stack"].mT, out=self._by_rows)
        torch.mm(delta, self._held["bilinear"], out=self._by_bilinear)
        return delta

    def _pull_back(self) -> None:
        torch.mm(self._by_rows, self._held["stack"], out=self._gradient)


class _OfHead(NativeEvaluator):
    """Of a head. To the kernels Δ is the change of the value, and the bilinear form is 0."""

    def __init__(self, state: HeadState, starts: int) -> None:
        super().__init__(state, starts)
        n, rows, d_k = state.n, len(self._products), state.keys.shape[1]
        self._split = [d_k, state.d, d_k]
        self._by_bilinear.zero_()
        self._by = self._by_rows.split(n, 1)
        self._index = state.index.repeat_interleave(starts)[:, None]
        self._by_own = self._scalars[:, 4:5]  # the coefficient of the own word's score
        self._whole = self._products.new_empty(rows, sum(self._split))

    def _multiply(self, delta: Tensor) -> Tensor:
        key, value, query = self._parts = delta.split(self._split, 1)
        own: Tensor = value.contiguous()
        self._held["value"] = own
        by_key, by_value, by_query = self._by
        torch.mm(key, self._held["queries"].mT, out=by_key)
        torch.mm(own, self._held["outputs"].mT, out=by_value)
        torch.mm(query, self._held["keys"].mT, out=by_query)
        by_query.scatter_add_(1, self._index, (key * query).sum(1, keepdim=True))
        return own

    def _pull_back(self) -> None:
        key, _, query = self._whole.split(self._split, 1)
        by_key, by_value, by_query = self._by
        torch.mm(by_key, self._held["queries"], out=key)
        torch.mm(by_value, self._held["outputs"], out=self._gradient)
        torch.mm(by_query, self._held["keys"], out=query)

    def _complete(self) -> Tensor:
        by_key, by_value, by_query = self._whole.split(self._split, 1)
        key, _, query = self._parts
        by_key.addcmul_(query, self._by_own)
        by_value.copy_(self._gradient)
        by_query.addcmul_(key, self._by_own)
        return self._whole


def native_evaluator(state: PositionState, starts: int) -> NativeEvaluator | None:
    """What evaluates the state by kernels; None where there are none."""
    if isinstance(state, BilinearState):
        return _Bilinear(state, starts)
    if isinstance(state, HeadState) and state.plain:
        return _OfHead(state, starts)
    return None


class NativeFunctional:
    """The functional of a state by one compiled kernel between two products; CPU only.

    Holds the work space, so that a step of the search allocates nothing.
    """

    def __init__(self, functional: FunctionalState, starts: int) -> None:
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
        stack = self._held["stack"]
        torch.mm(flat, stack.mT, out=self._by_rows)
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
        torch.addmm(self._by_bilinear, self._by_rows, stack, out=self._gradient)
        return self._value.view(self._shape), self._gradient.view(*self._shape, -1)


def take_step(climb: Climb, value: Tensor, gradient: Tensor, radius: float) -> None:
    """As `Engine.take_step`, in place."""
    compiled.kernels(climb.trial.device).launch(
        "take_step",
        dtype=climb.trial.dtype,
        rows=climb.value.numel(),
        d=climb.trial.shape[-1],
        radius=radius,
        delta=climb.trial.data_ptr(),
        gradient=gradient.data_ptr(),
        value=value.data_ptr(),
        best_delta=climb.delta.data_ptr(),
        best_gradient=climb.gradient.data_ptr(),
        best_value=climb.value.data_ptr(),
        beta=climb.beta.data_ptr(),
        risen=climb.risen.data_ptr(),
    )
