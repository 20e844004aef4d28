"""Forty texts, and the best S_i known of each: what the search is held against.

Fifteen more are for the bound alone. `python -m bench.search_quality` seeks better S_i with many
starts and steps, and keeps them in `best_known.json`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

import wsfast
from wsfast.text import imdb_reviews

_KEPT = Path(__file__).parent / "best_known.json"

_SHAPES = [
    (10, 64), (16, 128), (20, 192), (32, 256), (32, 384), (50, 384), (64, 384), (100, 384),
    (10, 768), (64, 768), (100, 768), (128, 384),
]  # fmt: skip
SHAPES_OF_BOUND = [(10, 64), (20, 192), (50, 384), (100, 768), (128, 384)]
_TOKENS = (10, 16, 24, 32, 48, 64, 96, 128)
_REVIEWS = (3, 15_000)  # numbers of a bad and of a good one that are long enough

# What is sought with: starts, steps, and a seed of the starts.
_EFFORTS = ((64, 250, 0), (64, 900, 1))


class Case(NamedTuple):
    """A text X (n, d) and the seed of its W."""

    name: str
    X: Tensor
    seed: int

    def search(self, **options: Any) -> wsfast.SensitivityResult:
        """Of all its words."""
        W = wsfast.random_weights(self.X.shape[1], seed=self.seed)
        return wsfast.raf_sensitivity(self.X, W=W, **options)


def gaussian() -> Iterator[Case]:
    """Normal words, of each shape two texts."""
    for n, d in _SHAPES:
        for seed in (1, 2):
            yield normal_text(n, d, seed)


def of_bound() -> Iterator[Case]:
    """Normal words that the bound is held against, beside those above."""
    for n, d in SHAPES_OF_BOUND:
        for seed in (3, 4, 5):
            yield normal_text(n, d, seed)


def normal_text(n: int, d: int, seed: int) -> Case:
    """One of normal words."""
    X = torch.randn(n, d, generator=torch.Generator().manual_seed(seed))
    return Case(f"normal n={n} d={d} seed={seed}", X, seed)


def real() -> Iterator[Case]:
    """The first tokens of two reviews, embedded by MiniLM."""
    reviews = imdb_reviews()
    for number in _REVIEWS:
        for tokens in _TOKENS:
            X = wsfast.embed(reviews[number].text, max_tokens=tokens).X
            yield Case(f"review {number} n={len(X)} d={X.shape[1]}", X, 0)


def best_known() -> dict[str, list[float]]:
    """S_i of each case by name."""
    known: dict[str, list[float]] = json.loads(_KEPT.read_text()) if _KEPT.is_file() else {}
    return known


def seek() -> None:
    """Raise what is known by what a long search finds."""
    known = best_known()
    for case in (*gaussian(), *of_bound(), *real()):
        best = torch.tensor(known.get(case.name, [0.0] * len(case.X)), dtype=torch.float64)
        for starts, steps, seed in _EFFORTS:
            found = case.search(seed=seed, starts=starts, max_steps=steps, tol=1e-6)
            best = torch.maximum(best, found.per_word)
        known[case.name] = [float(f"{value:.6g}") for value in best]
        print(case.name, float(best.max()), flush=True)
        rows = [f"{json.dumps(name)}: {json.dumps(values)}" for name, values in known.items()]
        _KEPT.write_text("{\n" + ",\n".join(rows) + "\n}\n")


if __name__ == "__main__":
    seek()
