"""Full precision whatever mode the caller's program runs in, and the mode left as it was."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from wsfast import (
    raf_delta_norms,
    raf_features,
    raf_sensitivity,
    self_scores,
    substitution_sensitivity,
)


def everything(X, W, E, delta):
    return [
        raf_features(X, W, backend="native"),
        raf_delta_norms(X, W, delta, backend="native"),
        raf_sensitivity(X, W, max_steps=8, backend="native").per_word,
        self_scores(E, W),
        substitution_sensitivity(X, E, W, backend="native").top_value,
    ]


@pytest.fixture
def inputs(text, changes):
    X, W = text(64, 256)
    return X, W, changes(100, 256), changes(2, 256)


@pytest.fixture
def products() -> Iterator[object]:
    """PyTorch's settings of matrix products on CUDA devices, put back afterwards."""
    settings = torch.backends.cuda.matmul
    if not hasattr(torch.backends, "fp32_precision"):
        pytest.fail("these tests set TF32 as PyTorch 2.9 and later do")
    before = settings.fp32_precision
    yield settings
    settings.fp32_precision = before


def test_tf32(inputs, products):
    plain = everything(*inputs)
    products.fp32_precision = "tf32"
    fast = everything(*inputs)
    assert products.fp32_precision == "tf32"
    for a, b in zip(plain, fast, strict=True):
        assert torch.equal(a, b)


@pytest.mark.needs("cuda")
def test_tf32_would_show(inputs, products):
    """What `test_tf32` guards against does change products here."""
    X, W, *_ = inputs
    products.fp32_precision = "ieee"
    plain = X @ W
    products.fp32_precision = "tf32"
    assert not torch.equal(plain, X @ W)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(inputs, device, dtype):
    plain = everything(*inputs)
    with torch.autocast(device.type, dtype=dtype):
        for a, b in zip(plain, everything(*inputs), strict=True):
            assert torch.equal(a, b)
        assert torch.is_autocast_enabled(device.type)


def test_inference_mode(inputs):
    plain = everything(*inputs)
    with torch.inference_mode():
        for a, b in zip(plain, everything(*inputs), strict=True):
            assert torch.equal(a, b)


def test_random_numbers_are_left_alone(inputs, device):
    if device.type == "cuda":
        before = torch.cuda.get_rng_state(device)
        everything(*inputs)
        assert torch.equal(torch.cuda.get_rng_state(device), before)
    before = torch.get_rng_state()
    everything(*inputs)
    assert torch.equal(torch.get_rng_state(), before)
