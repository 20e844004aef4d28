"""Spectral norms."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from wsfast._interrupt import rows_at_once

# Rows whose products are added up before they are rounded to float64.
_GRAM_ROWS = 4096


def largest_singular_value(V: Tensor) -> float:
    """‖V‖ of V (k, d), rounded up; from the smaller of VᵀV and VVᵀ."""
    tall = V if V.shape[0] >= V.shape[1] else V.mT
    gram = torch.zeros(tall.shape[1], tall.shape[1], dtype=torch.float64, device=V.device)
    for rows in tall.split(min(_GRAM_ROWS, rows_at_once(tall.shape[1] ** 2))):
        gram += rows.mT @ rows
    largest = float(torch.linalg.eigvalsh(gram)[-1])
    slack = 64 * torch.finfo(V.dtype).eps
    return math.sqrt(max(largest, 0.0) * (1 + slack))
