"""Texts and what names places in them, masks and positions: checked, once, where they come in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from wsfast._transforms import mapped, transformed, values_of
from wsfast._values import (
    Array,
    bool_tensor,
    differentiable,
    finite,
    host_array,
    integer,
    real_tensor,
    shape_of,
)

Texts: TypeAlias = "Array | Sequence[Array]"
"""One text (n, d), a batch (B, n, d), or a list of texts (n_b, d)."""


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
        entries, batched, numpy = real_texts("X", X), True, isinstance(X[0], np.ndarray)
        for b, text in enumerate(X):
            if isinstance(text, np.ndarray) != numpy:
                first, other = ("NumPy", "torch") if numpy else ("torch", "NumPy")
                raise ValueError(_differ("X", "kind of array", first, b, other))
    else:
        tensor = differentiable(text_tensor(X))
        batched, numpy = tensor.ndim == 3, isinstance(X, np.ndarray)
        entries = list(tensor) if batched else [tensor]
    for b, text in enumerate(entries):
        finite(f"X[{b}]" if batched else "X", text)
    return Inputs(
        texts=entries,
        masks=_masks(mask, entries, batched),
        batched=batched,
        length=max(text.shape[0] for text in entries),
        d=entries[0].shape[1],
        dtype=entries[0].dtype,
        device=entries[0].device,
        numpy=numpy,
        requires_grad=torch.is_grad_enabled() and any(t.requires_grad for t in entries),
    )


def real_texts(name: str, values: Sequence[Any]) -> list[Tensor]:
    """The texts (n_b, d) of a list, of one d, dtype and device."""
    if len(values) == 0:
        raise ValueError(f"{name} must hold at least one text, got an empty list")
    entries = [differentiable(real_tensor(f"{name}[{b}]", one)) for b, one in enumerate(values)]
    first = entries[0]
    for b, text in enumerate(entries):
        if text.ndim != 2 or 0 in text.shape:
            raise ValueError(
                f"{name}[{b}] must have shape (n, d), n >= 1, d >= 1, got {shape_of(text)}"
            )
        for what, there, here in (
            ("dimension", first.shape[1], text.shape[1]),
            ("dtype", first.dtype, text.dtype),
            ("device", first.device, text.device),
        ):
            if here != there:
                raise ValueError(_differ(name, what, there, b, here))
    return entries


def _differ(name: str, what: str, first: Any, b: int, other: Any) -> str:
    return f"{name} must hold texts of one {what}, got {first} in {name}[0], {other} in {name}[{b}]"


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
            raise ValueError(
                f"{name} must be one for all calls of torch.vmap, got one that it maps over"
            )
        if not bool(row.any()):
            raise ValueError(f"{name} must be True for at least one word, got none")
    return rows


def text_tensor(X: Any) -> Tensor:
    """X (n, d) or (B, n, d), checked without its values, as torch.compile can trace."""
    tensor = real_tensor("X", X)
    if tensor.ndim not in (2, 3) or 0 in tensor.shape:
        raise ValueError(
            "X must have shape (n, d) or (B, n, d) with no axis empty, or be a list of (n_b, d), "
            f"got {shape_of(tensor)}"
        )
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
        raise ValueError(
            f"mask must be True for at least one word, got none in text {int(empty[0, -1])}"
        )


def site(value: Any, inputs: Inputs) -> Site:
    """A position, or several, of words of every text."""
    shortest = min(text.shape[0] for text in inputs.texts)
    found = _site("position", value, shortest)
    for b, mask in enumerate(inputs.masks):
        for index in found:
            if not bool(mask[index]):
                where = f" in text {b}" if inputs.batched else ""
                raise ValueError(f"position must be that of a word, got {index}, masked{where}")
    return found


def _positions(value: Any, inputs: Inputs) -> list[int]:
    """The positions to search, ascending, without repetition; all of them for None."""
    if value is None:
        return list(range(inputs.length))
    if isinstance(value, Tensor):
        value = host_array("positions", value)
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if not isinstance(value, (list, tuple, range)):
        raise TypeError(f"positions must be a sequence of integers, got {type(value).__name__}")
    if len(value) == 0:
        raise ValueError("positions must hold at least one position, got none")
    return sorted(
        {integer(f"positions[{k}]", p, low=0, high=inputs.length - 1) for k, p in enumerate(value)}
    )


def searched(positions: Any, inputs: Inputs) -> list[Tensor]:
    """The words of each text, int64, ascending, that stand at `positions`."""
    plain_tensors(inputs)
    return _words_at(positions, inputs)


def plain_tensors(inputs: Inputs) -> None:
    """Raise ValueError for a transform of torch.func, or a tangent: a search looks at values."""
    if transformed(*inputs.texts):
        raise ValueError(
            "X must be plain tensors, got a transform of torch.func or a tangent: a search looks "
            "at values"
        )


def _words_at(positions: Any, inputs: Inputs) -> list[Tensor]:
    wanted = torch.zeros(inputs.length, dtype=torch.bool, device=inputs.device)
    wanted[_positions(positions, inputs)] = True
    return [(keep & wanted[: len(keep)]).nonzero()[:, 0] for keep in inputs.masks]


class Places(NamedTuple):
    """Where a text is asked for changes: words, or sites of several words each."""

    at: Tensor  # (P, m) int64, ascending in a site; -1 beyond the words of one that has fewer
    column: Tensor  # (P,) int64, where the value of each stands in a result

    def alike(self, keep: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Those of as many words: which (P',) they are, and `at` (P', m) counted among the words.

        `keep` is the mask of the text. There is at least one group, which may be empty.
        """
        counts = (self.at >= 0).sum(1)
        widest = self.at.shape[1]
        # Under a transform of torch.func, PyTorch 2.6 lets no tensor become a list.
        groups = [(m, (counts == m).nonzero()[:, 0]) for m in range(1, widest + 1)]
        for m, which in [one for one in groups if len(one[1])] or groups[:1]:
            yield which, words_among(keep, self.at[which, :m])


Site: TypeAlias = "tuple[int, ...]"
"""Positions that change together, ascending."""


def places(
    positions: Any, inputs: Inputs, *, transforms: bool = False
) -> tuple[list[Places], list[Site] | None]:
    """The places of each text that `positions` names, and the sites, where it names several words.

    A site that is not all words of a text is left out there. `transforms` of torch.func may be what
    asks.
    """
    several = isinstance(positions, (list, tuple)) and any(map(_is_several, positions))
    if not transforms:
        plain_tensors(inputs)
    if not several:
        return [Places(at[:, None], at) for at in _words_at(positions, inputs)], None
    length = inputs.length
    sites = [_site(f"positions[{k}]", one, length) for k, one in enumerate(positions)]
    widest = max(map(len, sites))
    padded = [[*site, *[-1] * (widest - len(site))] for site in sites]
    table = torch.tensor(padded, device=inputs.device)
    column = torch.arange(len(sites), device=inputs.device)
    found = []
    for keep in inputs.masks:
        words = torch.cat([keep, keep.new_zeros(inputs.length - len(keep))])
        whole = (words[table] | (table < 0)).all(1)
        found.append(Places(table[whole], column[whole]))
    return found, sites


def _is_several(entry: Any) -> bool:
    if isinstance(entry, (np.ndarray, Tensor)):
        return entry.ndim > 0
    return isinstance(entry, (list, tuple, range))


def _site(name: str, value: Any, length: int) -> Site:
    """One site of texts of so many words: a position, or several."""
    if not _is_several(value):
        return (integer(name, value, low=0, high=length - 1),)
    values = list(value)
    if not values:
        raise ValueError(f"{name} must hold at least one position, got none")
    found = [integer(f"{name}[{k}]", one, low=0, high=length - 1) for k, one in enumerate(values)]
    if len({*found}) < len(found):
        raise ValueError(f"{name} must hold positions that differ, got {found}")
    return tuple(sorted(found))


def words_among(keep: Tensor, at: Tensor) -> Tensor:
    """The places `at` of a text, counted among its words alone; `keep` is its mask."""
    return keep.cumsum(0)[at] - 1
