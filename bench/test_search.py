"""Worst case over the ball at every position."""

from __future__ import annotations

import time

import pytest
import torch

import wsfast

from . import baselines
from .inputs import directions, text_and_weights
from .measure import Baseline

STARTS, STEPS = 4, 40  # of the closed form in PyTorch autograd
TIMED = 40  # steps of the paper's procedure
TEXTS = 16  # of the batched definition in one call


@pytest.mark.cases(
    "n, d",
    smoke=[(8, 48)],
    quick=[(16, 768), (64, 768), (100, 768)],
    full=[(10, 768), (32, 768), (128, 768), (64, 384), (256, 384)],
)
def test_search(compare, n, d):
    X, W = text_and_weights(n, d)
    result = wsfast.raf_sensitivity(X, W)
    search = baselines.ClosedFormSearch(X, W, STARTS)
    S = search.run(STEPS)
    _check_value(X, W, result)
    assert float(result) >= 0.97 * S

    phi = baselines.layer(X, W)
    pairs = min(TEXTS, n * STARTS)
    rows = torch.arange(n).repeat_interleave(STARTS)[:pairs]
    some = directions(pairs, d)
    start = directions(d)
    compare(
        "worst case, all positions",
        f"n={n}, d={d}, S={float(result):.4f}",
        lambda: wsfast.raf_sensitivity(X, W),
        [
            Baseline(
                "paper's procedure, float64, at ONE position",
                lambda: baselines.descend_at_position(X, W, 0, TIMED, start),
                share=TIMED / (50 * n),
                at_most=1 / 300 if (n, d) == (100, 768) else None,
                turns=3,
                note=f"extrapolated from {TIMED} of {50 * n} steps",
            ),
            Baseline(
                f"closed form, PyTorch autograd, {STARTS} starts × {STEPS} steps",
                lambda: search.run(STEPS),
                at_most=1 / 5 if n <= 64 and d == 768 else None,
                turns=3,
                note=f"S={S:.4f}",
            ),
            Baseline(
                f"definition, batched, autograd, {STARTS} starts × {STEPS} steps",
                lambda: baselines.batched_norms_and_gradient(X, W, phi, rows, some),
                share=pairs / (n * STARTS * STEPS),
                turns=3,
                note=f"extrapolated from {pairs} texts of 1 step",
            ),
        ],
    )


@pytest.mark.one_thread
@pytest.mark.cases("n, d", smoke=[(8, 48)], quick=[(16, 64), (20, 192)], full=[(50, 192)])
def test_search_to_the_end(compare, n, d):
    """The paper's procedure in full at position 0: the S that it ends at, beside that of wsfast."""
    X, W = text_and_weights(n, d)
    result = wsfast.raf_sensitivity(X, W)
    _check_value(X, W, result)
    start = time.perf_counter()
    S = baselines.descend_at_position(X, W, 0, 50 * n, directions(d))
    seconds = time.perf_counter() - start
    at_0 = float(result.per_word[0])
    assert float(result) >= S
    compare(
        "worst case, all positions",
        f"n={n}, d={d}, S={float(result):.4f}",
        lambda: wsfast.raf_sensitivity(X, W),
        [
            Baseline(
                "paper's procedure, float64, position 0",
                lambda: baselines.descend_at_position(X, W, 0, TIMED, directions(d)),
                share=TIMED / (50 * n),
                turns=3,
                note=f"S_0={S:.4f} after all {50 * n} steps ({seconds:.1f} s), wsfast {at_0:.4f}",
            )
        ],
    )


def _check_value(X: torch.Tensor, W: torch.Tensor, result: wsfast.SensitivityResult) -> None:
    """S is what the definition gives, in float64, at the Δ returned, which is within the ball."""
    X, W, delta = X.double(), W.double(), result.delta.double()
    phi = baselines.layer(X, W)
    norm = baselines.batched_norms(X, W, phi, result.position[None], delta[None])
    assert float(norm / phi.norm()) == pytest.approx(float(result), rel=1e-6)
    assert float(delta.norm()) <= result.radius * (1 + 1e-6)


@pytest.mark.one_thread
@pytest.mark.cases("n, d", smoke=[(8, 48)], quick=[(64, 384)], full=[(128, 768)])
@pytest.mark.parametrize("backend", ["torch", "native"])
def test_neighbouring_pairs(compare, n, d, backend):
    """Every pair of neighbours beside every word alone, on the same engine."""
    X, W = text_and_weights(n, d)
    pairs = [(i, i + 1) for i in range(n - 1)]
    found = wsfast.raf_sensitivity(X, W, positions=pairs, backend=backend)
    words = wsfast.raf_sensitivity(X, W, backend=backend)
    larger = torch.maximum(words.per_word[:-1], words.per_word[1:])
    assert bool((found.per_word >= 0.999 * larger).all())
    judged = (backend, n, d) == ("torch", 64, 384)
    compare(
        "worst case, pairs of neighbours",
        f"n={n}, d={d}, {backend}",
        lambda: wsfast.raf_sensitivity(X, W, positions=pairs, backend=backend),
        [
            Baseline(
                "every word alone",
                lambda: wsfast.raf_sensitivity(X, W, backend=backend),
                at_most=4 if judged else None,
                turns=3,
            )
        ],
    )
