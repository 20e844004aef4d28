"""The paper's scale of word vectors."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def to_norm_sqrt_d(rows: Tensor) -> Tensor:
    """Rows (m, d) scaled to norm √d in float64, then rounded once to float32; zero ones stay so."""
    exact = rows.double()
    norms = exact.norm(dim=1, keepdim=True)
    scale = torch.where(norms > 0, math.sqrt(exact.shape[1]) / norms, 0.0)
    return (exact * scale).float()
