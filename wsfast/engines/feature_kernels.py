"""Features by compiled kernels: the step between their two products, and on a GPU all of it."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from wsfast.attention.weight_fn import WeightFn
from wsfast.engines import compiled


class RowStatistics(NamedTuple):
    """What is kept of each row of attention, so that any word can leave it without cancellation.

    `top` is the row's largest word, `top_score` its score, `others` the sum of the other weights
    (softmax: the logarithm of the sum of the exponentials of the other scores, -inf when there is
    no other word).
    """

    top: Tensor
    top_score: Tensor
    others: Tensor


class TextFeatures(NamedTuple):
    """What one pass over the words gives for every row of attention."""

    phi: Tensor  # (n, d)
    others_mean: Tensor  # (n, d) mean of each row without its largest word
    statistics: RowStatistics  # (n,) each


def fused_features(
    words: Tensor, queries: Tensor, weight_fn: WeightFn, mask: Tensor | None, scale: float
) -> Tensor:
    """φ (B, R, n, d) of words (B, n, d) and queries XW (B, R, n, d), in one pass over the words.

    `words` may be bfloat16 where `queries` are float32; `mask` is (B, n), and φ of masked words is
    0. CUDA kernels only.
    """
    return _fused(words, queries, weight_fn, mask, scale, with_statistics=False)[0]


def fused_text(words: Tensor, queries: Tensor, weight_fn: WeightFn) -> TextFeatures:
    """φ and the statistics of one text: words and queries XW/√d, (n, d). CUDA kernels only."""
    phi, means, found = _fused(
        words[None], queries[None, None], weight_fn, None, 1.0, with_statistics=True
    )
    statistics = RowStatistics(*(column[0, 0] for column in found))
    return TextFeatures(phi[0, 0], means[0, 0], statistics)


def _fused(
    words: Tensor,
    queries: Tensor,
    weight_fn: WeightFn,
    mask: Tensor | None,
    scale: float,
    *,
    with_statistics: bool,
) -> tuple[Tensor, Tensor, RowStatistics]:
    B, R, n, d = queries.shape
    words, queries = _aligned(words), _aligned(queries)
    phi = torch.empty_like(queries)
    rows = (B, R, n) if with_statistics else (0,)
    means = torch.empty_like(queries) if with_statistics else queries.new_empty(0)
    found = RowStatistics(
        queries.new_empty(rows, dtype=torch.int64), queries.new_empty(rows), queries.new_empty(rows)
    )

    def address(value: Tensor) -> int:
        return value.data_ptr() if with_statistics else 0

    compiled.kernels(queries.device).launch(
        "raf_features",
        dtype=words.dtype,
        weight_fn=weight_fn.code,
        curve=weight_fn.curve,
        texts=B,
        draws=R,
        n=n,
        d=queries.shape[-1],
        scale=scale,
        words=words.data_ptr(),
        queries=queries.data_ptr(),
        mask=0 if mask is None else mask.data_ptr(),
        phi=phi.data_ptr(),
        top=address(found.top),
        top_score=address(found.top_score),
        others=address(found.others),
        others_mean=address(means),
    )
    return phi[..., :d], means[..., :d], found


def _aligned(rows: Tensor) -> Tensor:
    """`rows` (..., d), contiguous, each at a multiple of 16 bytes; zeros fill them up."""
    missing = -rows.shape[-1] % 8
    if missing:
        return torch.nn.functional.pad(rows, (0, missing))
    rows = rows.contiguous()
    return rows if rows.data_ptr() % 16 == 0 else rows.clone()


def attention_rows_(scores: Tensor, weight_fn: WeightFn, mask: Tensor | None = None) -> None:
    """Turn contiguous scores (B, m, n) into attention weights in place; `mask` is (B, n)."""
    _attention_rows(scores, weight_fn, mask, None)


def attention_statistics_(scores: Tensor, weight_fn: WeightFn) -> RowStatistics:
    """Turn scores (m, n) into the weights of each row *without its largest word*, in place."""
    m = scores.shape[0]
    statistics = RowStatistics(
        scores.new_empty(m, dtype=torch.int64), scores.new_empty(m), scores.new_empty(m)
    )
    _attention_rows(scores, weight_fn, None, statistics)
    return statistics


def _attention_rows(
    scores: Tensor, weight_fn: WeightFn, mask: Tensor | None, statistics: RowStatistics | None
) -> None:
    n = scores.shape[-1]
    compiled.kernels(scores.device).launch(
        "attention_rows",
        dtype=scores.dtype,
        weight_fn=weight_fn.code,
        curve=weight_fn.curve,
        rows=scores.numel() // n,
        n=n,
        scores=scores.data_ptr(),
        mask=0 if mask is None else mask.data_ptr(),
        rows_per_mask=scores.shape[-2],
        top=0 if statistics is None else statistics.top.data_ptr(),
        top_score=0 if statistics is None else statistics.top_score.data_ptr(),
        others=0 if statistics is None else statistics.others.data_ptr(),
    )
