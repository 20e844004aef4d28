"""Which engine serves: the one named, or the fastest that can."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from wsfast.engines import compiled

if TYPE_CHECKING:
    from wsfast.engines.engine import Engine

BACKENDS = ("reference", "torch", "native")


def check_name(backend: str | None) -> None:
    """Raise ValueError for anything but None and the name of a backend."""
    if backend is not None and backend not in BACKENDS:
        raise ValueError(f"backend must be None or one of {BACKENDS}, got {backend!r}")


def engine(
    backend: str | None,
    device: torch.device,
    *,
    requires_grad: bool = False,
    cpu_only: bool = False,
) -> Engine:
    """The engine to use: the one named, or the fastest that can serve inputs on `device`.

    `requires_grad` says that a gradient of the result is wanted, which "native" cannot give;
    `cpu_only` that there is no CUDA kernel for this.

    Raises
    ------
    ValueError
        For an unknown name, or where "native" cannot serve.
    RuntimeError
        For "native" where the compiled module is missing.
    """
    check_name(backend)
    module = None if cpu_only and device.type != "cpu" else compiled.module_for(device)
    if backend is None:
        if module is None or requires_grad:
            return _pytorch()
        if module.module is None:
            module.warn_once_missing()
            return _pytorch()
        return _native(device, cpu_only=cpu_only)
    if backend == "native":
        if module is None:
            where = "on the CPU" if cpu_only else "on the CPU and on CUDA devices"
            raise ValueError(
                f"backend='native' computes {where} here, but X is on {device}: "
                "move X there, or use backend='torch'"
            )
        if requires_grad:
            raise ValueError(
                "backend='native' gives no gradient here, but an input requires one: "
                "detach it, or use backend='torch'"
            )
        module.require()
        return _native(device, cpu_only=cpu_only)
    return _reference() if backend == "reference" else _pytorch()


# Imported where they are asked for: `import wsfast` beside PyTorch needs none of them.


def _pytorch() -> Engine:
    from wsfast.engines.engine import TORCH

    return TORCH


def _reference() -> Engine:
    from wsfast.engines.engine import REFERENCE

    return REFERENCE


def _native(device: torch.device, *, cpu_only: bool) -> Engine:
    from wsfast.engines.cpu import CPU
    from wsfast.engines.cuda import CUDA

    return CUDA if not cpu_only and compiled.kernels(device).gpu else CPU
