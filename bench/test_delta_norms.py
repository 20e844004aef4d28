"""‖φ(X^i(Δ)) - φ(X)‖ at every position for m given Δ; by definition, a layer for each."""

from __future__ import annotations

import time

import pytest
import torch

import wsfast

from . import baselines
from .inputs import directions, text_and_weights
from .measure import Baseline

TEXTS = 64  # of the batched definition in one call
ALONE = 4  # positions of the definition one by one in one call


@pytest.mark.cases(
    "n, d, m",
    smoke=[(8, 48, 3)],
    quick=[(16, 384, 4), (64, 384, 4), (64, 768, 16), (256, 384, 4)],
    full=[(128, 768, 4), (512, 384, 4), (64, 384, 256)],
)
def test_delta_norms(compare, n, d, m):
    X, W, delta, phi = _inputs(n, d, m)
    positions, some, share = _pairs(n, m, delta)
    values = wsfast.raf_delta_norms(X, W, delta)
    batched = baselines.batched_norms(X, W, phi, positions, some)
    _check(values, batched, phi)

    def alone() -> torch.Tensor:
        each = [
            baselines.batched_norms(X, W, phi, torch.tensor([i]), by[None])
            for i in range(ALONE)
            for by in delta
        ]
        return torch.cat(each)

    _check(values, alone(), phi)
    compare(
        "norms at given Δ",
        f"n={n}, d={d}, {m} Δ",
        lambda: wsfast.raf_delta_norms(X, W, delta),
        [
            Baseline(
                "definition, batched",
                lambda: baselines.batched_norms(X, W, phi, positions, some),
                share=share,
                note=_part(positions, n * m),
            ),
            Baseline(
                "definition, text by text",
                alone,
                share=ALONE / n,
                note=f"extrapolated from {ALONE} of {n} positions",
            ),
        ],
    )


@pytest.mark.one_thread
@pytest.mark.filterwarnings("ignore")  # of the compiler of torch.compile, none of ours
@pytest.mark.cases(
    "n, d, m", smoke=[(8, 48, 3)], quick=[(64, 384, 4)], full=[(64, 768, 16), (256, 384, 4)]
)
def test_delta_norms_compiled(compare, fresh_compiler, n, d, m):
    X, W, delta, phi = _inputs(n, d, m)
    positions, some, share = _pairs(n, m, delta)
    compiled = torch.compile(baselines.batched_norms, fullgraph=True, dynamic=False)
    start = time.perf_counter()
    values = compiled(X, W, phi, positions, some)
    seconds = time.perf_counter() - start
    _check(wsfast.raf_delta_norms(X, W, delta), values, phi)
    compare(
        "norms at given Δ",
        f"n={n}, d={d}, {m} Δ",
        lambda: wsfast.raf_delta_norms(X, W, delta),
        [
            Baseline(
                "definition, batched, torch.compile",
                lambda: compiled(X, W, phi, positions, some),
                share=share,
                note=", ".join(
                    filter(
                        None, [_part(positions, n * m), f"compiled in {seconds:.0f} s, not counted"]
                    )
                ),
            )
        ],
    )


def _inputs(n: int, d: int, m: int) -> tuple[torch.Tensor, ...]:
    X, W = text_and_weights(n, d)
    return X, W, directions(m, d), baselines.layer(X, W)


def _pairs(n: int, m: int, delta: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, float]:
    """The first pairs of a position and a Δ, and their share of all."""
    count = min(TEXTS, n * m)
    pairs = torch.arange(count)
    return pairs // m, delta[pairs % m], count / (n * m)


def _part(positions: torch.Tensor, of: int) -> str:
    return "" if len(positions) == of else f"extrapolated from {len(positions)} of {of} texts"


def _check(norms: torch.Tensor, expected: torch.Tensor, phi: torch.Tensor) -> None:
    # The definition in float32 subtracts features: its own error is a share of ‖φ‖.
    atol = 1e-5 * float(phi.norm())
    torch.testing.assert_close(norms.flatten()[: len(expected)], expected, rtol=1e-3, atol=atol)
