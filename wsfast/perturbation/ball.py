"""The ball ‖Δ‖ ≤ radius that is searched."""

from __future__ import annotations

import torch
from torch import Tensor


def on_sphere(direction: Tensor, radius: float) -> Tensor:
    """`direction` (..., d) scaled to norm `radius`; a zero direction becomes the first axis."""
    norm = direction.norm(dim=-1, keepdim=True)
    axis = torch.zeros_like(direction)
    axis[..., 0] = 1
    return radius * torch.where(norm > 0, direction / torch.where(norm > 0, norm, 1.0), axis)


def within(delta: Tensor, radius: float) -> Tensor:
    """Δ (p, d) with ‖Δ‖ ≤ radius in exact arithmetic, not only up to rounding."""
    norm = delta.double().norm(dim=-1, keepdim=True)
    # Rounding of this norm, and of what is shrunk: a point may be outside though its norm says no.
    kind = torch.finfo(delta.dtype)
    # Below `tiny`, numbers are a fixed step apart.
    safe = max(0.0, radius * (1 - 8 * kind.eps) - delta.shape[-1] ** 0.5 * kind.tiny * kind.eps)
    return torch.where(norm > safe, (delta.double() * (safe / norm)).to(delta.dtype), delta)
