"""The inside of the package that tests look at, made in one place."""

from __future__ import annotations

import torch
from torch import Tensor

from wsfast.attention.state import PositionState
from wsfast.attention.weight_fn import WeightFn
from wsfast.engines import choose
from wsfast.engines.engine import Engine
from wsfast.maps.attention import Weights
from wsfast.maps.attention_objective import AttentionObjective
from wsfast.maps.attention_text import AttentionMap, AttentionText

SEARCHED = [
    WeightFn("softmax"),
    WeightFn("relu"),
    WeightFn("relu", normalize=False),
    WeightFn("squareplus", curve=0.48),
    WeightFn("squareplus", curve=0.0192),
    WeightFn("squareplus", normalize=False, curve=0.48),
]
"""Every weight function that the search evaluates."""


def engine_of(backend: str) -> Engine:
    """What serves tensors of the CPU."""
    return choose.engine(backend, torch.device("cpu"))


def attention_text(
    X: Tensor, W: Tensor, fn: WeightFn, backend: str = "torch", budget: int = 2**20
) -> AttentionText:
    """One text under one W, about to change."""
    engine = choose.engine(backend, X.device)
    return AttentionText(AttentionMap(Weights(W), fn, budget=budget), X, engine, budget)


def state(
    X: Tensor,
    W: Tensor,
    fn: WeightFn,
    backend: str = "torch",
    dtype: torch.dtype = torch.float64,
) -> PositionState:
    """What every position of a text knows of every row, rounded to `dtype`."""
    text = attention_text(X, W, fn, backend)
    return text.in_dtype(text.state(torch.arange(len(X), device=X.device)), dtype)


def objective(
    X: Tensor,
    W: Tensor,
    fn: WeightFn,
    backend: str = "torch",
    dtype: torch.dtype = torch.float64,
) -> AttentionObjective:
    """What the search climbs, at every position."""
    return AttentionObjective(choose.engine(backend, X.device), state(X, W, fn, backend, dtype))
