"""Heads of a trained layer as the search sees them: the change of all of them together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from wsfast.attention.sites import HeadSiteState
from wsfast.attention.state import HeadState
from wsfast.engines.engine import Engine, Evaluator
from wsfast.search.objective import Objective, Small, of_each_word


class HeadStates(Protocol):
    """Heads at P places, and what of their changes is searched."""

    @property
    def places(self) -> int:
        """P."""

    @property
    def dtype(self) -> torch.dtype:
        """In which it is evaluated."""

    def select(self, keep: Tensor) -> HeadStates:
        """The places numbered `keep`."""

    def evaluator(self, engine: Engine, starts: int) -> Evaluator:
        """Of changes (P, s, m, h, D) of the rows of the heads."""


@dataclass(frozen=True)
class SideBySide:
    """Σ of the squared changes of the heads."""

    states: tuple[HeadState | HeadSiteState, ...]

    @property
    def places(self) -> int:
        return len(self.states[0].word)

    @property
    def dtype(self) -> torch.dtype:
        return self.states[0].word.dtype

    def select(self, keep: Tensor) -> SideBySide:
        return SideBySide(tuple(one.select(keep) for one in self.states))

    def evaluator(self, engine: Engine, starts: int) -> Evaluator:
        return _Summed([_of_head(engine, one, starts) for one in self.states])


def _of_head(engine: Engine, state: HeadState | HeadSiteState, starts: int) -> Evaluator:
    if isinstance(state, HeadSiteState):
        return engine.site_norms(state)
    return engine.norms(state, starts)


class _Summed:
    def __init__(self, heads: list[Evaluator]) -> None:
        self._heads = heads

    def value_and_gradient(self, delta: Tensor) -> tuple[Tensor, Tensor]:
        values, gradients = [], []
        for head, one in zip(self._heads, delta.unbind(3), strict=True):
            value, gradient = head.value_and_gradient(one.flatten(2))
            values.append(value)
            gradients.append(gradient.view_as(one))
        if len(values) == 1:
            return values[0], gradients[0][:, :, :, None]
        return torch.stack(values).sum(0), torch.stack(gradients, 3)


# From changes of words (P, s, m, d) at places (P, m) to those of the rows (P, s, m, h, D).
Moves = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class HeadsObjective(Objective):
    """At P places of m words, by the closed form."""

    engine: Engine
    at: Tensor  # (P, m)
    heads: HeadStates
    moves: Tensor | Moves  # a matrix (d, h, D) where it is linear
    d: int
    lead: Tensor | None = None

    @property
    def places(self) -> int:
        return self.heads.places

    @property
    def width(self) -> int:
        return self.at.shape[1] * self.d

    @property
    def dtype(self) -> torch.dtype:
        return self.heads.dtype

    @property
    def device(self) -> torch.device:
        return self.at.device

    def evaluator(self, starts: int) -> Evaluator:
        inner = self.heads.evaluator(self.engine, starts)
        if isinstance(self.moves, Tensor):
            return _Linear(inner, self.moves, self.at.shape[1])
        return _Chained(inner, self.moves, self.at)

    def select(self, keep: Tensor) -> HeadsObjective:
        return replace(self, at=self.at[keep], heads=self.heads.select(keep))

    def leads(self) -> Tensor | None:
        return self.lead

    def small(self) -> Small | None:
        """What one head sees of a change: 2 d_k + d_v dimensions, of which nothing is lost."""
        if not isinstance(self.moves, Tensor) or self.moves[0].numel() >= self.d:
            return None
        basis, inside = torch.linalg.qr(self.moves.double().flatten(1))
        moves = inside.to(self.dtype).unflatten(1, self.moves.shape[1:])
        small = replace(self, moves=moves, d=len(moves), lead=None)
        basis = basis.to(self.dtype)
        return Small(small, of_each_word(basis, self.at.shape[1]), lossless=True)


class _Linear:
    def __init__(self, inner: Evaluator, matrix: Tensor, m: int) -> None:
        self._inner, self._m = inner, m
        self._shape = matrix.shape[1:]
        self._matrix = matrix.flatten(1)

    def value_and_gradient(self, delta: Tensor) -> tuple[Tensor, Tensor]:
        moved = delta.unflatten(-1, (self._m, -1)) @ self._matrix
        value, gradient = self._inner.value_and_gradient(moved.unflatten(-1, self._shape))
        return value, (gradient.flatten(-2) @ self._matrix.mT).flatten(-2)


class _Chained:
    def __init__(self, inner: Evaluator, moves: Moves, at: Tensor) -> None:
        self._inner, self._moves, self._at = inner, moves, at

    def value_and_gradient(self, delta: Tensor) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            words = delta.detach().unflatten(-1, (self._at.shape[1], -1)).requires_grad_()
            moved = self._moves(self._at, words)
            value, by_rows = self._inner.value_and_gradient(moved.detach())
            (gradient,) = torch.autograd.grad(moved, words, by_rows)
        return value, gradient.flatten(-2)
