"""Spearman's rank correlation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float:
    """Spearman's rank correlation, ties by their mean rank.

    NaN for fewer than 3 pairs, and where all numbers of a side are the same.
    """
    if len(one) < 3:
        return math.nan
    a, b = _centred_ranks(one), _centred_ranks(other)
    norms = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / norms if norms > 0 else math.nan


def _centred_ranks(values: Sequence[float]) -> np.ndarray[Any, Any]:
    _, group, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: np.ndarray[Any, Any] = (counts.cumsum() - (counts - 1) / 2)[group]
    return ranks - (len(values) + 1) / 2
