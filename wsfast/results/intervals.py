"""Mean, spread and confidence interval over independent draws of W."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from wsfast.results.arrays import Array, to_numpy
from wsfast.results.student_t import t_factor


@dataclass(frozen=True, eq=False)
class DrawSummary:
    """Statistics over draws; the arrays have the shape of the summarized one less the draws axis.

    Attributes
    ----------
    mean, std : tensor or array
        Mean and standard deviation (divisor R - 1).
    low, high : tensor or array
        Ends of the Student t interval of the mean.
    draws : int
        R, how many draws there were.
    confidence : float
        Coverage of the interval.
    """

    mean: Array
    std: Array
    low: Array
    high: Array
    draws: int
    confidence: float


def summarize(values: Array, axis: int, confidence: float) -> DrawSummary:
    """Statistics of `values` along `axis`, computed in float64, returned in the dtype of `values`.

    Raises
    ------
    ValueError
        If `confidence` is not between 0 and 1, or there are fewer than two draws.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence: expected a number between 0 and 1, got {confidence!r}")
    draws = int(values.shape[axis])
    if draws < 2:
        raise ValueError(f"draws: an interval needs at least 2 draws of W, got {draws}")
    factor = t_factor(confidence, draws - 1) / math.sqrt(draws)
    if isinstance(values, torch.Tensor):
        exact = values.detach().double()
        mean, std = exact.mean(axis), exact.std(axis, correction=1)
        ends = (mean - factor * std, mean + factor * std)
        low, high = (end.to(values.dtype) for end in ends)
        return DrawSummary(
            mean.to(values.dtype), std.to(values.dtype), low, high, draws, confidence
        )
    summary = summarize(torch.from_numpy(values), axis, confidence)
    parts = (summary.mean, summary.std, summary.low, summary.high)
    mean_, std_, low_, high_ = (to_numpy(part) for part in parts)
    return DrawSummary(mean_, std_, low_, high_, draws, confidence)
