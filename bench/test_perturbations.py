"""Every word of a prepared text hidden, or replaced by a baseline, beside a step of the ascent."""

from __future__ import annotations

import pytest
import torch

from wsfast.engines.cpu import CPU
from wsfast.maps.attention_objective import AttentionObjective
from wsfast.maps.feature_map import PreparedText
from wsfast.maps.measure import Norm
from wsfast.perturbation.change import KINDS, Sites
from wsfast.search.ascent import Limits, explore

from .inputs import directions, prepared, text_and_weights
from .measure import Baseline

STARTS = 4
STEPS = 8  # of the ascent in one call
CHECKED = 4  # positions


@pytest.mark.cases("n, d", smoke=[(8, 48)], quick=[(128, 768)], full=[(64, 384), (256, 768)])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("native")
def test_known_changes(compare, threads, n, d, kind):
    X, W = text_and_weights(n, d)
    text = prepared(X, W, CPU)
    sites = Sites.of_words(torch.arange(n))
    change = KINDS[kind](text.X, sites.at)

    def measure() -> torch.Tensor:
        return text.measured(sites, change, Norm(), torch.float64)

    some = torch.arange(CHECKED)
    by_definition = PreparedText.measured(
        text, Sites(sites.at[some]), change.select(some), Norm(), torch.float64
    )
    torch.testing.assert_close(measure()[:CHECKED], by_definition, rtol=1e-10, atol=0)
    state = text.in_dtype(text.state(sites.index), torch.float32)
    objective, start = AttentionObjective(CPU, state), directions(n, STARTS, d)
    limits = Limits(radius=d**0.5, tol=1e-4)
    judged = threads == 1 and (n, d) == (128, 768)
    compare(
        "change of every word of a prepared text",
        f"{kind}, n={n}, d={d}, float64",
        measure,
        [
            Baseline(
                f"an ascent step, {STARTS} starts, float32",
                lambda: explore(objective, start, limits, STEPS),
                share=STEPS,
                at_most=0.1 if judged else None,
            )
        ],
    )
