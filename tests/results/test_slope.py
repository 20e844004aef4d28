"""Slopes and their intervals, on tables whose law is known."""

from __future__ import annotations

import math
from dataclasses import astuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from results.tables import table

from wsfast.results.cells import Cell
from wsfast.results.scaling import ScalingResult

NS = (4, 10, 16, 40)


@pytest.mark.parametrize("power", [-0.5, 0.0, 2.0])
def test_power_law(power):
    law = table(lambda n, d, r: 3 * n**power, NS).slope()
    assert law.value == pytest.approx(power, abs=1e-14)
    assert law.intercept == pytest.approx(math.log(3), rel=1e-13)
    # Replicates that do not differ leave nothing to doubt.
    assert (law.low, law.high) == pytest.approx((power, power), abs=1e-13)
    assert (law.along, law.at, law.confidence, law.map) == ("n", 8, 0.95, "raf")
    assert law.predict(100) == pytest.approx(3 * 100**power)


def test_law_along_d():
    result = table(lambda n, d, r: n * d**-1.5, (2, 5), (4, 8, 64))
    law = result.slope("d", at=5)
    assert (law.value, law.at) == (pytest.approx(-1.5), 5)
    assert law.intercept == pytest.approx(math.log(5))
    assert result.slope(at=64).value == pytest.approx(1)


def test_least_squares_by_hand():
    # log2 S = 0, 1, 5 at log2 n = 0, 1, 2: slope (5 - 0) / 2, through the means (1, 2).
    law = table(lambda n, d, r: {1: 1, 2: 2, 4: 32}[n], (1, 2, 4)).slope()
    assert law.value == pytest.approx(2.5)
    assert law.intercept == pytest.approx((2 - 2.5) * math.log(2))


def test_bootstrap_of_two_replicates():
    # Slopes 1 and 3; a resample has the first twice, one of each, or the second twice.
    result = table(lambda n, d, r: n ** (1 + 2 * r), (2, 8), replicates=2)
    law = result.slope(confidence=0.8)
    assert (law.low, law.value, law.high) == pytest.approx((1, 2, 3))
    assert result.slope(confidence=0.4).low == pytest.approx(2)


def test_replicates_are_resampled_whole():
    # Replicates differ by a factor, the same at all n: their slopes are one.
    law = table(lambda n, d, r: 10.0**r * n**-0.5, NS, replicates=6).slope()
    assert (law.low, law.high) == pytest.approx((-0.5, -0.5), abs=1e-12)


def test_texts_and_draws_make_replicates():
    # As in test_bootstrap_of_two_replicates, but for two draws of each of two equal texts.
    cells = [
        Cell("raf", n, 8, text, draw, n ** (1.0 + 2 * draw), 0)
        for n in (2, 8)
        for text in (0, 1)
        for draw in (0, 1)
    ]
    law = ScalingResult(tuple(cells), {}).slope(confidence=0.9999, resamples=4000)
    assert (law.low, law.high) == pytest.approx((1, 3))  # all four of one kind: 2 in 16 resamples


def test_replicates_of_different_sizes():
    cells = table(lambda n, d, r: n**-0.5, NS, replicates=5).rows
    result = ScalingResult(tuple(c for c in cells if c.n < 16 or c.draw < 2), {})
    law = result.slope()
    assert (law.value, law.low, law.high) == pytest.approx((-0.5,) * 3)
    # Resamples of one size alone have no slope, and do not count.
    apart = ScalingResult(tuple(c for c in cells if c.n == NS[c.draw % 2]), {}).slope()
    assert (apart.low, apart.high) == pytest.approx((-0.5, -0.5))


def test_one_replicate_has_no_interval():
    law = table(lambda n, d, r: n**-0.5, NS, replicates=1).slope()
    assert law.value == pytest.approx(-0.5)
    assert math.isnan(law.low)
    assert math.isnan(law.high)


def noisy(seed, replicates=25, power=-0.5):
    """Replicates whose slopes have deviation 0.1, and noise at every n."""
    rng = np.random.default_rng(seed)
    slopes = power + 0.1 * rng.standard_normal(replicates)
    factors = rng.standard_normal(replicates)
    noise = 0.1 * rng.standard_normal((max(NS) + 1, replicates))
    return table(
        lambda n, d, r: math.exp(factors[r] + slopes[r] * math.log(n) + noise[n, r]),
        NS,
        replicates=replicates,
    )


@pytest.mark.deep
@pytest.mark.parametrize("confidence", [0.5, 0.9])
def test_interval_covers_the_truth_as_often_as_it_says(confidence):
    laws = [noisy(seed).slope(confidence=confidence, resamples=400) for seed in range(300)]
    covered = np.mean([law.low <= -0.5 <= law.high for law in laws])
    # Three standard deviations, and what is lost with 25 replicates.
    assert confidence - 0.1 < covered < confidence + 0.09


def test_the_same_seed_gives_the_same_interval():
    result = noisy(0)
    one, other, third = (result.slope(seed=seed) for seed in (1, 1, 2))
    assert astuple(one) == astuple(other)
    assert (one.low, one.high) != (third.low, third.high)
    assert one.value == third.value


def test_many_replicates_are_resampled_in_blocks(monkeypatch):
    whole = noisy(3).slope(resamples=100)
    monkeypatch.setattr("wsfast.results.slope._BLOCK", 60)  # 2 resamples of 25
    law = noisy(3).slope(resamples=100)
    assert (law.low, law.high) == pytest.approx((whole.low, whole.high))


@settings(max_examples=25)
@given(
    seed=st.integers(0, 1000),
    factor=st.floats(1e-6, 1e6),
    stretch=st.integers(1, 50),
    order=st.randoms(use_true_random=False),
)
def test_invariances(seed, factor, stretch, order):
    result = noisy(seed, replicates=4)
    law = result.slope(resamples=50)
    interval = (law.value, law.low, law.high)

    scaled = ScalingResult(tuple(c._replace(S=factor * c.S) for c in result.rows), {})
    other = scaled.slope(resamples=50)
    assert (other.value, other.low, other.high) == pytest.approx(interval, abs=1e-9)
    assert other.intercept == pytest.approx(law.intercept + math.log(factor), abs=1e-9)

    longer = ScalingResult(tuple(c._replace(n=stretch * c.n) for c in result.rows), {})
    other = longer.slope(resamples=50)
    assert (other.value, other.low, other.high) == pytest.approx(interval, abs=1e-9)
    assert other.predict(stretch * 10.0) == pytest.approx(law.predict(10.0))

    rows = list(result.rows)
    order.shuffle(rows)
    assert ScalingResult(tuple(rows), {}).slope(resamples=50) == law


# -- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("S", [0.0, math.nan, math.inf])
def test_no_logarithm(S):
    result = table(lambda n, d, r: S if (n, r) == (10, 2) else 1.0, NS)
    with pytest.raises(
        ValueError, match=r"got (0\.0|nan|inf) for map 'raf', n = 10, d = 8, text 2"
    ):
        result.slope()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"along": "k"}, "along must be 'n' or 'd', got 'k'"),
        ({"confidence": 1}, "confidence must be .* got 1"),
        ({"confidence": True}, "confidence must be .* got True"),
        ({"confidence": "0.9"}, "confidence must be .* got '0.9'"),
        ({"resamples": 0}, "resamples must be at least 1, got 0"),
        ({"seed": -1}, "seed must be from 0"),
        ({}, "at must be 8 or 16, got None"),
        ({"at": 4}, "at must be 8 or 16, got 4"),
        ({"along": "d", "at": 8}, "at must be 4, 10, 16 or 40, got 8"),
        ({"at": 8, "map": "rf"}, "map must be 'raf', got 'rf'"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        table(lambda n, d, r: 1.0, NS, (8, 16)).slope(**options)


def test_one_size_has_no_slope():
    with pytest.raises(ValueError, match=r"at least 2 different n, got \[4\]"):
        table(lambda n, d, r: 1.0, (4,)).slope()
    with pytest.raises(ValueError, match="rows must hold at least one cell"):
        ScalingResult((), {}).slope()
