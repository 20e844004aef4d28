"""torch.func.grad, vjp, jvp, jacrev, jacfwd, hessian and vmap over all that is differentiable."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import forward_ad

import wsfast
from wsfast import (
    attention_deltas,
    drf_features,
    perturb,
    raf_delta_norms,
    raf_deltas,
    raf_features,
    raf_sensitivity,
    random_weights,
    rf_features,
)

# What PyTorch's own forward mode imports warns of itself, in some releases.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script:FutureWarning")

N, D = 4, 3
W = random_weights(D, draws=2, dtype=torch.float64)
DELTA = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64)
MASK = torch.tensor([True, False, True, True])

FUNCTIONS = {
    "raf": lambda X: raf_features(X, W),
    "raf of a mask": lambda X: raf_features(X, W, mask=MASK),
    "relu raf": lambda X: raf_features(X, W, weight_fn="relu"),
    "raf of a list": lambda X: raf_features([X, X[:2]], W)[1, :, :2],
    "raf in W": lambda X: raf_features(X, X.mT @ X),
    "module": lambda X: wsfast.nn.RandomAttentionFeatures(D, dtype=torch.float64)(X),
    "rf": lambda X: rf_features(X, k=5, activation="tanh"),
    "rf in V": lambda X: rf_features(X, X.reshape(2, -1).repeat(1, 2), activation="tanh"),
    "drf": lambda X: drf_features(X, k=5, activation="tanh"),
    "deltas": lambda X: raf_deltas(X, W, 2, DELTA, mask=MASK),
    "delta norms": lambda X: raf_delta_norms(X, W, X[:2])[:, 1:],
    "perturb": lambda X: perturb(X, 1, DELTA),
    "attention deltas": lambda X: attention_deltas(
        *[X[None]] * 3, [0, 2], *[X[None, 1:3].tanh()] * 3, softcap=2.0, is_causal=True
    ),
    "attention norms": lambda X: attention_deltas(
        *[X[None]] * 3, 2, *[X[None, 1:3].tanh()] * 3, sinks=X[0, :1], reduce="norm"
    ),
}
NATIVE = pytest.mark.needs("native")


def squared(function):
    return lambda X: function(X).square().sum()


@pytest.mark.parametrize(
    "function",
    [
        *(pytest.param(function, id=name) for name, function in FUNCTIONS.items()),
        pytest.param(lambda X: raf_features(X, W, backend="native"), id="native", marks=NATIVE),
    ],
)
def test_transforms_of_torch_func(function):
    X = torch.randn(N, D, dtype=torch.float64)
    expected, jacobian = function(X), torch.autograd.functional.jacobian(function, X)
    along = (jacobian * X).sum((-1, -2))
    value, pullback = torch.func.vjp(function, X)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(pullback(expected)[0], torch.func.grad(squared(function))(X) / 2)
    torch.testing.assert_close(torch.func.jacrev(function)(X), jacobian)
    torch.testing.assert_close(torch.func.jacfwd(function)(X), jacobian)
    torch.testing.assert_close(torch.func.jvp(function, (X,), (X,)), (expected, along))
    with forward_ad.dual_level():
        dual = forward_ad.unpack_dual(function(forward_ad.make_dual(X, X)))
        torch.testing.assert_close(dual.tangent, along)
    both = torch.stack([X, 2 * X], -1)
    each = torch.stack([expected, function(2 * X)])
    torch.testing.assert_close(torch.vmap(function, in_dims=-1)(both), each)
    # Gradients of each text alone.
    torch.testing.assert_close(
        torch.vmap(torch.func.grad(squared(function)), in_dims=-1)(both)[0],
        torch.func.grad(squared(function))(X),
    )


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_second_derivatives(function):
    X = torch.randn(N, D, dtype=torch.float64, requires_grad=True)
    torch.autograd.gradgradcheck(function, (X,), fast_mode=True)
    hessian = torch.func.hessian(squared(function))(X.detach())
    torch.testing.assert_close(
        hessian, torch.autograd.functional.hessian(squared(function), X.detach())
    )


def test_values_are_checked_under_vmap():
    X = torch.randn(2, N, D, dtype=torch.float64)
    masks = torch.tensor([[True] * N, [False] * N])
    with pytest.raises(ValueError, match="mask must be True"):
        torch.vmap(lambda X, mask: raf_features(X, W, mask=mask))(X, masks)
    with pytest.raises(ValueError, match=r"mask\[0\] must be one for all calls"):
        torch.vmap(lambda X, mask: raf_features([X], W, mask=[mask]))(X, masks)
    X[1, 0, 2] = torch.nan
    for function in (FUNCTIONS["raf"], FUNCTIONS["rf"], FUNCTIONS["deltas"]):
        with pytest.raises(ValueError, match="X must be finite, got nan"):
            torch.vmap(function)(X)


def test_a_study_says_that_it_cannot_be_transformed():
    X = torch.randn(2, N, D, dtype=torch.float64)
    with pytest.raises(ValueError, match="X must be plain tensors, got a transform"):
        torch.vmap(lambda X: raf_sensitivity(X).value)(X)


@pytest.mark.parametrize("transform", [torch.func.grad, torch.vmap])
def test_compiled_transform_is_one_graph(transform):
    torch.compiler.reset()
    X = torch.randn(N, D, dtype=torch.float64)
    function = transform(lambda x: raf_features(x[None], W[0]).square().sum())
    X = torch.stack([X, 2 * X]) if transform is torch.vmap else X
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(X), function(X))
