"""The worst case over the ball at every position (docs/design.md, section 3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from wsfast._random import START_STREAM, normals
from wsfast.perturbation.evaluators import ClosedForm, Objective
from wsfast.sensitivity.ascent import Ball, Point, adam_on_sphere, along_rays, ascend, explore

_RAY = (0.25, 0.5, 0.75, 0.9)


class Schedule(NamedTuple):
    """How many starts and steps."""

    starts: int
    max_steps: int

    @property
    def explore(self) -> int:
        """Steps from every start, before the best goes on alone."""
        return max(1, self.max_steps // 10)


def random_starts(count: int, d: int, seed: int, like: Tensor) -> Tensor:
    """`count` directions (count, d), the same for all positions."""
    values = normals(seed, START_STREAM, count * d).reshape(count, d)
    return torch.from_numpy(values).to(like)


def on_sphere(direction: Tensor, radius: float) -> Tensor:
    """`direction` (..., d) scaled to norm `radius`; a zero direction becomes the first axis."""
    norm = direction.norm(dim=-1, keepdim=True)
    axis = torch.zeros_like(direction)
    axis[..., 0] = 1
    return radius * torch.where(norm > 0, direction / torch.where(norm > 0, norm, 1.0), axis)


class Search:
    """Worst case of an objective over the ball ‖Δ‖ ≤ radius.

    Parameters
    ----------
    ball : Ball
    schedule : Schedule
    directions : Tensor, shape (s, d)
        Where the starts point, shared by all positions.
    """

    def __init__(self, ball: Ball, schedule: Schedule, directions: Tensor) -> None:
        self.ball = ball
        self.schedule = schedule
        self.directions = directions

    def raf(
        self, objective: ClosedForm, smoothed: Sequence[ClosedForm], basis: Tensor | None
    ) -> tuple[Point, int]:
        """As `run`; first in the span of `basis` (d, r), if given, then in full d."""
        if basis is None:
            return self.run(objective, smoothed)
        inside = Search(self.ball, self.schedule, self.directions @ basis)
        point, steps = inside.run(
            objective.project(basis),
            [other.project(basis) for other in smoothed],
            self.schedule.max_steps // 3,
        )
        left = max(1, self.schedule.max_steps - steps)
        polished, more = ascend(objective, point.delta @ basis.mT, self.ball, left)
        return polished, steps + more

    def run(
        self,
        objective: Objective,
        smoothed: Sequence[Objective] = (),
        steps_alone: int | None = None,
    ) -> tuple[Point, int]:
        """The best point at each position, and the steps that led to it, exploration included.

        The best start goes on alone for `steps_alone` steps at most, by default all that are left.

        `smoothed` objectives lead to more starts where `objective` has kinks; then Adam ends the
        search.
        """
        ball, schedule = self.ball, self.schedule
        starts = on_sphere(self.directions, ball.radius).expand(objective.positions, -1, -1)
        if smoothed:
            led = starts
            for smooth in smoothed:
                led, _ = explore(smooth, led, ball, schedule.max_steps // 4)
            starts = torch.cat([starts, led], 1)
        if starts.shape[-1] <= 2:
            starts = torch.cat([starts, _best_on_grid(objective, ball.radius, starts)], 1)
        delta, value = explore(objective, starts, ball, schedule.explore)
        best = delta[torch.arange(len(value), device=value.device), value.argmax(1)]
        left = max(1, steps_alone or schedule.max_steps - schedule.explore)
        point, steps = ascend(objective, best, ball, left)
        point = along_rays(objective, point, _RAY)
        if smoothed:
            adam = adam_on_sphere(objective, point.delta, ball, schedule.max_steps)
            rose = adam.value > point.value
            point = Point(
                torch.where(rose[:, None], adam.delta, point.delta),
                torch.where(rose, adam.value, point.value),
            )
        return point, schedule.explore + steps


def _best_on_grid(objective: Objective, radius: float, like: Tensor) -> Tensor:
    """For d ≤ 2: the best points of a polar grid of the ball, (P, 4, d), far from one another."""
    d = like.shape[-1]
    shells = torch.linspace(0, 1, 25, dtype=like.dtype, device=like.device)[1:]
    if d == 1:
        shells = torch.linspace(0, 1, 513, dtype=like.dtype, device=like.device)[1:]
        directions = torch.tensor([[1.0], [-1.0]], dtype=like.dtype, device=like.device)
    else:
        angles = torch.arange(96, dtype=like.dtype, device=like.device) * (2 * torch.pi / 96)
        directions = torch.stack([angles.cos(), angles.sin()], -1)
    # Best point of each of 4 groups of directions or shells, so that the starts differ.
    grid = radius * (directions[:, None] * shells[:, None]).reshape(4, -1, d)
    found = []
    for group in grid:
        values = [
            objective.evaluator(len(part))
            .value_and_gradient(part.expand(objective.positions, -1, -1).contiguous())[0]
            .clone()
            for part in group.split(128)
        ]
        found.append(group[torch.cat(values, 1).argmax(1)])
    return torch.stack(found, 1)
