"""What the closed form sees of attention: one head on one text."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from wsfast.attention.weight_fn import WeightFn

NEVER = -1e30
"""A score that gives no weight under any Δ, and that float32 holds."""


@dataclass(frozen=True)
class Core:
    """Attention of the words of one text to one another, in float64.

    Row j gives word l the score S_jl = q_j·x_l = x_j·k_l, and takes the mean of the words that its
    weights say. The scale 1/√d is in `queries` and in `keys`.
    """

    weight_fn: WeightFn
    X: Tensor  # (n, d) the words x_l
    queries: Tensor  # (n, d) q_j = Wᵀ x_j / √d
    keys: Tensor  # (n, d) k_l = W x_l / √d
    causal: bool = False  # row j sees the words up to j alone

    def seen(self, rows: Tensor, words: Tensor) -> Tensor | None:
        """Whether each of `rows` (m,) sees each of `words` (p,), (m, p); None: all see all."""
        return rows[:, None] >= words if self.causal else None


def core_of(X: Tensor, W: Tensor, weight_fn: WeightFn, *, causal: bool = False) -> Core:
    """The core of random attention: X (n, d) and W (d, d), float64."""
    scale = X.shape[1] ** -0.5
    return Core(weight_fn, X, X @ W * scale, X @ W.mT * scale, causal)


def numbers(X: Tensor) -> Tensor:
    """0, …, n - 1 on the device of X (n, d)."""
    return torch.arange(len(X), device=X.device)
