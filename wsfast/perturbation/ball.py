"""The ball ‖Δ‖ ≤ radius that is searched."""

from __future__ import annotations

import torch
from torch import Tensor

BALLS = ("joint", "each")
"""One ball for all words of a site together, or one for each."""


def on_sphere(direction: Tensor, radius: float, balls: int = 1) -> Tensor:
    """`direction` (..., d) scaled to norm `radius`; a zero direction becomes the first axis.

    Of several balls, one after the other, each.
    """
    direction = direction.unflatten(-1, (balls, -1))
    norm = direction.norm(dim=-1, keepdim=True)
    axis = torch.zeros_like(direction)
    axis[..., 0] = 1
    onto = torch.where(norm > 0, direction / torch.where(norm > 0, norm, 1.0), axis)
    return (radius * onto).flatten(-2)


def within(delta: Tensor, radius: float, balls: int = 1) -> Tensor:
    """Δ (P, m, d) with ‖Δ‖ ≤ radius in exact arithmetic, not only up to rounding.

    Or, of m `balls`, each of its words.
    """
    if balls == 1:
        return _within(delta.flatten(1), radius).view(delta.shape)
    return _within(delta, radius)


def _within(delta: Tensor, radius: float) -> Tensor:
    """Rows (…, D) of a norm of at most `radius`."""
    norm = delta.double().norm(dim=-1, keepdim=True)
    # Rounding of this norm, and of what is shrunk: a point may be outside though its norm says no.
    kind = torch.finfo(delta.dtype)
    # Below `tiny`, numbers are a fixed step apart.
    safe = max(0.0, radius * (1 - 8 * kind.eps) - delta.shape[-1] ** 0.5 * kind.tiny * kind.eps)
    return torch.where(norm > safe, (delta.double() * (safe / norm)).to(delta.dtype), delta)
