"""delta_norms and the ascent's kernels against the definition and against autograd."""

from __future__ import annotations

import math

import pytest
import torch
from attention.problems import SEARCHED, state
from definition import WEIGHT_FNS, random_text, relative_error
from parameters import dtypes

from wsfast import raf_delta_norms, raf_features
from wsfast.engines.cuda import CUDA
from wsfast.engines.engine import TORCH, Climb

pytestmark = [
    pytest.mark.deep,
    pytest.mark.needs("cuda_on_cpu"),
    pytest.mark.usefixtures("cuda_on_cpu"),
]

weight_fns = pytest.mark.parametrize(("weight_fn", "normalize"), WEIGHT_FNS)
functions = pytest.mark.parametrize("fn", SEARCHED, ids=str)
ACCURACY = {torch.float32: 1e-4, torch.float64: 1e-10}
SMALL = [(n, d) for n in (1, 2, 3, 31, 32, 33) for d in (1, 3, 8, 33)]


def hard_problem(n, d, dtype):
    """A text in which one word draws most of the attention of some rows."""
    X, W = random_text(n, d, n + d)
    X[n // 2] *= 4
    return X.to(dtype), (W + 0.5 * torch.eye(d)).to(dtype)


def some_deltas(n, m, d, dtype):
    delta = torch.randn(n, m, d, dtype=torch.float64)
    delta = delta / delta.norm(dim=-1, keepdim=True) * math.sqrt(d)
    delta[:, 0] *= 1e-3
    return delta.to(dtype)


@weight_fns
@dtypes
def test_every_size(weight_fn, normalize, dtype):
    long = [(63, 8), (64, 3), (65, 1), (127, 8), (128, 3), (129, 8), (255, 1), (257, 3), (300, 8)]
    wide = [(33, 64), (17, 96), (5, 384), (3, 768), (2, 1000), (2, 1024), (2, 1025)]
    for n, d in (*SMALL, *long, *wide):
        X, W = hard_problem(n, d, dtype)
        delta = some_deltas(n, 2, d, dtype)
        options = {"weight_fn": weight_fn, "normalize": normalize}
        got = raf_delta_norms(X, W, delta, **options, backend="native")
        expected = raf_delta_norms(X, W, delta, **options, backend="reference")
        floor = 1e-3 * float(raf_features(X.double(), W.double(), **options).norm())
        assert relative_error(got, expected, max(floor, 1e-12)) <= ACCURACY[dtype], (n, d)


@functions
@dtypes
def test_value_and_gradient(fn, dtype):
    for n, d in SMALL:
        step_agrees(n, d, fn, dtype)


@pytest.mark.parametrize("fn", SEARCHED[:3], ids=str)
@dtypes
def test_value_and_gradient_of_larger_texts(fn, dtype):
    """Rows longer than a warp and than a block, read one number at a time or 16 bytes."""
    for n, d in [(129, 3), (300, 8), (64, 96), (65, 130), (5, 384), (3, 768), (2, 1000), (2, 1024)]:
        step_agrees(n, d, fn, dtype)


def step_agrees(n, d, fn, dtype):
    """Every kernel of a step, against autograd of the closed form in float64."""
    X, W = hard_problem(n, d, torch.float64)
    index = torch.arange(n) if n < 100 else torch.tensor([0, 1, n // 2, n - 1])
    exact = state(X, W, fn).select(index)
    given = state(X, W, fn, "native", dtype).select(index)
    delta = some_deltas(len(index), 2, d, dtype)
    value, gradient = CUDA.evaluator(given, 2).value_and_gradient(delta)
    wanted, slope = TORCH.norms(exact, 2).value_and_gradient(delta.double())
    limit = {torch.float32: 2e-4, torch.float64: 1e-10}[dtype]
    size = wanted.abs().clamp(min=1e-3 * float(exact.words.square().sum()))
    assert float(((value.double() - wanted).abs() / size).max()) <= limit, (n, d)
    steep = slope.norm(dim=-1).clamp(min=1e-3 * float(size.max()))
    error = (gradient.double() - slope).norm(dim=-1) / steep
    assert float(error.max()) <= 5 * limit, (n, d)


@functions
@dtypes
def test_squared_norms(fn, dtype):
    """The kernel of delta_norms: values, and the sizes that tell where rounding counts."""
    for n, d in SMALL:
        X, W = hard_problem(n, d, torch.float64)
        given = state(X, W, fn, "native", dtype)
        delta = some_deltas(n, 3, d, dtype)
        value, size = CUDA.evaluator(given, 3).squared_norms(delta)
        again, _ = CUDA.evaluator(given, 3).value_and_gradient(delta)
        assert not bool(size.isnan().any())
        assert bool((value <= size * (4 + 1e-3)).all())
        fine = size.isfinite()
        # What the search sees is the Gram matrix's, where some of the own row cancels.
        unit = 512 * torch.finfo(dtype).eps * size[fine]
        assert bool(((value - again).abs()[fine] <= unit).all())


@dtypes
def test_steps_are_those_of_pytorch(dtype):
    """take_step accepts and refuses, stays in the ball, and moves as the definition says."""
    for d in (1, 2, 7, 32, 132):
        torch.manual_seed(d)
        radius = math.sqrt(d)
        start = torch.randn(9, 2, d, dtype=dtype)
        start = start / start.norm(dim=-1, keepdim=True) * radius
        one, two = Climb.start(start), Climb.start(start)
        for step in range(6):
            value, gradient = torch.randn(9, 2, dtype=dtype), torch.randn(9, 2, d, dtype=dtype)
            gradient[0] = 0.0 if step < 3 else gradient[0]
            CUDA.take_step(one, value, gradient, radius)
            TORCH.take_step(two, value, gradient, radius)
            for name in ("value", "beta", "delta", "risen"):
                assert torch.equal(getattr(one, name), getattr(two, name)), name
            rtol = 200 * torch.finfo(dtype).eps
            torch.testing.assert_close(one.trial, two.trial, rtol=rtol, atol=rtol * radius)
            two.trial = one.trial.clone()
