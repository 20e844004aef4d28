"""One step of the ascent in full d, all positions and 4 starts: values, gradients, the move."""

from __future__ import annotations

import pytest
import torch

from wsfast.engines.cpu import CPU
from wsfast.engines.engine import TORCH
from wsfast.maps.attention_objective import AttentionObjective
from wsfast.search.ascent import Limits, explore

from . import baselines
from .inputs import directions, text_and_weights
from .measure import Baseline

STARTS = 4
STEPS = 8  # of wsfast in one call
TEXTS = 16  # of the batched definition in one call


@pytest.mark.cases(
    "n, d",
    smoke=[(8, 48)],
    quick=[(16, 768), (64, 768), (256, 768)],
    full=[(32, 768), (128, 768), (512, 768), (64, 192), (100, 384)],
)
@pytest.mark.usefixtures("native")
def test_ascent_step(compare, threads, n, d):
    X, W = text_and_weights(n, d)
    search = baselines.ClosedFormSearch(X, W, STARTS)
    state, _ = search.prepare()
    start = directions(n, STARTS, d)
    objective = AttentionObjective(CPU, state)
    limits = Limits(radius=d**0.5, tol=1e-4)
    products = baselines.MatrixProducts(n, d, STARTS)
    phi = baselines.layer(X, W)
    pairs = min(TEXTS, n * STARTS)
    rows = torch.arange(n).repeat_interleave(STARTS)[:pairs]
    some = start.view(-1, d)[:pairs]

    values, gradients = objective.evaluator(STARTS).value_and_gradient(start)
    _check(values, gradients, *TORCH.norms(state, STARTS).value_and_gradient(start))
    _check(
        values.view(-1)[:pairs],
        gradients.view(-1, d)[:pairs],
        *baselines.batched_norms_and_gradient(X, W, phi, rows, some),
    )

    trial = search.first()
    trial, best = search.step(state, trial, None)
    stick = None
    if threads == 1 and d == 768:
        stick = 1.2 if n >= 64 else 1.6
    compare(
        "ascent step",
        f"n={n}, d={d}, {STARTS} starts",
        lambda: explore(objective, start, limits, STEPS),
        [
            Baseline("its matrix products", products.run, share=1 / STEPS, at_most=stick),
            Baseline(
                "closed form, PyTorch autograd",
                lambda: search.step(state, trial, best),
                share=1 / STEPS,
            ),
            Baseline(
                "definition, batched, autograd",
                lambda: baselines.batched_norms_and_gradient(X, W, phi, rows, some),
                share=pairs / (n * STARTS * STEPS),
                turns=3,
                note=f"extrapolated from {pairs} of {n * STARTS} texts",
            ),
        ],
    )


def _check(values, gradients, expected_values, expected_gradients) -> None:
    torch.testing.assert_close(values, expected_values, rtol=2e-3, atol=1e-5)
    size = expected_gradients.norm(dim=-1, keepdim=True)
    assert ((gradients - expected_gradients).norm(dim=-1, keepdim=True) <= 2e-3 * size).all()
