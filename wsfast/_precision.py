"""Computation at full precision whatever mode the caller's program runs in."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar

import torch
from torch import is_autocast_enabled
from torch.autograd import forward_ad
from torch.compiler import is_compiling

_P = ParamSpec("_P")
_R = TypeVar("_R")

# Autocast is each thread's own, and of one kind of device.
_AUTOCAST = ("cpu", "cuda", "mps", "xpu")


class _ExactProducts:
    """PyTorch's settings for float32 products, for as long as some thread needs them exact.

    They are the whole process's: threads hold them together. What was found is put back by the last
    holder, unless somebody else has changed it meanwhile.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holders: Counter[int] = Counter()  # how often, by thread
        self._before: dict[str, str] = {}
        if hasattr(os, "register_at_fork"):
            # The lock may be held by a thread that a child process does not have.
            os.register_at_fork(after_in_child=self.__init__)  # type: ignore[misc]

    def __enter__(self) -> None:
        with self._lock:
            for device in _DEVICES:
                mode = _get(device)
                if mode not in (_EXACT, "none"):
                    # "none" follows the setting for all of PyTorch, and may be what was there.
                    shared = mode == getattr(torch.backends, "fp32_precision", "")
                    self._before[device] = "none" if shared else mode
                    _set(device, _EXACT)
            self._holders[threading.get_ident()] += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            me = threading.get_ident()
            self._holders[me] -= 1
            if self._holders[me] == 0:
                del self._holders[me]
            if not self._holders:
                for device, mode in self._before.items():
                    if _get(device) == _EXACT:
                        _set(device, mode)
                self._before.clear()

    @contextmanager
    def tf32(self) -> Iterator[None]:
        """TF32 for products on a GPU, where this thread alone needs them exact; others wait."""
        with self._lock:
            if self._holders.keys() == {threading.get_ident()}:
                before = _get(_DEVICES[0])
                _set(_DEVICES[0], _TF32)
                try:
                    yield
                finally:
                    _set(_DEVICES[0], before)
                return
        yield


_DEVICES: tuple[str, ...]
if hasattr(torch.backends, "fp32_precision"):
    _DEVICES, _EXACT, _TF32 = ("cuda", "mkldnn"), "ieee", "tf32"
    _PRODUCTS: dict[str, Any] = {name: getattr(torch.backends, name).matmul for name in _DEVICES}

    def _get(device: str) -> str:
        return str(_PRODUCTS[device].fp32_precision)

    def _set(device: str, mode: str) -> None:
        _PRODUCTS[device].fp32_precision = mode

    # As _get("mkldnn"), by a shorter way.
    _precision_of_cpu: Callable[[], str] = partial(
        torch._C._get_fp32_precision_getter, "mkldnn", "matmul"
    )
else:  # PyTorch before 2.9
    _DEVICES, _EXACT, _TF32 = ("all",), "highest", "high"

    def _get(device: str) -> str:
        return torch.get_float32_matmul_precision()

    def _set(device: str, mode: str) -> None:
        torch.set_float32_matmul_precision(mode)

    _precision_of_cpu = torch.get_float32_matmul_precision


_exact_products = _ExactProducts()
tf32_products = _exact_products.tf32
_transforms_active = torch._C._are_functorch_transforms_active


@contextmanager
def full_precision() -> Iterator[None]:
    """No autocast, no TF32 and no bfloat16 inside products: all lose the accuracy promised."""
    with _exact_products, ExitStack() as stack:
        for device in _AUTOCAST:
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        yield


def quiet() -> bool:
    """Whether nothing of PyTorch stands between a call on CPU tensors and plain exact arithmetic.

    Neither tracing nor a transform, a tangent, autocast, or rounded products.
    """
    return not (
        is_compiling()
        or _transforms_active()
        or forward_ad._current_level >= 0
        or is_autocast_enabled("cpu")
        or _precision_of_cpu() not in (_EXACT, "none")
    )


def untraced(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Have torch.compile break its graph at a call of `function`, which looks at values.

    One break for the whole call: what it calls in turn is not traced either.
    """

    @wraps(function)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        return _eagerly(function)(*args, **kwargs)

    return run


def at_full_precision(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Run `function` without autocast, and out of inference mode, where autograd does not work.

    It is `untraced` as well.
    """

    @wraps(function)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        if torch.compiler.is_compiling():
            return _eagerly(run)(*args, **kwargs)
        # Leaving inference mode turns gradients on: only where they were on before.
        grad = torch.is_grad_enabled()
        with full_precision(), torch.inference_mode(False), torch.set_grad_enabled(grad):
            return function(*args, **kwargs)

    return run


def _eagerly(function: Callable[_P, _R]) -> Callable[_P, _R]:
    if not torch.compiler.is_compiling():
        return function
    # Not before: torch.compiler.disable imports the compiler, which takes seconds.
    from wsfast._untraced import eagerly

    return partial(eagerly, function)
