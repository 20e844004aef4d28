"""Random features: making V, multiplying by it, and the worst case at a word."""

from __future__ import annotations

import math

import pytest
import torch

import wsfast
from wsfast.engines.cpu import CPU
from wsfast.engines.engine import TORCH
from wsfast.maps.projection import RandomProjection, project, project_word

from . import baselines
from .inputs import directions, text_and_weights
from .measure import Baseline, Row, run_python

HERE = torch.device("cpu")
TIMED = 40  # steps of the paper's procedure


@pytest.mark.cases("k, d", smoke=[(64, 48)], quick=[(20_000, 768)], full=[(20_000, 384)])
def test_making_and_multiplying(compare, native, k, d):
    """V_i x without V_i ever being held, beside PyTorch's own generator."""
    words = directions(1, d)
    random = RandomProjection(4, d, k, seed=0, draw=0, device=HERE, engine=CPU)
    plain = RandomProjection(4, d, k, seed=0, draw=0, device=HERE, engine=TORCH)
    torch.testing.assert_close(
        project_word(random, 0, words), project_word(plain, 0, words), rtol=1e-3, atol=1e-4
    )
    block = torch.empty(max(1, (1 << 18) // d), d)
    generator = torch.Generator().manual_seed(0)

    def with_torch() -> torch.Tensor:
        return torch.cat(
            [
                words @ block.normal_(std=(4 * d) ** -0.5, generator=generator).mT
                for _ in range(math.ceil(k / len(block)))
            ],
            1,
        )

    compare(
        "V x, V random and dropped",
        f"k={k}, d={d}, one word",
        lambda: project_word(random, 0, words),
        [
            Baseline("torch.Tensor.normal_ in blocks, then the product", with_torch, at_most=1.0),
            Baseline(
                "the same bits made in PyTorch operations",
                lambda: project_word(plain, 0, words),
                turns=3,
            ),
        ],
    )


@pytest.mark.cases("n, d", smoke=[(4, 24)], quick=[(10, 192), (20, 192)], full=[(40, 192)])
def test_worst_case_of_a_word(compare, n, d):
    """Position 0 alone, as the paper searches it; V given, so that both have the same."""
    X, _ = text_and_weights(n, d)
    V = wsfast.rf_weights(n, d)
    result = wsfast.rf_sensitivity(X, V, positions=[0])
    start = directions(d)
    S = baselines.descend_random_features(X, V, 0, 50 * n if n * d < 3000 else TIMED, start)
    assert float(result) >= 0.999 * S
    compare(
        "worst case of random features, position 0",
        f"n={n}, d={d}, k=nd, S={float(result):.4f}",
        lambda: wsfast.rf_sensitivity(X, V, positions=[0]),
        [
            Baseline(
                "paper's procedure, float64, V in memory",
                lambda: baselines.descend_random_features(X, V, 0, TIMED, start),
                share=TIMED / (50 * n),
                turns=3,
                note=f"extrapolated from {TIMED} of {50 * n} steps; S={S:.4f}",
            )
        ],
    )


WHOLE = """
import resource, sys, time, torch, wsfast
n, d, threads = map(int, sys.argv[1:])
torch.set_num_threads(threads)
X = torch.nn.functional.normalize(torch.randn(n, d), dim=1) * d**0.5
wsfast.rf_sensitivity(X[:2], positions=[0])
start = time.perf_counter()
result = wsfast.rf_sensitivity(X, positions=[0])
assert 0 < float(result) < float(result.upper[0])
unit = 1024 if sys.platform == "linux" else 1
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
print(time.perf_counter() - start, peak, float(result))
"""


@pytest.mark.all_threads
@pytest.mark.cases("n, d", smoke=[(8, 48)], quick=[(40, 768)], full=[(150, 768)])
def test_memory(benchmark, record, native, threads, size, n, d):
    """k = n d: the paper's largest case is V of 115,200 × 115,200, 106 GB in float64."""
    pytest.importorskip("resource", reason="peak memory is read by the module resource")
    seconds, peak, S = benchmark.pedantic(run_python, args=(WHOLE, n, d, threads), rounds=1)
    gib = 2**30
    record(
        Row(
            "memory of rf_sensitivity",
            f"n={n}, d={d}, k=nd, position 0",
            threads,
            "V whole, float64",
            f"{peak / gib:.2f} GiB at the peak",
            "≤ 4 GiB",
            None if size == "smoke" else peak <= 4 * gib,
            f"V has {8 * (n * d) ** 2 / gib:.3g} GiB; {seconds:.0f} s, S={S:.4f}",
        )
    )


@pytest.mark.cases("texts, k", smoke=[(4, 64)], quick=[(64, 4096)], full=[])
def test_features_of_many_texts(compare, native, texts, k):
    X = torch.stack([directions(8, 384)] * texts) + torch.randn(texts, 8, 384)
    V = wsfast.rf_weights(8, 384, k)
    random = RandomProjection(8, 384, k, seed=0, draw=0, device=HERE, engine=CPU)
    torch.testing.assert_close(project(random, X), X.flatten(1) @ V.mT, rtol=1e-3, atol=1e-3)
    compare(
        "random features of many texts",
        f"{texts} texts, n=8, d=384, k={k}",
        lambda: wsfast.rf_features(X, k=k),
        [Baseline("V in memory", lambda: torch.relu(X.flatten(1) @ V.mT))],
    )
