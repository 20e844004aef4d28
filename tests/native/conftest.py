"""Every instruction set that this machine runs, and the CUDA kernels on the CPU."""

from __future__ import annotations

import pytest

from wsfast.engines import compiled

LEVELS = [
    "baseline",
    pytest.param("avx2", marks=pytest.mark.needs("avx2")),
    pytest.param("avx512", marks=pytest.mark.needs("avx512")),
]


@pytest.fixture(params=LEVELS)
def level(request, isa):
    isa(request.param)
    assert compiled.CPU.require().isa_used() == request.param
    return request.param


CUDA = pytest.param("cuda", marks=[pytest.mark.deep, pytest.mark.needs("cuda_on_cpu")])


@pytest.fixture(params=[*LEVELS, CUDA])
def kernels(request, isa):
    """The kernels that ``backend="native"`` takes: one instruction set, or CUDA's."""
    if request.param == "cuda":
        request.getfixturevalue("cuda_on_cpu")
    else:
        isa(request.param)
    return request.param
