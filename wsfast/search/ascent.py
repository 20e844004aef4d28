"""Ascent over the ball ‖Δ‖ ≤ radius, all positions and starts at once (docs/design.md, 3)."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from wsfast.engines.engine import Climb, stalled
from wsfast.search.objective import Objective

# Positions that are done are carried along until dropping them pays for the copy: where so much of
# them is left.
WORTH_DROPPING = 0.7


class Limits(NamedTuple):
    """Where to search, and when to stop."""

    radius: float
    tol: float  # steps end where they raise the norm by less than this share
    balls: int = 1  # that Δ is made of, one after the other

    @property
    def steps(self) -> tuple[float, int]:
        """What `Engine.take_step` is told."""
        return self.radius, self.balls


class Point(NamedTuple):
    """The best Δ (P, d) found at each position and its ‖φ(X^i(Δ)) - φ(X)‖² (P,)."""

    delta: Tensor
    value: Tensor


def kept(objective: Objective, going: Tensor) -> Tensor | None:
    """The places to go on with, ascending; None where dropping others does not pay yet.

    All of those that are `going` (P,), and the others of a part until enough of them are through.
    """
    if objective.parts is None:
        left = int(going.sum())
        return going.nonzero()[:, 0] if left <= WORTH_DROPPING * len(going) else None
    left_of, all_of = (objective.parts.bincount(of) for of in (going.double(), None))
    few = left_of <= WORTH_DROPPING * all_of
    if not bool(few.any()):
        return None
    return (going | ~few[objective.parts]).nonzero()[:, 0]


def explore(
    objective: Objective, start: Tensor, limits: Limits, steps: int
) -> tuple[Tensor, Tensor]:
    """`steps` steps from every start (P, s, d): Δ (P, s, d) and its values (P, s)."""
    climb = Climb.start(start, momentum=objective.momentum)
    go_on(objective, climb, limits, steps)
    return climb.delta, climb.value


def go_on(objective: Objective, climb: Climb, limits: Limits, steps: int) -> None:
    """Take `steps` steps from every start of a climb."""
    evaluator = objective.evaluator(climb.value.shape[1])
    objective.engine.go_on(evaluator, climb, steps, *limits.steps)


def ascend(
    objective: Objective, start: Point, limits: Limits, steps: int, climb: Climb | None = None
) -> tuple[Point, Tensor]:
    """At most `steps` steps from one point per position, each until it stops rising.

    `climb` is one of a single start that has led there, to be continued. Returns the best points,
    and the steps (P,) that each position took. What a position ends at does not depend on the
    others.
    """
    if steps < 1:
        return start, torch.zeros_like(start.value, dtype=torch.int64)
    if not objective.engine.waits:
        return ascend_unattended(objective, start, limits, steps, climb)
    evaluator, engine = objective.evaluator(1), objective.engine
    climb = climb or Climb.start(start.delta[:, None], momentum=objective.momentum)
    best = Point(start.delta.clone(), start.value.clone())
    active = torch.arange(len(start.value), device=start.value.device)
    history: list[Tensor] = []
    taken = torch.full_like(active, steps)
    done = torch.zeros_like(active, dtype=torch.bool)
    for step in range(1, steps + 1):
        engine.take_step(climb, *evaluator.value_and_gradient(climb.trial), *limits.steps)
        value = climb.value[:, 0]
        ended = (stalled(history, value, limits.tol) | (step == steps)) & ~done
        if bool(ended.any()):
            best.delta[active[ended]] = climb.delta[ended, 0]
            best.value[active[ended]] = value[ended]
            taken[active[ended]] = step
            done = done | ended
        keep = kept(objective, ~done)
        if keep is None:
            continue
        if len(keep) == 0:
            break
        objective, active = objective.select(keep), active[keep]
        climb = climb.select(keep)
        history = [values[keep] for values in history]
        done = done[keep]
        evaluator = objective.evaluator(1)
    return best, taken


def ascend_unattended(
    objective: Objective, start: Point, limits: Limits, steps: int, climb: Climb | None = None
) -> tuple[Point, Tensor]:
    """As `ascend`, without once waiting for the device: all positions go to the last step."""
    climb = climb or Climb.start(start.delta[:, None], momentum=objective.momentum)
    evaluator = objective.evaluator(1)
    taken = objective.engine.until_still(evaluator, climb, steps, limits.tol, *limits.steps)
    return Point(climb.delta[:, 0], climb.value[:, 0]), taken


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
    objective: Objective, start: Tensor, limits: Limits, steps: int, rate: float = 0.05
) -> Point:
    """Adam on the sphere from Δ (P, d), for an objective with kinks; the best point seen is kept.

    One second moment per position, so that a step does not depend on the coordinates; cosine decay.
    """
    evaluator = objective.evaluator(1)
    delta = start[:, None].clone()
    best = Point(start.clone(), torch.full_like(start[:, 0], -torch.inf))
    split = (limits.balls, -1)
    first = torch.zeros_like(delta.unflatten(-1, split))
    second = torch.zeros_like(delta[..., :1, None])
    for step in range(steps):
        value, gradient = evaluator.value_and_gradient(delta)
        rose = value[:, 0] > best.value
        best = Point(
            torch.where(rose[:, None], delta[:, 0], best.delta),
            torch.where(rose, value[:, 0], best.value),
        )
        upwards, at = gradient.unflatten(-1, split), delta.unflatten(-1, split)
        outwards = (upwards * at).sum(-1, keepdim=True) / limits.radius**2
        tangent = upwards - outwards * at
        first = 0.9 * first + 0.1 * tangent
        second = 0.99 * second + 0.01 * tangent.square().sum((-1, -2), keepdim=True)
        size = (second / (1 - 0.99 ** (step + 1))).sqrt()
        move = first / (1 - 0.9 ** (step + 1)) / torch.where(size > 0, size, 1.0)
        decay = 0.5 * (1 + math.cos(math.pi * step / steps))
        moved = at + rate * decay * limits.radius * move
        delta = (moved * (limits.radius / moved.norm(dim=-1, keepdim=True))).flatten(-2)
    return best
