"""Features φ(X), against PyTorch's fused attention."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import wsfast
from wsfast.attention.core import core_of
from wsfast.attention.rows import Rows
from wsfast.attention.weight_fn import WeightFn
from wsfast.engines.cpu import CPU

from . import baselines
from .inputs import text_and_weights
from .measure import Baseline

STICK_UP_TO = 2048
# Short texts: a call costs some 15 µs before it computes.
SHORT = 64


@pytest.mark.cases(
    "n, d",
    smoke=[(16, 48)],
    quick=[(16, 384), (64, 768), (256, 384), (512, 768), (2048, 384), (2048, 768)],
    full=[(128, 768), (1024, 384), (1024, 768), (4096, 384)],
)
def test_features(compare, n, d):
    X, W = text_and_weights(n, d)
    phi = baselines.sdpa_features(X, W)
    torch.testing.assert_close(wsfast.raf_features(X, W), phi, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(baselines.layer(X, W), phi, rtol=1e-4, atol=1e-5)
    compare(
        "features",
        f"n={n}, d={d}",
        lambda: wsfast.raf_features(X, W),
        [
            Baseline(
                "sdpa, XW included",
                lambda: baselines.sdpa_features(X, W),
                at_most=None if n > STICK_UP_TO else 1.1 if n < SHORT else 1.05,
            ),
            Baseline("definition", lambda: baselines.layer(X, W)),
        ],
    )


@pytest.mark.cases(
    "n, d",
    smoke=[(16, 48)],
    quick=[(64, 768), (512, 384)],
    full=[(128, 768), (512, 768), (2048, 384)],
)
@pytest.mark.usefixtures("native")
def test_features_with_statistics(compare, n, d):
    X, W = text_and_weights(n, d, torch.float64)

    def prepare() -> Rows:
        return CPU.rows(core_of(X, W, WeightFn("softmax")), 2**40)

    def with_keys() -> tuple[baselines.Statistics, Tensor]:
        # The rows hold the keys besides: counted on both sides.
        return baselines.sdpa_features_and_statistics(X, W), X @ W.mT * d**-0.5

    rows, (expected, keys) = prepare(), with_keys()
    shift = X.mean(0)  # the rows' coordinates
    torch.testing.assert_close(rows.phi + shift, expected.phi)
    torch.testing.assert_close(rows.rest_mean + shift, expected.others_mean)
    torch.testing.assert_close(rows.statistics.rest, expected.others)
    assert rows.statistics.top.equal(expected.top)
    torch.testing.assert_close(rows.core.keys, keys)
    compare(
        "features and statistics",
        f"n={n}, d={d}, float64",
        prepare,
        [Baseline("sdpa, then statistics in PyTorch", with_keys, at_most=1.0)],
    )
