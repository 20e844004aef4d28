"""Features of texts and draws: by PyTorch's attention, by tiles around a kernel, by one kernel."""

from __future__ import annotations

from contextlib import nullcontext
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from wsfast._interrupt import rows_at_once
from wsfast._precision import tf32_products
from wsfast.attention.core import NEVER
from wsfast.attention.definition import features_of_queries, what_is_seen
from wsfast.attention.rows import RowStatistics
from wsfast.attention.weight_fn import WeightFn
from wsfast.engines import compiled

TILE = 1 << 19
"""Scores of one tile, in elements: few enough to stay in the cache between the two products."""


class FeatureOptions(NamedTuple):
    """What features of texts depend on beside words and queries."""

    weight_fn: WeightFn
    mask: Tensor | None  # (B, n) bool
    causal: bool


def by_definition(X: Tensor, queries: Tensor, given: FeatureOptions) -> Tensor:
    """φ (B, R, n, d), all rows at once."""
    mask = None if given.mask is None else given.mask[:, None]
    return features_of_queries(
        X[:, None], queries / X.shape[-1] ** 0.5, given.weight_fn, mask, causal=given.causal
    )


def fused_columns(device: torch.device) -> int:
    """The most dimensions d that `fused_features` can have. CUDA kernels only."""
    columns: int = compiled.kernels(device).module.feature_columns(device.index or 0)
    return columns


def fused_features(
    words: Tensor, queries: Tensor, weight_fn: WeightFn, mask: Tensor | None, scale: float
) -> Tensor:
    """φ (B, R, n, d) of words (B, n, d) and queries XW (B, R, n, d), in one pass over the words.

    In float32; `mask` is (B, n), and φ of masked words is 0. CUDA kernels only.
    """
    B, R, n, d = queries.shape
    words, queries = aligned(words), aligned(queries)
    phi = torch.empty_like(queries)
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
    )
    return phi[..., :d]


def aligned(rows: Tensor) -> Tensor:
    """`rows` (..., d), contiguous, each at a multiple of 16 bytes; zeros fill them up."""
    missing = -rows.shape[-1] % (16 // rows.element_size())
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
        others=0 if statistics is None else statistics.rest.data_ptr(),
    )


def by_pytorch(X: Tensor, queries: Tensor, mask: Tensor | None, *, causal: bool) -> Tensor:
    """φ (B, R, n, d) by PyTorch's fused attention: some texts, or rows of one, a call."""
    B, R, n, d = queries.shape
    words = X[:, None].expand_as(queries)
    texts, rows = rows_at_once(R * n * n * d), rows_at_once(R * n * d)
    if texts >= B and rows >= n:
        return scaled_dot_product_attention(
            queries, words, words, attn_mask=_seen(queries, mask, 0, causal=causal), scale=d**-0.5
        )
    phi = torch.empty_like(queries)
    for b in range(0, B, texts):
        here = slice(b, b + texts)
        part = None if mask is None else mask[here]
        for j in range(0, n, rows):
            some = queries[here, :, j : j + rows]
            phi[here, :, j : j + rows] = scaled_dot_product_attention(
                some,
                words[here],
                words[here],
                attn_mask=_seen(some, part, j, causal=causal, n=n),
                scale=d**-0.5,
            )
    return phi


def _seen(
    queries: Tensor, mask: Tensor | None, first: int, *, causal: bool, n: int | None = None
) -> Tensor | None:
    """What queries (B, R, m, d), from row number `first`, see of n words, as PyTorch takes it."""
    if mask is None and not causal:
        return None
    B, R, m, _ = queries.shape
    n = n or m
    rows = torch.arange(first, first + m, device=queries.device)
    seen = what_is_seen(rows, n, None if mask is None else mask[:, None], causal=causal)
    assert seen is not None
    if causal and mask is not None:  # a row before the first word sees itself, and is dropped
        seen = seen | (rows[:, None] == torch.arange(n, device=queries.device))
    return seen.expand(B, R, m, n)


def by_tiles(
    X: Tensor, queries: Tensor, given: FeatureOptions, tile: int, *, split: bool = False
) -> Tensor:
    """φ (B, R, n, d) by two products and a kernel between, some `tile` scores at a time.

    It may take the place of `queries`. With `split`, tensor cores multiply float32 in two parts.
    """
    B, R, n, d = queries.shape
    phi = queries.flatten(1, 2)  # draws give a text more rows
    rows = max(1, min(R * n, tile // n))
    at_once = max(1, min(B, tile // (rows * n)))
    work = X.new_empty(at_once * rows * n)
    left, products = (_left, tf32_products) if split else (_whole, nullcontext)
    for b in range(0, B, at_once):
        words = X[b : b + at_once]
        keys, values = (_right(words, -1), _right(words, -2)) if split else (words, words)
        part = None if given.mask is None else given.mask[b : b + at_once]
        for j in range(0, R * n, rows):
            some = phi[b : b + at_once, j : j + rows]
            scores = work[: some.shape[0] * some.shape[1] * n].view(*some.shape[:2], n)
            with products():
                torch.baddbmm(scores, left(some), keys.mT, beta=0, alpha=d**-0.5, out=scores)
            if given.causal:
                numbers = torch.arange(j, j + some.shape[1], device=X.device) % n
                seen = what_is_seen(numbers, n, causal=True)
                assert seen is not None
                scores.masked_fill_(~seen, NEVER)
            attention_rows_(scores, given.weight_fn, part)
            with products():
                torch.bmm(left(scores), values, out=some)
    return phi.view(B, R, n, d)


# Both factors of a product in two parts, one after another along what is summed over; low times low
# is below the rounding of float32. Small terms come first: tensor cores truncate what they add up.


def _left(x: Tensor) -> Tensor:
    high, low = _split(x)
    return torch.cat([low, high, high], -1)


def _right(x: Tensor, along: int) -> Tensor:
    high, low = _split(x)
    return torch.cat([high, low, high], along)


def _whole(x: Tensor) -> Tensor:
    return x


def _split(x: Tensor) -> tuple[Tensor, Tensor]:
    # NaN beyond 2^57: a sum of products might leave the range in one part alone.
    x = torch.addcmul(x, x * 2.0**71, x.new_zeros(()))
    high = _to_tf32(x)
    return high, _to_tf32(x - high)


def _to_tf32(x: Tensor) -> Tensor:
    """The nearest numbers of ten bits of mantissa: TF32 holds them, however it rounds others."""
    return ((x.view(torch.int32) + 0x1000) & -0x2000).view(torch.float32)
