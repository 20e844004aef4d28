"""Gradients: of the torch backend by autograd, of the compiled kernels by their formulas."""

from __future__ import annotations

import pytest
import torch
from attention.problems import SEARCHED, state
from definition import random_text
from parameters import weight_fns

from wsfast import raf_delta_norms, raf_deltas, random_weights
from wsfast.engines.engine import TORCH

searched = pytest.mark.parametrize("fn", SEARCHED, ids=str)


@pytest.mark.deep
@weight_fns
@pytest.mark.parametrize("backend", ["torch", "reference"])
def test_delta_norms(weight_fn, normalize, backend):
    X = torch.stack([random_text(4, 3, seed)[0] for seed in (0, 1)]).requires_grad_()
    # With the identity on top every word attends to itself: no row is empty, no norm is 0.
    W = random_weights(3, draws=2, dtype=torch.float64) + torch.eye(3, dtype=torch.float64)
    W.requires_grad_()
    delta = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([True, False, True, True])

    def norms(X, W, delta):
        out = raf_delta_norms(
            X, W, delta, weight_fn=weight_fn, normalize=normalize, mask=mask, backend=backend
        )
        return out[:, :, mask]

    torch.autograd.gradcheck(norms, (X, W, delta))
    for gradient in torch.autograd.grad(norms(X, W, delta).sum(), (X, W, delta)):
        assert float(gradient.norm()) > 1e-3


@weight_fns
@pytest.mark.parametrize("backend", ["torch", "reference"])
def test_deltas(weight_fn, normalize, backend):
    X, W = (x.requires_grad_() for x in random_text(4, 3))
    delta = torch.randn(3, dtype=torch.float64, requires_grad=True)
    torch.autograd.gradcheck(
        lambda X, W, delta: raf_deltas(
            X, W, 2, delta, weight_fn=weight_fn, normalize=normalize, backend=backend
        ),
        (X, W, delta),
    )


@weight_fns
@pytest.mark.parametrize("backend", ["torch", "reference"])
def test_gradient_is_finite_where_nothing_changes(weight_fn, normalize, backend):
    X, W = random_text(4, 3)
    delta = torch.zeros(1, 3, dtype=torch.float64, requires_grad=True)
    norms = raf_delta_norms(X, W, delta, weight_fn=weight_fn, normalize=normalize, backend=backend)
    norms.sum().backward()
    assert torch.isfinite(delta.grad).all()


@weight_fns
@pytest.mark.parametrize("backend", ["torch", "reference"])
def test_every_input_has_its_gradient_in_float32(weight_fn, normalize, backend):
    inputs = [*random_text(4, 3, dtype=torch.float32), torch.ones(3)]
    exact = [x.double() for x in inputs]

    def gradients(X, W, delta):
        given = [x.requires_grad_() for x in (X, W, delta)]
        options = {"weight_fn": weight_fn, "normalize": normalize, "backend": backend}
        total = raf_delta_norms(X, W, delta[None], **options).sum()
        total = total + raf_deltas(X, W, 1, delta, **options).square().sum()
        return torch.autograd.grad(total, given)

    for got, expected in zip(gradients(*inputs), gradients(*exact), strict=True):
        assert got.dtype == torch.float32
        assert float(expected.norm()) > 1e-2
        torch.testing.assert_close(got.double(), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("argument", [0, 1, 2])
def test_backend_for_gradients(argument):
    inputs = [*random_text(4, 3), torch.ones(1, 3, dtype=torch.float64)]
    inputs[argument].requires_grad_()
    assert raf_delta_norms(*inputs).requires_grad
    with torch.no_grad():
        assert not raf_delta_norms(*inputs).requires_grad


@pytest.mark.needs("native")
@pytest.mark.parametrize("argument", [0, 1, 2])
def test_native_refuses_a_gradient(argument):
    inputs = [*random_text(4, 3), torch.ones(1, 3, dtype=torch.float64)]
    inputs[argument].requires_grad_()
    with pytest.raises(ValueError, match="backend='native' gives no gradient"):
        raf_delta_norms(*inputs, backend="native")


def saturated_text(n: int, d: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Word 1 takes nearly all attention of most rows."""
    X, W = random_text(n, d, 7)
    if n > 1:
        X[1] *= 5
    return X, W


@pytest.mark.needs("native")
@searched
@pytest.mark.parametrize("saturated", [False, True])
def test_native_value_and_gradient(fn, saturated):
    from wsfast.engines.cpu import CPU

    for n, d, starts in ((1, 1, 1), (1, 3, 2), (2, 1, 3), (5, 4, 1), (9, 7, 3), (17, 16, 2)):
        X, W = saturated_text(n, d) if saturated else random_text(n, d, n)
        known = state(X, W, fn, "native")
        delta = torch.randn(n, starts, d, dtype=torch.float64)
        delta[:, -1] *= 1e-3
        value, gradient = CPU.evaluator(known, starts).value_and_gradient(delta)
        expected = TORCH.norms(known, starts).value_and_gradient(delta)
        torch.testing.assert_close(value, expected[0], rtol=1e-9, atol=1e-18)
        size = expected[1].norm(dim=-1, keepdim=True).clamp(min=1e-12)
        assert float(((gradient - expected[1]) / size).abs().max()) <= 1e-8
        # Finite differences of the kernel's own value.
        step = 1e-6
        evaluator = CPU.evaluator(known, starts)
        for k in range(d):
            shift = torch.zeros(d, dtype=torch.float64)
            shift[k] = step
            up = evaluator.value_and_gradient(delta + shift)[0].clone()
            down = evaluator.value_and_gradient(delta - shift)[0].clone()
            slope = (up - down) / (2 * step)
            rounding = 1e-9 * float(value.max())
            assert bool(((slope - gradient[..., k]).abs() <= 1e-5 * size[..., 0] + rounding).all())
        # The value that comes without a gradient is the same.
        without = CPU.evaluator(known, starts).squared_norms(delta)[0]
        torch.testing.assert_close(without, value, rtol=1e-10, atol=1e-18)


@pytest.mark.needs("native")
@searched
def test_native_gradient_in_float32(fn):
    from wsfast.engines.cpu import CPU

    X, W = random_text(19, 9, 2)
    exact = state(X, W, fn, "native")
    delta = torch.randn(19, 4, 9, dtype=torch.float64)
    value, gradient = CPU.evaluator(exact, 4).value_and_gradient(delta)
    rounded = CPU.evaluator(state(X, W, fn, "native", torch.float32), 4)
    value32, gradient32 = rounded.value_and_gradient(delta.float())
    assert value32.dtype == gradient32.dtype == torch.float32
    torch.testing.assert_close(value32.double(), value, rtol=1e-4, atol=0)
    size = gradient.norm(dim=-1, keepdim=True)
    assert float(((gradient32.double() - gradient) / size).abs().max()) <= 1e-4


@pytest.mark.needs("native")
@searched
def test_positions_of_a_state_can_be_selected_and_repeated(fn):
    from wsfast.engines.cpu import CPU

    X, W = saturated_text(8, 5)
    known = state(X, W, fn, "native")
    delta = torch.randn(8, 2, 5, dtype=torch.float64)
    value, gradient = (x.clone() for x in CPU.evaluator(known, 2).value_and_gradient(delta))
    keep = torch.tensor([6, 1, 1, 0, 3])
    some = CPU.evaluator(known.select(keep), 2).value_and_gradient(delta[keep])
    torch.testing.assert_close(some[0], value[keep], rtol=1e-12, atol=0)
    torch.testing.assert_close(some[1], gradient[keep])


@searched
@pytest.mark.parametrize(
    "backend", ["torch", pytest.param("native", marks=pytest.mark.needs("native"))]
)
def test_distances_of_words_that_nearly_coincide(fn, backend):
    """‖c_ji‖ keeps its relative accuracy: inner products would lose all of it here."""
    torch.manual_seed(1)
    X = torch.tensor([[1.0, 2.0, -1.0]]) + 1e-7 * torch.randn(5, 3, dtype=torch.float64)
    W = torch.eye(3, dtype=torch.float64)
    got = state(X, W, fn, backend).c2
    scores = X @ W @ X.T / 3**0.5
    for i in range(5):
        for j in range(5):
            if i == j:
                continue
            others = [k for k in range(5) if k != i]
            if fn.exponential:
                mean = torch.softmax(scores[j, others], 0) @ X[others]
            elif fn.normalize:
                weights = fn.value(scores[j, others])
                mean = (weights / weights.sum()) @ X[others]
            else:
                mean = torch.zeros(3, dtype=torch.float64)  # there c_ji is x_i itself
            assert float(got[i, j]) == pytest.approx(
                float((X[i] - mean).square().sum()), rel=1e-6, abs=0
            )


@searched
def test_projection_is_the_same_problem(fn):
    n, d = 3, 12
    X, W = random_text(n, d, 1)
    known = state(X, W, fn)
    basis = torch.linalg.qr(torch.cat([X, X @ W, X @ W.T]).T).Q
    inside = torch.randn(n, 2, basis.shape[1], dtype=torch.float64)
    value, gradient = TORCH.norms(known, 2).value_and_gradient(inside @ basis.T)
    projected = TORCH.norms(known.project(basis), 2).value_and_gradient(inside)
    torch.testing.assert_close(projected[0], value)
    torch.testing.assert_close(projected[1], gradient @ basis)
