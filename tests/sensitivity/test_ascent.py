"""The ascent: monotone, inside the ball, every position on its own."""

from __future__ import annotations

import math

import pytest
import torch
from definition import random_text
from perturbation.problems import state

from wsfast.attention.weight_fn import WeightFn
from wsfast.search.ascent import (
    Ball,
    Point,
    _Climb,
    adam_on_sphere,
    along_rays,
    ascend,
    explore,
)
from wsfast.search.objective import ClosedForm
from wsfast.search.search import on_sphere, random_starts

FUNCTIONS = [WeightFn("softmax"), WeightFn("relu"), WeightFn("relu", normalize=False)]
functions = pytest.mark.parametrize("fn", FUNCTIONS, ids=str)
natives = pytest.mark.parametrize(
    "native", [False, pytest.param(True, marks=pytest.mark.needs("native"))]
)


def objective(fn, native, n=7, d=5, seed=0):
    X, W = random_text(n, d, seed)
    return ClosedForm(state(X, W, fn, "native" if native else "torch"), native)


def values(aim, delta):
    return aim.evaluator(delta.shape[1]).value_and_gradient(delta)[0].clone()


def unknown(delta):
    return Point(delta, torch.full_like(delta[:, 0], -torch.inf))


@natives
@functions
def test_accepted_values_never_fall(fn, native):
    aim = objective(fn, native)
    ball = Ball(math.sqrt(5), 1e-4, native)
    start = on_sphere(torch.randn(7, 3, 5, dtype=torch.float64), ball.radius)
    climb = _Climb(start, ball)
    evaluator = aim.evaluator(3)
    first = None
    for _ in range(25):
        before, beta = climb.value.clone(), climb.beta.clone()
        value, gradient = evaluator.value_and_gradient(climb.trial)
        value, tried = value.clone(), climb.trial.clone()
        climb.take_step(value, gradient)
        first = value if first is None else first
        rose = value > before
        assert torch.equal(climb.value, torch.where(rose, value, before))
        assert torch.equal(climb.beta, torch.where(rose, (2 * beta).clamp(max=1), beta / 2))
        assert torch.equal(climb.delta[rose], tried[rose])
        assert float(climb.trial.norm(dim=-1).max()) <= ball.radius * (1 + 1e-12)
    torch.testing.assert_close(values(aim, climb.delta), climb.value, rtol=1e-12, atol=0)
    assert bool((climb.value >= first).all())
    assert float((climb.value / first).mean()) > 1.02, "the ascent went nowhere"


@natives
@functions
def test_explore_and_ascend(fn, native):
    aim = objective(fn, native)
    ball = Ball(math.sqrt(5), 1e-6, native)
    start = on_sphere(torch.randn(7, 4, 5, dtype=torch.float64), ball.radius)
    delta, value = explore(aim, start, ball, 6)
    torch.testing.assert_close(values(aim, delta), value, rtol=1e-12, atol=0)
    assert bool((value >= values(aim, start) * (1 - 1e-12)).all())
    best = delta[torch.arange(7), value.argmax(1)]
    point, steps = ascend(aim, unknown(best), ball, 100)
    assert 1 <= steps <= 100
    torch.testing.assert_close(
        values(aim, point.delta[:, None])[:, 0], point.value, rtol=1e-12, atol=0
    )
    assert bool((point.value >= value.amax(1) * (1 - 1e-12)).all())
    assert float(point.delta.norm(dim=-1).max()) <= ball.radius * (1 + 1e-12)


@natives
@functions
def test_position_ends_where_it_would_alone(fn, native):
    aim = objective(fn, native)
    ball = Ball(math.sqrt(5), 1e-3, native)
    start = unknown(on_sphere(torch.randn(7, 5, dtype=torch.float64), ball.radius))
    together, steps = ascend(aim, start, ball, 60)
    alone = [
        ascend(aim.select(torch.tensor([i])), Point(*(x[i : i + 1] for x in start)), ball, 60)
        for i in range(7)
    ]
    assert steps == max(taken for _, taken in alone)
    for i, (point, _) in enumerate(alone):
        torch.testing.assert_close(point.value[0], together.value[i], rtol=1e-9, atol=0)
        torch.testing.assert_close(point.delta[0], together.delta[i], rtol=1e-6, atol=1e-6)


@functions
def test_tolerance_ends_the_ascent(fn):
    aim = objective(fn, native=False)
    start = unknown(on_sphere(torch.randn(7, 5, dtype=torch.float64), 2.0))
    loose, few = ascend(aim, start, Ball(2.0, 0.1, False), 200)
    tight, many = ascend(aim, start, Ball(2.0, 1e-9, False), 200)
    assert few < many
    assert bool((tight.value >= loose.value * (1 - 1e-12)).all())
    assert ascend(aim, start, Ball(2.0, 0.0, False), 3)[1] == 3
    assert ascend(aim, tight, Ball(2.0, 0.0, False), 0) == (tight, 0)


@functions
def test_rays_and_adam_never_lose(fn):
    aim = objective(fn, native=False)
    ball = Ball(2.0, 1e-4, False)
    start = on_sphere(torch.randn(7, 5, dtype=torch.float64), 2.0)
    point = Point(start, values(aim, start[:, None])[:, 0])
    ray = along_rays(aim, point, (0.1, 0.5, 0.9))
    assert bool((ray.value >= point.value).all())
    torch.testing.assert_close(values(aim, ray.delta[:, None])[:, 0], ray.value)
    adam = adam_on_sphere(aim, start, ball, 30)
    assert bool((adam.value >= point.value).all())
    assert float((adam.value / point.value).mean()) > 1.02
    torch.testing.assert_close(values(aim, adam.delta[:, None])[:, 0], adam.value)
    torch.testing.assert_close(adam.delta.norm(dim=-1), torch.full((7,), 2.0).double())


def test_ray_finds_the_shorter_change():
    """An objective that falls outwards: half the way is better than all of it."""

    class Inward:
        positions = 1

        def evaluator(self, starts):
            return self

        def value_and_gradient(self, delta):
            return 1 - (delta.norm(dim=-1) - 1).square(), torch.zeros_like(delta)

    start = torch.tensor([[2.0, 0.0]])
    point = along_rays(Inward(), Point(start, torch.tensor([0.0])), (0.25, 0.5, 0.75))
    assert point.delta.tolist() == [[1.0, 0.0]]
    assert point.value.tolist() == [1.0]


def test_starts():
    like = torch.zeros(1, dtype=torch.float64)
    starts = random_starts(3, 4, 0, like)
    assert starts.shape == (3, 4)
    assert torch.equal(random_starts(2, 4, 0, like), starts[:2])
    assert not torch.equal(random_starts(3, 4, 1, like), starts)
    assert random_starts(1, 2, 0, like.float()).dtype == torch.float32
    # Not the numbers of any W: their stream is another.
    from wsfast import random_weights

    W = random_weights(4, dtype=torch.float64) * 2
    assert not torch.isin(starts, W).any()


def test_on_sphere():
    directions = torch.tensor([[3.0, 4.0], [0.0, 0.0]])
    assert on_sphere(directions, 10.0).tolist() == [[6.0, 8.0], [10.0, 0.0]]
