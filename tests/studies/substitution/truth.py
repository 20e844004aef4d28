"""What a substitution is by definition, and the order that its changes stand in."""

from __future__ import annotations

import math

import numpy as np
import torch
from definition import exact, exact_features, exact_norm
from torch import Tensor

# Accuracy promised of values in the table, of the larger of the change and 1e-3.
ACCURACY = {torch.float32: 1e-4, torch.float64: 1e-9}
FLOOR = 1e-3


def _features(X: Tensor, W: Tensor, weight_fn: str, normalize: bool) -> Tensor:
    """φ(X) (..., n, d) of texts."""
    scores = X @ W @ X.mT / math.sqrt(X.shape[-1])
    if weight_fn == "softmax":
        return scores.softmax(-1) @ X
    weights = scores.relu()
    if normalize:
        total = weights.sum(-1, keepdim=True)
        weights = weights / torch.where(total > 0, total, 1.0)
    return weights @ X


def changes(
    X: Tensor, W: Tensor, E: Tensor, weight_fn: str = "softmax", normalize: bool = True
) -> Tensor:
    """‖φ(X with row v of E as word i) - φ(X)‖ / ‖φ(X)‖, (n, V), in float64."""
    X, W, E = X.double(), W.double(), E.double()
    before = _features(X, W, weight_fn, normalize)
    rows = []
    for i in range(len(X)):
        moved = X.repeat(len(E), 1, 1)
        moved[:, i] = E
        difference = _features(moved, W, weight_fn, normalize) - before
        rows.append(difference.flatten(1).norm(dim=1))
    return torch.stack(rows) / before.norm()


def exact_changes(
    X: Tensor, W: Tensor, E: Tensor, weight_fn: str = "softmax", normalize: bool = True
) -> Tensor:
    """The same of the numbers as they are, with 60 decimal digits, correctly rounded."""
    words, weights, rows = exact(X), exact(W), exact(E)
    before = exact_features(words, weights, weight_fn, normalize)
    norm = exact_norm(before)
    out = torch.zeros(len(X), len(E), dtype=torch.float64)
    for i in range(len(X)):
        for v in range(len(E)):
            moved = words.copy()
            moved[i] = rows[v]
            after = exact_features(moved, weights, weight_fn, normalize)
            out[i, v] = float(exact_norm(after - before) / norm)
    return out


def order(
    table: Tensor | np.ndarray, k: int | None = None, *, largest: bool = True
) -> list[tuple[int, int]]:
    """The best k pairs (position, candidate) of a table of changes; NaN for pairs not searched.

    Values within 1e-9 of the first of them are tied, and stand by position, then candidate.
    """
    values = {
        (i, v): value
        for i, row in enumerate(table.tolist())
        for v, value in enumerate(row)
        if not math.isnan(value)
    }
    pairs = sorted(values, key=lambda pair: values[pair], reverse=largest)
    found: list[tuple[int, int]] = []
    while pairs:
        first = values[pairs[0]]
        tied = [pair for pair in pairs if abs(values[pair] - first) <= 1e-9 * first]
        found += sorted(tied)
        pairs = pairs[len(tied) :]
    return found[:k]


def error(got: Tensor, expected: Tensor) -> float:
    """Largest |got - expected| relative to the larger of |expected| and 1e-3."""
    difference = (got.double() - expected).abs()
    # Infinite on both sides is the same, NaN is not.
    assert not bool(difference.isnan().any()), "NaN"
    return float((difference / expected.clamp(min=FLOOR)).max())
