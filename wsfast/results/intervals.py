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
    share_worst : tensor or array, optional
        Of every S_i: in which share of the draws S is attained there, between 0 and 1; of words
        with equal S_i the first counts. NaN where `mean` is.
    """

    mean: Array
    std: Array
    low: Array
    high: Array
    draws: int
    confidence: float
    share_worst: Array | None = None


def summarize(values: Array, axis: int, confidence: float) -> DrawSummary:
    """Statistics of `values` along `axis`, computed in float64, returned in the dtype of `values`.

    Raises
    ------
    ValueError
        If there are fewer than two draws.
    """
    draws = int(values.shape[axis])
    if draws < 2:
        raise ValueError(f"draws must be at least 2 for an interval, got {draws}")
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


def share_of_draws(position: Array, axis: int, mean: Array) -> Array:
    """In which share of the draws along `axis` each of n places is the `position` (..., R, ...).

    It has the shape (..., n), the dtype and the NaN of `mean`.
    """
    if isinstance(position, torch.Tensor) and isinstance(mean, torch.Tensor):
        places = torch.arange(mean.shape[-1], device=position.device)
        share = (position[..., None] == places).double().mean(axis)
        return share.to(mean.dtype).masked_fill(mean.isnan(), math.nan)
    place, like = (torch.from_numpy(to_numpy(array)) for array in (position, mean))
    return to_numpy(share_of_draws(place, axis, like))
