"""What many tests run over."""

from __future__ import annotations

import pytest
import torch
from definition import WEIGHT_FNS

BACKENDS = ["torch", pytest.param("native", marks=pytest.mark.needs("native"))]
ALL_BACKENDS = ["reference", *BACKENDS]

backends = pytest.mark.parametrize("backend", BACKENDS)
all_backends = pytest.mark.parametrize("backend", ALL_BACKENDS)
weight_fns = pytest.mark.parametrize(("weight_fn", "normalize"), WEIGHT_FNS)
dtypes = pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64], ids=["float32", "float64"]
)
both_ends = pytest.mark.parametrize("largest", [True, False], ids=["largest", "smallest"])
