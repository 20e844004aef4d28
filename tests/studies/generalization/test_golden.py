"""Against the outputs and the descents of the code published with the paper, at position 0."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
import torch
from parameters import backends

from wsfast.generalization import experiment

TABLE = Path(__file__).parents[2] / "data" / "authors_generalization.csv"
MAPS = {"raf": "raf", "raf_relu": "relu_raf", "rf": "rf"}
TRAININGS = {"fine_tuning": "fine_tuning", "total": "retraining"}
LOSSES = {"features": "feature", "feat_align": "alignment", "loss": "error"}


def table() -> list[dict[str, str]]:
    with TABLE.open(newline="") as file:
        return list(csv.DictReader(file))


def scaled(X: np.ndarray) -> np.ndarray:
    return X / np.linalg.norm(X, axis=-1, keepdims=True) * np.sqrt(X.shape[-1])


def problem(name: str) -> dict[str, np.ndarray | float]:
    """Their inputs; all rows of a map have the same."""
    (row, *_) = (row for row in table() if row["map"] == name)
    N, n, d = (int(row[size]) for size in ("N", "n", "d"))
    rng = np.random.default_rng(int(row["seed"]))
    texts = scaled(rng.standard_normal((N, n, d)))
    u = rng.standard_normal(n * d) / np.sqrt(n * d)
    labels = np.sign(texts.reshape(N, -1) @ u)
    X = scaled(rng.standard_normal((n, d)))
    y = float(np.sign(X.ravel() @ u))
    assert y == float(row["y"])
    size = n * d if name == "rf" else d
    return {
        "texts": texts,
        "labels": labels,
        "X": X,
        "y": y,
        "weights": rng.standard_normal((size, size)) / np.sqrt(size),
    }


@backends
@pytest.mark.parametrize("name", MAPS)
def test_outputs_and_losses(backend, name):
    rows = [row for row in table() if row["map"] == name]
    assert len(rows) == 6
    result = experiment(**problem(name), map=MAPS[name], positions=[0], backend=backend)
    assert result.radius == 8.0
    for row in rows:
        here = (
            result.trainings.index(TRAININGS[row["training"]]),
            result.losses.index(LOSSES[row["loss"]]),
        )
        assert result.output_before[here] == pytest.approx(float(row["t0"]), rel=0, abs=1e-8)
        assert result.output_after[here] == pytest.approx(float(row["t1"]), rel=0, abs=1e-8)
        assert result.loss[here] <= float(row["final_loss"]) + 1e-8, row
        assert np.linalg.norm(result.delta[here]) <= 8.0


def test_losses_in_float32_and_over_all_positions():
    rows = [row for row in table() if row["map"] == "raf"]
    given = problem("raf")
    known = {key: torch.from_numpy(given[key]).float() for key in ("texts", "X", "weights")}
    result = experiment(**known, labels=given["labels"], y=given["y"])
    for row in rows:
        here = (TRAININGS[row["training"]], LOSSES[row["loss"]])
        at = result.trainings.index(here[0]), result.losses.index(here[1])
        assert float(result.output_before[at]) == pytest.approx(float(row["t0"]), abs=1e-5)
        assert float(result.loss[at]) <= float(row["final_loss"]) + 1e-8
