"""One interface to the ways of evaluating how φ changes at many Δ, and its gradient."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from wsfast._transforms import transformed
from wsfast.attention import closed_form
from wsfast.attention.state import PositionState
from wsfast.engines.ascent_kernels import NativeEvaluator


class Evaluator(Protocol):
    """Evaluates ‖φ(X^i(Δ)) - φ(X)‖² for P positions i and s points Δ each."""

    def value_and_gradient(self, delta: Tensor) -> tuple[Tensor, Tensor]:
        """For Δ (P, s, d): the values (P, s) and their gradient (P, s, d)."""


class Objective(Protocol):
    """What the search maximises, at a set of positions."""

    @property
    def positions(self) -> int: ...

    def evaluator(self, starts: int) -> Evaluator: ...

    def select(self, keep: Tensor) -> Objective:
        """The same at the positions numbered `keep` (ascending) alone."""


class Projectable(Objective, Protocol):
    """An objective that can be searched in a subspace."""

    def project(self, basis: Tensor) -> Objective:
        """The same for Δ in the span of the orthonormal columns of `basis` (d, r)."""


def value_and_gradient_of(
    value: Callable[[Tensor], Tensor], delta: Tensor
) -> tuple[Tensor, Tensor]:
    """`value` of Δ (..., d) and its gradient, by autograd."""
    with torch.enable_grad():
        moving = delta.detach().requires_grad_()
        values = value(moving)
        (gradient,) = torch.autograd.grad(values.sum(), moving)
    return values.detach(), gradient


@dataclass(frozen=True)
class TorchEvaluator:
    """The closed form in PyTorch operations, its gradient by autograd."""

    state: PositionState

    def value_and_gradient(self, delta: Tensor) -> tuple[Tensor, Tensor]:
        return value_and_gradient_of(
            lambda moving: closed_form.squared_norms(self.state, moving)[0], delta
        )


@dataclass(frozen=True)
class ClosedForm:
    """Random attention features, by the closed form."""

    state: PositionState
    native: bool

    @property
    def positions(self) -> int:
        return len(self.state.index)

    def evaluator(self, starts: int) -> Evaluator:
        if self.native:
            return NativeEvaluator(self.state, starts)
        return TorchEvaluator(self.state)

    def select(self, keep: Tensor) -> ClosedForm:
        return replace(self, state=self.state.select(keep))

    def project(self, basis: Tensor) -> ClosedForm:
        return replace(self, state=self.state.project(basis))


@dataclass(frozen=True)
class Definition:
    """Any feature map, by its definition: perturb the text, compute φ again, differentiate."""

    phi: Callable[[Tensor], Tensor]  # (m, n, d) to (m, ...)
    X: Tensor  # (n, d)
    base: Tensor  # φ(X), flat, float64
    index: Tensor  # (P,) int64
    rows_at_once: int
    basis: Tensor | None = None  # (d, r): Δ is given by its r coordinates

    @property
    def positions(self) -> int:
        return len(self.index)

    def evaluator(self, starts: int) -> Evaluator:
        return self

    def select(self, keep: Tensor) -> Definition:
        return replace(self, index=self.index[keep])

    def project(self, basis: Tensor) -> Definition:
        return replace(self, basis=basis)

    def squared_norms(self, delta: Tensor) -> Tensor:
        """‖φ(X^i(Δ)) - φ(X)‖² (P, s) for Δ (P, s, d)."""
        if self.base.requires_grad or delta.requires_grad or transformed(self.base, delta):
            parts = [self._changes(rows, at) for rows, at in self._parts(delta)]
            return torch.cat(parts).view(delta.shape[:2])
        # Into one array: small results kept between large temporaries fragment the heap.
        values = delta.new_empty(delta.shape[:2])
        into = values.view(-1).split(self.rows_at_once)
        for (rows, at), value in zip(self._parts(delta), into, strict=True):
            value.copy_(self._changes(rows, at))
        return values

    def value_and_gradient(self, delta: Tensor) -> tuple[Tensor, Tensor]:
        values = delta.new_empty(delta.shape[:2])
        gradients = torch.empty_like(delta, memory_format=torch.contiguous_format)
        at_once = self.rows_at_once
        into = zip(
            values.view(-1).split(at_once), gradients.flatten(0, 1).split(at_once), strict=True
        )
        for (rows, at), (value, gradient) in zip(self._parts(delta), into, strict=True):
            now, slope = value_and_gradient_of(partial(self._changes, rows), at)
            # A trial at which φ is not finite is never the best.
            fine = now.isfinite() & slope.isfinite().all(-1)
            value.copy_(now.masked_fill(~fine, -torch.inf))
            gradient.copy_(slope.masked_fill(~fine[:, None], 0.0))
        return values, gradients

    def _parts(self, delta: Tensor) -> zip[tuple[Tensor, Tensor]]:
        rows = self.index.repeat_interleave(delta.shape[1])
        return zip(
            rows.split(self.rows_at_once),
            delta.reshape(-1, delta.shape[-1]).split(self.rows_at_once),
            strict=True,
        )

    def _changes(self, rows: Tensor, delta: Tensor) -> Tensor:
        return self._change(rows, delta).square().sum(-1).to(delta.dtype)

    def _change(self, rows: Tensor, delta: Tensor) -> Tensor:
        """φ(X^i(Δ)) - φ(X) (m, D), float64, for words `rows` (m,) and their Δ (m, d)."""
        by = delta if self.basis is None else delta @ self.basis.mT
        each = torch.arange(len(rows), device=rows.device)
        moved = self.X.expand(len(rows), -1, -1).index_put((each, rows), by, accumulate=True)
        return self.phi(moved).flatten(1).double() - self.base
