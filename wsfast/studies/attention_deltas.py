"""The change of the output of scaled_dot_product_attention as one word gets new rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from wsfast import _values
from wsfast._transforms import values_of
from wsfast._values import dense, finite, integer, match, number, real_tensor, shape_of
from wsfast.maps.scaled_dot_product import Projected, Softmax, attention_changes


def attention_deltas(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    position: int | Sequence[int] | Tensor,
    new_query: Tensor,
    new_key: Tensor,
    new_value: Tensor,
    *,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    reduce: str | None = None,
) -> Tensor:
    """Change of softmax(Q Kᵀ · scale) V when one word's rows of Q, K and V are replaced.

    For pipelines that have queries, keys and values of a trained layer at hand: arguments and masks
    are those of ``torch.nn.functional.scaled_dot_product_attention``. The change is exact, whatever
    led to the new rows; attention over all words is formed once, and each change costs O(n d)
    where attention itself costs O(n² d). Small changes keep their relative accuracy: no difference
    of outputs is taken. Differentiable in all tensors, any number of times; ``torch.compile`` takes
    it without a graph break, and so do the transforms of ``torch.func``.

    Parameters
    ----------
    query : Tensor, shape (..., H, n, d_k)
        Of H heads and n words, after projection, normalisation and rotation. float64, float32,
        float16 or bfloat16.
    key : Tensor, shape (..., H, n, d_k)
        (..., H_kv, n, d_k) with `enable_gqa`.
    value : Tensor, shape (..., H, n, d_v)
        (..., H_kv, n, d_v) with `enable_gqa`.
    position : int, sequence of int, or int64 Tensor of shape (s,) or ()
        The word that changes, from 0 to n - 1: the same in all s changes, or one for each.
    new_query : Tensor, shape (..., H, s, d_k)
        The row that takes the place of the word's in each of s changes.
    new_key, new_value : Tensor, shapes (..., H, s, d_k) and (..., H, s, d_v)
        Likewise; (..., H_kv, s, ·) with `enable_gqa`.
    attn_mask : Tensor, broadcast to (..., H, n, n), optional
        bool, True where a word takes part; or added to the scores, in the dtype of `query`. The
        word keeps its row and its column. Whatever is below -5e29 counts as masked. A row that sees
        no word is 0.
    is_causal : bool, default False
        Whether row j attends to the words up to j alone; not together with `attn_mask`.
    scale : float, optional
        1/√d_k by default.
    enable_gqa : bool, default False
        Whether heads may share keys and values: H must be a multiple of H_kv.
    softcap : float, optional
        c > 0: scores are c · tanh(score/c), before the mask is added.
    sinks : Tensor, shape (H,), optional
        One more score in every row of each head, whose value is 0.
    reduce : {"norm"}, optional
        Give the Frobenius norm of each change, over rows and columns.

    Returns
    -------
    Tensor, shape (..., H, s, n, d_v) or (..., H, s)
        Output after less output before, or its norm with ``reduce="norm"``; in the dtype of
        `query`. All is computed in float64. Norms are formed change by change: n × d_v numbers of
        all s changes are not held at once, but by autograd where gradients are asked for.

    Raises
    ------
    TypeError, ValueError
        For a wrong type, dtype, shape or device, a position out of range, or NaN or infinity (which
        are not looked for inside of ``torch.compile``).

    See Also
    --------
    raf_deltas : the same for random attention features, of the text itself.

    Notes
    -----
    docs/design.md, section 7.

    Examples
    --------
    In a model of plain PyTorch, a hook catches the queries, keys and values:

    >>> import torch, wsfast
    >>> from torch.nn.functional import scaled_dot_product_attention
    >>> class Attention(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.qkv = torch.nn.Linear(32, 96)
    ...
    ...     def forward(self, X):  # (B, n, 32) to (B, n, 32), 4 heads
    ...         q, k, v = self.qkv(X).unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4)
    ...         return scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
    >>> layer, caught = Attention(), []
    >>> def catch(module, inputs, output):
    ...     caught.append(output.unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4))
    >>> hook = layer.qkv.register_forward_hook(catch)
    >>> X, words = torch.randn(1, 10, 32), torch.randn(1, 50, 32)
    >>> before, _ = layer(X), layer(words)  # the text; 50 words that may stand in it
    >>> hook.remove()
    >>> text, new = caught
    >>> change = wsfast.attention_deltas(*text, 3, *new)
    >>> change.shape  # of each head, as each of the words takes place 3
    torch.Size([1, 4, 50, 10, 8])
    >>> X[0, 3] = words[0, 7]
    >>> heads = change[:, :, 7].transpose(1, 2).flatten(2)
    >>> torch.allclose(layer(X), before + heads, atol=1e-5)
    True
    >>> wsfast.attention_deltas(*text, 3, *new, reduce="norm").argmax(-1).shape
    torch.Size([1, 4])

    Hooks of TransformerLens (``hook_q``, ``hook_k``, ``hook_v``; with rotary embeddings
    ``hook_rot_q`` and ``hook_rot_k``) give (batch, n, heads, d_head): heads go before words, and
    back in the result.

    >>> q, k, v = torch.randn(3, 2, 10, 4, 8)  # cache["q", 0], cache["k", 0], cache["v", 0]
    >>> new_q, new_k, new_v = torch.randn(3, 2, 5, 4, 8)  # of five words for place 3
    >>> text = (x.transpose(1, 2) for x in (q, k, v))
    >>> new = (x.transpose(1, 2) for x in (new_q, new_k, new_v))
    >>> change = wsfast.attention_deltas(*text, 3, *new, is_causal=True)
    >>> change.permute(2, 0, 3, 1, 4).shape  # of hook_z, for each of the five words
    torch.Size([5, 2, 10, 4, 8])
    """
    tensors = {"query": query, "key": key, "value": value}
    tensors |= {"new_query": new_query, "new_key": new_key, "new_value": new_value}
    checked = [_real(name, tensor, query) for name, tensor in tensors.items()]
    old, new = Projected(*checked[:3]), Projected(*checked[3:])
    shared = _values.flag("enable_gqa", enable_gqa)
    _check_shapes(old, new, shared=shared)
    *lead, heads, n, d_k = old.query.shape
    mask = None
    if attn_mask is not None:
        mask = _mask(attn_mask, query, (*lead, heads, n, n))
    if _values.flag("is_causal", is_causal):
        if mask is not None:
            raise ValueError("attn_mask must be None where is_causal is True, got both")
        mask = torch.ones(n, n, dtype=torch.bool, device=query.device).tril()
    if sinks is not None:
        sinks = _real("sinks", sinks, query)
        _check_shape("sinks", sinks, (heads,))
    scale = d_k**-0.5 if scale is None else number("scale", scale, low=0)
    if softcap is not None:
        softcap = number("softcap", softcap, low=0)
        if softcap == 0:
            raise ValueError("softcap must be greater than 0, got 0.0")
    if reduce not in (None, "norm"):
        raise ValueError(f"reduce must be None or 'norm', got {reduce!r}")
    index = _index(position, n, new.query.shape[-2], query.device)
    given = Softmax(mask, scale, softcap, sinks)
    changes = attention_changes(old, new, index, given, norm=reduce == "norm")
    return changes.to(query.dtype)


def _real(name: str, tensor: Tensor, query: Tensor) -> Tensor:
    """`tensor`, whose numbers are finite where they may be looked at."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(tensor).__name__}")
    real = real_tensor(name, tensor)
    match(name, tensor, query, of="query")
    if not torch.compiler.is_compiling():
        finite(name, real)
    return real


def _check_shapes(old: Projected, new: Projected, *, shared: bool) -> None:
    query, key, value = old
    if query.ndim < 3 or 0 in query.shape:
        raise ValueError(
            f"query must have shape (..., H, n, d_k) with no axis empty, got {shape_of(query)}"
        )
    *lead, heads, n, d_k = query.shape
    of_keys = key.shape[-3] if shared and key.ndim >= 3 else heads
    if of_keys == 0 or heads % of_keys:
        raise ValueError(f"key must have heads that divide the {heads} of query, got {of_keys}")
    d_v = value.shape[-1] if value.ndim else 0
    s = new.query.shape[-2] if new.query.ndim >= 2 else 0
    if d_v == 0:
        raise ValueError(f"value must have shape (..., H, n, d_v), d_v >= 1, got {shape_of(value)}")
    if s == 0:
        raise ValueError(
            f"new_query must have shape (..., H, s, d_k), s >= 1, got {shape_of(new.query)}"
        )
    _check_shape("key", key, (*lead, of_keys, n, d_k))
    _check_shape("value", value, (*lead, of_keys, n, d_v))
    _check_shape("new_query", new.query, (*lead, heads, s, d_k))
    _check_shape("new_key", new.key, (*lead, of_keys, s, d_k))
    _check_shape("new_value", new.value, (*lead, of_keys, s, d_v))


def _check_shape(name: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    if tuple(tensor.shape) != shape:
        raise ValueError(f"{name} must have shape {shape}, got {shape_of(tensor)}")


def _mask(mask: Tensor, query: Tensor, shape: tuple[int, ...]) -> Tensor:
    if not isinstance(mask, Tensor):
        raise TypeError(f"attn_mask must be a torch.Tensor, got {type(mask).__name__}")
    if mask.dtype not in (torch.bool, query.dtype):
        raise TypeError(
            f"attn_mask must be bool or have the dtype of query, {query.dtype}, got {mask.dtype}"
        )
    if mask.device != query.device:
        raise ValueError(
            f"attn_mask must be on the device of query, {query.device}, got {mask.device}"
        )
    mask = dense("attn_mask", mask)
    fits = zip(reversed(mask.shape), reversed(shape), strict=False)
    if mask.ndim > len(shape) or any(here not in (1, there) for here, there in fits):
        raise ValueError(f"attn_mask must broadcast to {shape}, got {shape_of(mask)}")
    if mask.dtype != torch.bool and not torch.compiler.is_compiling():
        # -inf is no error: it says what is masked.
        finite("attn_mask", mask.masked_fill(mask == -torch.inf, 0.0))
    return mask


def _index(position: Any, n: int, s: int, device: torch.device) -> Tensor:
    """Positions as int64 (s,), or (1,) for one of all changes."""
    if isinstance(position, Tensor):
        if position.dtype != torch.int64:
            raise TypeError(f"position must be int64, got {position.dtype}")
        if tuple(position.shape) not in ((), (s,)):
            raise ValueError(f"position must have shape () or {(s,)}, got {shape_of(position)}")
        if not torch.compiler.is_compiling():
            values = values_of(position)
            if bool(((values < 0) | (values >= n)).any()):
                raise ValueError(f"position must be from 0 to {n - 1}, got {values.tolist()}")
        return position.reshape(-1).to(device)
    if isinstance(position, np.ndarray):
        position = position.tolist()
    if not isinstance(position, Sequence) or isinstance(position, str):
        one = integer("position", position, low=0, high=n - 1)
        return torch.full((1,), one, device=device)
    if len(position) != s:
        raise ValueError(f"position must hold {s} positions, one a change, got {len(position)}")
    each = [integer(f"position[{k}]", p, low=0, high=n - 1) for k, p in enumerate(position)]
    return torch.tensor(each, device=device)
