"""Running an experiment, and checking its figures against the definition."""

from __future__ import annotations

import pytest
import torch
from studies.generalization.truth import ATTENTION, Problem, figures

import wsfast
from wsfast.generalization import GeneralizationResult, experiment
from wsfast.results.generalization import FIGURES

ALL_MAPS = [*ATTENTION, "rf", "drf"]
FAST = {"starts": 2, "max_steps": 10}


def weights_of(name: str, n: int, d: int, seed: int = 0, dtype=torch.float64, draws=None):
    options = {"draws": draws, "seed": seed, "dtype": dtype}
    if name == "rf":
        return wsfast.rf_weights(n, d, k=40, **options)
    if name == "drf":
        return wsfast.drf_weights(n, d, depth=2, k=40, **options)
    return wsfast.random_weights(d, **options)


def run(known: Problem, **options) -> GeneralizationResult:
    return experiment(known.texts, known.labels, known.X, known.y, **options)


def check(result: GeneralizationResult, known: Problem, phi, at=(), rel: float = 1e-7) -> None:
    """All figures of the trial and draw `at` are those of the definition at its Δ."""
    for t, training in enumerate(result.trainings):
        for k, name in enumerate(result.losses):
            here = (*at, t, k)
            delta = torch.as_tensor(result.delta[here])
            position = int(result.position[here])
            assert float(delta.double().norm()) <= result.radius
            expected = figures(phi, known, training, name, position, delta)
            assert list(expected) == list(FIGURES)
            for figure, value in expected.items():
                got = float(getattr(result, figure)[here])
                assert got == pytest.approx(value, rel=rel, abs=rel), (figure, training, name)
