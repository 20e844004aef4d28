"""The objective of any feature map, by its definition: edit the text, compute φ again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from wsfast.engines.engine import Engine, value_and_gradient_of
from wsfast.maps.measure import Measure
from wsfast.perturbation.change import Change, Sites, edit
from wsfast.search.objective import Objective, Small, Turn, of_each_word


@dataclass(frozen=True)
class Defined(Objective):
    """A measure of φ(X') - φ(X), X' = X + Δ at P places, differentiated by autograd."""

    features: Callable[[Tensor], Tensor]  # (M, n, d) to (M, …)
    X: Tensor  # (n, d)
    phi: Tensor  # φ(X), float64
    sites: Sites
    measure: Measure
    engine: Engine
    rows_at_once: int  # texts that are edited together
    more_starts: int = 1
    momentum: bool = False
    rounded: torch.dtype | None = None  # to which starts are rounded; by default that of X
    lead: Tensor | None = None
    smoother: tuple[Defined, ...] = ()
    basis: Callable[[], Tensor | None] | None = None  # (d, r) that is worth searching in first
    turning: Callable[[Sites, Tensor | None], Sequence[Turn]] | None = None  # of Δ `within` a basis
    within: Tensor | None = None  # (D, r): Δ is given by its r coordinates

    @property
    def places(self) -> int:
        return len(self.sites)

    @property
    def width(self) -> int:
        return self.sites.words * self.X.shape[1]

    @property
    def dtype(self) -> torch.dtype:
        return self.X.dtype

    @property
    def start_dtype(self) -> torch.dtype:
        return self.rounded or self.dtype

    @property
    def device(self) -> torch.device:
        return self.X.device

    def evaluator(self, starts: int) -> Defined:
        return self

    def select(self, keep: Tensor) -> Defined:
        return replace(self, sites=Sites(self.sites.at[keep]))

    def leads(self) -> Tensor | None:
        return self.lead

    def turns(self) -> Sequence[Turn]:
        turns = () if self.turning is None else self.turning(self.sites, self.within)
        return [partial(self._turned, turn) for turn in turns]

    def _turned(self, turn: Turn, delta: Tensor) -> Tensor:
        return turn(delta.to(self.start_dtype)).to(delta.dtype)

    def smoothed(self) -> Sequence[Defined]:
        return self.smoother

    def small(self) -> Small | None:
        basis = None if self.basis is None else self.basis()
        if basis is None:
            return None
        basis = of_each_word(basis.to(self.dtype), self.sites.words)
        smoother = tuple(replace(one, within=basis) for one in self.smoother)
        return Small(replace(self, within=basis, basis=None, smoother=smoother), (basis,))

    def value_and_gradient(self, delta: Tensor) -> tuple[Tensor, Tensor]:
        values = delta.new_empty(delta.shape[:2])
        gradients = torch.empty_like(delta, memory_format=torch.contiguous_format)
        into = zip(
            values.view(-1).split(self.rows_at_once),
            gradients.flatten(0, 1).split(self.rows_at_once),
            strict=True,
        )
        for (at, by), (value, gradient) in zip(self._parts(delta), into, strict=True):
            now, slope = value_and_gradient_of(partial(self._values, at), by)
            # A trial at which φ is not finite is never the best.
            fine = now.isfinite() & slope.isfinite().all(-1)
            value.copy_(now.masked_fill(~fine, -torch.inf))
            gradient.copy_(slope.masked_fill(~fine[:, None], 0.0))
        return values, gradients

    def _parts(self, delta: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        at = self.sites.at.repeat_interleave(delta.shape[1], 0)
        by = delta.reshape(-1, delta.shape[-1])
        return zip(at.split(self.rows_at_once), by.split(self.rows_at_once), strict=True)

    def _values(self, at: Tensor, delta: Tensor) -> Tensor:
        by = delta if self.within is None else delta @ self.within.mT
        by = by.unflatten(-1, (1, at.shape[1], -1))
        edited, _ = edit(self.X, Sites(at), Change(add=by))
        change = self.features(edited).double() - self.phi
        return self.measure.of(change, at).to(delta.dtype)
