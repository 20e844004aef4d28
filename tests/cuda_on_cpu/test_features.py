"""raf_features in one pass over the words, more closely and in more sizes than on a GPU."""

from __future__ import annotations

import pytest
import torch
from definition import features, random_text
from parameters import weight_fns

from wsfast import raf_features
from wsfast.attention.weight_fn import WeightFn
from wsfast.engines.features import fused_columns, fused_features

pytestmark = [
    pytest.mark.deep,
    pytest.mark.needs("cuda_on_cpu"),
    pytest.mark.usefixtures("cuda_on_cpu"),
]

LIMIT = 6e-6
# Every edge of the kernel: a tile has 16 rows and 16 words; a warp's columns come in blocks of 16,
# 128 to a block of threads, and kernels hold 128, 384, 768 or 1024; rows are filled up to 4.
SIZES = [
    *((1, 1), (2, 3), (15, 8), (16, 64), (17, 96), (31, 128), (32, 129), (33, 384), (1, 385)),
    *((33, 768), (15, 769), (16, 1000), (17, 1024), (48, 3), (63, 8), (64, 64), (65, 96)),
    *((127, 1), (128, 3), (129, 8), (255, 1), (256, 96), (257, 3), (300, 64)),
]


@weight_fns
def test_every_size(weight_fn, normalize):
    """Two texts, one word of each eight times as long as the others, and two draws."""
    for n, d in SIZES:
        X = torch.stack([random_text(n, d, n + 10 * b)[0] for b in range(2)])
        X[:, n // 2] *= 8
        W = torch.stack([random_text(n, d, 77 + r)[1] for r in range(2)]).float()
        X, fn = X.float(), WeightFn(weight_fn, normalize)
        phi = fused_features(X, X[:, None] @ W, fn, None, d**-0.5)
        for b in range(2):
            for r in range(2):
                expected = features(X[b], W[r], weight_fn, normalize)
                size = max(0.2, float(expected.abs().max()))
                error = float((phi[b, r].double() - expected).abs().max())
                assert error <= LIMIT * size, (n, d)


@pytest.mark.parametrize(("limit", "columns"), [(166912, 1024), (101376, 384), (1024, 0)])
def test_devices_with_less_shared_memory(monkeypatch, limit, columns):
    """The same φ by two products where a block cannot hold all columns."""
    monkeypatch.setenv("CUDA_ON_CPU_SHARED_LIMIT", str(limit))
    assert fused_columns(torch.device("cpu")) == columns
    X, W = random_text(18, 385, 0, torch.float32)
    phi = raf_features(X, W, backend="native")
    torch.testing.assert_close(phi.double(), features(X, W), rtol=0, atol=1e-4)


def test_an_error_is_reported_once(monkeypatch):
    """The launch after one that failed is none the worse for it."""
    X = torch.randn(3, 384) / 10  # more than may be used without asking
    with monkeypatch.context() as patch:
        patch.setenv("CUDA_ON_CPU_SHARED_LIMIT", "1024")
        with pytest.raises(RuntimeError, match=r"CUDA kernel raf_features: .*shared memory"):
            fused_features(X[None], X[None, None], WeightFn("softmax"), None, 1.0)
    phi = fused_features(X[None], X[None, None], WeightFn("softmax"), None, 1.0)
    torch.testing.assert_close(phi[0, 0], (X @ X.mT).softmax(-1) @ X, rtol=1e-4, atol=1e-4)
