"""Random inputs, the same in every run."""

from __future__ import annotations

import torch
from torch import Tensor

import wsfast
from wsfast.engines.engine import Engine
from wsfast.maps.attention import WeightFn, Weights
from wsfast.maps.attention_text import AttentionMap, AttentionText


def text_and_weights(n: int, d: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """X (n, d) with rows of norm √d, as in the paper, and a random W (d, d)."""
    generator = torch.Generator().manual_seed(n * 100_003 + d)
    X = torch.randn(n, d, generator=generator, dtype=torch.float64)
    X *= d**0.5 / X.norm(dim=1, keepdim=True)
    return X.to(dtype), wsfast.random_weights(d, dtype=dtype)


def prepared(X: Tensor, W: Tensor, engine: Engine, budget: int = 2**40) -> AttentionText:
    """A text under softmax attention with the weights W."""
    return AttentionText(AttentionMap(Weights(W), WeightFn("softmax")), X, engine, budget)


def directions(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Random Δ (..., d) of norm √d."""
    generator = torch.Generator().manual_seed(7)
    delta = torch.randn(*shape, generator=generator, dtype=torch.float64)
    return (delta * shape[-1] ** 0.5 / delta.norm(dim=-1, keepdim=True)).to(dtype)


def vocabulary(V: int, d: int) -> Tensor:
    """Random E (V, d) in float32, rows of norm √d."""
    generator = torch.Generator().manual_seed(V * 100_003 + d)
    E = torch.randn(V, d, generator=generator)
    return E.mul_(d**0.5 / E.norm(dim=1, keepdim=True))
