"""Where it runs: a GPU, or for a dry run the CUDA kernels compiled for the CPU."""

from __future__ import annotations

import importlib.util
import json
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from types import ModuleType
from typing import Any

import torch

from wsfast.engines import compiled

from .floors import Rates

SHORTEST = 5e-3  # seconds of calls that are timed together
SECONDS = 1.0  # that one figure is repeated for
ROOT = Path(__file__).resolve().parents[2]


def record(kind: str, **values: Any) -> None:
    """Hand a finding to gpu_check/run.py, which keeps it."""
    print("record: " + json.dumps({"kind": kind, **values}, ensure_ascii=False), flush=True)


def choose_device(*, dry_run: bool) -> torch.device:
    """The device whose tensors ``backend="native"`` serves with the CUDA kernels from now on."""
    torch.manual_seed(0)
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


def in_turn(runs: Sequence[Callable[[], object]]) -> Callable[[], object]:
    """A call of all `runs`."""

    def call_all() -> None:
        for run in runs:
            run()

    return call_all


class Clock:
    """Seconds of calls: CUDA events on a GPU, elsewhere the host's clock."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.on_gpu = device, device.type == "cuda"

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

    def median(self, run: Callable[[], object]) -> float:
        """Seconds of a warm call; a short one is repeated, a long one is not timed often."""
        first = self.seconds(run)
        if first < SECONDS:
            first = self.seconds(run)
        if not self.on_gpu:
            return first
        calls, times = max(1, min(1000, math.ceil(SHORTEST / first))), list[float]()
        end = perf_counter() + SECONDS
        while not times or (len(times) < 15 and perf_counter() < end):
            times.append(self.seconds(run, calls))
        return statistics.median(times)

    def in_graph(self, runs: Sequence[Callable[[], object]]) -> Callable[[], object]:
        """The same, on a GPU captured as a graph: no time of the host between them."""
        if not self.on_gpu:
            return in_turn(runs)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            runs[0]()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            in_turn(runs)()
        return graph.replay

    def rates(self) -> Rates:
        """Ceilings, measured: a large copy and two large products."""
        source = torch.randn(2**29 if self.on_gpu else 2**14, device=self.device)
        target = torch.empty_like(source)
        moving = 2 * source.nbytes / self.median(lambda: target.copy_(source))
        size = 8192 if self.on_gpu else 64
        a, b = (torch.randn(size, size, device=self.device) for _ in range(2))
        out = torch.empty_like(a)
        computing = {}
        for precision in ("tf32", "ieee"):
            with product_precision(precision):
                seconds = self.median(lambda: torch.mm(a, b, out=out))
            computing[precision] = 2 * size**3 / seconds
        return Rates(moving, computing["tf32"], computing["ieee"])
