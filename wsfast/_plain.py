"""Computation at full precision whatever mode the caller's program runs in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch

_P = ParamSpec("_P")
_R = TypeVar("_R")


@contextmanager
def full_precision() -> Iterator[None]:
    """No autocast, no TF32 and no bfloat16 inside products: all lose the accuracy promised."""
    with ExitStack() as stack:
        _exact_products(stack)
        for device in ("cpu", "cuda"):
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        yield


def _exact_products(stack: ExitStack) -> None:
    if not hasattr(torch.backends, "fp32_precision"):  # PyTorch before 2.9
        before = torch.get_float32_matmul_precision()
        if before != "highest":
            torch.set_float32_matmul_precision("highest")
            stack.callback(torch.set_float32_matmul_precision, before)
        return
    for device in ("cuda", "mkldnn"):
        products: Any = getattr(torch.backends, device).matmul
        before = products.fp32_precision
        if before not in ("ieee", "none"):
            # "none" follows the setting for all of PyTorch, and may be what was there.
            inherited = before == torch.backends.fp32_precision
            products.fp32_precision = "ieee"
            stack.callback(setattr, products, "fp32_precision", "none" if inherited else before)


def plain(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Run `function` without autocast, and out of inference mode, where autograd does not work."""

    @wraps(function)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        # Leaving inference mode turns gradients on: only where they were on before.
        grad = torch.is_grad_enabled()
        with full_precision(), torch.inference_mode(False), torch.set_grad_enabled(grad):
            return function(*args, **kwargs)

    return run
