"""Slopes at ties: as stated, whatever PyTorch's release picks for clamp, relu, max and norm."""

from __future__ import annotations

import pytest
import torch
from attention.problems import SEARCHED, state
from definition import WEIGHT_FNS, random_text

from wsfast import (
    attention_deltas,
    drf_features,
    raf_delta_norms,
    raf_deltas,
    raf_features,
    rf_features,
    rf_weights,
)
from wsfast._kinks import at_most, reciprocal, relu, root
from wsfast.attention import closed_form, functional
from wsfast.engines.engine import TORCH
from wsfast.maps.activation import ACTIVATIONS

# Nodes of autograd whose slope at a tie is PyTorch's choice.
CHOOSING = (
    "Abs",
    "Amax",
    "Amin",
    "Clamp",
    "Hardtanh",
    "Hypot",
    "LinalgVectorNorm",
    "Max",
    "Median",
    "Min",
    "Norm",
    "Relu",
    "Sgn",
    "Sign",
    "Sort",
    "Threshold",
    "Topk",
)


def nodes(result):
    """Names of all nodes of the graph that leads to `result`."""
    seen, todo = set(), [result.grad_fn]
    while todo:
        node = todo.pop()
        if node is not None and node not in seen:
            seen.add(node)
            todo += [before for before, _ in node.next_functions]
    return {node.name() for node in seen}


@pytest.mark.parametrize(
    ("function", "slopes"),
    [
        # At -1, 0 and 1.
        (relu, [0, 0, 1]),
        (lambda x: at_most(x, 0.0), [1, 1, 0]),
        (lambda x: -relu(-x), [1, 0, 0]),
        (root, [0, 0, 0.5]),
        (reciprocal, [0, 0, -1]),
        (ACTIVATIONS["relu"].value, [0, 0, 1]),
        (ACTIVATIONS["tanh"].value, [0.41997434, 1, 0.41997434]),
        (ACTIVATIONS["gelu"].value, [-0.08331547, 0.5, 1.08331547]),
    ],
)
def test_slopes(function, slopes):
    x = torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(function(x).sum(), x)
    torch.testing.assert_close(slope, torch.tensor(slopes, dtype=torch.float64))


@pytest.mark.parametrize("fn", SEARCHED[1:], ids=str)
def test_slope_of_a_weight_at_a_score_of_zero(fn):
    score = torch.tensor([-0.5, -0.0, 0.0, 0.5], dtype=torch.float64, requires_grad=True)
    by = torch.zeros_like(score, requires_grad=True)
    expected = (score.detach() > 0).double()
    if fn.name == "squareplus":
        expected = 0.5 * (1 + score.detach() / (score.detach().square() + fn.curve).sqrt())
    (slope,) = torch.autograd.grad(fn.value(score).sum(), score)
    torch.testing.assert_close(slope, expected)
    (slope,) = torch.autograd.grad(fn.change(score, by).sum(), by)
    torch.testing.assert_close(slope, expected)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_what_is_not_finite_is_not_hidden(value):
    x = torch.tensor([value], dtype=torch.float64)
    for function in (relu, lambda x: -at_most(-x, 0.0)):
        torch.testing.assert_close(function(x), x, equal_nan=True)


@pytest.mark.parametrize("fn", SEARCHED, ids=str)
def test_no_slope_of_the_search_is_left_to_pytorch(fn):
    X, W = random_text(5, 3)
    known = state(X, W, fn)
    delta = torch.randn(5, 2, 3, dtype=torch.float64, requires_grad=True)
    linear = functional.functional_at(known, known, torch.randn_like(X))
    for value in (closed_form.squared_norms(known, delta)[0], functional.values(linear, delta)):
        assert not {name for name in nodes(value) if name.startswith(CHOOSING)}


@pytest.mark.parametrize(("weight_fn", "normalize"), WEIGHT_FNS)
@pytest.mark.parametrize("backend", ["reference", "torch"])
def test_no_slope_of_attention_is_left_to_pytorch(weight_fn, normalize, backend):
    X, W = (x.requires_grad_() for x in random_text(5, 3))
    delta = torch.randn(3, dtype=torch.float64, requires_grad=True)
    options = {"weight_fn": weight_fn, "normalize": normalize, "backend": backend}
    phi = raf_features(X, W, **options)
    (slope,) = torch.autograd.grad(phi.square().sum(), X, create_graph=True)
    for result in (
        phi,
        slope,
        raf_deltas(X, W, 1, delta, **options),
        raf_delta_norms(X, W, delta[None], **options),
    ):
        assert not {name for name in nodes(result) if name.startswith(CHOOSING)}


@pytest.mark.parametrize("reduce", [None, "norm"])
def test_no_slope_of_trained_attention_is_left_to_pytorch(reduce):
    rows = [torch.randn(2, count, 3, requires_grad=True) for count in (5, 5, 5, 4, 4, 4)]
    sinks = torch.randn(2, requires_grad=True)
    options = {"is_causal": True, "softcap": 2.0, "sinks": sinks, "reduce": reduce}
    result = attention_deltas(*rows[:3], [0, 1, 4, 4], *rows[3:], **options)
    assert not {name for name in nodes(result) if name.startswith(CHOOSING)}


@pytest.mark.parametrize("activation", list(ACTIVATIONS))
@pytest.mark.parametrize("backend", ["reference", "torch"])
def test_no_slope_of_random_features_is_left_to_pytorch(activation, backend):
    X = torch.randn(3, 4, requires_grad=True)
    options = {"activation": activation, "backend": backend}
    for result in (
        rf_features(X, k=5, **options),
        drf_features(X, **options),
        rf_features(X, rf_weights(3, 4).requires_grad_(), **options),
    ):
        assert not {name for name in nodes(result) if name.startswith(CHOOSING)}


@pytest.mark.parametrize(("weight_fn", "normalize"), WEIGHT_FNS)
def test_slope_of_a_change_at_no_change(weight_fn, normalize):
    """At Δ = 0 all changes of scores are 0, where softmax's rising and falling forms meet."""
    X, W = random_text(5, 3)
    zero = torch.zeros(3, dtype=torch.float64)
    slopes = [
        torch.autograd.functional.jacobian(
            lambda delta, backend=backend: raf_deltas(
                X, W, 1, delta, weight_fn=weight_fn, normalize=normalize, backend=backend
            ),
            zero,
        )
        for backend in ("torch", "reference")
    ]
    torch.testing.assert_close(*slopes)
    assert float(slopes[0].norm()) > 1e-2


@pytest.mark.parametrize("fn", SEARCHED, ids=str)
@pytest.mark.parametrize("n", [1, 4])
def test_slope_of_the_search_with_a_zero_word(fn, n):
    """Word 0 is zero: its scores, and all with it, are exactly 0."""
    X, W = random_text(n, 3)
    X[0] = 0
    known = state(X, W, fn)
    delta = torch.zeros(n, 1, 3, dtype=torch.float64)
    delta[1:] = 0.1 * torch.randn(n - 1, 1, 3, dtype=torch.float64)
    _, gradient = TORCH.norms(known, 1).value_and_gradient(delta)
    assert torch.isfinite(gradient).all()
    if fn.name == "relu":  # a one-sided slope is all it has there
        return
    for k in range(3):
        step = torch.zeros(3, dtype=torch.float64)
        step[k] = 1e-6
        up, down = (closed_form.squared_norms(known, delta + s)[0] for s in (step, -step))
        torch.testing.assert_close(gradient[..., k], (up - down) / 2e-6, rtol=1e-6, atol=1e-7)
