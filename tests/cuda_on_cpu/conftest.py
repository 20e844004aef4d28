"""The CUDA kernels on the CPU, into memory that is not zero."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def _poisoned() -> Iterator[None]:
    """New tensors hold NaN (integers: their largest number) until they are written."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)
