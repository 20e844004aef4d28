"""Checks of texts and of what comes with them: masks, weights, changes of words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from wsfast._checks.values import (
    bool_tensor,
    differentiable,
    finite,
    integer,
    match,
    real_tensor,
    shape_of,
)
from wsfast._transforms import mapped, values_of


@dataclass(frozen=True)
class Inputs:
    """Checked texts: one entry per text, in the dtype that is computed with."""

    texts: list[Tensor]  # (n_b, d) each
    masks: list[Tensor]  # (n_b,) bool each, with at least one True
    batched: bool  # whether results have an axis of texts
    length: int  # of the longest text
    d: int
    dtype: torch.dtype
    device: torch.device
    numpy: bool  # whether results go back as NumPy arrays
    requires_grad: bool = False

    def give(self, value: Tensor) -> Any:
        """`value` in the kind of array that the user works with."""
        return value.detach().numpy() if self.numpy else value


def texts(X: Any, mask: Any = None) -> Inputs:
    """One text (n, d), a batch (B, n, d) or a list of texts (n_b, d), with its mask."""
    if isinstance(X, (list, tuple)):
        if len(X) == 0:
            raise ValueError("X must hold at least one text, got an empty list")
        entries = [differentiable(real_tensor(f"X[{b}]", text)) for b, text in enumerate(X)]
        for b, text in enumerate(entries):
            if text.ndim != 2:
                raise ValueError(f"X[{b}] must have shape (n, d), got {shape_of(text)}")
            for what, here, there in (
                ("dimension", text.shape[1], entries[0].shape[1]),
                ("dtype", text.dtype, entries[0].dtype),
                ("device", text.device, entries[0].device),
                (
                    "kind of array",
                    *("NumPy" if isinstance(X[k], np.ndarray) else "torch" for k in (b, 0)),
                ),
            ):
                if here != there:
                    raise ValueError(
                        f"all texts in X must have one {what}: X[0] has {there}, X[{b}] has {here}"
                    )
        names, numpy, batched = [f"X[{b}]" for b in range(len(X))], X[0], True
    else:
        tensor = differentiable(real_tensor("X", X))
        if tensor.ndim not in (2, 3):
            raise ValueError(f"X must have shape (n, d) or (B, n, d), got {shape_of(tensor)}")
        batched, numpy = tensor.ndim == 3, X
        entries = list(tensor) if batched else [tensor]
        names = [f"X[{b}]" for b in range(len(entries))] if batched else ["X"]
        if not entries:
            raise ValueError(f"X must hold at least one text, got shape {shape_of(tensor)}")
    for name, text in zip(names, entries, strict=True):
        if 0 in text.shape:
            raise ValueError(f"{name} must have n >= 1 and d >= 1, got shape {shape_of(text)}")
        finite(name, text)
    return Inputs(
        texts=entries,
        masks=_masks(mask, entries, batched),
        batched=batched,
        length=max(text.shape[0] for text in entries),
        d=entries[0].shape[1],
        dtype=entries[0].dtype,
        device=entries[0].device,
        numpy=isinstance(numpy, np.ndarray),
        requires_grad=torch.is_grad_enabled() and any(t.requires_grad for t in entries),
    )


def _masks(mask: Any, entries: list[Tensor], batched: bool) -> list[Tensor]:
    if mask is None:
        return [torch.ones(text.shape[0], dtype=torch.bool, device=text.device) for text in entries]
    length = max(text.shape[0] for text in entries)
    if isinstance(mask, (list, tuple)) and batched:
        rows = [bool_tensor(f"mask[{b}]", row) for b, row in enumerate(mask)]
        if len(rows) != len(entries):
            raise ValueError(f"mask must hold {len(entries)} masks, one a text, got {len(rows)}")
    else:
        tensor = bool_tensor("mask", mask)
        shapes = [(len(entries), length), (length,)] if batched else [(length,)]
        if tuple(tensor.shape) not in shapes:
            expected = " or ".join(str(shape) for shape in shapes)
            raise ValueError(f"mask must have shape {expected}, got {shape_of(tensor)}")
        rows = list(tensor.expand(len(entries), length))
        rows = [row[: text.shape[0]] for row, text in zip(rows, entries, strict=True)]
    for b, (row, text) in enumerate(zip(rows, entries, strict=True)):
        name = f"mask[{b}]" if batched else "mask"
        if row.shape != text.shape[:1]:
            raise ValueError(f"{name} must have shape {(text.shape[0],)}, got {shape_of(row)}")
        if row.device != text.device:
            raise ValueError(f"{name} must be on the device of X, {text.device}, got {row.device}")
        if mapped(row):
            raise ValueError(f"{name} must be the same in all calls that torch.vmap maps over")
        if not bool(row.any()):
            raise ValueError(f"{name} has no word: at least one entry must be True")
    return rows


def weights(W: Any, inputs: Inputs) -> Tensor:
    """W as (R, d, d) for (d, d) or (R, d, d); whether it has the axis R is W's own ndim."""
    tensor = differentiable(weight_tensor(W, inputs.texts[0]))
    finite("W", tensor)
    return tensor if tensor.ndim == 3 else tensor[None]


def text_tensor(X: Any) -> Tensor:
    """X (n, d) or (B, n, d), checked without its values, as torch.compile can trace."""
    tensor = real_tensor("X", X)
    if tensor.ndim not in (2, 3) or 0 in tensor.shape:
        raise ValueError(
            "X must have shape (n, d) or (B, n, d) with no axis empty, or be a list of (n_b, d); "
            f"got {shape_of(tensor)}"
        )
    return tensor


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


def mask_tensor(mask: Any, X: Tensor) -> Tensor:
    """mask (n,) or (B, n) for X, checked without its values."""
    tensor = bool_tensor("mask", mask)
    shapes = [X.shape[-2:-1], *([X.shape[:2]] if X.ndim == 3 else [])]
    if tensor.shape not in shapes:
        expected = " or ".join(str(tuple(shape)) for shape in shapes)
        raise ValueError(f"mask must have shape {expected}, got {shape_of(tensor)}")
    if tensor.device != X.device:
        raise ValueError(f"mask must be on the device of X, {X.device}, got {tensor.device}")
    return tensor


def every_text_has_a_word(mask: Tensor) -> None:
    """`mask` (B, n)."""
    empty = values_of(~mask.any(-1)).nonzero()
    if len(empty):
        raise ValueError(f"mask has no word in text {int(empty[0, -1])}: one entry must be True")


def perturbations(delta: Any, inputs: Inputs) -> Tensor:
    """Δ as (B or 1, n or 1, m, d) for (m, d), (n, m, d) and, with batched X, (B, n, m, d)."""
    tensor = differentiable(real_tensor("delta", delta))
    n, d, count = inputs.length, inputs.d, len(inputs.texts)
    expected = f"(m, {d}) or ({n}, m, {d})" + (
        f" or ({count}, {n}, m, {d})" if inputs.batched else ""
    )
    lead = (count, n)[4 - tensor.ndim :] if tensor.ndim in (2, 3, 4) else None
    if (
        lead is None
        or (tensor.ndim == 4 and not inputs.batched)
        or tensor.shape[:-2] != lead
        or tensor.shape[-1] != d
        or tensor.shape[-2] == 0
    ):
        raise ValueError(f"delta must have shape {expected}, m >= 1, got {shape_of(tensor)}")
    match("delta", tensor, inputs.texts[0])
    finite("delta", tensor)
    return tensor[(None,) * (4 - tensor.ndim)]


def perturbation(delta: Any, inputs: Inputs) -> Tensor:
    """One Δ (d,) for the whole of X, or (B, d), one for each text; as (B, d)."""
    tensor = differentiable(real_tensor("delta", delta))
    count, d = len(inputs.texts), inputs.d
    shapes = [(d,), (count, d)] if inputs.batched else [(d,)]
    if tuple(tensor.shape) not in shapes:
        expected = " or ".join(str(shape) for shape in shapes)
        raise ValueError(f"delta must have shape {expected}, got {shape_of(tensor)}")
    match("delta", tensor, inputs.texts[0])
    finite("delta", tensor)
    return tensor.expand(count, d)


def position(value: Any, inputs: Inputs) -> int:
    """A position that is a word in every text."""
    shortest = min(text.shape[0] for text in inputs.texts)
    index = integer("position", value, low=0, high=shortest - 1)
    for b, mask in enumerate(inputs.masks):
        if not bool(mask[index]):
            where = f" of text {b}" if inputs.batched else ""
            raise ValueError(f"position {index}{where} is masked: no word stands there")
    return index
