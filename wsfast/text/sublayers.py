"""The self-attention sublayers of a transformers model, found while it runs.

No attribute of an architecture is named. The attention function tells which module called it, the
calls around that one tell its block, and the weights that meet its output are its output map. A
module that is called again with other input gives the queries, keys and values of another text.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn import Embedding, ModuleList, Parameter

from wsfast.maps.attention_layer import Heads
from wsfast.text.attention_function import Exact, listener, listening
from wsfast.text.layers import copied

_SAME = 1e-9  # relative, in float64: rounding stays below
_FAR = 100.0  # times the size of a row: what clamps no row of the text clamps one as long as that

Rows: TypeAlias = "tuple[Tensor, Tensor, Tensor]"


@dataclass(frozen=True, eq=False, repr=False)
class Call:
    """A call of a module, which can be made again with another input."""

    module: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def input(self) -> Tensor:
        """(1, n, d)."""
        found = self.args[0] if self.args else self.kwargs.get("hidden_states")
        if not isinstance(found, Tensor) or found.dim() != 3:
            raise ValueError(
                "model must give hidden states (texts, tokens, d) to its layers, got "
                f"{type(self.module).__name__}, which is given {type(found).__name__}"
            )
        return found

    def again(self, X: Tensor) -> None:
        """Call the module with X wherever it was given its input."""
        own = self.input
        args = [X if one is own else one for one in self.args]
        kwargs = {name: X if one is own else one for name, one in self.kwargs.items()}
        self.module(*args, **kwargs)


class Watcher(ABC):
    """A listener that sees the calls of the modules too, in a model that is watched."""

    @abstractmethod
    def enter(self, call: Call) -> None: ...

    @abstractmethod
    def leave(self) -> None: ...

    @abstractmethod
    def __call__(self, module: Any, heads: Heads) -> Tensor: ...


def watch(model: Any) -> None:
    """Let a Watcher that listens see the calls in `model`, for good."""
    for part in model.modules():
        part.register_forward_pre_hook(_enter, prepend=True, with_kwargs=True)
        part.register_forward_hook(_leave)


def _enter(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if isinstance(watcher := listener(), Watcher):
        watcher.enter(Call(module, args, kwargs))


def _leave(*_: Any) -> None:
    if isinstance(watcher := listener(), Watcher):
        watcher.leave()


# -- one sublayer ----------------------------------------------------------------------------------


class _KnownError(Exception):
    """Queries, keys and values are there."""

    def __init__(self, heads: Heads) -> None:
        super().__init__()
        self.heads = heads


class _Until(Watcher):
    """Ends a run at the attention of a module, whose input it keeps."""

    X: Tensor

    def __init__(self, module: Any) -> None:
        self._module = module

    def enter(self, call: Call) -> None:
        if call.module is self._module:
            self.X = call.input

    def leave(self) -> None:
        pass

    def __call__(self, module: Any, heads: Heads) -> Tensor:
        if module is self._module:
            raise _KnownError(heads)
        return heads.output()


@dataclass(frozen=True, eq=False, repr=False)
class Sublayer:
    """The modules of one attention sublayer, and what they are given of one text."""

    attention: Call
    block: Call
    projection: Any  # of the heads side by side

    def rows(self, X: Tensor) -> Rows:
        """q, k, v (s, H, n, ·) of texts X (s, n, d) in place of the attention module's input."""
        return self.run(self.attention, X)[0]

    def rows_of_residual(self, X: Tensor) -> Rows:
        """The same in place of the block's input."""
        return self.run(self.block, X)[0]

    def run(self, call: Call, X: Tensor) -> tuple[Rows, Tensor]:
        """q, k, v and what the attention module is given, when a call is made again with X."""
        until = _Until(self.attention.module)
        with Exact(), listening(until):
            try:
                call.again(X.contiguous())  # models take views of it
            except _KnownError as known:
                heads = known.heads
                return (heads.queries, heads.keys, heads.values), until.X
        raise RuntimeError(f"{type(call.module).__name__}, called again, did not attend")

    def shuffled(self, generator: torch.Generator) -> Sublayer:
        """In a copy of the block, with the entries of each matrix of the sublayer permuted."""
        replaced: dict[int, Tensor] = {}
        for part in (*self.attention.module.modules(), *self.projection.modules()):
            if isinstance(part, Embedding):  # of position biases
                continue
            for weight in part.parameters(recurse=False):
                if weight.dim() == 2 and id(weight) not in replaced:
                    replaced[id(weight)] = _permuted(weight, generator)
        block = copied(self.block.module, replaced)
        names = {part: name for name, part in self.block.module.named_modules()}
        attention = block.get_submodule(names[self.attention.module])
        return Sublayer(
            replace(self.attention, module=attention),
            replace(self.block, module=block),
            block.get_submodule(names[self.projection]),
        )


def _permuted(weight: Tensor, generator: torch.Generator) -> Parameter:
    order = torch.randperm(weight.numel(), generator=generator, device=generator.device)
    entries = weight.detach().flatten()[order.to(weight.device)]
    return Parameter(entries.view_as(weight), requires_grad=False)


# -- a run of a text -------------------------------------------------------------------------------


class DoneError(Exception):
    """All that is wanted of the run is there."""


@dataclass(eq=False)
class Heard:
    """One attention as a run meets it; all tensors have a leading axis of one text."""

    number: int
    heads: Heads
    attention: Call
    block: Call
    context: Tensor  # (1, n, H d_v), the heads side by side
    receivers: list[Any] = field(default_factory=list)  # modules that are given it alone


class Recorder(Watcher):
    """Hears of every attention of one run, and keeps those that are wanted.

    Parameters
    ----------
    lists : dict
        The ``ModuleList`` of each module that is in one, see `lists_of`.
    wanted : frozenset of int
        Numbers of the attentions to keep; the run ends with DoneError after the last of them.
    """

    def __init__(self, lists: dict[Any, Any], wanted: frozenset[int]) -> None:
        self.count = 0
        self.found: list[Heard] = []
        self.blocks: set[Any] = set()  # those with an attention; of nested ones the outermost
        self._lists = lists
        self._wanted = wanted
        self._stack: list[Call] = []
        self._open: Heard | None = None  # its projection is still to come

    def enter(self, call: Call) -> None:
        self._stack.append(call)
        if self._open is not None:
            self._follow(self._open, call)

    def leave(self) -> None:
        self._stack.pop()

    def __call__(self, module: Any, heads: Heads) -> Tensor:
        """Output of an attention."""
        self.close()
        around = [call for call in self._stack if call.module in self._lists]
        self.blocks.update(call.module for call in around[:1])
        output = heads.output()
        if self.count in self._wanted:
            at = next((i for i, call in enumerate(self._stack) if call.module is module), 0)
            blocks = [call for call in self._stack[:at] if call.module in self._lists]
            if not blocks:
                raise ValueError(
                    "model must have the modules that attend in a list of layers, got "
                    f"{type(module).__name__}, which is in none"
                )
            context = output.transpose(1, 2).flatten(2)
            self._open = Heard(self.count, heads, self._stack[at], blocks[-1], context)
        self.count += 1
        return output

    def _follow(self, heard: Heard, call: Call) -> None:
        """Note the modules with weights that the heads are given to, until one multiplies them."""
        given = call.args[0] if call.args else None
        if not isinstance(given, Tensor) or given.shape[-1] != heard.context.shape[-1]:
            return
        if not _has_matrix(call.module, recurse=True):
            return
        same = torch.equal(given.reshape(1, -1, given.shape[-1]), heard.context)
        if same and len(call.args) == 1 and not call.kwargs:
            heard.receivers.append(call.module)
        if not _has_matrix(call.module, recurse=False):
            return
        if not same:
            raise ValueError(
                "model must multiply the output of attention by one matrix, got "
                f"{type(heard.attention.module).__name__}, which changes it before "
                f"{type(call.module).__name__} (by a gate or a norm)"
            )
        self._open = None
        self.found.append(heard)
        if len(self.found) == len(self._wanted):
            raise DoneError

    def close(self) -> None:
        """Refuse an attention whose output nothing has multiplied."""
        if self._open is not None:
            raise ValueError(
                "model must multiply the output of attention by one matrix, got "
                f"{type(self._open.attention.module).__name__}, which does not"
            )


def lists_of(model: Any) -> dict[Any, Any]:
    """The ``ModuleList`` of each module that is in one."""
    owners = [part for part in model.modules() if isinstance(part, ModuleList)]
    return {part: owner for owner in owners for part in owner}


def _has_matrix(module: Any, *, recurse: bool) -> bool:
    return any(weight.dim() == 2 for weight in module.parameters(recurse=recurse))


# -- what a sublayer is ----------------------------------------------------------------------------


def sublayer_of(heard: Heard) -> Sublayer:
    """The sublayer of an attention that was heard of.

    The projection is the outermost module that is an affine map of the heads: an adapter around a
    weight (LoRA) is a part of it.
    """
    for module in heard.receivers:
        if _is_affine(module, heard.context):
            return Sublayer(heard.attention, heard.block, module)
    kind = type(heard.receivers[-1]).__name__
    raise ValueError(
        "model must multiply the output of attention by one matrix, got "
        f"{type(heard.attention.module).__name__}, whose {kind} does something else"
    )


def _is_affine(module: Any, context: Tensor) -> bool:
    other = _random_row(context).expand_as(context)
    texts = torch.cat([torch.zeros_like(context), context, other, context + other])
    with Exact(), torch.no_grad():
        got = module(texts)
    if not isinstance(got, Tensor):
        return False
    zero, one, two, both = got
    return _near(both - one, two - zero)


def output_map(sublayer: Sublayer, width: int) -> Tensor:
    """W_O (H d_v, d): the response of the projection to unit rows."""
    rows = torch.eye(width + 1, width, dtype=torch.float64, device=sublayer.block.input.device)
    with Exact(), torch.no_grad():
        response: Tensor = sublayer.projection(rows[None])[0]
    return response[:-1] - response[-1]


def is_linear(sublayer: Sublayer, heads: Heads) -> bool:
    """Whether `rows` is linear but for a constant, the same for every position.

    Raises
    ------
    ValueError
        If a row of queries, keys and values comes from other rows too, or not from the row that the
        attention module is given alone; or if its call cannot be made again.
    """
    X, R = sublayer.attention.input, sublayer.block.input
    near, far = _random_row(X), _FAR * _random_row(X, seed=1)
    even = torch.arange(X.shape[1], device=X.device)[:, None] % 2 == 0
    kind = type(sublayer.attention.module).__name__
    try:
        with torch.no_grad():
            of_R, given = sublayer.run(sublayer.block, torch.cat([R, R + far, R + even * far]))
            texts = [X, X + far, X + even * far, given, X + near, X + near + far]
            of_X = sublayer.rows(torch.cat(texts))
    except RuntimeError as error:  # a call with something else that belongs to the text
        raise ValueError(
            f"model must make queries, keys and values from hidden states, got {kind}, which "
            f"cannot be given others: {str(error).splitlines()[0]}"
        ) from error
    linear = True
    for known, by_X, by_R in zip(
        (heads.queries, heads.keys, heads.values), of_X, of_R, strict=True
    ):
        start, moved, part = by_X[:3]
        alone = _near(start, known[0]) and _near(by_R, by_X[3:6])
        if not (alone and _near(part, torch.where(even, moved, start))):
            raise ValueError(
                "model must make each row of queries, keys and values from that row of the hidden "
                f"states alone, got {kind}, which does not"
            )
        step = moved - start
        linear &= _near(by_X[7] - by_X[6], step) and _near(step[:, :1].expand_as(step), step)
    return linear


def _random_row(like: Tensor, seed: int = 0) -> Tensor:
    """A row (d,) with entries of the size of those of `like` (…, d)."""
    generator = torch.Generator().manual_seed(seed)
    row = torch.randn(like.shape[-1], generator=generator, dtype=like.dtype, device="cpu")
    return row.to(like.device) * like.square().mean().sqrt()


def _near(one: Tensor, other: Tensor) -> bool:
    return bool((one - other).norm() <= _SAME * other.norm())
