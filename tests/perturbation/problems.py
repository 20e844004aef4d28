"""The inside of the package that tests look at, made in one place."""

from __future__ import annotations

import torch
from torch import Tensor

from wsfast.attention.state import PositionState
from wsfast.attention.weight_fn import WeightFn
from wsfast.maps.attention_text import AttentionWeights, RafProblem

SEARCHED = [
    WeightFn("softmax"),
    WeightFn("relu"),
    WeightFn("relu", normalize=False),
    WeightFn("squareplus", curve=0.48),
    WeightFn("squareplus", curve=0.0192),
    WeightFn("squareplus", normalize=False, curve=0.48),
]
"""Every weight function that the search evaluates."""


def state(
    X: Tensor,
    W: Tensor,
    fn: WeightFn,
    backend: str = "torch",
    dtype: torch.dtype = torch.float64,
) -> PositionState:
    """What every position of a text knows of every row, rounded to `dtype`."""
    problem = RafProblem(X, AttentionWeights(W), fn, backend, 2**20)
    return problem.in_dtype(problem.state(torch.arange(len(X))), dtype)
