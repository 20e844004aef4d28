"""A proof from above beside every found S: what it costs, and how near it comes."""

from __future__ import annotations

import statistics

import pytest

import wsfast

from . import search_quality
from .inputs import text_and_weights
from .measure import Baseline, Row

# What U / S is asked to be, the median over the texts of a shape, S the best known.
NEAR = dict(zip(search_quality.SHAPES_OF_BOUND, (1.10, 1.08, 1.08, 1.08, 1.16), strict=True))
NEAR_REVIEWS = 1.05
SEEDS = 5  # texts of each shape


@pytest.mark.cases(
    "n, d", smoke=[(8, 48)], quick=[(32, 384), (100, 768)], full=[(64, 384), (256, 384)]
)
@pytest.mark.usefixtures("native")
def test_cost_of_normal_words(compare, n, d):
    X, W = text_and_weights(n, d)
    _compare(compare, f"n={n}, d={d}", X, W)


@pytest.mark.cases("tokens", smoke=[10], quick=[32, 128], full=[])
@pytest.mark.usefixtures("native", "real_texts")
def test_cost_of_a_review(compare, tokens):
    (case,) = [
        case for case in search_quality.real() if case.name.startswith(f"review 3 n={tokens} ")
    ]
    X = case.X
    W = wsfast.random_weights(X.shape[1], seed=case.seed)
    _compare(compare, f"review, n={len(X)}, d={X.shape[1]}", X, W, judged=tokens == 128)


def _compare(compare, case, X, W, *, judged=False):
    found = wsfast.raf_sensitivity(X, W, bound=True)
    # Of the search as well: 1.5 times its price on top of it.
    search = Baseline(
        "search alone", lambda: wsfast.raf_sensitivity(X, W), at_most=2.5 if judged else None
    )
    compare(
        "search and proof, all positions",
        f"{case}, U/S={float(found.ratio):.4f}",
        lambda: wsfast.raf_sensitivity(X, W, bound=True),
        [search],
    )


@pytest.mark.one_thread
@pytest.mark.cases("seeds", smoke=[1], quick=[SEEDS], full=[])
@pytest.mark.usefixtures("native", "real_texts")
def test_tightness(record, benchmark, threads, seeds):
    known = search_quality.best_known()
    ratios: dict[str, list[float]] = {}

    def prove() -> None:
        ratios.clear()
        for n, d in NEAR:
            for seed in range(1, seeds + 1):
                case = search_quality.normal_text(n, d, seed)
                found = case.search(bound=True)
                S = max([float(found.value), *known.get(case.name, [])])
                ratios.setdefault(f"n={n}, d={d}", []).append(float(found.upper_value) / S)
        for case in search_quality.real():
            found = case.search(bound=True)
            S = max(float(found.value), *known[case.name])
            ratios.setdefault("reviews", []).append(float(found.upper_value) / S)

    benchmark.pedantic(prove, rounds=1)
    sticks = {f"n={n}, d={d}": stick for (n, d), stick in NEAR.items()} | {"reviews": NEAR_REVIEWS}
    for case, found in ratios.items():
        median, stick = statistics.median(found), sticks[case]
        record(
            Row(
                "proof: U / S",
                f"{case}, {len(found)} texts",
                threads,
                "the best known S",
                f"{median:.3f}",
                f"≤ {stick:.2f}",
                median <= stick if seeds == SEEDS else None,
                f"largest {max(found):.3f}",
            )
        )
