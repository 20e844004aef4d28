"""The worst case over the ball at every position (docs/design.md, section 3)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from wsfast._checks import SearchOptions
from wsfast._random import START_STREAM, normals
from wsfast.search.ascent import Ball, Point, adam_on_sphere, along_rays, ascend, explore
from wsfast.search.objective import Objective, Projectable

_RAY = (0.25, 0.5, 0.75, 0.9)

# For d ≤ 2: starts that a grid of the ball gives, and points of it evaluated together.
_GRID_STARTS = 4
_GRID_PART = 128


def random_starts(count: int, d: int, seed: int, like: Tensor) -> Tensor:
    """`count` directions (count, d), the same for all positions."""
    values = normals(seed, START_STREAM, count * d).reshape(count, d)
    return torch.from_numpy(values).to(like)


def search_dtype(X: Tensor, radius: float, dtype: torch.dtype) -> torch.dtype:
    """`dtype`, but float64 where squares of the size of `X` or of the radius leave float32."""
    sizes = (float(X.abs().max()), radius)
    ordinary = all(1e-12 < size < 1e12 for size in sizes)
    return dtype if ordinary else torch.float64


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
    options : SearchOptions
    directions : Tensor, shape (s, d) or (P, s, d)
        Where the starts point: shared by all positions, or for each its own.
    native : bool
        Whether compiled kernels take the steps.
    basis : Tensor, shape (d, r), optional
        With orthonormal columns, whose span `run_through_basis` searches first.
    """

    def __init__(
        self,
        options: SearchOptions,
        directions: Tensor,
        *,
        native: bool,
        basis: Tensor | None = None,
    ) -> None:
        self.ball = Ball(options.radius, options.tol, native)
        self.directions = directions
        self.basis = basis
        self.max_steps = options.max_steps
        # Steps from every start, before the best goes on alone.
        self.explored = max(1, options.max_steps // 5)

    def points_at_once(self, smooth: bool) -> int:
        """The most points at which one position is evaluated together."""
        starts = self.directions.shape[-2] * (1 if smooth else 2)
        if self.directions.shape[-1] <= 2:
            return max(_GRID_PART, starts + _GRID_STARTS)
        return max(starts, len(_RAY))

    def run(self, objective: Objective, smoothed: Sequence[Objective] = ()) -> tuple[Point, int]:
        """The best point at each position, and the steps of the ascent that led to it.

        `smoothed` objectives lead to more starts where `objective` has kinks; then Adam ends the
        search.
        """
        return self._run(self.directions, objective, smoothed, self.max_steps - self.explored)

    def run_through_basis(
        self, objective: Projectable, smoothed: Sequence[Projectable]
    ) -> tuple[Point, int]:
        """As `run`; first in the span of the basis, if there is one, then in full d."""
        basis = self.basis
        if basis is None:
            return self.run(objective, smoothed)
        point, steps = self._run(
            self.directions @ basis,
            objective.project(basis),
            [other.project(basis) for other in smoothed],
            min(self.max_steps // 3, self.max_steps - self.explored),
        )
        lifted = Point(point.delta @ basis.mT, point.value)
        polished, more = ascend(objective, lifted, self.ball, self.max_steps - steps)
        return polished, steps + more

    def _run(
        self,
        directions: Tensor,
        objective: Objective,
        smoothed: Sequence[Objective],
        steps_alone: int,
    ) -> tuple[Point, int]:
        ball = self.ball
        starts = on_sphere(directions, ball.radius).expand(objective.positions, -1, -1)
        if smoothed:
            led = starts
            for smooth in smoothed:
                led, _ = explore(smooth, led, ball, self.max_steps // 4)
            starts = torch.cat([starts, led], 1)
        if starts.shape[-1] <= 2:
            starts = torch.cat([starts, _best_on_grid(objective, ball.radius, starts)], 1)
        delta, value = explore(objective, starts, ball, self.explored)
        each = torch.arange(len(value), device=value.device)
        value, best = value.max(1)
        point, steps = ascend(objective, Point(delta[each, best], value), ball, steps_alone)
        point = along_rays(objective, point, _RAY)
        if smoothed:
            adam = adam_on_sphere(objective, point.delta, ball, self.max_steps)
            rose = adam.value > point.value
            point = Point(
                torch.where(rose[:, None], adam.delta, point.delta),
                torch.where(rose, adam.value, point.value),
            )
        return point, self.explored + steps


def _best_on_grid(objective: Objective, radius: float, like: Tensor) -> Tensor:
    """For d ≤ 2: the best points of parts of a polar grid of the ball, (P, s, d)."""
    d = like.shape[-1]
    shells = torch.linspace(0, 1, 25, dtype=like.dtype, device=like.device)[1:]
    if d == 1:
        shells = torch.linspace(0, 1, 513, dtype=like.dtype, device=like.device)[1:]
        directions = torch.tensor([[1.0], [-1.0]], dtype=like.dtype, device=like.device)
    else:
        angles = torch.arange(96, dtype=like.dtype, device=like.device) * (2 * torch.pi / 96)
        directions = torch.stack([angles.cos(), angles.sin()], -1)
    # The best point of each group of directions or shells, so that the starts differ.
    grid = radius * (directions[:, None] * shells[:, None]).reshape(_GRID_STARTS, -1, d)
    found = []
    for group in grid:
        values = [
            objective.evaluator(len(part))
            .value_and_gradient(part.expand(objective.positions, -1, -1).contiguous())[0]
            .clone()
            for part in group.split(_GRID_PART)
        ]
        found.append(group[torch.cat(values, 1).argmax(1)])
    return torch.stack(found, 1)
