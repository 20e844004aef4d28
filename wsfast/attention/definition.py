"""Attention features by their definition, in plain PyTorch: what all else is tested against."""

from __future__ import annotations

import torch
from torch import Tensor

from wsfast.attention.weight_fn import WeightFn


def attend(scores: Tensor, weight_fn: WeightFn, seen: Tensor | None = None) -> Tensor:
    """Weights of each row of `scores` (..., m, n).

    Words where `seen`, bool and broadcast against `scores`, is False get 0; so does all of a row
    that sees nothing.
    """
    if weight_fn.exponential:
        if seen is None:
            return scores.softmax(-1)
        empty = ~seen.any(-1, keepdim=True)
        scores = scores.masked_fill(~seen, -torch.inf).masked_fill(empty, 0.0)
        return scores.softmax(-1).masked_fill(empty, 0.0)
    weights = weight_fn.value(scores)
    if seen is not None:
        weights = weights * seen
    if not weight_fn.normalize:
        return weights
    total = weights.sum(-1, keepdim=True)
    return weights / torch.where(total > 0, total, 1.0)


def what_is_seen(
    rows: Tensor, n: int, keys: Tensor | None = None, *, causal: bool = False
) -> Tensor | None:
    """Which words the rows numbered `rows` (m,) see, (..., m, n) to broadcast; None: all.

    Parameters
    ----------
    keys : Tensor of bool, shape (..., n), optional
        Words that may be attended to.
    causal : bool
        Whether row j sees the words up to j alone.
    """
    seen = None if keys is None else keys.unsqueeze(-2)
    if causal:
        before = rows[:, None] >= torch.arange(n, device=rows.device)
        seen = before if seen is None else seen & before
    return seen


def attention_features(
    X: Tensor,
    W: Tensor,
    weight_fn: WeightFn,
    mask: Tensor | None = None,
    *,
    causal: bool = False,
    hidden: Tensor | None = None,
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
    causal : bool
        Whether row j sees the words up to j alone.
    hidden : Tensor of bool, shape (..., n), optional
        Words that nobody attends to; their own rows stay. A row that sees nothing is 0.
    tile : int, optional
        Rows of attention formed at a time, to bound memory; by default all.

    Returns
    -------
    Tensor, shape (..., n, d)
    """
    queries = X @ W / X.shape[-1] ** 0.5
    return features_of_queries(X, queries, weight_fn, mask, causal=causal, hidden=hidden, tile=tile)


def features_of_queries(
    X: Tensor,
    queries: Tensor,
    weight_fn: WeightFn,
    mask: Tensor | None = None,
    *,
    causal: bool = False,
    hidden: Tensor | None = None,
    tile: int | None = None,
) -> Tensor:
    """The same from `queries` X W/√d."""
    n = X.shape[-2]
    each = torch.arange(n, device=X.device)
    keys = mask
    if hidden is not None:
        keys = ~hidden if mask is None else mask & ~hidden
    rows = [
        attend(part @ X.mT, weight_fn, what_is_seen(some, n, keys, causal=causal)) @ X
        for some, part in zip(each.split(tile or n), queries.split(tile or n, -2), strict=True)
    ]
    phi = torch.cat(rows, -2)
    return phi if mask is None else phi * mask.unsqueeze(-1)
