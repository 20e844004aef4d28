"""Verdicts and intervals."""

from __future__ import annotations

import math

import numpy as np
import pytest

from wsfast.reproduce import claims
from wsfast.reproduce.claims import Interval

FOUND = Interval(1.0, 0.8, 1.2)


@pytest.mark.parametrize(
    ("judge", "arguments", "agrees"),
    [
        (claims.near, (1.0, 0.0), True),
        (claims.near, (1.3, 0.11), True),
        (claims.near, (1.3, 0.09), False),
        (claims.near, (0.7, 0.11), True),
        (claims.near, (0.7, 0.09), False),
        (claims.at_least, (1.19,), True),
        (claims.at_least, (1.21,), False),
        (claims.at_most, (0.81,), True),
        (claims.at_most, (0.79,), False),
        (claims.above, (0.79,), True),
        (claims.above, (0.81,), False),
        (claims.below, (1.21,), True),
        (claims.below, (1.19,), False),
    ],
)
def test_verdicts(judge, arguments, agrees):
    assert judge(FOUND, *arguments) == ("agrees" if agrees else "differs")


@pytest.mark.parametrize("judge", [claims.at_least, claims.at_most, claims.above, claims.below])
def test_nothing_agrees_without_an_interval(judge):
    assert judge(Interval(1.0, math.nan, math.nan), 1.0) == "differs"
    assert claims.near(Interval(1.0, math.nan, math.nan), 1.0, 9.0) == "differs"


def test_mean_with_its_interval():
    values = [1.0, 2.0, 4.0]
    half = 4.302653 * np.std(values, ddof=1) / math.sqrt(3)  # t of 2 degrees of freedom
    mean = sum(values) / 3
    assert claims.mean_of(values) == pytest.approx((mean, mean - half, mean + half), abs=1e-5)
    assert str(claims.mean_of([2.0, 2.0])) == "2.000 [2.000, 2.000]"
    one = claims.mean_of([2.0])
    assert one.value == 2.0
    assert math.isnan(one.low)
