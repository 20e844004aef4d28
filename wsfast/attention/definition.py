"""Attention features by their definition, in plain PyTorch: what all else is tested against."""

from __future__ import annotations

import torch
from torch import Tensor

from wsfast.attention.weight_fn import WeightFn


def attention_weights(scores: Tensor, weight_fn: WeightFn, mask: Tensor | None = None) -> Tensor:
    """Weights of each row of `scores` (..., m, n); words where `mask` (..., n) is False get 0."""
    if weight_fn.exponential:
        if mask is not None:
            scores = scores.masked_fill(~mask.unsqueeze(-2), -torch.inf)
        return scores.softmax(-1)
    weights = weight_fn.value(scores)
    if mask is not None:
        weights = weights * mask.unsqueeze(-2)
    if not weight_fn.normalize:
        return weights
    total = weights.sum(-1, keepdim=True)
    return weights / torch.where(total > 0, total, 1.0)


def attention_features(
    X: Tensor,
    W: Tensor,
    weight_fn: WeightFn,
    mask: Tensor | None = None,
    *,
    tile: int | None = None,
) -> Tensor:
    """g(X W Xᵀ/√d) X with normalised rows.

    Parameters
    ----------
    X : Tensor, shape (..., n, d)
    W : Tensor, shape (..., d, d)
        Broadcast against the leading axes of `X`.
    weight_fn : WeightFn
    mask : Tensor of bool, shape (..., n), optional
        True where there is a word, at least once a text; the others neither attend nor are
        attended to.
    tile : int, optional
        Rows of attention formed at a time, to bound memory; by default all.

    Returns
    -------
    Tensor, shape (..., n, d)
    """
    queries = X @ W / X.shape[-1] ** 0.5
    rows = [
        attention_weights(part @ X.mT, weight_fn, mask) @ X
        for part in queries.split(tile or X.shape[-2], -2)
    ]
    phi = torch.cat(rows, -2)
    return phi if mask is None else phi * mask.unsqueeze(-1)
