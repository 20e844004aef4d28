"""The search against the gradient descent published with the paper, at position 0 alone."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
import torch
from definition import features

from wsfast import embed, raf_features, raf_sensitivity, rf_features, rf_sensitivity
from wsfast.text import imdb_reviews

DATA = Path(__file__).parents[2] / "data"


def table(name: str) -> list[dict[str, str]]:
    with (DATA / name).open(newline="") as file:
        return list(csv.DictReader(file))


def scaled(X: np.ndarray) -> np.ndarray:
    return X / np.linalg.norm(X, axis=1, keepdims=True) * np.sqrt(X.shape[1])


def ratio(row: dict[str, str], X: np.ndarray, W: np.ndarray, **options: object) -> float:
    """S at position 0 over theirs, at the same radius."""
    radius = float(row["delta_norm_over_sqrt_d"]) * X.shape[1] ** 0.5
    result = raf_sensitivity(X, W, positions=[0], radius=radius, **options)
    return float(result) / float(row["S_position0"])


def synthetic(row: dict[str, str]) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(int(row["seed"]))
    n, d = int(row["n"]), int(row["d"])
    return scaled(rng.standard_normal((n, d))), rng.standard_normal((d, d)) / np.sqrt(d)


@pytest.mark.parametrize(
    ("name", "weight_fn", "tolerance", "mean"),
    [("raf", "softmax", 1e-7, 1.1), ("raf_relu", "relu", 1e-9, 1.0)],
)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_synthetic_texts(name, weight_fn, tolerance, mean, dtype):
    rows = [row for row in table("authors_maps.csv") if row["map"] == name]
    assert len(rows) == {"raf": 11, "raf_relu": 4}[name]
    ratios = []
    for row in rows:
        X, W = synthetic(row)
        if dtype == "float64":
            norm = float(row["norm"])
            for backend in ("reference", "torch", None):
                phi = raf_features(X, W, weight_fn=weight_fn, backend=backend)
                assert np.linalg.norm(phi) == pytest.approx(norm, rel=tolerance)
        ratios.append(ratio(row, X.astype(dtype), W.astype(dtype), weight_fn=weight_fn))
    assert min(ratios) >= 0.999
    assert np.mean(ratios) >= mean


@pytest.mark.deep
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_random_features(dtype):
    rows = [row for row in table("authors_maps.csv") if row["map"] == "rf"]
    assert len(rows) == 4
    ratios = []
    for row in rows:
        rng = np.random.default_rng(int(row["seed"]))
        n, d = int(row["n"]), int(row["d"])
        X = scaled(rng.standard_normal((n, d)))
        V = rng.standard_normal((n * d, n * d)) / np.sqrt(n * d)
        if dtype == "float64":
            phi = rf_features(X, V)
            assert np.linalg.norm(phi) == pytest.approx(float(row["norm"]), rel=1e-9)
        radius = float(row["delta_norm_over_sqrt_d"]) * d**0.5
        result = rf_sensitivity(X.astype(dtype), V.astype(dtype), positions=[0], radius=radius)
        ratios.append(float(result) / float(row["S_position0"]))
        assert float(result) < float(result.upper[0])
    assert min(ratios) >= 1.01
    assert np.mean(ratios) >= 1.02


@pytest.mark.needs("text", "data")
def test_reviews():
    rows = table("authors_imdb_minilm.csv")
    reviews = imdb_reviews(1 + max(int(row["row"]) for row in rows))
    ratios = []
    for row in rows:
        text = reviews[int(row["row"])].text
        words = embed(text, layer="words", scale=False).X[: int(row["n"])]
        X = scaled(words.double().numpy())
        n, d = X.shape
        assert (n, d) == (int(row["n"]), int(row["d"]))
        W = np.random.default_rng(int(row["seed"])).standard_normal((d, d)) / np.sqrt(d)
        norm = float(features(torch.from_numpy(X), torch.from_numpy(W)).norm())
        assert norm == pytest.approx(float(row["norm"]), rel=1e-7)
        ratios.append(ratio(row, X, W))
    assert min(ratios) >= 0.999
    assert np.mean(ratios) >= 1.04
