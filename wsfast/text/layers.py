"""Hidden states of a transformers encoder: only the layers before the one wanted are run.

They run in a copy of the encoder that shares its weights. The caller's model keeps its modes, hooks
and configuration, whatever happens here and whatever other threads do with it.
"""

from __future__ import annotations

import copy
import threading
from functools import partial
from types import FunctionType
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.nn import Parameter

_PROBE = 4  # tokens of the text in which the layers are looked for


class Stop(NamedTuple):
    """Where a hidden state can be had: an argument of a call of a submodule."""

    module: str
    call: int
    argument: int | str


_LAST = "last_hidden_state"
_END = Stop("", 0, _LAST)  # what the encoder returns


class _ReachedError(Exception):
    """The state that was wanted is there."""

    def __init__(self, state: Tensor) -> None:
        super().__init__()
        self.state = state


def encoder_of(model: Any) -> Any:
    """The encoder of an encoder-decoder; the module that ``torch.compile`` wraps."""
    model = getattr(model, "_orig_mod", model)
    return model.get_encoder() if model.config.is_encoder_decoder else model


def twin(model: Any, *, own_config: bool = False, dtype: torch.dtype | None = None) -> Any:
    """Copy of the encoder, dropout off, that shares weights and hooks with it.

    Parameters
    ----------
    model : transformers.PreTrainedModel
    own_config : bool, default False
        Whether the configuration is copied too, to be changed.
    dtype : torch.dtype, optional
        Of the weights of the copy, which are constants then; those that have it are shared still.
    """
    encoder = encoder_of(model)
    cast = {}
    if dtype is not None:
        tensors = (*encoder.parameters(), *encoder.buffers())
        cast = {id(one): _constant(one, dtype) for one in tensors}
    return copied(encoder, cast, own_config=own_config).eval()


def copied(module: Any, replaced: dict[int, Tensor], *, own_config: bool = False) -> Any:
    """Copy of a module that shares hooks and weights with it.

    Parameters
    ----------
    module : torch.nn.Module
    replaced : dict of int to Tensor
        What stands in the copy in place of the weight or buffer with that ``id``.
    own_config : bool, default False
        Whether the configuration of transformers is copied too, to be changed.
    """
    shared = [*module.parameters(), *module.buffers()]
    for part in module.modules():
        shared += [*part._forward_pre_hooks.values(), *part._forward_hooks.values()]
        if not own_config and getattr(part, "config", None) is not None:
            shared.append(part.config)
    own = copy.deepcopy(module, {id(one): one for one in shared} | replaced)
    for part in own.modules():
        # transformers 5.0 swaps these while it collects states, maybe now in another thread.
        forward = vars(part).get("forward")
        if isinstance(forward, FunctionType) and forward.__module__.startswith("transformers."):
            del part.forward
    return own


def _constant(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """A weight or a buffer that no gradient reaches."""
    own = tensor.detach()
    if own.is_floating_point():
        own = own.to(dtype)
    return Parameter(own, requires_grad=False) if isinstance(tensor, Parameter) else own


# Found once for each model; its parts keep their names.
_found: WeakKeyDictionary[Any, dict[int, Stop]] = WeakKeyDictionary()
_finding = threading.Lock()


class Layers:
    """Hidden states of one encoder, which is not changed while this is used.

    Parameters
    ----------
    model : transformers.PreTrainedModel
    """

    def __init__(self, model: Any) -> None:
        self._encoder = encoder_of(model)
        self._twin = twin(model)
        self._now = threading.local()  # what this thread waits for
        self._watched: set[str] = set()

    def state(self, inputs: dict[str, list[int]], layer: int) -> Tensor:
        """``hidden_states[layer]`` (n, d) of one text.

        One text at a time: a batch would need padding, and rounding would depend on batch mates.
        """
        stop = self._stop(inputs, layer)
        self._now.stop, self._now.calls = stop, 0
        try:
            output = run(self._twin, inputs, collect=stop is None)
        except _ReachedError as reached:
            return reached.state[0]
        finally:
            self._now.stop = None
        if stop is not None:
            last: Tensor = output.last_hidden_state
            return last[0]
        states: tuple[Tensor, ...] = output.hidden_states
        if layer >= len(states):
            raise ValueError(
                f'layer must be "words" or from 0 to {len(states) - 1} for this model, got {layer}'
            )
        return states[layer][0]

    def last(self, inputs: dict[str, list[int]]) -> Tensor:
        """The last hidden state (n, d) of one text; of a model with a head, what the head reads."""
        output = run(self._twin, inputs, collect=True)
        last: Tensor | None = getattr(output, _LAST, None)
        states: tuple[Tensor, ...] = output.hidden_states
        return (states[-1] if last is None else last)[0]

    def _stop(self, inputs: dict[str, list[int]], layer: int) -> Stop | None:
        with _finding:
            if self._encoder not in _found:
                _found[self._encoder] = _find_stops(self._encoder, inputs)
            stop = _found[self._encoder].get(layer)
            if stop is None or stop == _END or stop.module in self._watched:
                return stop
            modules = dict(self._twin.named_modules())
            if stop.module not in modules:  # the model was rebuilt since
                return None
            modules[stop.module].register_forward_pre_hook(
                partial(self._reach, stop.module), prepend=True, with_kwargs=True
            )
            self._watched.add(stop.module)
            return stop

    def _reach(self, name: str, _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        stop: Stop | None = getattr(self._now, "stop", None)
        if stop is None or stop.module != name:
            return
        if self._now.calls == stop.call:
            key = stop.argument
            raise _ReachedError(args[key] if isinstance(key, int) else kwargs[key])
        self._now.calls += 1


def run(encoder: Any, inputs: dict[str, list[int]], *, collect: bool) -> Any:
    """What the encoder returns for one text; `collect`: with all hidden states (1, n, d)."""
    device = encoder.get_input_embeddings().weight.device
    batch = {name: torch.tensor([ids], device=device) for name, ids in inputs.items()}
    with torch.no_grad():
        return encoder(**batch, output_hidden_states=collect, return_dict=True)


def _find_stops(encoder: Any, inputs: dict[str, list[int]]) -> dict[int, Stop]:
    """Where each hidden state is first handed to a submodule, found in a run of a few tokens.

    A state that no submodule is given as it is returned (it is turned round, or normalised after
    the last layer) has no entry: all layers are run for it.
    """
    probe = twin(encoder)
    seen: list[tuple[Stop, Tensor]] = []
    calls: dict[str, int] = {}

    def look(name: str, _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        call = calls[name] = calls.get(name, -1) + 1
        given: list[tuple[int | str, Any]] = [*enumerate(args), *kwargs.items()]
        for argument, value in given:
            if isinstance(value, Tensor) and value.is_floating_point():
                seen.append((Stop(name, call, argument), value.clone()))

    for name, module in probe.named_modules():
        _drop_hooks_of_owner(module)
        module.register_forward_pre_hook(partial(look, name), with_kwargs=True)
    try:
        output = run(probe, {name: ids[:_PROBE] for name, ids in inputs.items()}, collect=True)
    except (RuntimeError, ValueError, IndexError):  # so short a text is none for this model
        return {}
    seen.append((_END, getattr(output, _LAST, torch.empty(0))))
    stops = {}
    for layer, state in enumerate(output.hidden_states):
        for stop, value in seen:
            if value.shape == state.shape and torch.equal(value, state):
                stops[layer] = stop
                break
    return stops


def _drop_hooks_of_owner(module: Any) -> None:
    """Leave the hooks of transformers itself, which may be what collects hidden states."""
    for hooks in (module._forward_pre_hooks, module._forward_hooks):
        for key, hook in list(hooks.items()):
            if not str(getattr(hook, "__module__", "")).startswith("transformers."):
                del hooks[key]
