"""Every kernel at every instruction set, against the same in plain PyTorch."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from attention.problems import state
from definition import WEIGHT_FNS, delta_norms, features, random_text, relative_error
from parameters import dtypes

from wsfast import raf_delta_norms, raf_features
from wsfast.attention.core import HeadCore
from wsfast.attention.state import prepare_head
from wsfast.attention.weight_fn import WeightFn
from wsfast.engines import compiled
from wsfast.engines.cpu import CPU
from wsfast.engines.cuda import CUDA
from wsfast.engines.engine import TORCH, Climb
from wsfast.engines.features import attention_rows_, attention_statistics_

pytestmark = pytest.mark.needs("native")

FUNCTIONS = [
    WeightFn("softmax"),
    WeightFn("relu"),
    WeightFn("relu", normalize=False),
    WeightFn("squareplus", curve=0.48),
    WeightFn("squareplus", normalize=False, curve=0.48),
]
# Around the widest vector: 16 float32 lanes.
SIZES = range(1, 2 * 16 + 2)
# Longer than the rows that one block of CUDA's threads, or each of them, reads at once.
LONG = [(129, 3), (257, 8), (64, 96), (5, 384), (3, 768), (2, 1025)]
EPS = {torch.float32: 1.2e-7, torch.float64: 2.3e-16}
LIMIT = {torch.float32: 2e-4, torch.float64: 1e-9}  # of an evaluation

functions = pytest.mark.parametrize("fn", FUNCTIONS, ids=str)


def weights(scores, fn, keep):
    """Weights (rows, n) in float64, not normalised, shifted for softmax; 0 where not kept."""
    scores = scores.double()
    if fn.exponential:
        shifted = scores.masked_fill(~keep, -torch.inf)
        top = shifted.amax(-1, keepdim=True)
        return torch.where(keep, torch.exp(shifted - torch.where(top.isinf(), 0, top)), 0)
    if fn.name == "relu":
        return scores.clamp(min=0) * keep
    root = torch.sqrt(scores**2 + fn.curve)
    return torch.where(scores > 0, (scores + root) / 2, fn.curve / (2 * (root - scores))) * keep


def normalised(values, fn):
    total = values.sum(-1, keepdim=True)
    return values / torch.where(total > 0, total, 1) if fn.normalize else values


@functions
@dtypes
@pytest.mark.parametrize("masked", [False, True])
def test_attention_rows(kernels, fn, dtype, masked):
    for n in SIZES:
        scores = 10 * torch.randn(3, 2, n, dtype=torch.float64).to(dtype)
        scores[0, 1] = -scores[0, 1].abs() - 0.5  # a row without weight, for ReLU
        mask = torch.rand(3, n) < 0.5
        mask[:, n // 2] = True
        keep = mask[:, None].expand(3, 2, n) if masked else torch.ones(3, 2, n, dtype=torch.bool)
        expected = normalised(weights(scores, fn, keep), fn)
        attention_rows_(scores, fn, mask if masked else None)
        assert float((scores.double() - expected).abs().max()) <= 64 * EPS[dtype] * max(
            1.0, float(expected.max())
        )
        assert torch.equal(scores[~keep], torch.zeros_like(scores[~keep]))


@functions
@dtypes
def test_attention_statistics(kernels, fn, dtype):
    for n in SIZES:
        scores = 10 * torch.randn(4, n, dtype=torch.float64).to(dtype)
        scores[2] += 3000 * torch.nn.functional.one_hot(torch.tensor(n // 2), n).to(dtype)
        scores[3] = -scores[3].abs() - 0.5
        given = scores.clone()
        top_score, top = given.max(-1)
        others = torch.ones(4, n, dtype=torch.bool).scatter(-1, top[:, None], False)
        rest = weights(given, fn, others)
        statistics = attention_statistics_(scores, fn)
        assert torch.equal(statistics.top, top)
        assert torch.equal(statistics.top_score, top_score)
        if fn.exponential:
            sums = given.double().masked_fill(~others, -torch.inf).logsumexp(-1)
            if n == 1:
                assert statistics.rest.tolist() == [-torch.inf] * 4
            else:
                error = (statistics.rest.double() - sums).abs() / sums.abs().clamp(min=1)
                assert float(error.max()) <= 64 * EPS[dtype]
        else:
            assert relative_error(statistics.rest, rest.sum(-1), 1e-6) <= 64 * EPS[dtype]
        expected = normalised(rest, fn)
        assert float((scores.double() - expected).abs().max()) <= 64 * EPS[dtype] * max(
            1.0, float(expected.max())
        )


def check_evaluation(evaluator, delta, expected, gradient, limit, share=1e-6):
    """Values, by either way, and gradients; below which size values are of no account."""
    got = evaluator.value_and_gradient(delta)
    floor = share * float(expected.max())
    assert relative_error(got[0], expected, floor) <= limit
    size = gradient.norm(dim=-1, keepdim=True).clamp(min=1e-3 * float(gradient.norm()))
    assert float(((got[1].double() - gradient) / size).abs().max()) <= 10 * limit
    value, _ = evaluator.squared_norms(delta)
    assert relative_error(value, expected, floor) <= limit
    return floor


@pytest.mark.deep
@functions
@dtypes
def test_evaluation(kernels, fn, dtype):
    """Values, gradients and rounding sizes, with dominated pairs."""
    from wsfast.attention import closed_form

    limit = LIMIT[dtype]
    dominated = 0
    # A step of CUDA has the own row by the Gram matrix, where some of it cancels.
    engine, share = (CUDA, 1e-3) if kernels == "cuda" else (CPU, 1e-6)
    for n, d in [(n, 3) for n in SIZES] + [(5, d) for d in SIZES] + LONG:
        X, W = random_text(n, d, n + d)
        X[n // 2] *= 3
        known = state(X, W, fn, "native")
        dominated += len(known.dominated_row)
        delta = torch.randn(n, 2, d, dtype=torch.float64)
        expected, gradient = TORCH.norms(known, 2).value_and_gradient(delta)
        rounded = state(X, W, fn, "native", dtype)
        evaluator = engine.evaluator(rounded, 2)
        floor = check_evaluation(evaluator, delta.to(dtype), expected, gradient, limit, share)
        _, expected_size = closed_form.squared_norms(rounded, delta.to(dtype))
        _, size = evaluator.squared_norms(delta.to(dtype))
        # Where rounding may be all there is of the weights, either size is beyond all others.
        assert torch.equal(size > 1e20, expected_size > 1e20)
        certain = size <= 1e20
        if bool(certain.any()):
            assert relative_error(size[certain], expected_size[certain], floor) <= limit
    assert (dominated > 50) == fn.normalize


@dtypes
@pytest.mark.parametrize("within", [False, True])
def test_heads(level, dtype, within):
    """A head's values, gradients and rounding sizes, of Δ or of what a matrix makes of it."""
    limit = LIMIT[dtype]
    dominated = 0
    for n, d_k, d in [(n, 3, 5) for n in SIZES] + [(7, d, 34 - d) for d in SIZES]:
        generator = torch.Generator().manual_seed(n + 40 * d_k)

        def normal(*shape, g=generator):
            return torch.randn(*shape, dtype=torch.float64, generator=g)

        keys, queries, values = normal(n, d_k), 2 * normal(n, d_k), normal(n, d)
        core = HeadCore(WeightFn("softmax"), values, queries, keys)
        known = prepare_head(TORCH.rows(core, 1 << 20), torch.arange(n))
        dominated += len(known.dominated_row)
        moves = normal(4, 2 * d_k + d) if within else None
        delta = normal(n, 2, 4 if within else 2 * d_k + d)
        moved = delta @ moves if within else delta
        expected, gradient = TORCH.norms(known, 2, moves).value_and_gradient(delta)
        rounded = known.to(dtype)
        evaluator = CPU.evaluator(rounded, 2, moves.to(dtype) if within else None)
        floor = check_evaluation(evaluator, delta.to(dtype), expected, gradient, limit)
        _, expected_size = TORCH.squared_norms(rounded, moved.to(dtype))
        _, size = evaluator.squared_norms(delta.to(dtype))
        assert relative_error(size, expected_size, floor) <= 10 * limit
    assert dominated > 50


@dtypes
def test_step(level, dtype):
    """One step of the ascent: up and refused, without slope, inside and on the sphere."""
    for d in SIZES:
        start = torch.randn(4, 3, d, dtype=torch.float64).to(dtype)
        start = start / start.norm(dim=-1, keepdim=True) * 2.0
        start[2:] *= 0.7
        start[3, 0] = 0
        native, plain = Climb.start(start), Climb.start(start)
        for step in range(5):
            value = torch.randn(4, 3, dtype=torch.float64).to(dtype)
            gradient = torch.randn(4, 3, d, dtype=torch.float64).to(dtype)
            gradient[0, 0] = 0
            for engine, climb in ((CPU, native), (TORCH, plain)):
                engine.take_step(climb, value.clone(), gradient.clone(), 2.0)
            for name in ("trial", "delta", "gradient", "value", "beta", "risen"):
                torch.testing.assert_close(getattr(native, name), getattr(plain, name)), step


@pytest.mark.parametrize(("weight_fn", "normalize"), WEIGHT_FNS)
@dtypes
def test_public_functions(level, weight_fn, normalize, dtype):
    X, W = random_text(21, 11, 1, dtype)
    options = {"weight_fn": weight_fn, "normalize": normalize, "backend": "native"}
    phi = features(X, W, weight_fn, normalize)
    assert float((raf_features(X, W, **options) - phi).abs().max()) <= 30 * EPS[dtype] * float(
        phi.abs().max()
    )
    delta = torch.randn(21, 2, 11, dtype=torch.float64).to(dtype)
    expected = delta_norms(X, W, delta, weight_fn, normalize)
    limit = {torch.float32: 1e-4, torch.float64: 1e-10}[dtype]
    assert relative_error(raf_delta_norms(X, W, delta, **options), expected) <= limit


def test_levels_are_ordered_and_bounded():
    module = compiled.CPU.require()
    order = ["baseline", "avx2", "avx512"]
    built = module.isa_levels_built()
    assert built == [name for name in order if name in built]
    assert built[0] == "baseline"
    assert order.index(module.isa_used()) <= order.index(module.isa_detected())


@pytest.mark.parametrize("name", ["sse9", "", "AVX2"])
def test_unknown_level(isa, name):
    before = compiled.CPU.require().isa_used()
    with pytest.raises(ValueError, match=f"instruction set '{name}'.*usable: baseline"):
        isa(name)
    assert compiled.CPU.require().isa_used() == before


# Without PyTorch, whose own threads do not outlive a fork.
_FORKED = """
import os
import numpy as np
from wsfast.engines.compiled import CPU
_cpu = CPU.require()

def rows():
    scores = np.arange(400 * 500.0).reshape(400, 500) % 7
    _cpu.attention_rows64(
        weight_fn=0, curve=0.0, rows=400, n=500, scores=scores.ctypes.data, mask=0,
        rows_per_mask=400, top=0, top_score=0, others=0, threads=2,
    )
    return bool(np.abs(scores.sum(1) - 1).max() < 1e-12)

assert rows()
child = os.fork()
if child == 0:
    os._exit(0 if rows() else 1)
assert os.waitpid(child, 0)[1] == 0
assert rows()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_pool_of_threads_after_fork():
    subprocess.run([sys.executable, "-c", _FORKED], check=True, timeout=60)


def test_callers_at_once():
    """Two Python threads share the pool, or do without."""
    from concurrent.futures import ThreadPoolExecutor

    scores = torch.randn(1, 400, 500, dtype=torch.float64)
    expected = scores.softmax(-1)

    def call(_):
        mine = scores.clone()
        attention_rows_(mine, WeightFn("softmax"))
        return float((mine - expected).abs().max())

    with ThreadPoolExecutor(4) as pool:
        assert max(pool.map(call, range(40))) <= 1e-14
