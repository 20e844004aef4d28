"""Where a functional of the features is met on the way, and where it is out of reach."""

from __future__ import annotations

import math
from typing import NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from wsfast.engines.engine import REFERENCE
from wsfast.maps.feature_map import PreparedText
from wsfast.maps.function import FunctionMap
from wsfast.maps.measure import Functional
from wsfast.search.ascent import Point
from wsfast.search.options import SearchOptions
from wsfast.search.search import Search
from wsfast.studies.generalization.minimise import Loss, _to_the_end, minimise, root

BUDGET = 2**28


class Counter:
    done = 0

    def update(self, n: int) -> None:
        self.done += n


class Case(NamedTuple):
    X: torch.Tensor
    radius: float
    max_steps: int = 30


def prepared(phi, X) -> PreparedText:
    (text,) = FunctionMap(phi).prepare([X], REFERENCE, BUDGET)
    return text


def solve(phi, case: Case, theta, target: float):
    """The Δ found and the loss there, for Θ given as an array of the shape of φ(X)."""
    index = torch.arange(len(case.X))
    options = SearchOptions([index], case.radius, 0, 4, case.max_steps, 1e-4, BUDGET)
    text = prepared(phi, case.X)
    theta = torch.as_tensor(theta, dtype=torch.float64).flatten()
    loss = Loss(theta, float(text.phi.flatten() @ theta), target)
    bar = Counter()
    found = minimise(text, loss, index, options, case.X[0], bar)
    assert bar.done == len(case.X)
    moved = case.X.clone()
    moved[found.change.position] += found.change.delta
    torch.testing.assert_close(found.phi, phi(moved[None])[0].double().flatten())
    return found, loss.value(found.phi)


# -- the root -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("f", "expected"),
    [
        (lambda t: 3 * t - 1, 1 / 3),
        (lambda t: t**9 - 1e-9, 0.1),
        (lambda t: math.exp(20 * t) - math.exp(19), 0.95),
        (lambda t: math.tanh(50 * (t - 0.7)), 0.7),
        (lambda t: 1e-30 * (t - 0.25), 0.25),
    ],
)
def test_root(f, expected):
    calls = []
    got = root(lambda t: calls.append(t) or f(t), f(0.0))
    assert got == pytest.approx(expected, rel=1e-9)
    assert abs(f(got)) <= 1e-13 * max(abs(f(0.0)), f(1.0))
    assert len(calls) <= 60


@given(at=st.floats(1e-6, 1 - 1e-6), low=st.floats(-9, -1e-3), high=st.floats(1e-3, 9))
def test_root_at_a_jump(at, low, high):
    """No root there; what comes nearest to one, in bounded time."""
    calls = []

    def f(t):
        calls.append(t)
        return low if t < at else high

    got = root(f, low)
    assert 0 < got <= 1
    assert abs(f(got)) == min(-low, high) or abs(got - at) < 1e-6 or got == 1
    assert len(calls) <= 110


def test_root_at_the_end():
    assert root(lambda t: t - 1 + 1e-18, -1.0) == 1.0


# -- linear maps: all is known --------------------------------------------------------------------


def flat(X):
    return X.flatten(1)


X = torch.tensor([[1.0, 2.0], [0.0, -1.0], [3.0, 1.0]], dtype=torch.float64)
THETA = torch.tensor([[1.0, 0.0], [3.0, 4.0], [0.0, 2.0]], dtype=torch.float64)
START = 1 - 4 + 2.0


@pytest.mark.parametrize("target", [START + 30.0, START - 30.0])
def test_out_of_reach(target):
    """The row of largest norm, 5, and all of the radius, in the right direction."""
    found, loss = solve(flat, Case(X, 2.0), THETA, target)
    assert found.change.position == 1
    toward = math.copysign(1, target - START)
    torch.testing.assert_close(found.change.delta, toward * 2 * THETA[1] / 5)
    assert loss == pytest.approx(20.0**2)


@pytest.mark.parametrize("target", [START + 5.0, START - 5.0])
def test_within_reach(target):
    found, loss = solve(flat, Case(X, 2.0), THETA, target)
    assert loss <= 1e-25
    assert found.change.position == 1
    assert float(found.change.delta.norm()) == pytest.approx(1.0)


def test_no_room():
    found, loss = solve(flat, Case(X, 0.0), THETA, START + 3)
    assert (found.change.position, found.steps, loss) == (0, 0, 9.0)
    assert found.change.delta.tolist() == [0, 0]


def test_just_at_the_end_of_reach():
    found, loss = solve(flat, Case(X, 2.0), THETA, START + 10)
    assert loss <= 1e-20
    assert float(found.change.delta.norm()) <= 2.0


def test_a_functional_that_nothing_moves():
    found, loss = solve(lambda X: 0 * X.flatten(1) + 1, Case(X, 2.0), THETA, 17.0)
    assert loss == pytest.approx(7.0**2)
    assert float(found.change.delta.norm()) <= 2.0


def test_float32_stays_in_the_ball():
    found, _ = solve(flat, Case(X.float(), 2.0), THETA, START + 30)
    assert found.change.delta.dtype == torch.float32
    assert float(found.change.delta.double().norm()) <= 2.0


# -- maps with kinks and bends --------------------------------------------------------------------


def test_optimum_inside_the_ball():
    """|x - 3|²: nearest at 3, however large the ball."""
    single = torch.zeros(1, 2, dtype=torch.float64)
    found, _ = solve(
        lambda X: -(X - 3).square().sum((1, 2))[:, None], Case(single, 100.0, 60), [1.0], 5.0
    )
    torch.testing.assert_close(
        found.change.delta, torch.tensor([3.0, 3.0]).double(), rtol=0, atol=0.05
    )


def test_optimum_at_a_kink():
    """-|x|₁ plus a slope too weak to leave it."""
    target = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)

    def phi(X):
        return -(X[:, 0] - target).abs().sum(1, keepdim=True)

    start = torch.zeros(1, 3, dtype=torch.float64)
    found, loss = solve(phi, Case(start, float(target.norm()), 200), [1.0], 1.0)
    assert loss == pytest.approx(1.0, rel=0.1)
    torch.testing.assert_close(found.change.delta, target, rtol=0, atol=0.05)


def test_features_that_are_not_finite_somewhere():
    def phi(X):
        return X.flatten(1).log()

    inside = torch.full((2, 2), 2.0, dtype=torch.float64)
    found, loss = solve(phi, Case(inside, 3.0), torch.ones(2, 2), 100.0)
    assert math.isfinite(loss)
    assert bool(found.phi.isfinite().all())


def test_which_positions_go_on():
    """Those within 1 % of the best, of which another may end up as the best; no others."""
    rows = torch.tensor([[4.9, 0.0], [5.0, 0.0], [100.0, 0.0]], dtype=torch.float64)
    asked = []

    class Text(PreparedText):
        def objective(self, sites, measure, radius):
            asked.append(sites.index.tolist())
            return super().objective(sites, measure, radius)

    zeros = torch.zeros(3, 2, dtype=torch.float64)
    text = Text(FunctionMap(flat), zeros, REFERENCE, BUDGET)
    index, theta = torch.arange(3), Functional(rows.flatten())
    search = Search(SearchOptions([index], 1.0, 0, 4, 30, 1e-4, BUDGET))
    delta = torch.tensor([[1.0, 0.0], [0.97, 0.24], [0.01, 0.0]], dtype=torch.float64)
    value = (rows * delta).sum(1)
    assert value.tolist() == pytest.approx([4.9, 4.85, 1.0])
    kept, point, _ = _to_the_end(text, theta, index, Point(delta, value), search)
    assert asked == [[0]]
    delta[1] = torch.tensor([0.975, 0.22])
    value = (rows * delta).sum(1)
    kept, point, steps = _to_the_end(text, theta, index, Point(delta, value), search)
    assert asked[1:] == [[0, 1]]
    assert kept.tolist() == [0, 1]
    torch.testing.assert_close(point.value, torch.tensor([4.9, 5.0], dtype=torch.float64))
    assert 0 < steps <= 11 * 30


def test_best_positions_go_on_to_the_end(monkeypatch):
    """From a search that stops early: the finalists end where the longest search does."""
    from wsfast.studies.generalization import minimise as module

    generator = torch.Generator().manual_seed(3)
    A = torch.randn(30, 3, 12, generator=generator, dtype=torch.float64)

    def phi(X):
        return torch.stack([(X[:, i] @ A[:, i].T).tanh() for i in range(3)], 1)

    start = torch.randn(3, 12, generator=generator, dtype=torch.float64) / 5
    theta = torch.randn(3, 30, generator=generator, dtype=torch.float64)
    short, longest = Case(start, 1.0, 5), Case(start, 1.0, 500)
    _, expected = solve(phi, longest, theta, 1000.0)
    _, got = solve(phi, short, theta, 1000.0)
    assert got <= expected * (1 + 1e-6)
    monkeypatch.setattr(module, "_to_the_end", lambda text, theta, *rest: (*rest[:2], 0))
    _, stopped = solve(phi, short, theta, 1000.0)
    assert stopped > got * (1 + 1e-6)
