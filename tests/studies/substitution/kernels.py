"""The kernels between two products, against the same in plain PyTorch."""

from __future__ import annotations

import math
from dataclasses import fields, replace

import torch
from attention.problems import attention_text

from wsfast.attention.substitution import SubstitutionState
from wsfast.attention.substitution_tiles import TorchTiles
from wsfast.attention.weight_fn import WeightFn
from wsfast.engines.substitution_kernels import NativeTiles

EPS = {torch.float32: 1.2e-7, torch.float64: 2.3e-16}


def state_of(X, W, weight_fn, normalize, dtype, index=None):
    text = attention_text(X, W, WeightFn(weight_fn, normalize), "native", 2**26)
    index = torch.arange(len(X)) if index is None else torch.as_tensor(index)
    return text.substitution(index, dtype)


def double(state: SubstitutionState) -> SubstitutionState:
    """The same numbers, in float64."""
    tensors = {field.name: getattr(state, field.name) for field in fields(state)}
    return replace(
        state,
        **{
            name: value.double()
            for name, value in tensors.items()
            if isinstance(value, torch.Tensor) and value.is_floating_point()
        },
    )


def own_scores(E, W):
    return ((E @ W) * E).sum(-1) / math.sqrt(E.shape[1])


def agree(state, E, own, workspace, columns=None):
    """The kernels in the dtype of `state` against PyTorch in float64, from the same numbers."""
    dtype = state.stack.dtype
    E, own = E.to(dtype), own.to(dtype)
    value, size, norm_error2 = NativeTiles(state, columns or len(E), workspace).squares(E, own)
    expected = TorchTiles(double(state), 2**24).squares(E.double(), own.double())
    assert value.shape == (len(state.index), len(E))
    # Whatever is promised of the rounding: of inner products, and of the scores.
    unit = 64 * EPS[dtype] * (expected.size + state.constant.double()[:, None])
    root = expected.value.clamp(min=0).sqrt()
    unit = unit + expected.norm_error2.sqrt() * (root + expected.norm_error2.sqrt())
    assert bool(((value.double() - expected.value).abs() <= unit).all())
    # The bounds themselves are known to a few digits, which is as many as they need.
    for got, wanted in ((size, expected.size), (norm_error2, expected.norm_error2)):
        assert bool(((got.double() - wanted).abs() <= 2e-3 * wanted).all())
