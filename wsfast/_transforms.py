"""Transforms of torch.func, and forward-mode differentiation: what may be done under them.

PyTorch's own operations compose with all of them. Compiled kernels do not, nor does a look at
values that decides what is computed.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.autograd.forward_ad import unpack_dual
from torch.nn.functional import pad


def transformed(*inputs: Tensor) -> bool:
    """Whether a transform is at work, or one of the inputs carries a tangent."""
    if torch._C._are_functorch_transforms_active():
        return True
    if torch.compiler.is_compiling():
        return False
    return any(unpack_dual(x).tangent is not None for x in inputs)


def padded(rows: Sequence[Tensor], value: float = 0.0) -> Tensor:
    """`rows` (n_b, …) filled up with `value` to the longest, in one (B, n, …): under vmap too."""
    length = max(len(row) for row in rows)
    return torch.stack(
        [pad(row, (0, 0) * (row.ndim - 1) + (0, length - len(row)), value=value) for row in rows]
    )


def values_of(x: Tensor) -> Tensor:
    """The numbers of all entries of `x`, in whatever order, without the transforms around them."""
    while torch._C._functorch.is_functorch_wrapped_tensor(x):
        x = torch._C._functorch.get_unwrapped(x)
    return x.detach()


def mapped(x: Tensor) -> bool:
    """Whether `torch.vmap` holds other values of `x` for other calls."""
    while torch._C._functorch.is_functorch_wrapped_tensor(x):
        if torch._C._functorch.is_batchedtensor(x):
            return True
        x = torch._C._functorch.get_unwrapped(x)
    return False
