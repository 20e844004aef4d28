"""The CUDA kernels on the CPU, in any order of threads, into memory that is not zero."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from cuda_on_cpu.compile import ORDERS


@pytest.fixture(params=ORDERS)
def order(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every order in which threads and blocks may run."""
    monkeypatch.setenv("CUDA_ON_CPU_ORDER", request.param)
    monkeypatch.setenv("CUDA_ON_CPU_SEED", "7")
    return str(request.param)


@pytest.fixture(autouse=True)
def _poisoned() -> Iterator[None]:
    """New tensors hold NaN (integers: their largest number) until they are written."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)
