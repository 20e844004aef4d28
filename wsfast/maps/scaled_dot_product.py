"""Changes of what PyTorch's scaled_dot_product_attention gives, from its arguments.

All is float64, which neither autocast nor the settings for float32 products touch.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from wsfast._kinks import root
from wsfast.attention.core import NEVER
from wsfast.attention.heads import Heads
from wsfast.attention.new_rows import NewRows, deltas, head_rows, squared_norms

# Numbers of one array that is formed at once, unless one row or one change has more: 8 MB, which
# caches hold.
_AT_ONCE = 1 << 20


class Projected(NamedTuple):
    """Rows after projection and rotation, unscaled; heads may share keys and values."""

    query: Tensor  # (…, H, m, d_k)
    key: Tensor  # (…, H_kv, m, d_k)
    value: Tensor  # (…, H_kv, m, d_v)


class Softmax(NamedTuple):
    """How attention comes from products of queries and keys."""

    mask: Tensor | None  # (…, n, n) bool, True where a word is seen; or added to the scores
    scale: float
    cap: float | None
    sinks: Tensor | None  # (H,)


def attention_changes(
    old: Projected, new: Projected, index: Tensor, given: Softmax, *, norm: bool
) -> Tensor:
    """Changes (…, H, s, n, d_v) of the output, or their norms (…, H, s), in the dtype of `old`.

    The words `index` (s,), or (1,) for all, get the rows `new` of m = s.
    """
    dtype = old.query.dtype
    (query, key, values), new = _every_head(old), _every_head(new)
    # Before anything is rounded: they may be small.
    by_query = new.query - query[..., index, :]
    by_key = new.key - key[..., index, :]
    by_value = new.value - values[..., index, :]
    query = query * given.scale
    if given.sinks is None:
        # The changes are differences of means: a common shift of the values drops out of them.
        values = values - values.detach().mean(-2, keepdim=True)
    heads = Heads(
        query,
        key,
        values,
        _bias(given.mask, query),
        given.cap,
        None if given.sinks is None else given.sinks.double(),
    )
    rows = head_rows(heads, max(1, _AT_ONCE // values.shape[:-1].numel()))
    parts = []
    new_rows = (new.query * given.scale, by_query * given.scale, by_key, by_value)
    for some in _parts(index, new_rows, max(1, _AT_ONCE // values.numel())):
        part = root(squared_norms(rows, some)) if norm else deltas(rows, some)
        parts.append(part.to(dtype))
    return torch.cat(parts, values.ndim - 2)


def _every_head(rows: Projected) -> Projected:
    """In float64, with keys and values repeated for the heads that share them."""
    query, key, value = (x.double() for x in rows)
    group = query.shape[-3] // key.shape[-3]
    if group > 1:
        key, value = (x.repeat_interleave(group, -3) for x in (key, value))
    return Projected(query, key, value)


def _bias(mask: Tensor | None, query: Tensor) -> Tensor | None:
    """What is added to the scores, (…, H, n, n)."""
    if mask is None:
        return None
    if mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill(~mask, NEVER)
    # Cast before it is expanded: what is expanded takes no memory.
    return mask.double().expand(*query.shape[:-1], query.shape[-2])


def _parts(index: Tensor, of: tuple[Tensor, ...], size: int) -> list[NewRows]:
    """`size` changes at a time."""
    columns = [x.split(size, -2) for x in of]
    numbers = index.split(size) if len(index) > 1 else [index] * len(columns[0])
    return [NewRows(*part) for part in zip(numbers, *columns, strict=True)]
