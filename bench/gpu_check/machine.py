"""Where it runs: a GPU, or for a dry run the CUDA kernels compiled for the CPU."""

from __future__ import annotations

import importlib.util
import platform
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from types import ModuleType
from typing import Any

import torch

from wsfast.engines import compiled

ROOT = Path(__file__).resolve().parents[2]


def choose_device(*, dry_run: bool) -> torch.device:
    """The device whose tensors ``backend="native"`` serves with the CUDA kernels from now on."""
    if not dry_run:
        compiled.CUDA.require()
        return torch.device("cuda", torch.cuda.current_device())
    build = _load(ROOT / "tests/cuda_on_cpu/build.py", "build")
    module = _load(build.build(ROOT / "build/cuda_on_cpu"), "_cuda")
    compiled.kernels = lambda device: compiled.Kernels(module, device, gpu=True)
    return torch.device("cpu")


def _load(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def facts(device: torch.device) -> dict[str, str]:
    """What figures are to be read with."""
    out = {
        "card": "none: a dry run on the CPU",
        "driver": "none",
        "torch": torch.__version__,
        "nvcc": "none",
        "architectures": compiled.kernels(device).module.architectures(),
        "python": platform.python_version(),
    }
    if device.type == "cuda":
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        out["card"] = torch.cuda.get_device_name(device)
        out["driver"] = subprocess.check_output(query, text=True).split()[0]
        out["nvcc"] = compiled.CUDA.require().compiler()
    return out


@contextmanager
def product_precision(precision: str) -> Iterator[None]:
    """PyTorch's float32 products on CUDA devices in "ieee" or in "tf32"."""
    products: Any = torch.backends.cuda.matmul
    before = products.fp32_precision
    products.fp32_precision = precision
    try:
        yield
    finally:
        products.fp32_precision = before


class Clock:
    """Seconds of calls: CUDA events on a GPU, elsewhere the host's clock."""

    def __init__(self, device: torch.device) -> None:
        self.on_gpu = device.type == "cuda"

    def seconds(self, run: Callable[[], object], calls: int = 1) -> float:
        """Of one call of `run`, from its first launch to its last kernel's end."""
        if not self.on_gpu:
            start = perf_counter()
            for _ in range(calls):
                run()
            return (perf_counter() - start) / calls
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        begin.record()
        for _ in range(calls):
            run()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3 / calls

    def in_graph(self, runs: Sequence[Callable[[], object]]) -> Callable[[], object]:
        """A call of all `runs`, on a GPU captured as a graph: no time of the host between them."""

        def call_all() -> None:
            for run in runs:
                run()

        if not self.on_gpu:
            return call_all
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            runs[0]()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            call_all()
        return graph.replay
