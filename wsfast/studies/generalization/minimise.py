"""The change of one word that minimises (⟨φ(X^i(Δ)), Θ⟩ - target)² over positions and the ball."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from wsfast._progress import Progress
from wsfast.maps.feature_map import PreparedText
from wsfast.maps.measure import Functional
from wsfast.perturbation.ball import within
from wsfast.perturbation.change import Change as Edit
from wsfast.perturbation.change import Sites
from wsfast.search.ascent import Point
from wsfast.search.options import SearchOptions
from wsfast.search.search import Search

# Positions whose value is within this share of the best one's are searched to the end: at most
# _FINALISTS of them.
_NEAR = 0.01
_FINALISTS = 4
# The finalists take at most _MORE_STEPS times the steps of the search. They stop earlier where four
# steps together raise their value by less than the share _FINAL_TOL.
_MORE_STEPS = 10
_FINAL_TOL = 1e-11

# Points at which a root is sought, at most; a jump of φ takes the most.
_TRIALS = 100


class Loss(NamedTuple):
    """(⟨φ(X'), Θ⟩ - target)² and the value of its functional at X itself."""

    theta: Tensor  # (D,) float64
    start: float  # ⟨φ(X), Θ⟩
    target: float

    def value(self, phi: Tensor) -> float:
        """The loss at the features `phi` (D,)."""
        return (float(phi @ self.theta) - self.target) ** 2


class Change(NamedTuple):
    """Of one word."""

    position: int
    delta: Tensor  # (d,) in the dtype of X


class Minimum(NamedTuple):
    """Where a loss is smallest."""

    change: Change
    phi: Tensor  # (D,) φ(X^i(Δ)), float64
    steps: int


def minimise(
    text: PreparedText,
    loss: Loss,
    index: Tensor,
    options: SearchOptions,
    like: Tensor,
    bar: Progress,
) -> Minimum:
    """Maximise how far the functional moves to its target, and stop on the way where it is met.

    `like` (d,) is of the dtype of X.

    The distance p(Δ) that the functional has moved is 0 at Δ = 0; the loss is 0 where p is the
    distance to go. Where the largest p is beyond that, p takes every value in between on the ray
    to it (if φ is continuous), so a root of the loss is there.
    """
    toward = -1.0 if loss.start > loss.target else 1.0
    theta = toward * loss.theta
    distance = abs(loss.start - loss.target)
    if options.radius == 0:
        delta = torch.zeros_like(like)
        bar.update(len(index))
        return Minimum(Change(int(index[0]), delta), text.phi.flatten(), 0)
    search, measure = Search(options), Functional(theta)
    found, steps = [], 0
    for part in text.parts(Sites.of_words(index), search):
        point, taken = search.run(text.objective(part, measure, options.radius))
        found.append(point)
        steps = max(steps, int(taken.max()))
        bar.update(len(part))
    point = Point(*(torch.cat(column) for column in zip(*found, strict=True)))
    if not float(point.value.max()) >= distance:
        index, point, more = _to_the_end(text, measure, index, point, search)
        steps += more
    best = int(point.value.argmax())
    site = Sites.of_words(index[best, None])
    delta = within(point.delta[best, None, None].to(like), options.radius)[0, 0]

    def features(t: float) -> Tensor:
        by = t * delta.to(text.X.dtype)
        return text.after(site, Edit(add=by[None, None, None])).flatten()

    def moved(t: float) -> float:
        return float(features(t) @ theta) - toward * loss.start - distance

    if moved(1.0) > 0:
        delta = delta * root(moved, -distance)
    return Minimum(Change(int(index[best]), delta), features(1.0), steps)


def _to_the_end(
    text: PreparedText, measure: Functional, index: Tensor, point: Point, search: Search
) -> tuple[Tensor, Point, int]:
    """Let the best positions go on until they rise no more; those positions alone."""
    value, order = point.value.sort(descending=True, stable=True)
    keep = order[value >= value[0] - _NEAR * value[0].abs()][:_FINALISTS].sort().values
    index = index[keep]
    start = Point(point.delta[keep], point.value[keep])
    objective = text.objective(Sites.of_words(index), measure, search.limits.radius)
    final, steps = search.finish(objective, start, _MORE_STEPS * search.max_steps, _FINAL_TOL)
    return index, final, int(steps.max())


def root(f: Callable[[float], float], at_zero: float) -> float:
    """t in (0, 1] with f(t) = 0, for f(0) = `at_zero` < 0 < f(1), by the Illinois method."""
    low, high, below, above = 0.0, 1.0, at_zero, f(1.0)
    best, size, side = 1.0, above, 0
    for _ in range(_TRIALS):
        t = low - below * (high - low) / (above - below)
        if not low < t < high or size <= 4 * torch.finfo(torch.float64).eps * abs(at_zero):
            break
        now = f(t)
        if abs(now) < size:
            best, size = t, abs(now)
        # The end that stays a second time counts half: else it might stay for good.
        if now < 0:
            above = above / 2 if side < 0 else above
            low, below, side = t, now, -1
        else:
            below = below / 2 if side > 0 else below
            high, above, side = t, now, 1
    return best
