"""How φ changes at given Δ, on CUDA tensors, against the definition in float64."""

from __future__ import annotations

import pytest
import torch
from definition import delta_norms, deltas, features, relative_error
from parameters import dtypes, weight_fns

from wsfast import perturb, raf_delta_norms, raf_deltas
from wsfast.attention.weight_fn import WeightFn
from wsfast.engines.cuda import CUDA
from wsfast.engines.engine import TORCH

ACCURACY = {torch.float32: 1e-4, torch.float64: 1e-10}
SIZES = [
    *((1, 1), (1, 8), (2, 3), (3, 1), (5, 17), (16, 8), (17, 33), (33, 7), (7, 130)),
    *((3, 768), (2, 1025)),
]


@pytest.fixture
def check(on_cpu):
    """Norms (n, m) are the definition's and the CPU's, at the same device."""

    def run(X, W, delta, **options):
        got = raf_delta_norms(X, W, delta, **options, backend="native")
        assert got.device == X.device
        assert got.dtype == X.dtype
        choices = (options.get("weight_fn", "softmax"), options.get("normalize", True))
        words, weights = X.cpu(), W.cpu()
        expected = delta_norms(words, weights, delta.cpu(), *choices)
        floor = 1e-3 * float(features(words, weights, *choices).norm())
        for other in (expected, on_cpu(raf_delta_norms, X, W, delta, **options)):
            assert relative_error(got.cpu(), other, floor) <= ACCURACY[X.dtype]

    return run


@pytest.mark.needs("native")
@weight_fns
@dtypes
def test_sizes(text, changes, check, weight_fn, normalize, dtype):
    for n, d in SIZES:
        X, W = text(n, d, dtype)
        delta = changes(n, 3, d, dtype=dtype)
        delta[:, 1] *= 1e-3
        check(X, W, delta, weight_fn=weight_fn, normalize=normalize)


@pytest.mark.needs("cuda", "native")
@dtypes
def test_a_long_text(text, changes, on_cpu, dtype):
    X, W = text(128, 768, dtype)
    delta = changes(4, 768, dtype=dtype)
    got = raf_delta_norms(X, W, delta)
    expected = on_cpu(raf_delta_norms, X.double(), W.double(), delta.double())
    floor = 1e-3 * float(features(X.cpu(), W.cpu()).norm())
    assert relative_error(got.cpu(), expected, floor) <= ACCURACY[dtype]


@pytest.mark.needs("native")
@weight_fns
@dtypes
def test_scores_of_a_thousand(text, changes, check, weight_fn, normalize, dtype):
    """Rows that one word has, so that most changes are small beside their terms."""
    X, W = text(9, 6, torch.float64)
    W = W * (500 / float((X @ W @ X.mT).abs().max() / 6**0.5))
    X, W = X.to(dtype), W.to(dtype)
    delta = changes(9, 4, 6, dtype=dtype)
    for k in range(4):
        delta[:, k] *= 10.0**-k
    check(X, W, delta, weight_fn=weight_fn, normalize=normalize)


@dtypes
def test_batch_draws_and_mask(text, changes, dtype):
    X, W = text(11, 12, dtype, texts=2)
    W = torch.stack([W, W.mT])
    mask = torch.ones(2, 11, dtype=torch.bool, device=X.device)
    mask[0, 3], mask[1, 7:] = False, False
    delta = changes(2, 11, 3, 12, dtype=dtype)
    got = raf_delta_norms(X, W, delta, mask=mask, backend="native").cpu()
    assert got.shape == (2, 2, 11, 3)
    for b in range(2):
        words = mask[b].cpu()
        x, by = X[b].cpu()[words], delta[b].cpu()[words]
        assert bool(got[b][:, ~words].isnan().all())
        for r in range(2):
            expected = delta_norms(x, W[r].cpu(), by)
            floor = 1e-3 * float(features(x, W[r].cpu()).norm())
            assert relative_error(got[b, r][words], expected, floor) <= ACCURACY[dtype]


@weight_fns
@dtypes
def test_change_of_every_row(text, changes, weight_fn, normalize, dtype):
    options = {"weight_fn": weight_fn, "normalize": normalize}
    for n, d in ((1, 1), (2, 3), (17, 8)):
        X, W = text(n, d, dtype)
        delta = changes(d, dtype=dtype)
        got = raf_deltas(X, W, n // 2, delta, **options, backend="native")
        assert got.device == X.device
        expected = deltas(X.cpu(), W.cpu(), n // 2, delta.cpu(), weight_fn, normalize)
        size = float(expected.norm())
        assert float((got.cpu().double() - expected).norm()) <= ACCURACY[dtype] * size


@dtypes
def test_no_change_is_exactly_zero(text, device, dtype):
    X, W = text(9, 12, dtype)
    zero = torch.zeros(1, 12, dtype=dtype, device=device)
    assert not bool(raf_delta_norms(X, W, zero, backend="native").any())


@dtypes
def test_perturb(text, changes, dtype):
    X, _ = text(6, 5, dtype)
    delta = changes(5, dtype=dtype)
    moved = perturb(X, 4, delta)
    assert moved.device == X.device
    assert torch.equal(moved[4], X[4] + delta)
    assert torch.equal(moved[:4], X[:4])


@pytest.mark.parametrize(
    "fn", [WeightFn("softmax"), WeightFn("relu"), WeightFn("squareplus", True, 0.48)], ids=str
)
@dtypes
def test_value_and_gradient(text, changes, objective, fn, dtype):
    """Every kernel of a step, against autograd of the closed form in float64."""
    for n, d in SIZES:
        X, W = text(n, d, torch.float64)
        exact = objective(X, W, fn).state
        delta = 0.7 * changes(n, 2, d, dtype=dtype)  # no word becomes 0, where ReLU has a kink
        given = objective(X.to(dtype), W.to(dtype), fn)
        value, gradient = given.evaluator(2).value_and_gradient(delta)
        wanted, slope = TORCH.norms(exact, 2).value_and_gradient(delta.double())
        size = wanted.abs().clamp(min=1e-3 * float(exact.words.square().sum()))
        limit = {torch.float32: 3e-4, torch.float64: 1e-10}[dtype]
        assert float(((value.double() - wanted).abs() / size).max()) <= limit, (n, d)
        steep = slope.norm(dim=-1).clamp(min=1e-3 * float(size.max()))
        error = (gradient.double() - slope).norm(dim=-1) / steep
        assert float(error.max()) <= limit, (n, d)


@dtypes
def test_texts_together(text, changes, objective, dtype):
    """Texts that share products, of as many positions or not, and an odd number of dimensions."""
    for d, positions in ((8, (5, 5, 5)), (7, (5, 2, 3))):
        X, W = text(5, d, dtype, texts=3)
        states = [
            objective(x, W).state.select(torch.arange(count, device=X.device))
            for x, count in zip(X, positions, strict=True)
        ]
        delta = changes(sum(positions), 2, d, dtype=dtype)
        value, gradient = CUDA.norms_of_texts(states, 2).value_and_gradient(delta)
        limit = {torch.float32: 3e-4, torch.float64: 1e-10}[dtype]
        parts = zip(states, *(x.split(positions) for x in (delta, value, gradient)), strict=True)
        for state, by, got, slope in parts:
            expected, steep = TORCH.norms(state, 2).value_and_gradient(by)
            torch.testing.assert_close(got, expected, rtol=limit, atol=limit)
            size = float(steep.abs().max())
            torch.testing.assert_close(slope, steep, rtol=limit, atol=limit * size)
