"""W and the weight function of random attention: as a user gives them, and what is made of W."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from wsfast._inputs import Inputs
from wsfast._random import NORM_STREAM, normals
from wsfast._values import (
    differentiable,
    finite,
    flag,
    match,
    one_of,
    real_tensor,
    shape_of,
)
from wsfast.attention.weight_fn import WeightFn as WeightFn


def weight_function(weight_fn: Any, normalize: Any) -> WeightFn:
    """The weight function that a user names; an error for one that there is not."""
    one_of("weight_fn", weight_fn, ("softmax", "relu"))
    if not flag("normalize", normalize) and weight_fn == "softmax":
        raise ValueError("normalize must be True for weight_fn='softmax', got False")
    return WeightFn(weight_fn, normalize)


def weights_of(W: Any, inputs: Inputs) -> Tensor:
    """W as (R, d, d) for (d, d) or (R, d, d); whether it has the axis R is W's own ndim."""
    tensor = differentiable(weight_tensor(W, inputs.texts[0]))
    finite("W", tensor)
    return tensor if tensor.ndim == 3 else tensor[None]


def weight_tensor(W: Any, X: Tensor) -> Tensor:
    """W (d, d) or (R, d, d) for X, checked without its values."""
    tensor = real_tensor("W", W)
    d = X.shape[-1]
    if tensor.ndim not in (2, 3) or tensor.shape[-2:] != (d, d) or 0 in tensor.shape:
        raise ValueError(
            f"W must have shape ({d}, {d}) or (R, {d}, {d}) for X with d = {d}, "
            f"got {shape_of(tensor)}"
        )
    match("W", tensor, X)
    return tensor


class Weights:
    """W (d, d) in the forms that every text needs, made once."""

    def __init__(self, W: Tensor) -> None:
        self.W = W.double()
        self._bilinear: dict[torch.dtype, Tensor] = {}
        self._scaled: dict[torch.dtype, Tensor] = {}

    def bilinear(self, dtype: torch.dtype) -> Tensor:
        """(W + Wᵀ)/√d, rounded to `dtype`."""
        if dtype not in self._bilinear:
            if dtype == torch.float64:
                self._bilinear[dtype] = _symmetric(self.W, len(self.W) ** -0.5)
            else:
                self._bilinear[dtype] = self.bilinear(torch.float64).to(dtype)
        return self._bilinear[dtype]

    def scaled(self, dtype: torch.dtype) -> Tensor:
        """W/√d, rounded to `dtype`."""
        if dtype not in self._scaled:
            self._scaled[dtype] = (self.W * len(self.W) ** -0.5).to(dtype)
        return self._scaled[dtype]

    @cached_property
    def frobenius_norm(self) -> float:
        """‖W‖_F, no less than the largest singular value."""
        return float(self.W.detach().norm())

    @cached_property
    def norm_bound(self) -> float:
        """An upper bound of the largest singular value of W, at most twice as large.

        By the power method from eight random vectors: that all of them miss the leading direction
        by so much that the bound fails has a probability below 1e-12.
        """
        size = self.frobenius_norm
        if size == 0:
            return 0.0
        unit = (self.W.detach() / size).float()
        vectors = normals(0, NORM_STREAM, 8 * len(unit)).reshape(8, -1)
        now = torch.from_numpy(vectors).to(unit)
        for _ in range(4):
            now = (now @ unit) @ unit.mT
            now = now / now.norm(dim=1, keepdim=True).clamp(min=1e-30)
        return 2 * size * float((now @ unit).norm(dim=1).max())


def _symmetric(W: Tensor, scale: float) -> Tensor:
    """(W + Wᵀ) scale."""
    if W.requires_grad:
        return (W + W.mT) * scale
    # In place: fresh memory of this size costs more than the sum.
    return W.mT.clone(memory_format=torch.contiguous_format).add_(W).mul_(scale)
