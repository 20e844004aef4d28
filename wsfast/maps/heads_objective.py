"""Heads of a trained layer as the search sees them: the change of all of them together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from wsfast.attention import closed_form
from wsfast.attention.sites import HeadSiteState
from wsfast.attention.state import HeadState
from wsfast.engines.engine import ByAutograd, Engine, Evaluator
from wsfast.search.objective import Objective, Small, of_each_word


class HeadStates(Protocol):
    """Heads at P places, and what of their changes is searched."""

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
    def dtype(self) -> torch.dtype:
        return self.states[0].word.dtype

    def select(self, keep: Tensor) -> SideBySide:
        return SideBySide(tuple(one.select(keep) for one in self.states))

    def evaluator(self, engine: Engine, starts: int) -> Evaluator:
        return _SideBySide([_of_head(engine, one, starts) for one in self.states])

    def of_words(self, engine: Engine, starts: int, matrix: Tensor) -> Evaluator:
        """Of changes (P, s, d) of single words that the `matrix` (d, h, D) leads to the heads."""
        heads = zip(self.states, matrix.unbind(1), strict=True)
        evaluators = [_of_head(engine, one, starts, moves) for one, moves in heads]
        return evaluators[0] if len(evaluators) == 1 else _Summed(evaluators)


def _of_head(
    engine: Engine, state: HeadState | HeadSiteState, starts: int, moves: Tensor | None = None
) -> Evaluator:
    if isinstance(state, HeadSiteState):
        return engine.site_norms(state)
    return engine.norms(state, starts, moves)


class _Summed:
    def __init__(self, parts: list[Evaluator]) -> None:
        self._parts = parts

    def value_and_gradient(self, delta: Tensor) -> tuple[Tensor, Tensor]:
        each = [part.value_and_gradient(delta) for part in self._parts]
        values, gradients = zip(*each, strict=True)
        return torch.stack(values).sum(0), torch.stack(gradients).sum(0)


class _SideBySide:
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


@dataclass(frozen=True)
class Projected:
    """The squared change of what W_O makes of the heads, at single words.

    Nothing of size P n d is formed at each point: products of heads with one another are, through
    G = W_O W_Oᵀ (docs/design.md, section 7).
    """

    states: tuple[HeadState, ...]
    W_O: Tensor  # (h d_v, d)
    shifts: Tensor  # (P, n, h, h) c_h G_hh' c_h'

    @classmethod
    def of(cls, states: tuple[HeadState, ...], W_O: Tensor, at_once: int) -> Projected:
        """From the states, with the shifts of so many places at a time."""
        count = len(states[0].index)
        parts = []
        for some in torch.arange(count, device=W_O.device).split(at_once):
            by_head = [one.select(some) for one in states]
            c = torch.stack([closed_form.differences(one) for one in by_head], 2)  # (P, n, h, d_v)
            made = torch.einsum("pnhv,hvd->pnhd", c, W_O.unflatten(0, (len(states), -1)))
            parts.append(made @ made.mT)
        return cls(states, W_O, torch.cat(parts))

    @property
    def dtype(self) -> torch.dtype:
        return self.W_O.dtype

    def select(self, keep: Tensor) -> Projected:
        states = tuple(one.select(keep) for one in self.states)
        return replace(self, states=states, shifts=self.shifts[keep])

    def evaluator(self, engine: Engine, starts: int) -> Evaluator:
        return ByAutograd(self._squares)

    def _squares(self, delta: Tensor) -> Tensor:
        """The squares (P, s) for changes (P, s, 1, h, D)."""
        W = self.W_O.unflatten(0, (len(self.states), -1))  # (h, d_v, d)
        alphas, qs, turned, own = [], [], [], []
        moves = [
            one.moves(by) for one, by in zip(self.states, delta[:, :, 0].unbind(2), strict=True)
        ]
        made = torch.stack([by.u @ w for by, w in zip(moves, W, strict=True)], 2)  # (P, s, h, d)
        for state, by, w in zip(self.states, moves, W, strict=True):
            alpha, q = closed_form.pair_change(state, by.t)
            others = made @ w.mT  # (P, s, h', d_v) G_hh' u_h'
            alphas.append(alpha)
            qs.append(q)
            turned.append(closed_form.along_differences(state, others))
            own.append(closed_form.own_row(state, by))
        alpha, q = torch.stack(alphas, 2), torch.stack(qs, 2)  # (P, s, h, n)
        both = made @ made.mT  # (P, s, h, h')
        shifted = torch.einsum("pshn,pnhg,psgn->ps", q, self.shifts, q)
        crossed = torch.einsum("pshn,pshgn,psgn->ps", q, torch.stack(turned, 2), alpha)
        moved = torch.einsum("pshn,pshg,psgn->ps", alpha, both, alpha)
        row = torch.cat(own, -1) @ self.W_O
        return shifted + 2 * crossed + moved + row.square().sum(-1)


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
    # An orthonormal basis (d, r) of what the heads see of a word's change, and `moves` in it.
    factors: tuple[Tensor, Tensor] | None = None
    more_starts: int = 1
    momentum: bool = False

    @property
    def places(self) -> int:
        return len(self.at)

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
        words = self.at.shape[1]
        if isinstance(self.moves, Tensor) and words == 1 and isinstance(self.heads, SideBySide):
            return self.heads.of_words(self.engine, starts, self.moves)
        inner = self.heads.evaluator(self.engine, starts)
        if isinstance(self.moves, Tensor):
            return _Linear(inner, self.moves, words)
        return _Chained(inner, self.moves, self.at)

    def select(self, keep: Tensor) -> HeadsObjective:
        return replace(self, at=self.at[keep], heads=self.heads.select(keep))

    def leads(self) -> Tensor | None:
        return self.lead

    def small(self) -> Small | None:
        """What one head sees of a change: 2 d_k + d_v dimensions, of which nothing is lost."""
        if self.factors is None:
            return None
        basis, moves = (one.to(self.dtype) for one in self.factors)
        # In all d dimensions momentum was measured to lose, by a fifth at small radii.
        small = replace(self, moves=moves, d=len(moves), lead=None, factors=None, momentum=True)
        return Small(small, (of_each_word(basis, self.at.shape[1]),), lossless=True)


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
