"""``with no_waits(device): ...`` fails where the host would wait for the device.

On a GPU PyTorch itself says where it does. Anywhere else the operations are known by name that a
GPU would have to answer before the host could go on, or that copy from memory which is not pinned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# Values, and shapes that depend on values; `lift_fresh` is a tensor made of the host's numbers.
_WAITING = {
    *("_local_scalar_dense", "is_nonzero", "equal", "allclose", "_linalg_check_errors"),
    *("nonzero", "masked_select", "bincount", "repeat_interleave"),
    *("_unique", "_unique2", "unique_dim", "unique_consecutive", "unique_dim_consecutive"),
    "lift_fresh",
}
_INDEXING = {"index", "index_put", "index_put_"}  # by a mask
_READING = (Tensor.tolist, Tensor.numpy, Tensor.cpu, Tensor.__array__)


def _on(device: torch.device, values: Any) -> list[Tensor]:
    return [x for x in tree_leaves(values) if isinstance(x, Tensor) and x.device == device]


def _masks(indices: Any) -> list[Tensor]:
    return [x for x in indices if x is not None and x.dtype in (torch.bool, torch.uint8)]


class _Operations(TorchDispatchMode):
    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self._device = device

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        waits = name in _WAITING or (name in _INDEXING and _masks(args[1]))
        assert not (waits and _on(self._device, args)), f"{func} waits for the device"
        return func(*args, **(kwargs or {}))


class _Methods(TorchFunctionMode):
    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self._device = device

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        reads = func in _READING and _on(self._device, args)
        assert not reads, f"{func.__name__} waits for the device"
        return func(*args, **(kwargs or {}))


@contextmanager
def no_waits(device: torch.device) -> Iterator[None]:
    """Raise AssertionError, or on a GPU PyTorch's RuntimeError, at the first call that waits."""
    gpu = device.type == "cuda"
    before = torch.cuda.get_sync_debug_mode() if gpu else 0
    with _Operations(device), _Methods(device):
        if gpu:
            torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            if gpu:
                torch.cuda.set_sync_debug_mode(before)
