"""Random features against their definition, and the blocks that V is made in."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from parameters import all_backends, backends, dtypes

from wsfast import drf_features, drf_weights, rf_features, rf_weights
from wsfast.engines import engine
from wsfast.maps import projection
from wsfast.maps.activation import ACTIVATIONS

FUNCTIONS = {
    "relu": lambda x: max(x, 0.0),
    "tanh": math.tanh,
    "gelu": lambda x: x * 0.5 * (1 + math.erf(x / math.sqrt(2))),
}


def definition(X, layers, activation):
    """ϕ(V_L ϕ(… V_1 flat(X))) of one text, number by number."""
    values = [float(x) for row in X for x in row]
    for V in layers:
        values = [
            FUNCTIONS[activation](math.fsum(map(float.__mul__, row, values)))
            for row in V.double().tolist()
        ]
    return torch.tensor(values, dtype=torch.float64)


def test_by_hand():
    X = torch.tensor([[1.0, -2.0], [3.0, 0.5]])
    V = torch.tensor([[1.0, 1.0, 0.0, 0.0], [0.0, 1.0, 1.0, 2.0], [-1.0, 0.0, 0.0, 4.0]])
    assert rf_features(X, V).tolist() == [0.0, 2.0, 1.0]  # ϕ of -1, 2, 1
    second = torch.tensor([[0.0, 1.0, -1.0], [0.0, -1.0, 1.0], [0.0, 1.0, 1.0]])
    assert drf_features(X, [V, second]).tolist() == [1.0, 0.0, 3.0]


@all_backends
@dtypes
@pytest.mark.parametrize("activation", list(FUNCTIONS))
def test_definition(backend, dtype, activation):
    X = torch.randn(2, 3, 5, dtype=dtype)
    tolerance = 200 * torch.finfo(dtype).eps
    V = rf_weights(3, 5, k=7, draws=2, seed=4, dtype=dtype)
    layers = drf_weights(3, 5, 3, k=7, draws=2, seed=4, dtype=dtype)
    wide = {"activation": activation, "k": 7, "draws": 2, "seed": 4, "backend": backend}
    for phi, weights in (
        (rf_features(X, **wide), [V]),
        (rf_features(X, V, activation=activation, backend=backend), [V]),
        (drf_features(X, depth=3, **wide), layers),
        (drf_features(X, layers, activation=activation, backend=backend), layers),
    ):
        assert phi.shape == (2, 2, 7)
        assert phi.dtype == dtype
        for b in range(2):
            for r in range(2):
                expected = definition(X[b], [V_l[r] for V_l in weights], activation)
                assert (phi[b, r].double() - expected).abs().max() < tolerance


def test_weights_are_scaled_and_the_same_for_every_backend(monkeypatch):
    V = rf_weights(4, 6, k=3000)
    assert V.shape == (3000, 24)
    assert float(V.var()) == pytest.approx(1 / 24, rel=0.03)
    first, second = drf_weights(4, 6, 2, k=300)
    assert float(first.var()) == pytest.approx(2 / 24, rel=0.06)
    assert float(second.var()) == pytest.approx(2 / 300, rel=0.02)
    with monkeypatch.context() as patch:
        patch.setattr("wsfast.engines.compiled.CPU.module", None)
        patch.setattr("wsfast.engines.compiled.CPU._warned", True)
        assert torch.equal(rf_weights(4, 6, k=3000), V)
        assert torch.equal(drf_weights(4, 6, 2, k=300)[1], second)


def test_entries_depend_on_their_place_alone():
    V = rf_weights(4, 6, k=20, seed=1) * 24**0.5
    shorter = rf_weights(2, 6, k=9, seed=1) * 12**0.5
    torch.testing.assert_close(shorter, V[:9, :12], rtol=1e-6, atol=0)
    draws = rf_weights(4, 6, k=20, seed=1, draws=3) * 24**0.5
    assert torch.equal(draws[0], V)
    assert not torch.equal(draws[1], draws[2])
    assert not torch.equal(rf_weights(4, 6, k=20, seed=2), rf_weights(4, 6, k=20, seed=1))
    # Layers are not those of another layer, nor of a word.
    layers = drf_weights(1, 20, 3, k=20)
    assert len({float(V[0, 0]) for V in layers}) == 3


def blocks_of(monkeypatch, numbers):
    """So many random numbers at a time."""
    for module in (projection, engine):
        monkeypatch.setattr(module, "RANDOM_BLOCK", numbers)


@backends
@pytest.mark.parametrize("texts", [1, 4, 5, 9])
def test_blocks_change_nothing(monkeypatch, backend, texts):
    X = torch.randn(texts, 3, 7, dtype=torch.float64)
    expected = rf_features(X, rf_weights(3, 7, k=50, dtype=torch.float64))
    for numbers in (7, 70, 1 << 20):
        blocks_of(monkeypatch, numbers)
        got = rf_features(X, k=50, backend=backend)
        assert (got - expected).abs().max() < 1e-13


@all_backends
@dtypes
@pytest.mark.parametrize("numbers", [12, 1 << 20])
def test_gradients(monkeypatch, backend, dtype, numbers):
    blocks_of(monkeypatch, numbers)
    X = torch.randn(2, 3, 4, dtype=dtype, requires_grad=True)
    V = rf_weights(3, 4, k=11, dtype=dtype).requires_grad_()
    coefficients = torch.randn(2, 11, dtype=dtype)
    (rf_features(X, k=11, activation="tanh", backend=backend) * coefficients).sum().backward()
    got, X.grad = X.grad, None
    z = X.flatten(1) @ V.mT
    (torch.tanh(z) * coefficients).sum().backward()
    torch.testing.assert_close(got, X.grad)
    assert bool((got != 0).all())
    by_V, V.grad = V.grad, None
    (rf_features(X, V, activation="tanh", backend=backend) * coefficients).sum().backward()
    torch.testing.assert_close(V.grad, by_V)


def test_kinds_of_input():
    X = torch.randn(2, 3, 4)
    one = rf_features(X[0], k=9)
    assert one.shape == (9,)
    torch.testing.assert_close(rf_features(X, k=9)[0], one)
    assert rf_features(X, k=9, draws=1).shape == (2, 1, 9)
    array = rf_features(X.numpy(), k=9)
    assert isinstance(array, np.ndarray)
    np.testing.assert_allclose(array[0], one.numpy(), rtol=1e-5, atol=1e-6)
    listed = rf_features([X[0], X[1, :2], X[1]], k=9)
    torch.testing.assert_close(listed[0], one)
    torch.testing.assert_close(listed[1], rf_features(X[1, :2], k=9))
    torch.testing.assert_close(listed[2], rf_features(X[1], k=9))
    half = rf_features(X.bfloat16(), k=9)
    assert half.dtype == torch.float32
    torch.testing.assert_close(half, rf_features(X.bfloat16().float(), k=9))
    torch.testing.assert_close(rf_features(X.mT.contiguous().mT, k=9), rf_features(X, k=9))


def test_default_widths():
    assert rf_features(torch.randn(3, 5)).shape == (15,)
    assert drf_features(torch.randn(3, 5)).shape == (15,)
    assert drf_features(torch.randn(5, 500)).shape == (2048,)
    assert rf_weights(3, 5).shape == (15, 15)
    assert [V.shape for V in drf_weights(5, 500, 2)] == [(2048, 2500), (2048, 2048)]


@given(
    n=st.integers(1, 4), d=st.integers(1, 9), k=st.integers(1, 20), seed=st.integers(0, 2**64 - 1)
)
def test_relu_is_homogeneous_and_words_add_up(n, d, k, seed):
    X = torch.linspace(-1, 1, n * d, dtype=torch.float64).reshape(n, d)
    phi = rf_features(X, k=k, seed=seed)
    torch.testing.assert_close(rf_features(3 * X, k=k, seed=seed), 3 * phi)
    V = rf_weights(n, d, k=k, seed=seed, dtype=torch.float64)
    z = sum(V[:, i * d : (i + 1) * d] @ X[i] for i in range(n))
    torch.testing.assert_close(phi, torch.relu(z))


@pytest.mark.parametrize("name", list(ACTIVATIONS))
def test_lipschitz_constants(name):
    x = torch.linspace(-6, 6, 100_001, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(ACTIVATIONS[name].value(x).sum(), x)
    assert float(slope.abs().max()) == pytest.approx(ACTIVATIONS[name].lipschitz, rel=1e-8)


def test_global_state(untouched):
    with untouched():
        rf_features(torch.ones(3, 4), draws=2)
        drf_weights(3, 4)


X = torch.ones(2, 3, 4)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: rf_features(X, torch.ones(5, 11)), ValueError, r"V must have shape \(k, 12\)"),
        (lambda: rf_features(X, torch.ones(12)), ValueError, "V must have shape"),
        (lambda: rf_features(X, torch.ones(0, 12)), ValueError, "V must have shape"),
        (lambda: rf_features(X, torch.ones(5, 12).double()), TypeError, "V must have the dtype"),
        (lambda: rf_features(X, torch.full((5, 12), torch.nan)), ValueError, "V must be finite"),
        (lambda: rf_features(X, torch.ones(5, 12), k=5), ValueError, "V and k cannot both"),
        (lambda: rf_features(X, torch.ones(5, 12), draws=2), ValueError, "V and draws cannot"),
        (lambda: rf_features(X, [[1.0]]), TypeError, "V must be a torch.Tensor"),
        (lambda: rf_features([X[0], X[1, :2]], torch.ones(5, 12)), ValueError, "one length"),
        (lambda: rf_features([X[0], X[1, :2]]), ValueError, "k must be given"),
        (lambda: rf_features(X * torch.inf), ValueError, "finite"),
        (lambda: rf_features(X, k=0), ValueError, "k must be from 1"),
        (lambda: rf_features(X, k=2.0), TypeError, "k must be an integer"),
        (lambda: rf_features(X, draws=0), ValueError, "draws must be"),
        (lambda: rf_features(X, seed=-1), ValueError, "seed must be"),
        (
            lambda: rf_features(X, activation="step"),
            ValueError,
            "activation must be 'relu', 'tanh', 'gelu' or a callable",
        ),
        (lambda: rf_features(X, activation=3), TypeError, "activation must be a name or"),
        (lambda: rf_features(X, activation=torch.sum), ValueError, "must keep shape and dtype"),
        (lambda: rf_features(X, activation=lambda x: x.detach()), ValueError, "differentiable"),
        (lambda: rf_features(X, backend="cuda"), ValueError, "backend must be"),
        (lambda: drf_features(X, torch.ones(5, 12)), TypeError, "V must be a sequence"),
        (lambda: drf_features(X, []), ValueError, "at least one matrix"),
        (lambda: drf_features(X, [torch.ones(5, 12)], depth=1), ValueError, "V and depth"),
        (
            lambda: drf_features(X, [torch.ones(5, 12), torch.ones(5, 4)]),
            ValueError,
            r"V\[1\] must have shape \(5, 5\)",
        ),
        (
            lambda: drf_features(X, [torch.ones(2, 5, 12), torch.ones(3, 5, 5)]),
            ValueError,
            r"V\[1\] must have shape \(2, 5, 5\)",
        ),
        (lambda: drf_features(X, depth=0), ValueError, "depth must be"),
        (lambda: rf_weights(0, 4), ValueError, "n must be"),
        (lambda: rf_weights(3, 4, dtype=torch.float16), TypeError, "dtype must be"),
        (lambda: drf_weights(3, 4, True), TypeError, "depth must be"),
    ],
)
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call()
