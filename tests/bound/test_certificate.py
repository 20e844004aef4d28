"""The theorem of the bound: each of its inequalities against the definition of attention."""

from __future__ import annotations

import pytest
import torch
from bound.problems import FINE, Problem, problem, problems
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wsfast.bound.certificate import EPS, ball_maximum, certified
from wsfast.engines.engine import TORCH


def check(case: Problem, by, seed, further=None):
    """Rows, ball and sum of a problem, for some multipliers, at many Δ."""
    maxima = TORCH.bound_rows(case.pairs, case.shape, by, case.grid, proof=True)
    ball = ball_maximum(case.pairs, case.shape, by)
    total, relaxed = certified(case.pairs, case.shape, by, maxima)
    assert not total.isnan().any()
    extra = relaxed.nan_to_num() if further is None else further
    delta = case.tried(seed, extra)
    f, Q = case.squares(delta), case.forms(by, delta)
    off = case.rounding(f)
    n, d = case.X.shape
    unit = 32 * (n + d) * EPS * (1 + case.pairs.reach.max())
    assert (f - Q <= (maxima.value + unit * maxima.t)[:, None] + off).all(), "a row"
    slack = unit * (maxima.t.sum(1) + ball.value.abs())
    assert (Q.sum(-1) <= (ball.value + slack)[:, None]).all(), "the ball"
    assert (f.sum(-1) <= total[:, None] + off.sum(-1)).all(), "the sum"


def check_all(case: Problem, seed: int):
    start = case.tried(seed)[:, seed % 9]
    tangent = case.found(start, 0)
    check(case, tangent, seed, start)
    check(case, case.found(start, 3), seed + 1)
    check(case, case.random(seed, tangent), seed + 2)
    check(case, case.random(seed + 1), seed + 3)


def tiers(quick: int, deep: int):
    """A test of so many problems, and of more in the deep tier."""
    return pytest.mark.parametrize(
        "count", [quick, pytest.param(deep, marks=pytest.mark.deep)]
    )


@tiers(200, 10_000)
def test_every_inequality_holds_at_every_change(count):
    @settings(max_examples=count, suppress_health_check=[HealthCheck.too_slow])
    @given(case=problems(), seed=st.integers(0, 2**30))
    def holds(case, seed):
        check_all(case, seed)

    holds()
