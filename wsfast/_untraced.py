"""What torch.compile leaves out of its graphs. Only code that it traces imports this module."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

_P = ParamSpec("_P")
_R = TypeVar("_R")


@torch.compiler.disable  # type: ignore[untyped-decorator]
def eagerly(function: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
    """Call `function` outside of the graph."""
    return function(*args, **kwargs)
