"""Functions with a kink: the slope there is said here, and is not what a PyTorch release picks.

Autograd sees `masked_fill` and `where` alone, whose slopes their condition says. clamp, relu, abs,
maximum, amax and norm have a slope of PyTorch's own at a tie, which has changed between releases.
"""

from __future__ import annotations

import torch
from torch import Tensor


def relu(x: Tensor) -> Tensor:
    """max(x, 0), with the slope 0 at 0, as in the kernels; NaN stays."""
    return x.masked_fill(x <= 0, 0.0)


def at_most(x: Tensor, bound: float) -> Tensor:
    """min(x, bound), with the slope 1 at `bound`; NaN stays."""
    return x.masked_fill(x > bound, bound)


def reciprocal(total: Tensor) -> Tensor:
    """1/total, and 0 with the slope 0 for the sum of a row without weight."""
    filled = total > 0
    return torch.where(filled, 1 / torch.where(filled, total, 1.0), 0.0)


def root(squares: Tensor) -> Tensor:
    """Norms from their squares, with the slope 0 at 0; rounding below 0 is 0."""
    none = squares <= 0
    return squares.masked_fill(none, 1.0).sqrt().masked_fill(none, 0.0)
