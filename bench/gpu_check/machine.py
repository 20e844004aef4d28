"""Where it runs: a GPU, or for a dry run the CUDA kernels compiled for the CPU."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import torch

from wsfast.engines import compiled


def choose_device(*, dry_run: bool) -> torch.device:
    """The device whose tensors ``backend="native"`` serves with the CUDA kernels from now on."""
    torch.manual_seed(0)
    if not dry_run:
        compiled.CUDA.require()
        return torch.device("cuda", torch.cuda.current_device())
    root = Path(__file__).resolve().parents[2]
    sys.path.append(str(root / "tests"))
    built = importlib.import_module("cuda_on_cpu.build").build(root / "build/cuda_on_cpu")
    sys.path.append(str(built.parent))
    module = importlib.import_module("_cuda")
    compiled.kernels = lambda device: compiled.Kernels(module, device, gpu=True)
    return torch.device("cpu")
