"""The search for good multipliers of the bound; `certificate` alone proves anything."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from wsfast.bound.ball import SmoothBall
from wsfast.bound.certificate import RowMaxima
from wsfast.bound.form import LEAST, Form, Multipliers, admissible, form_of
from wsfast.bound.grid import Nodes
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

    def bound_step(self, pairs: Pairs, path: Path, slopes: Slopes, step: Step) -> None:
        """See `take_step`."""


@dataclass
class Path:
    """Multipliers on their way: β, γ, ν, η and ζ, and Adam's moments, (5, P, n) each."""

    at: Tensor
    first: Tensor
    second: Tensor
    size: Tensor  # (5, P) of a step
    least: Tensor  # (P,) that ν is

    def select(self, keep: Tensor) -> Path:
        """The positions numbered `keep`."""
        at, first, second, size = (
            x[:, keep].contiguous() for x in (self.at, self.first, self.second, self.size)
        )
        return Path(at, first, second, size, self.least[keep])


class Slopes(NamedTuple):
    """What the slopes of a bound are differences of: means over the ball, and row maximisers."""

    t_mean: Tensor  # (P, n)
    p_mean: Tensor  # (P, n)
    tu: Tensor  # (P, n) of t u, less the product of their means
    u_mean: Tensor  # (P,)
    uu: Tensor  # (P,) of u², likewise
    t: Tensor  # (P, n)
    u: Tensor  # (P, n)
    p: Tensor  # (P, n)


class Step(NamedTuple):
    """One of Adam: its rate, and its number from 1."""

    rate: float
    number: int


# Adam's decay and least root, which the kernel has too.
DECAY, SMALL = (0.8, 0.95), 1e-8
_RATE, _LAST_RATE = 0.2, 0.004
# Smoothing of the ball's maximum, in its last steps; its first ones have five times as much.
_SMOOTH = 1e-3

# Of `Descent`, (P,) each.
_OF_POSITIONS = (
    "_unit", "_kappa", "_kappa_size", "_kappa_first", "_kappa_second", "_lam", "_best_kappa",
    "_best_lam", "value",
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

    Attributes
    ----------
    path : Path
        Where they are.
    value : Tensor, shape (P,)
        The smallest bounds so far, not proved yet; `best` has their multipliers.
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
        self._kappa_first = torch.zeros_like(self._kappa)
        self._kappa_second = torch.zeros_like(self._kappa)
        self._best = self.path.at.clone()
        self._best_kappa, self._best_lam = self._kappa, self._lam
        self.value = torch.full_like(self._kappa, torch.inf)

    @property
    def best(self) -> Multipliers:
        """Those of the smallest bounds so far."""
        return _multipliers(self._best, self._best_kappa, self._best_lam)

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
        z, reach = pairs.words[pairs.index], pairs.reach_u[:, None]
        u = torch.maximum((z * delta).sum(1, keepdim=True), 0.1 * reach)
        u = torch.where(u > tiny, u, 1.0)  # a word that is the mean itself
        rising = by_u.clamp(min=0)
        usual = torch.maximum(rising.mean(1, keepdim=True), 0.02 * unit / u)
        lam = ((t * by_t).sum(1, keepdim=True) + rising.sum(1, keepdim=True) * u) / 2
        lam = torch.maximum(lam, 0.05 * unit)
        largest = float(shape.eigenvalues[-1])
        by_form = lam / largest if largest > _NONE else 0 * lam
        nu = 0.4 * (rising + 0.05 * usual) / (2 * u)
        kappa = 0.8 * by_form
        turn = by_t.abs().mean(1, keepdim=True) + 2 * by_form * t.abs().mean(1, keepdim=True)
        at = [by_t - 2 * kappa * t, by_u - 2 * nu * u, nu, torch.zeros_like(t), -by_u]
        size = torch.cat([turn, usual, usual / u, turn / u, usual], 1).mT.contiguous()
        start = _allowed(pairs, torch.stack(at))
        none = torch.zeros_like(start)
        least = (1e-4 * unit / u.square())[:, 0].clamp(min=LEAST)
        self.path = Path(start, none, none.clone(), size, least)
        self._kappa, self._kappa_size = kappa[:, 0], by_form[:, 0]
        self._lam = lam[:, 0]

    def _at_change(self, delta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """t, α and (u - p)/b at changes (P, D)."""
        pairs = self._pairs
        t = delta @ pairs.scores.mT
        u = (pairs.words[pairs.index] * delta).sum(1, keepdim=True)
        along = (u - delta @ pairs.means.mT) * pairs.inv_b
        return t, pairs.attention(t), along

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
        part._pairs, part.path = self._pairs.select(keep), self.path.select(keep)
        part._best = self._best[:, keep]
        for name in _OF_POSITIONS:
            setattr(part, name, getattr(self, name)[keep])
        return part

    def put(self, keep: Tensor, part: Descent) -> None:
        """Take the best of a part that has gone on."""
        self._best[:, keep] = part._best
        for name in ("_best_kappa", "_best_lam", "value"):
            setattr(self, name, getattr(self, name).index_copy(0, keep, getattr(part, name)))

    def _step(self, rate: float, smooth: float) -> None:
        pairs, shape, path = self._pairs, self._shape, self.path
        by = _multipliers(path.at, self._kappa, self._lam)
        row = self._kernels.bound_rows(pairs, shape, by, self._grid, proof=False)
        form = form_of(pairs, shape, by)
        smoothing = smooth * self._unit
        ball = self._kernels.bound_ball(pairs.index, shape, form, by.lam, smoothing, pairs.radius)
        self._lam = ball.lam
        self._keep(row.value.sum(1) + ball.value)
        t_mean, spread = torch.cat([ball.x, ball.by_z]).matmul(shape.scores.mT).split(len(form.b))
        slopes = Slopes(
            t_mean=t_mean,
            p_mean=ball.x @ shape.means.mT,
            tu=smoothing[:, None] * spread,
            u_mean=(ball.x * form.z).sum(1),
            uu=smoothing * ball.zz,
            t=row.t,
            u=row.u,
            p=row.p,
        )
        step = Step(rate, self._taken + 1)
        self._kernels.bound_step(pairs, path, slopes, step)
        of_rows = row.t.square() @ shape.weights + shape.theta * row.p.square().sum(1)
        self._kappa = self._kappa - _adam(
            ball.by_kappa - of_rows, self._kappa_size, self._kappa_first, self._kappa_second, step
        )
        self._kappa = torch.maximum(self._kappa, 1e-3 * self._kappa_size)

    def _keep(self, value: Tensor) -> None:
        """Keep what gives smaller bounds (P,) than any before."""
        better = value < self.value
        self.value = torch.where(better, value, self.value)
        self._best_kappa = torch.where(better, self._kappa, self._best_kappa)
        self._best_lam = torch.where(better, self._lam, self._best_lam)
        some = better.nonzero()[:, 0]
        if len(some) == len(better):
            self._best.copy_(self.path.at)
        else:
            self._best[:, some] = self.path.at[:, some]


def _multipliers(at: Tensor, kappa: Tensor, lam: Tensor) -> Multipliers:
    beta, gamma, nu, eta, zeta = at.unbind()
    return Multipliers(beta, gamma, nu, eta, zeta, kappa, lam)


def _allowed(pairs: Pairs, at: Tensor) -> Tensor:
    """`at` (5, P, n) without what the theorem does not have: see `admissible`."""
    none = torch.zeros_like(pairs.radius)
    return torch.stack(admissible(pairs, _multipliers(at, none, none))[:5])


def take_step(pairs: Pairs, path: Path, slopes: Slopes, step: Step) -> None:
    """A step of Adam of all multipliers, in place; they stay admissible."""
    u, u_mean = slopes.u, slopes.u_mean[:, None]
    gradient = torch.stack(
        [
            slopes.t_mean - slopes.t,
            u_mean - u,
            u_mean.square() + slopes.uu[:, None] - u * u,
            slopes.t_mean * u_mean + slopes.tu - slopes.t * u,
            slopes.p_mean - slopes.p,
        ]
    )
    path.at -= _adam(gradient, path.size[..., None], path.first, path.second, step)
    path.at[2] = torch.maximum(path.at[2], path.least[:, None])
    path.at = _allowed(pairs, path.at)


def _adam(gradient: Tensor, size: Tensor, first: Tensor, second: Tensor, step: Step) -> Tensor:
    """A step of Adam in units of `size`; the moments are updated."""
    scaled = gradient * size
    first.lerp_(scaled, 1 - DECAY[0])
    second.lerp_(scaled.square(), 1 - DECAY[1])
    root = (second / (1 - DECAY[1] ** step.number)).sqrt() + SMALL
    moved: Tensor = step.rate * size * (first / (1 - DECAY[0] ** step.number)) / root
    return moved
