"""The definitions, written again without the library: in float64, and in decimals for the rest."""

from __future__ import annotations

import decimal
import math
from decimal import Decimal
from typing import Any

import numpy as np
import torch
from torch import Tensor

# (weight_fn, normalize)
WEIGHT_FNS = [("softmax", True), ("relu", True), ("relu", False)]

_DIGITS = decimal.Context(prec=60)


def features(
    X: Tensor, W: Tensor, weight_fn: str = "softmax", normalize: bool = True, mask: Any = None
) -> Tensor:
    """φ(X) (n, d) in float64, one row at a time."""
    X, W = X.double(), W.double()
    n, d = X.shape
    words = [j for j in range(n) if mask is None or bool(mask[j])]
    phi = torch.zeros(n, d, dtype=torch.float64)
    for j in words:
        scores = X[words] @ (X[j] @ W) / math.sqrt(d)
        if weight_fn == "softmax":
            weights = torch.softmax(scores, 0)
        else:
            weights = torch.relu(scores)
            if normalize and weights.sum() > 0:
                weights = weights / weights.sum()
        phi[j] = weights @ X[words]
    return phi


def deltas(X: Tensor, W: Tensor, position: int, delta: Tensor, *options: Any) -> Tensor:
    """φ(X^i(Δ)) - φ(X) (n, d) in float64."""
    moved = X.double().clone()
    moved[position] += delta.double()
    return features(moved, W, *options) - features(X, W, *options)


def delta_norms(X: Tensor, W: Tensor, delta: Tensor, *options: Any) -> Tensor:
    """‖φ(X^i(Δ)) - φ(X)‖ (n, m) for Δ (n, m, d), in float64."""
    before = features(X, W, *options)
    out = torch.zeros(delta.shape[:2], dtype=torch.float64)
    for i in range(delta.shape[0]):
        for k in range(delta.shape[1]):
            moved = X.double().clone()
            moved[i] += delta[i, k].double()
            out[i, k] = (features(moved, W, *options) - before).norm()
    return out


# -- the same with 60 decimal digits --------------------------------------------------------------


def exact(values: Tensor) -> np.ndarray:
    """The numbers that `values` holds, exactly."""
    decimals = [Decimal(value) for value in values.detach().double().flatten().tolist()]
    return np.array(decimals, dtype=object).reshape(values.shape)


def exact_scores(X: np.ndarray, W: np.ndarray) -> np.ndarray:
    with decimal.localcontext(_DIGITS):
        return X @ W @ X.T / Decimal(X.shape[1]).sqrt()


def exact_features(
    X: np.ndarray, W: np.ndarray, weight_fn: str = "softmax", normalize: bool = True
) -> np.ndarray:
    """φ(X) of decimals."""
    with decimal.localcontext(_DIGITS):
        rows = []
        for scores in exact_scores(X, W):
            if weight_fn == "softmax":
                weights = [(s - max(scores)).exp() for s in scores]
            else:
                weights = [max(s, Decimal(0)) for s in scores]
            total = sum(weights) if normalize and sum(weights) > 0 else Decimal(1)
            rows.append(np.array(weights, dtype=object) @ X / total)
        return np.array(rows, dtype=object)


def exact_deltas(
    X: np.ndarray, W: np.ndarray, position: int, delta: np.ndarray, *options: Any
) -> np.ndarray:
    """φ(X^i(Δ)) - φ(X) of decimals."""
    with decimal.localcontext(_DIGITS):
        moved = X.copy()
        moved[position] = moved[position] + delta
        return exact_features(moved, W, *options) - exact_features(X, W, *options)


def exact_norm(values: np.ndarray) -> Decimal:
    with decimal.localcontext(_DIGITS):
        return sum((value * value for value in values.flat), Decimal(0)).sqrt()


# -- inputs ---------------------------------------------------------------------------------------


def random_text(
    n: int, d: int, seed: int = 0, dtype: torch.dtype = torch.float64, scale: float = 1.0
) -> tuple[Tensor, Tensor]:
    """X (n, d) with rows of norm scale·√d, as in the paper, and W (d, d) with entries N(0, 1/d)."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(n, d, generator=generator, dtype=torch.float64)
    X = X / X.norm(dim=1, keepdim=True) * (scale * math.sqrt(d))
    W = torch.randn(d, d, generator=generator, dtype=torch.float64) / math.sqrt(d)
    return X.to(dtype), W.to(dtype)


def relative_error(got: Tensor, expected: Tensor, floor: float | Tensor = 0.0) -> float:
    """Largest |got - expected| relative to the larger of |expected| and `floor`."""
    expected = expected.double()
    size = torch.clamp(expected.abs(), min=float(floor))
    error = (got.double() - expected).abs()
    return float(torch.where(error == 0, 0.0, error / size).max())
