"""The library on CUDA tensors: on a GPU or, with --cuda-on-cpu, the same kernels on the CPU."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
import torch
from attention import problems
from torch import Tensor
from torch.overrides import TorchFunctionMode

from wsfast.attention.weight_fn import WeightFn
from wsfast.engines import compiled
from wsfast.maps.attention_objective import AttentionObjective

# As it is before --cuda-on-cpu takes its place.
_KERNELS = compiled.kernels


def pytest_itemcollected(item: pytest.Item) -> None:
    need = "cuda_on_cpu" if item.config.getoption("--cuda-on-cpu") else "cuda"
    if not any(need in mark.args for mark in item.iter_markers("needs")):
        item.add_marker(pytest.mark.needs(need))


@pytest.fixture
def device(request: pytest.FixtureRequest) -> torch.device:
    """Where ``backend="native"`` takes the CUDA kernels."""
    if request.config.getoption("--cuda-on-cpu"):
        return torch.device("cpu")
    return torch.device("cuda", torch.cuda.current_device())


@pytest.fixture
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """``on_cpu(function, ...)``: the same by the kernels for the CPU, from tensors there."""

    def run(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(compiled, "kernels", _KERNELS)
            return function(*map(_to_cpu, arguments), backend="native", **options)

    return run


def _to_cpu(value: Any) -> Any:
    return value.cpu() if isinstance(value, Tensor) else value


# -- memory that is not zero -----------------------------------------------------------------------

_NEW = (torch.empty, torch.empty_like, torch.empty_strided, Tensor.new_empty)


class _Poison(TorchFunctionMode):
    """New tensors hold NaN (integers: their largest number) until they are written."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if func in _NEW:
            out.fill_(torch.nan if out.is_floating_point() else torch.iinfo(out.dtype).max)
        return out


@pytest.fixture
def poisoned() -> Callable[[], AbstractContextManager[None]]:
    """``with poisoned(): ...`` allocates memory that must be written before it is read."""

    @contextmanager
    def poison() -> Iterator[None]:
        with _Poison():
            assert bool(torch.empty(3).isnan().all())
            yield

    return poison


# -- texts -----------------------------------------------------------------------------------------


@pytest.fixture
def text(device: torch.device) -> Callable[..., tuple[Tensor, Tensor]]:
    """``text(n, d, dtype)``: X, in which one word draws much attention, and W, on the device."""

    def make(
        n: int, d: int, dtype: torch.dtype = torch.float32, texts: int | None = None
    ) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(1000 * n + d)
        X = torch.randn(texts or 1, n, d, generator=generator, dtype=torch.float64)
        X *= math.sqrt(d) / X.norm(dim=-1, keepdim=True)
        X[:, n // 2] *= 3
        W = torch.randn(d, d, generator=generator, dtype=torch.float64) / math.sqrt(d)
        W += 0.5 * torch.eye(d, dtype=torch.float64)  # no text without weight
        X = X if texts else X[0]
        half = dtype in (torch.bfloat16, torch.float16)
        return X.to(device, dtype), W.to(device, torch.float32 if half else dtype)

    return make


@pytest.fixture
def changes(device: torch.device) -> Callable[..., Tensor]:
    """``changes(*shape, d, dtype=...)``: random Δ of norm √d, on the device."""

    def make(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        generator = torch.Generator().manual_seed(sum(shape))
        delta = torch.randn(*shape, generator=generator, dtype=torch.float64)
        delta *= math.sqrt(shape[-1]) / delta.norm(dim=-1, keepdim=True)
        return delta.to(device, dtype)

    return make


@pytest.fixture
def objective() -> Callable[..., AttentionObjective]:
    """``objective(X, W, fn)``: what the search climbs, by the kernels of X's device."""

    def make(X: Tensor, W: Tensor, fn: WeightFn | None = None) -> AttentionObjective:
        return problems.objective(X, W, fn or WeightFn("softmax"), "native", X.dtype)

    return make
