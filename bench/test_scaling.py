"""Growth of the worst-case search with the number of words and with their dimension."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import numpy as np
import pytest
import torch

import wsfast

from . import baselines
from .inputs import directions, text_and_weights
from .measure import Row, seconds_per_call, slope

REPEATS = {"smoke": 1, "quick": 3, "full": 7}


@pytest.mark.cases(
    "axis, fixed, values",
    smoke=[("n", 32, (8, 16, 32)), ("d", 8, (16, 32, 64))],
    quick=[("n", 192, (32, 64, 128, 256, 512)), ("d", 64, (64, 128, 256, 512, 1024))],
    full=[("n", 768, (16, 32, 64, 128, 256, 512, 1024)), ("d", 256, (64, 128, 256, 512, 1024))],
)
def test_scaling(benchmark, record, threads, size, axis, fixed, values):
    """Slopes of log(seconds) over log(size), all points at once in each repeat."""
    shapes = [(v, fixed) if axis == "n" else (fixed, v) for v in values]
    inputs = [text_and_weights(n, d) for n, d in shapes]
    runs: dict[str, list[Callable[[], object]]] = {
        "wsfast": [lambda X=X, W=W: wsfast.raf_sensitivity(X, W) for X, W in inputs],
        "definition": [_one_step(X, W) for X, W in inputs],
    }
    times: dict[str, list[list[float]]] = {name: [] for name in runs}

    def repeat() -> None:
        for name, each in runs.items():
            times[name].append([seconds_per_call(run, 1) for run in each])

    benchmark.pedantic(repeat, rounds=REPEATS[size], warmup_rounds=1)
    if benchmark.disabled:
        return
    medians = {
        name: np.array([statistics.median(point) for point in zip(*rows[1:], strict=True)])
        for name, rows in times.items()
    }
    if axis == "n":
        # One step at one position is timed; the search by definition takes n of them.
        medians["definition"] = medians["definition"] * np.array(values)
    slopes = {name: slope(values, seconds) for name, seconds in medians.items()}
    work = np.array([8 * n * n * d + 2 * n * d * d for n, d in shapes])
    slopes["arithmetic"] = slope(values, work)
    benchmark.extra_info |= {"threads": threads, "slopes": slopes}
    record(
        Row(
            f"growth of the search with {axis}",
            f"{axis}={values[0]} to {values[-1]}, {'d' if axis == 'n' else 'n'}={fixed}",
            threads,
            "definition, one step of all positions",
            f"{axis}^{slopes['wsfast']:.2f}, definition {axis}^{slopes['definition']:.2f}",
            note=f"full-d multiply-adds of a step grow as {axis}^{slopes['arithmetic']:.2f}",
        )
    )


def _one_step(X: torch.Tensor, W: torch.Tensor) -> Callable[[], object]:
    phi = baselines.layer(X, W)
    delta = directions(1, X.shape[1])
    return lambda: baselines.batched_norms_and_gradient(X, W, phi, torch.tensor([0]), delta)
