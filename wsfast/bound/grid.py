"""Where the rows of the bound are evaluated: nodes of the log-odds, or of ReLU's scores."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from wsfast.bound.pairs import ALONE, Pairs, attention

# Pairs that move by less have nodes of their own, as many; bound.inl has this too.
WIDE = 3.0


class Nodes(NamedTuple):
    """A grid of the log-odds or, for ReLU, of g: ascending, symmetric, and the attention there."""

    at: Tensor  # (G,)
    alpha: Tensor  # (G,)

    def to(self, dtype: torch.dtype) -> Nodes:
        """The same in `dtype`."""
        return Nodes(self.at.to(dtype), self.alpha.to(dtype))

    def of(self, pairs: Pairs) -> tuple[Tensor, Tensor]:
        """The nodes of each pair and the attention there, (P, n, G), from its lowest on.

        Between any two of them, or beyond 0 of ReLU's, the attention is smooth.
        """
        low, high = pairs.low[..., None], pairs.high[..., None]
        g = self.at.clamp(low, high)
        alpha = self.alpha.clamp(pairs.alpha_low[..., None], pairs.alpha_high[..., None])
        narrow = high - low < WIDE
        if not bool(narrow.any()):
            return g, alpha
        middle = 0.5 * (low + high)
        if pairs.relu:
            middle = torch.where((low < 0) & (high > 0), 0.0, middle)
        half = len(self.at) // 2
        share = torch.arange(-half, half + 1, dtype=g.dtype, device=g.device) / half
        between = middle + share * torch.where(share < 0, middle - low, high - middle)
        between = between.clamp(low, high)
        between[..., 0], between[..., -1] = pairs.low, pairs.high
        g = torch.where(narrow, between, g)
        return g, torch.where(narrow, attention(between, relu=pairs.relu), alpha)


def nodes(pairs: Pairs, step: float, growth: float) -> Nodes:
    """Nodes from the lowest to the highest that a pair can reach, `step` apart where α bends."""
    moved, far = pairs.kind < ALONE, 1.0
    if bool(moved.any()):
        far = max(far, float(torch.maximum(pairs.low.abs(), pairs.high.abs())[moved].max()))
    # α of ReLU bends next to 0 alone, where g is of the order of 1.
    step, dense = (0.2 * step, 2.0) if pairs.relu else (step, 7.0)
    at = [k * step for k in range(int(dense / step) + 1)]
    while at[-1] < far * (1 + 1e-9):
        at.append(at[-1] + step)
        step *= growth
    half = torch.tensor(at, dtype=torch.float64, device=pairs.low.device)
    both = torch.cat([-half[1:].flip(0), half])
    return Nodes(both, attention(both, relu=pairs.relu))
