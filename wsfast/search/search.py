"""The worst case over the ball at every position (docs/design.md, section 3)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from wsfast._random import START_STREAM, normals
from wsfast.engines.engine import Climb
from wsfast.perturbation.ball import on_sphere
from wsfast.search.ascent import (
    Limits,
    Point,
    adam_on_sphere,
    along_rays,
    ascend,
    explore,
    go_on,
    kept,
)
from wsfast.search.objective import Objective, Turn
from wsfast.search.options import SearchOptions

_RAY = (0.25, 0.5, 0.75, 0.9)

# A quick search: its steps and tolerance, from one start, without turns.
_QUICK_STEPS, _QUICK_TOL = 12, 1e-3

# A turn has raised a position where its squared norm is more than so many times as large.
_RAISED = 1.002

# Starts of its own that a search keeps where it is given others.
_LEAST = 2

# For d ≤ 2: starts that a grid of the ball gives, and points of it evaluated together.
_GRID_STARTS = 4
_GRID_PART = 128


def random_starts(count: int, d: int, seed: int, like: Tensor) -> Tensor:
    """`count` directions (count, d), the same for all positions."""
    values = normals(seed, START_STREAM, count * d).reshape(count, d)
    return torch.from_numpy(values).to(like)


class Search:
    """Worst case of an objective over the ball ‖Δ‖ ≤ radius, or over a product of balls.

    Parameters
    ----------
    options : SearchOptions
    balls : int
        That Δ is made of, one after the other.
    """

    def __init__(self, options: SearchOptions, balls: int = 1) -> None:
        self.seed, self.quick = options.seed, options.quick
        self.starts, self.max_steps, tol = options.starts, options.max_steps, options.tol
        if self.quick:
            self.starts, tol = 1, max(tol, _QUICK_TOL)
            self.max_steps = min(self.max_steps, _QUICK_STEPS)
        self.limits = Limits(options.radius, tol, balls)
        # Steps before the best start goes on alone, and of them those that tell the better half.
        self.explored = max(1, self.max_steps // 5)
        self.told = max(1, 2 * self.max_steps // 15)
        # Where there are turns: steps of the starts, and after each of the turns.
        self.turned = 0 if self.quick else self.max_steps // 10

    def points_at_once(self, width: int, more_starts: int, *, smoothed: bool) -> int:
        """The most points at which one place is evaluated together, for Δ of `width` numbers.

        `smoothed`: whether there are smooth objectives beside the one searched.
        """
        starts = self.starts * more_starts * (2 if smoothed else 1)
        if width <= 2:
            return max(_GRID_PART, starts + _GRID_STARTS)
        return max(starts, len(_RAY))

    def run(
        self, objective: Objective, more: Tensor | None = None, *, own: int | None = None
    ) -> tuple[Point, Tensor]:
        """The best point at each place, and the steps (P,) of the ascent that led to it.

        `more` (P, l, D) are points to start from, in place of as many of the starts of its own, of
        which `own` are kept.
        """
        small = objective.small()
        searched = objective if small is None else small.objective
        turns = searched.turns() if self.turned > 0 else ()
        count = self.starts * objective.more_starts
        if turns and objective.more_starts == 1:
            count = (count + 1) // 2  # what turns lead to are starts too
        directions = self._directions(objective, count)
        if more is not None:
            own = max(_LEAST, directions.shape[1] - more.shape[1]) if own is None else own
            directions = directions[:, :own]
        most = self.max_steps - (self.turned * (1 + len(turns)) if turns else self.explored)
        if small is None:
            return self._run(directions, objective, turns, most, more)
        left = most
        if not small.lossless:
            most = min(self.max_steps // 3, most)
        inside = None if more is None else small.inside(more)
        point, steps = self._run(small.inside(directions), searched, turns, most, inside)
        lifted = Point(small.lifted(point.delta), point.value)
        if small.lossless:
            return lifted, steps
        # As many for all, however long the slowest has taken: places do not depend on one another.
        polished, further = ascend(objective, lifted, self.limits, left - most)
        return polished, steps + further

    def finish(
        self, objective: Objective, start: Point, steps: int, tol: float
    ) -> tuple[Point, Tensor]:
        """Let every place go on, at most so many steps, until it rises by no more than `tol`."""
        limits = self.limits._replace(tol=tol)
        point, taken = ascend(objective, start, limits, steps)
        # Where there are kinks the ascent stops at one.
        beyond = adam_on_sphere(objective, point.delta, limits, self.max_steps)
        return _better(point, beyond), taken + self.max_steps

    def _directions(self, objective: Objective, count: int) -> Tensor:
        """Where `count` starts point, (1 or P, s, D)."""
        like = torch.empty(0, dtype=objective.start_dtype, device=objective.device)
        directions = random_starts(count, objective.width, self.seed, like)[None]
        leads = objective.leads()
        if leads is not None:
            leads = leads[:, :count].to(like.dtype)
            own = directions[:, leads.shape[1] :].expand(len(leads), -1, -1)
            directions = torch.cat([leads, own], 1)
        return objective.towards(directions.to(objective.dtype))

    def _run(
        self,
        directions: Tensor,
        objective: Objective,
        turns: Sequence[Turn],
        steps_alone: int,
        more: Tensor | None,
    ) -> tuple[Point, Tensor]:
        limits = self.limits
        starts = on_sphere(directions, *limits.steps).expand(objective.places, -1, -1)
        if more is not None:
            starts = torch.cat([starts, more], 1)
        smoothed = objective.smoothed()
        if smoothed:
            led = starts
            for smooth in smoothed:
                led, _ = explore(smooth, led, limits, self.max_steps // 4)
            starts = torch.cat([starts, led], 1)
        if starts.shape[-1] <= 2:
            starts = torch.cat([starts, _best_on_grid(objective, limits.radius, starts)], 1)
        climb, explored = self._explored(objective, starts, turns)
        start = Point(climb.delta[:, 0], climb.value[:, 0])
        carried = climb if objective.momentum else None
        point, steps = ascend(objective, start, limits, steps_alone, carried)
        if not self.quick:
            point = along_rays(objective, point, _RAY)
        if smoothed:
            point = _better(point, adam_on_sphere(objective, point.delta, limits, self.max_steps))
        return point, explored + steps

    def _explored(
        self, objective: Objective, starts: Tensor, turns: Sequence[Turn]
    ) -> tuple[Climb, Tensor | int]:
        """The best of some starts (P, s, D) and of what turns lead to, and the steps there."""
        limits = self.limits
        climb = Climb.start(starts, momentum=objective.momentum)
        if turns:
            go_on(objective, climb, limits, self.turned)
            climb.best(1)
            return climb, self.turned * (1 + self._turn(objective, climb, turns))
        told = self.told if objective.momentum else 0
        if told:
            go_on(objective, climb, limits, told)
            climb.best((climb.value.shape[1] + 1) // 2)
        go_on(objective, climb, limits, self.explored - told)
        climb.best(1)
        return climb, self.explored

    def _turn(self, objective: Objective, climb: Climb, turns: Sequence[Turn]) -> Tensor:
        """Let turns lead on from a climb of one start, and return how many were made, (P,).

        They end at a position where two of them that follow one another have raised it by little.
        """
        part, left = climb, torch.arange(objective.places, device=objective.device)
        made = torch.zeros_like(left)
        going = torch.ones_like(left, dtype=torch.bool)
        rose = going
        for k in range(len(turns)):
            made = made.index_add(0, left, going.to(made.dtype))
            turned = on_sphere(turns[k](part.delta[:, 0])[:, None], *self.limits.steps)
            other = Climb.start(turned, momentum=objective.momentum)
            go_on(objective, other, self.limits, self.turned)
            before, rose = rose, (other.value > part.value * _RAISED)[:, 0]
            part.or_better(other, going)
            going = going & (rose | before)
            if not objective.engine.waits:
                continue
            keep = kept(objective, going)
            if keep is None:
                continue
            if len(keep) == 0:
                break
            if part is not climb:
                climb.put(left, part)
            objective, part, left = objective.select(keep), part.select(keep), left[keep]
            turns, going, rose = objective.turns(), going[keep], rose[keep]
        if part is not climb:
            climb.put(left, part)
        return made


def _better(one: Point, other: Point) -> Point:
    """The better point at each place."""
    rose = other.value > one.value
    return Point(
        torch.where(rose[:, None], other.delta, one.delta),
        torch.where(rose, other.value, one.value),
    )


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
            .value_and_gradient(part.expand(objective.places, -1, -1).contiguous())[0]
            .clone()
            for part in group.split(_GRID_PART)
        ]
        found.append(group[torch.cat(values, 1).argmax(1)])
    return torch.stack(found, 1)
