"""A claim, what was measured, and whether the two agree."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from wsfast.results.intervals import summarize

AGREES = "agrees"
DIFFERS = "differs"
UNTESTED = "not tested here (quick)"


class Interval(NamedTuple):
    """An estimate and the ends of its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return written("{} [{}, {}]", *self)


def written(form: str, *values: float) -> str:
    """Fill numbers into a text: three decimals, or exponents where three would be zeros for all.

    Numbers that are compared are written in the same way.
    """
    kind = ".3f" if any(abs(value) >= 0.01 for value in values) else ".3g"
    return form.format(*(format(value, kind) for value in values))


class Claim(NamedTuple):
    """One line of a report."""

    source: str  # whose claim it is
    claim: str
    measured: str
    verdict: str


def mean_of(values: Sequence[float]) -> Interval:
    """Mean of independent values with its Student t interval; NaN ends for a single one."""
    if len(values) < 2:
        return Interval(float(values[0]), math.nan, math.nan)
    summary = summarize(np.asarray(values, dtype=np.float64), 0, 0.95)
    return Interval(float(summary.mean), float(summary.low), float(summary.high))


def verdict(agrees: bool) -> str:
    """One of the two words."""
    return AGREES if agrees else DIFFERS


def near(found: Interval, expected: float, tolerance: float) -> str:
    """Whether the interval meets `expected` ± `tolerance`."""
    return verdict(found.low <= expected + tolerance and found.high >= expected - tolerance)


def at_least(found: Interval, bound: float) -> str:
    """Whether the interval reaches `bound` or more."""
    return verdict(found.high >= bound)


def at_most(found: Interval, bound: float) -> str:
    """Whether the interval reaches down to `bound`."""
    return verdict(found.low <= bound)


def above(found: Interval, bound: float) -> str:
    """Whether the whole interval lies above `bound`."""
    return verdict(found.low > bound)


def below(found: Interval, bound: float) -> str:
    """Whether the whole interval lies below `bound`."""
    return verdict(found.high < bound)
