"""The search for good multipliers of the bound; `certificate` alone proves anything."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor

from wsfast.bound.ball import SmoothBall
from wsfast.bound.certificate import Nodes, RowMaxima
from wsfast.bound.form import Form, Multipliers, admissible, form_of
from wsfast.bound.pairs import NEUTRAL, Pairs
from wsfast.bound.shape import Shape


class Kernels(Protocol):
    """What a step asks for."""

    def bound_rows(
        self, pairs: Pairs, shape: Shape, by: Multipliers, grid: Nodes, *, proof: bool
    ) -> RowMaxima:
        """See `certificate.row_maxima`."""

    def bound_ball(
        self,
        index: Tensor,
        shape: Shape,
        form: Form,
        lam: Tensor,
        smooth: Tensor,
        radius: Tensor,
    ) -> SmoothBall:
        """See `ball.smooth_ball`."""


# Adam's.
_DECAY = (0.8, 0.95)
_RATE, _LAST_RATE = 0.15, 0.004
# Smoothing of the ball's maximum, in its last steps; its first ones have five times as much.
_SMOOTH = 1e-3

# Of `Descent`, (P,) each.
_OF_POSITIONS = (
    "_unit", "_kappa", "_kappa_size", "_kappa_first", "_kappa_second", "_lam", "value",
)  # fmt: skip

# A form that is no larger is none.
_NONE = 1e-12

# The squared change that all this is made for.
_USUAL = 20.0


class Descent:
    """Multipliers of P positions, on their way to a small bound.

    Parameters
    ----------
    pairs : Pairs
    shape : Shape
    delta : Tensor, shape (P, D)
        What the search has found, of norm at most r: the multipliers start as tangents there.
    grid : Nodes
    steps : int
        In all; the rate falls until then.
    kernels : Kernels
    """

    def __init__(
        self,
        pairs: Pairs,
        shape: Shape,
        delta: Tensor,
        grid: Nodes,
        steps: int,
        kernels: Kernels,
    ) -> None:
        self._pairs, self._shape, self._grid = pairs, shape, grid
        self._steps, self._kernels = steps, kernels
        self._taken = 0
        self._start(delta)
        self._first = torch.zeros_like(self._at)
        self._second = torch.zeros_like(self._at)
        self._kappa_first = torch.zeros_like(self._kappa)
        self._kappa_second = torch.zeros_like(self._kappa)
        self.best = self._multipliers()
        self.value = torch.full_like(self._kappa, torch.inf)

    def _start(self, delta: Tensor) -> None:
        pairs, shape = self._pairs, self._shape
        t, alpha, along = self._at_change(delta)
        q = alpha - pairs.a
        bend = alpha * (1 - alpha)
        if pairs.relu:
            bend = torch.where(alpha > 0, (1 - alpha).square() / pairs.scale.clamp(min=0.05), 0.0)
        r2 = pairs.radius.square()[:, None]
        by_t = 2 * bend * (q * pairs.c2 + (alpha + q) * along + alpha * r2)
        by_u = 2 * q * alpha * pairs.inv_b
        changes = q.square() * pairs.c2 + 2 * q * alpha * along + alpha.square() * r2
        still = pairs.kind == NEUTRAL
        by_t, by_u, t, changes = (x.masked_fill(still, 0.0) for x in (by_t, by_u, t, changes))
        # The own row, where it is not known to stay small.
        own = pairs.index[:, None]
        most = pairs.own + 2 * (pairs.reach_u + pairs.reach_p.gather(1, own)[:, 0])
        by_u = by_u.scatter(1, own, 2.0 * (most > pairs.others).to(by_u.dtype)[:, None])
        # What is small, and the smoothing, are in units of what was found.
        tiny = torch.finfo(t.dtype).tiny ** 0.5
        self._unit = changes.sum(1).clamp(min=tiny) / _USUAL
        unit = self._unit[:, None]
        z, reach = pairs.words[pairs.index], pairs.reach_u[:, None].clamp(min=tiny)
        u = torch.maximum((z * delta).sum(1, keepdim=True), 0.1 * reach)
        rising = by_u.clamp(min=0)
        usual = torch.maximum(rising.mean(1, keepdim=True), 0.02 * unit)
        lam = ((t * by_t).sum(1, keepdim=True) + rising.sum(1, keepdim=True) * u) / 2
        lam = torch.maximum(lam, 0.05 * unit)
        largest = float(shape.eigenvalues[-1])
        by_form = lam / largest if largest > _NONE else 0 * lam
        nu = 0.4 * (rising + 0.05 * usual) / (2 * u)
        kappa = 0.8 * by_form
        turn = by_t.abs().mean(1, keepdim=True) + 2 * by_form * t.abs().mean(1, keepdim=True)
        each = torch.ones_like(t)
        # β, γ, ν, η, ζ, and the size of a step of each.
        self._at = torch.stack(
            [by_t - 2 * kappa * t, by_u - 2 * nu * u, nu, torch.zeros_like(t), -by_u]
        )
        self._sizes = torch.stack(
            [turn * each, usual * each, usual / u * each, turn / u * each, usual * each]
        )
        self._kappa, self._kappa_size = kappa[:, 0], by_form[:, 0]
        self._lam = lam[:, 0]

    def _at_change(self, delta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """t, α and (u - p)/b at changes (P, D)."""
        pairs = self._pairs
        t = delta @ pairs.scores.mT
        u = (pairs.words[pairs.index] * delta).sum(1, keepdim=True)
        along = (u - delta @ pairs.means.mT) * pairs.inv_b
        return t, pairs.attention(t), along

    def _multipliers(self) -> Multipliers:
        beta, gamma, nu, eta, zeta = self._at.unbind()
        by = Multipliers(beta, gamma, nu, eta, zeta, self._kappa, self._lam)
        return admissible(self._pairs, by)

    def go_on(self, steps: int) -> None:
        """Take so many steps."""
        for _ in range(steps):
            share = 0.5 * (1 + math.cos(math.pi * self._taken / self._steps))
            self._step(_RATE * share + _LAST_RATE, _SMOOTH * (1 + 4 * share))
            self._taken += 1

    def select(self, keep: Tensor) -> Descent:
        """The positions numbered `keep`, from where they are."""
        part = object.__new__(Descent)
        vars(part).update(vars(self))
        part._pairs = self._pairs.select(keep)
        for name in ("_at", "_sizes", "_first", "_second"):
            setattr(part, name, getattr(self, name)[:, keep].contiguous())
        for name in _OF_POSITIONS:
            setattr(part, name, getattr(self, name)[keep])
        part.best = self.best.select(keep)
        return part

    def put(self, keep: Tensor, part: Descent) -> None:
        """Take the best of a part that has gone on."""
        self.best = self.best.put(keep, part.best)
        self.value = self.value.index_copy(0, keep, part.value)

    def _step(self, rate: float, smooth: float) -> None:
        pairs, shape = self._pairs, self._shape
        by = self._multipliers()
        row = self._kernels.bound_rows(pairs, shape, by, self._grid, proof=False)
        form = form_of(pairs, shape, by)
        smoothing = smooth * self._unit
        ball = self._kernels.bound_ball(pairs.index, shape, form, by.lam, smoothing, pairs.radius)
        self._lam = ball.lam
        total = row.value.sum(1) + ball.value
        better = total < self.value
        self.value = torch.where(better, total, self.value)
        self.best = self.best.merged(replace(by, lam=ball.lam), better)
        t, u, p = row.t, row.u, row.p
        t_mean, p_mean = ball.x @ shape.scores.mT, ball.x @ shape.means.mT
        u_mean = (ball.x * shape.words[pairs.index]).sum(1, keepdim=True)
        spread = ball.by_z @ shape.scores.mT  # of t u
        gradient = torch.stack(
            [
                t_mean - t,
                u_mean - u,
                u_mean.square() + (smoothing * ball.zz)[:, None] - u * u,
                t_mean * u_mean + smoothing[:, None] * spread - t * u,
                p_mean - p,
            ]
        )
        by_kappa = ball.by_kappa - t.square() @ shape.weights - shape.theta * p.square().sum(1)
        count = self._taken + 1
        self._at = self._at - rate * _adam(gradient, self._sizes, self._first, self._second, count)
        self._kappa = self._kappa - rate * _adam(
            by_kappa, self._kappa_size, self._kappa_first, self._kappa_second, count
        )
        self._at[2] = torch.maximum(self._at[2], 1e-4 * self._unit[:, None])
        self._kappa = torch.maximum(self._kappa, 1e-3 * self._kappa_size)


def _adam(gradient: Tensor, size: Tensor, first: Tensor, second: Tensor, count: int) -> Tensor:
    """A step of Adam in units of `size`; the moments are updated."""
    scaled = gradient * size
    first.lerp_(scaled, 1 - _DECAY[0])
    second.lerp_(scaled.square_(), 1 - _DECAY[1])
    root = (second / (1 - _DECAY[1] ** count)).sqrt_().add_(1e-8)
    return (first / (1 - _DECAY[0] ** count)).div_(root).mul_(size)
