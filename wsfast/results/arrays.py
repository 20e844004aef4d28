"""Tensors and NumPy arrays side by side."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import torch

Array: TypeAlias = torch.Tensor | np.ndarray[Any, Any]


def to_numpy(values: Array) -> np.ndarray[Any, Any]:
    """Give a tensor (of any device, with or without gradient) or an array as an array."""
    return values.detach().cpu().numpy() if isinstance(values, torch.Tensor) else values


def like(example: Array, values: torch.Tensor) -> Array:
    """Give a tensor as an array, where `example` is one."""
    return values if isinstance(example, torch.Tensor) else to_numpy(values)
