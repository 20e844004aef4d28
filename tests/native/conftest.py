"""Every instruction set that this machine runs."""

from __future__ import annotations

import pytest

from wsfast import _native


@pytest.fixture(
    params=[
        "baseline",
        pytest.param("avx2", marks=pytest.mark.needs("avx2")),
        pytest.param("avx512", marks=pytest.mark.needs("avx512")),
    ]
)
def level(request, isa):
    isa(request.param)
    assert _native.CPU.require().isa_used() == request.param
    return request.param
