"""Attention weights by the compiled kernel: the step between the features' two products."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from wsfast._native import require_cpu
from wsfast.feature_maps.weight_fn import WeightFn


class RowStatistics(NamedTuple):
    """What is kept of each row of attention, so that any word can leave it without cancellation.

    `top` is the row's largest word, `top_score` its score, `others` the sum of the other weights
    (softmax: the logarithm of the sum of the exponentials of the other scores, -inf when there is
    no other word).
    """

    top: Tensor
    top_score: Tensor
    others: Tensor


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
    cpu = require_cpu()
    kernels = {torch.float32: cpu.attention_rows32, torch.float64: cpu.attention_rows64}
    kernel = kernels[scores.dtype]
    n = scores.shape[-1]
    kernel(
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
        threads=torch.get_num_threads(),
    )
