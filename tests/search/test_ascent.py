"""The ascent: monotone, inside the ball, every position on its own."""

from __future__ import annotations

import math

import pytest
import torch
from attention.problems import objective as objective_of
from definition import random_text
from parameters import backends

from wsfast.attention.weight_fn import WeightFn
from wsfast.engines.engine import Climb
from wsfast.perturbation.ball import on_sphere
from wsfast.search.ascent import (
    Limits,
    Point,
    adam_on_sphere,
    along_rays,
    ascend,
    explore,
)
from wsfast.search.search import random_starts

FUNCTIONS = [WeightFn("softmax"), WeightFn("relu"), WeightFn("relu", normalize=False)]
functions = pytest.mark.parametrize("fn", FUNCTIONS, ids=str)


def objective(fn, backend="torch"):
    return objective_of(*random_text(7, 5), fn, backend)


def values(aim, delta):
    return aim.evaluator(delta.shape[1]).value_and_gradient(delta)[0].clone()


def unknown(delta):
    return Point(delta, torch.full_like(delta[:, 0], -torch.inf))


@backends
@functions
def test_accepted_values_never_fall(fn, backend):
    aim = objective(fn, backend)
    ball = Limits(math.sqrt(5), 1e-4)
    start = on_sphere(torch.randn(7, 3, 5, dtype=torch.float64), ball.radius)
    climb = Climb.start(start)
    evaluator = aim.evaluator(3)
    first = None
    for _ in range(25):
        before, beta = climb.value.clone(), climb.beta.clone()
        value, gradient = evaluator.value_and_gradient(climb.trial)
        value, tried = value.clone(), climb.trial.clone()
        aim.engine.take_step(climb, value, gradient, ball.radius)
        first = value if first is None else first
        rose = value > before
        assert torch.equal(climb.value, torch.where(rose, value, before))
        assert torch.equal(climb.beta, torch.where(rose, (2 * beta).clamp(max=1), beta / 2))
        assert torch.equal(climb.delta[rose], tried[rose])
        assert float(climb.trial.norm(dim=-1).max()) <= ball.radius * (1 + 1e-12)
    torch.testing.assert_close(values(aim, climb.delta), climb.value, rtol=1e-12, atol=0)
    assert bool((climb.value >= first).all())
    assert float((climb.value / first).mean()) > 1.02, "the ascent went nowhere"


@backends
@pytest.mark.parametrize("momentum", [True, False])
def test_momentum_goes_on_along_the_last_step_until_one_is_refused(backend, momentum):
    engine = objective(FUNCTIONS[0], backend).engine
    start = torch.tensor([[[0.1, 0.2, 0.0]]], dtype=torch.float64)
    slopes = torch.eye(3, dtype=torch.float64)
    climb = Climb.start(start, momentum=momentum)

    def step(value, slope):
        tried = climb.trial.clone()
        engine.take_step(climb, start.new_tensor([[value]]), slope.view(1, 1, 3).clone(), 1.0)
        return tried[0, 0], climb.trial[0, 0].clone()

    step(1.0, slopes[0])
    for k, slope in ((2, slopes[1]), (3, slopes[2])):
        before = climb.delta[0, 0].clone()
        best, trial = step(float(k), slope)
        carry = (k - 1) / (k + 2) if momentum else 0.0
        onto = slope + carry * (best - before)
        torch.testing.assert_close(trial, onto / onto.norm())
    _, trial = step(0.0, slopes[1])
    torch.testing.assert_close(trial, (onto := 0.5 * (best + slopes[2])) / onto.norm())
    best, trial = step(9.0, slopes[1])  # the first in a row again
    torch.testing.assert_close(trial, slopes[1])


def test_the_better_starts_are_kept():
    climb = Climb.start(torch.arange(8.0).view(2, 4, 1))
    climb.value = torch.tensor([[1.0, 4.0, 2.0, 3.0], [9.0, 1.0, 7.0, 8.0]])
    climb.best(2)
    assert climb.value.tolist() == [[4.0, 3.0], [9.0, 8.0]]
    assert climb.delta[..., 0].tolist() == [[1.0, 3.0], [4.0, 7.0]]
    assert climb.beta.shape == climb.risen.shape == (2, 2)


@backends
@functions
def test_explore_and_ascend(fn, backend):
    aim = objective(fn, backend)
    ball = Limits(math.sqrt(5), 1e-6)
    start = on_sphere(torch.randn(7, 4, 5, dtype=torch.float64), ball.radius)
    delta, value = explore(aim, start, ball, 6)
    torch.testing.assert_close(values(aim, delta), value, rtol=1e-12, atol=0)
    assert bool((value >= values(aim, start) * (1 - 1e-12)).all())
    best = delta[torch.arange(7), value.argmax(1)]
    point, steps = ascend(aim, unknown(best), ball, 100)
    assert 1 <= int(steps.min()) <= int(steps.max()) <= 100
    torch.testing.assert_close(
        values(aim, point.delta[:, None])[:, 0], point.value, rtol=1e-12, atol=0
    )
    assert bool((point.value >= value.amax(1) * (1 - 1e-12)).all())
    assert float(point.delta.norm(dim=-1).max()) <= ball.radius * (1 + 1e-12)


@backends
@functions
def test_position_ends_where_it_would_alone(fn, backend):
    aim = objective(fn, backend)
    ball = Limits(math.sqrt(5), 1e-3)
    start = unknown(on_sphere(torch.randn(7, 5, dtype=torch.float64), ball.radius))
    together, steps = ascend(aim, start, ball, 60)
    alone = [
        ascend(aim.select(torch.tensor([i])), Point(*(x[i : i + 1] for x in start)), ball, 60)
        for i in range(7)
    ]
    assert steps.tolist() == [int(taken) for _, taken in alone]
    for i, (point, _) in enumerate(alone):
        torch.testing.assert_close(point.value[0], together.value[i], rtol=1e-9, atol=0)
        torch.testing.assert_close(point.delta[0], together.delta[i], rtol=1e-6, atol=1e-6)


@functions
def test_tolerance_ends_the_ascent(fn):
    aim = objective(fn)
    start = unknown(on_sphere(torch.randn(7, 5, dtype=torch.float64), 2.0))
    loose, few = ascend(aim, start, Limits(2.0, 0.1), 200)
    # Where it ends, four steps more raise no norm by more than that share.
    more, _ = ascend(aim, loose, Limits(2.0, 0.0), 4)
    assert bool((more.value.sqrt() <= 1.1 * loose.value.sqrt()).all())
    tight, many = ascend(aim, start, Limits(2.0, 1e-9), 200)
    assert bool((few <= many).all())
    assert few.max() < many.max()
    assert bool((tight.value >= loose.value * (1 - 1e-12)).all())
    assert ascend(aim, start, Limits(2.0, 0.0), 3)[1].tolist() == [3] * 7
    same, none = ascend(aim, tight, Limits(2.0, 0.0), 0)
    assert (same, none.tolist()) == (tight, [0] * 7)


@functions
def test_rays_and_adam_never_lose(fn):
    aim = objective(fn)
    ball = Limits(2.0, 1e-4)
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
        places = 1

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
