"""The attention function of transformers in a copy of a model: what it is given, as `Heads`.

It is registered under a private name; a listener of the current context hears of every call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from wsfast._extras import import_extra
from wsfast.maps.attention_layer import Heads

NAME = "wsfast_heads"

Listener: TypeAlias = "Callable[[Any, Heads], Tensor]"
"""From an attention module and the heads (s, H, n, ·) of texts to their output."""

# What is given to an attention function beside what `Heads` holds, and does not change it.
_HARMLESS = frozenset(
    {
        "dropout",  # 0 in eval mode
        "is_causal",  # the mask has it
        "sliding_window",  # so does the mask
        "deterministic",  # of fused backward passes
        "output_attentions",
        "output_hidden_states",
        "return_dict",
        "use_cache",
        "cache_position",
        "position_ids",
    }
)

# What stands for "not seen" in additive masks: the least number of float32, or of a wider type.
_LOWEST = torch.finfo(torch.float32).min / 2


def _output(_: Any, heads: Heads) -> Tensor:
    return heads.output()


_listener: ContextVar[Listener] = ContextVar("wsfast_listener", default=_output)


def listener() -> Listener:
    """What gives the outputs of attention in this context."""
    return _listener.get()


@contextmanager
def listening(own: Listener) -> Iterator[None]:
    """Let `own` give the outputs of attention in this context."""
    token = _listener.set(own)
    try:
        yield
    finally:
        _listener.reset(token)


def check(model: Any) -> None:
    """Refuse a model whose code asks neither transformers nor an adapter for its attention."""
    if not (_adapted(model) or model._can_set_attn_implementation()):
        raise ValueError(
            "model must compute attention by transformers' AttentionInterface, got "
            f"{type(model).__name__}, which does not"
        )


def switch(model: Any) -> None:
    """Let the attention of `model`, which is changed, pass through here."""
    transformers = import_extra("transformers", "text")
    transformers.AttentionInterface.register(NAME, attend)
    # Without a mask function of that name the masks are None.
    transformers.AttentionMaskInterface.register(NAME, transformers.masking_utils.eager_mask)
    for part in _adapted(model):
        part.forward = partial(_ADAPTERS[type(part).__name__], part)
    set_implementation(model, NAME)


def set_implementation(model: Any, name: str) -> None:
    """Set what computes the attention of `model`; one that is adapted here has no choice."""
    if not _adapted(model):
        model.set_attn_implementation(name)


def _adapted(model: Any) -> list[Any]:
    return [part for part in model.modules() if type(part).__name__ in _ADAPTERS]


def attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **given: Any,
) -> tuple[Tensor, None]:
    """Attention as transformers calls it: its output (s, n, H, d_v), and no weights."""
    heads = _heads(module, query, key, value, attention_mask, scaling, given)
    return listener()(module, heads).transpose(1, 2).contiguous(), None


def _heads(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    scaling: float | None,
    given: dict[str, Any],
) -> Heads:
    """The heads of one call, all tensors with a leading axis."""
    kind = type(module).__name__
    cap, sinks, position_bias = (given.pop(k, None) for k in ("softcap", "s_aux", "position_bias"))
    unknown = sorted(k for k in given.keys() - _HARMLESS if given[k] is not None)
    if unknown:
        raise ValueError(
            f"model must have plain softmax attention, got {kind} with {', '.join(unknown)}"
        )
    if key.shape[-2] != query.shape[-2]:
        raise ValueError(
            "model must attend from a text to itself, got "
            f"{kind} with {query.shape[-2]} queries and {key.shape[-2]} keys"
        )
    n, count = query.shape[-2], query.shape[1]
    bias = None if mask is None else _additive(mask, query.dtype)
    if position_bias is not None:
        bias = position_bias if bias is None else bias + position_bias
    return Heads(
        query * (query.shape[-1] ** -0.5 if scaling is None else scaling),
        key.repeat_interleave(count // key.shape[1], 1),
        value.repeat_interleave(count // value.shape[1], 1),
        None if bias is None else bias.expand(*bias.shape[:-2], n, n),
        cap,
        sinks,
    )


def _additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """A mask (True: seen; or numbers to add) as numbers, -inf where a word is not seen."""
    if mask.dtype == torch.bool:
        return torch.zeros_like(mask, dtype=dtype).masked_fill(~mask, -torch.inf)
    return mask.masked_fill(mask <= _LOWEST, -torch.inf)


# -- models whose code does not use transformers' interface --------------------------------------


def _mpnet(
    self: Any,
    hidden_states: Tensor,
    attention_mask: Tensor | None = None,
    position_bias: Tensor | None = None,
    output_attentions: bool = False,
) -> tuple[Tensor]:
    """`MPNetSelfAttention.forward`, but for the attention."""
    shape = (*hidden_states.shape[:-1], self.num_attention_heads, self.attention_head_size)
    q, k, v = (f(hidden_states).view(shape).transpose(1, 2) for f in (self.q, self.k, self.v))
    context, _ = attend(self, q, k, v, attention_mask, position_bias=position_bias)
    return (self.o(context.flatten(-2)),)


_ADAPTERS: dict[str, Callable[..., Any]] = {"MPNetSelfAttention": _mpnet}


# -- float64 -------------------------------------------------------------------------------------

_PRODUCTS = frozenset(
    {
        torch.matmul,
        torch.bmm,
        torch.baddbmm,
        torch.einsum,
        torch.nn.functional.linear,
        torch.Tensor.matmul,
        torch.Tensor.__matmul__,
        torch.Tensor.bmm,
    }
)


class Exact(TorchFunctionMode):
    """Models cast softmax, norms and rotations to float32 by themselves: float64 stays float64.

    What becomes float32 from integers stays that: buckets of positions are rounded from it.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func in _PRODUCTS:  # all others take mixed types
            return func(*map(_double, args), **kwargs)
        if args and isinstance(args[0], Tensor) and not args[0].is_floating_point():
            return func(*args, **kwargs)
        if func is torch.Tensor.float:
            return args[0].double()
        if kwargs.get("dtype") is torch.float32:
            kwargs["dtype"] = torch.float64
        if func in (torch.Tensor.to, torch.Tensor.type):
            args = tuple(torch.float64 if a is torch.float32 else a for a in args)
        return func(*args, **kwargs)


def _double(value: Any) -> Any:
    return value.double() if isinstance(value, Tensor) and value.is_floating_point() else value
