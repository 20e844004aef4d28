"""Ascent over the ball ‖Δ‖ ≤ radius, all positions and starts at once (docs/design.md, 3)."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from wsfast.engines import compiled
from wsfast.search.objective import Objective

# A position is done when its last steps, this many, have together raised the norm by less than
# `tol`: a step refused halves the next, so a few in a row say little.
_PATIENCE = 4


class Ball(NamedTuple):
    """Where to search; steps end where they raise the norm by less than the share `tol`."""

    radius: float
    tol: float
    native: bool


class Point(NamedTuple):
    """The best Δ (P, d) found at each position and its ‖φ(X^i(Δ)) - φ(X)‖² (P,)."""

    delta: Tensor
    value: Tensor


class _Climb:
    """Monotone ascent from Δ (P, s, d): the best so far, its gradient, and step sizes β."""

    def __init__(self, start: Tensor, ball: Ball) -> None:
        self.ball = ball
        self.trial = start.clone(memory_format=torch.contiguous_format)
        self.delta = self.trial.clone()
        self.gradient = torch.zeros_like(self.trial)
        self.value = torch.full(start.shape[:2], -torch.inf, dtype=start.dtype, device=start.device)
        self.beta = torch.ones_like(self.value)

    def take_step(self, value: Tensor, gradient: Tensor) -> None:
        """Accept or refuse the trial, then set the next."""
        if self.ball.native:
            self._take_step_native(value, gradient)
        else:
            self._take_step_torch(value, gradient)

    def _take_step_native(self, value: Tensor, gradient: Tensor) -> None:
        compiled.kernels(self.trial.device).launch(
            "take_step",
            dtype=self.trial.dtype,
            rows=self.value.numel(),
            d=self.trial.shape[-1],
            radius=self.ball.radius,
            delta=self.trial.data_ptr(),
            gradient=gradient.data_ptr(),
            value=value.data_ptr(),
            best_delta=self.delta.data_ptr(),
            best_gradient=self.gradient.data_ptr(),
            best_value=self.value.data_ptr(),
            beta=self.beta.data_ptr(),
        )

    def _take_step_torch(self, value: Tensor, gradient: Tensor) -> None:
        radius = self.ball.radius
        rose = value > self.value
        self.value = torch.where(rose, value, self.value)
        self.delta = torch.where(rose[..., None], self.trial, self.delta)
        self.gradient = torch.where(rose[..., None], gradient, self.gradient)
        self.beta = torch.where(rose, (2 * self.beta).clamp(max=1), self.beta / 2)
        norm = self.gradient.norm(dim=-1, keepdim=True)
        beta = self.beta[..., None]
        pull = self.gradient * (beta * radius / torch.where(norm > 0, norm, 1.0))
        moved = (1 - beta) * self.delta + pull
        # Stay on the sphere while the objective rises outwards; else walk inside the ball, which is
        # convex.
        along = (self.gradient * self.delta).sum(-1, keepdim=True)
        length = self.delta.norm(dim=-1, keepdim=True)
        now = moved.norm(dim=-1, keepdim=True)
        onto = ((along >= 0) & (length >= 0.999 * radius)) | (now > radius)
        moved = torch.where(onto & (now > 0), moved * (radius / now), moved)
        self.trial = torch.where(norm > 0, moved, self.delta)

    def select(self, keep: Tensor) -> None:
        for name in ("trial", "delta", "gradient", "value", "beta"):
            setattr(self, name, getattr(self, name)[keep])


def explore(objective: Objective, start: Tensor, ball: Ball, steps: int) -> tuple[Tensor, Tensor]:
    """`steps` steps from every start (P, s, d): Δ (P, s, d) and its values (P, s)."""
    evaluator = objective.evaluator(start.shape[1])
    climb = _Climb(start, ball)
    for _ in range(steps):
        climb.take_step(*evaluator.value_and_gradient(climb.trial))
    return climb.delta, climb.value


def ascend(objective: Objective, start: Point, ball: Ball, steps: int) -> tuple[Point, int]:
    """At most `steps` steps from one point per position, each until it stops rising.

    Returns the best points, and the steps that the last position took. What a position ends at does
    not depend on the others.
    """
    if steps < 1:
        return start, 0
    if ball.native and compiled.kernels(start.delta.device).gpu:
        point, taken = ascend_unattended(objective, start, ball, steps)
        return point, int(taken)
    evaluator = objective.evaluator(1)
    climb = _Climb(start.delta[:, None], ball)
    best = Point(start.delta.clone(), start.value.clone())
    active = torch.arange(len(start.value), device=start.value.device)
    history: list[Tensor] = []
    done = torch.zeros_like(active, dtype=torch.bool)
    for step in range(1, steps + 1):
        climb.take_step(*evaluator.value_and_gradient(climb.trial))
        value = climb.value[:, 0]
        ended = (_stalled(history, value, ball.tol) | (step == steps)) & ~done
        if bool(ended.any()):
            best.delta[active[ended]] = climb.delta[ended, 0]
            best.value[active[ended]] = value[ended]
            done = done | ended
        left = int((~done).sum())
        if left == 0:
            return best, step
        # Rows that are done are carried along until dropping them pays for the copy.
        if left <= 0.7 * len(done):
            keep = (~done).nonzero()[:, 0]
            objective, active = objective.select(keep), active[keep]
            climb.select(keep)
            history = [values[keep] for values in history]
            done = torch.zeros_like(active, dtype=torch.bool)
            evaluator = objective.evaluator(1)
    return best, steps


def ascend_unattended(
    objective: Objective, start: Point, ball: Ball, steps: int
) -> tuple[Point, Tensor]:
    """As `ascend`, without once waiting for the device: a CUDA graph can capture it.

    All positions are carried to the last step; the number of steps is a tensor ().
    """
    evaluator = objective.evaluator(1)
    climb = _Climb(start.delta[:, None], ball)
    best = start
    history: list[Tensor] = []
    done = torch.zeros_like(start.value, dtype=torch.bool)
    taken = torch.zeros_like(done[0], dtype=torch.int64)
    for step in range(1, steps + 1):
        climb.take_step(*evaluator.value_and_gradient(climb.trial))
        value = climb.value[:, 0]
        taken = taken + (~done).any()
        ended = (_stalled(history, value, ball.tol) | (step == steps)) & ~done
        best = Point(
            torch.where(ended[:, None], climb.delta[:, 0], best.delta),
            torch.where(ended, value, best.value),
        )
        done = done | ended
    return best, taken


def _stalled(history: list[Tensor], value: Tensor, tol: float) -> Tensor:
    """Whether `value` (P,) has hardly risen over the last steps, whose values are `history`."""
    history.append(value.clone())
    if len(history) <= _PATIENCE:
        return torch.zeros_like(value, dtype=torch.bool)
    return value <= history.pop(0) * (1 + tol) ** 2


def along_rays(objective: Objective, point: Point, fractions: tuple[float, ...]) -> Point:
    """The best of each Δ (P, d) and its multiples by `fractions`."""
    scale = point.delta.new_tensor(fractions)
    trials = point.delta[:, None] * scale[:, None]
    values, _ = objective.evaluator(len(fractions)).value_and_gradient(trials)
    value, which = values.max(1)
    rose = value > point.value
    delta = torch.where(
        rose[:, None], trials[torch.arange(len(which), device=which.device), which], point.delta
    )
    return Point(delta, torch.where(rose, value, point.value))


def adam_on_sphere(
    objective: Objective, start: Tensor, ball: Ball, steps: int, rate: float = 0.05
) -> Point:
    """Adam on the sphere from Δ (P, d), for an objective with kinks; the best point seen is kept.

    One second moment per position, so that a step does not depend on the coordinates; cosine decay.
    """
    evaluator = objective.evaluator(1)
    delta = start[:, None].clone()
    best = Point(start.clone(), torch.full_like(start[:, 0], -torch.inf))
    first = torch.zeros_like(delta)
    second = torch.zeros_like(delta[..., :1])
    for step in range(steps):
        value, gradient = evaluator.value_and_gradient(delta)
        rose = value[:, 0] > best.value
        best = Point(
            torch.where(rose[:, None], delta[:, 0], best.delta),
            torch.where(rose, value[:, 0], best.value),
        )
        along = (gradient * delta).sum(-1, keepdim=True) / ball.radius**2
        tangent = gradient - along * delta
        first = 0.9 * first + 0.1 * tangent
        second = 0.99 * second + 0.01 * tangent.square().sum(-1, keepdim=True)
        size = (second / (1 - 0.99 ** (step + 1))).sqrt()
        move = first / (1 - 0.9 ** (step + 1)) / torch.where(size > 0, size, 1.0)
        decay = 0.5 * (1 + math.cos(math.pi * step / steps))
        delta = delta + rate * decay * ball.radius * move
        delta = delta * (ball.radius / delta.norm(dim=-1, keepdim=True))
    return best
