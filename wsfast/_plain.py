"""Computation at full precision whatever mode the caller's program runs in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import ParamSpec, TypeVar

import torch

_P = ParamSpec("_P")
_R = TypeVar("_R")


@contextmanager
def full_precision() -> Iterator[None]:
    """No autocast: it would compute products in half precision."""
    with ExitStack() as stack:
        for device in ("cpu", "cuda"):
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        yield


def plain(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Run `function` without autocast, and out of inference mode, where autograd does not work."""

    @wraps(function)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        # Leaving inference mode turns gradients on: only where they were on before.
        grad = torch.is_grad_enabled()
        with full_precision(), torch.inference_mode(False), torch.set_grad_enabled(grad):
            return function(*args, **kwargs)

    return run
