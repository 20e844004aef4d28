"""Which of the three ways to the same number is taken."""

from __future__ import annotations

import torch

from wsfast.engines import compiled

BACKENDS = ("reference", "torch", "native")


def check_name(backend: str | None) -> None:
    """Raise ValueError for anything but None and the name of a backend."""
    if backend is not None and backend not in BACKENDS:
        raise ValueError(f"backend must be None or one of {BACKENDS}, got {backend!r}")


def resolve(
    backend: str | None,
    device: torch.device,
    *,
    requires_grad: bool = False,
    cpu_only: bool = False,
) -> str:
    """The backend to use: the one named, or the fastest that can serve inputs on `device`.

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
            return "torch"
        if module.module is None:
            module.warn_once_missing()
            return "torch"
        return "native"
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
    return backend
