"""Student's t distribution, as much of it as a confidence interval needs.

SciPy has it too, in 136 MB that nothing else here needs, and seconds of import.
"""

from __future__ import annotations

import math

import numpy as np


def central_probability(theta: float, dof: int) -> float:
    """P(|T| <= sqrt(dof) tan(theta)) for T with `dof` degrees of freedom, 0 <= theta < pi/2.

    The finite series of Abramowitz & Stegun 26.7.3 (odd) and 26.7.4 (even): exact but for rounding.
    """
    sine, cosine = math.sin(theta), math.cos(theta)
    if dof % 2:
        k = np.arange(1, (dof - 1) // 2)
        series = cosine * (1 + np.cumprod(2 * k / (2 * k + 1) * cosine**2).sum()) if dof > 1 else 0
        return float(2 / math.pi * (theta + sine * series))
    k = np.arange(1, dof // 2)
    return float(sine * (1 + np.cumprod((2 * k - 1) / (2 * k) * cosine**2).sum()))


def t_factor(confidence: float, dof: int) -> float:
    """Find t with P(|T| <= t) = `confidence`, by bisection in the angle atan(t / sqrt(dof)).

    Parameters
    ----------
    confidence : float
        Strictly between 0 and 1.
    dof : int
        Degrees of freedom, at least 1. Time grows with it: 1 ms at 1,000, 1 s at 1,000,000.
    """
    low, high = 0.0, math.pi / 2
    while True:
        middle = (low + high) / 2
        if middle in (low, high):
            return math.sqrt(dof) * math.tan(middle)
        if central_probability(middle, dof) < confidence:
            low = middle
        else:
            high = middle
