"""A linear functional of the change of φ: the closed form and the kernel against the definition."""

from __future__ import annotations

import pytest
import torch
from attention.adversarial import cases, truth
from attention.problems import SEARCHED, attention_text
from definition import WEIGHT_FNS, deltas, exact, exact_deltas, features, random_text
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from parameters import backends, dtypes, weight_fns
from torch import Tensor

from wsfast.attention import functional
from wsfast.attention.functional import functional_at
from wsfast.attention.weight_fn import WeightFn
from wsfast.maps.attention_objective import AttentionObjective
from wsfast.maps.measure import Functional
from wsfast.perturbation.change import Sites

searched = pytest.mark.parametrize("fn", SEARCHED, ids=str)
native_only = pytest.mark.needs("native")

# Relative to the larger of the value and 1e-3 ‖Θ‖ ‖φ(X)‖. Only the search works in float32: the
# second is for scores up to 1e3, of whose rounding a functional may lose more than a norm.
ACCURACY = {torch.float64: 1e-10, torch.float32: 1e-4}
HARD = {torch.float64: 1e-10, torch.float32: 1e-3}


def closed(
    X: Tensor,
    W: Tensor,
    theta: Tensor,
    fn: WeightFn,
    backend: str = "torch",
    dtype: torch.dtype = torch.float64,
    index: Tensor | None = None,
) -> AttentionObjective:
    text = attention_text(X, W, fn, backend)
    known = text.state(torch.arange(len(X)) if index is None else index)
    state = functional_at(known, text.in_dtype(known, dtype), theta)
    return AttentionObjective(text.engine, state)


def evaluate(*args, delta: Tensor) -> tuple[Tensor, Tensor]:
    """Values (n, s) and gradient (n, s, d) of `closed(*args)`, copied."""
    evaluator = closed(*args).evaluator(delta.shape[1])
    return tuple(x.clone() for x in evaluator.value_and_gradient(delta))


def defined(X: Tensor, W: Tensor, theta: Tensor, delta: Tensor, *options) -> Tensor:
    """Σ_j θ_j·δ_j (n, s) in float64, of the definition."""
    out = torch.zeros(delta.shape[:2], dtype=torch.float64)
    for i in range(delta.shape[0]):
        for k in range(delta.shape[1]):
            out[i, k] = (deltas(X, W, i, delta[i, k], *options) * theta).sum()
    return out


def normals(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


def error(got: Tensor, expected: Tensor, unit: float) -> float:
    size = expected.abs().clamp(min=max(unit, 1e-18))
    return float(((got.double() - expected).abs() / size).max())


def saturated_text(n: int, d: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Word 1 takes nearly all attention of most rows."""
    X, W = random_text(n, d, 7, dtype)
    if n > 1:
        X[1] *= 5
    return X, W


# -- the value ------------------------------------------------------------------------------------


@backends
@weight_fns
@dtypes
@pytest.mark.parametrize("saturated", [False, True])
def test_definition_at_every_size(backend, weight_fn, normalize, dtype, saturated):
    fn = WeightFn(weight_fn, normalize)
    dominated = 0
    for n, d in ((1, 1), (2, 1), (3, 4), (8, 17), (17, 3)):
        X, W = saturated_text(n, d, dtype) if saturated else random_text(n, d, n, dtype)
        theta, delta = normals(n, d, seed=1), normals(n, 3, d, seed=2, dtype=dtype)
        delta[:, 1] *= 1e-3
        dominated += len(closed(X, W, theta, fn).state.state.dominated_row)
        got, _ = evaluate(X, W, theta, fn, backend, dtype, delta=delta)
        assert got.dtype == dtype
        expected = defined(X, W, theta, delta, weight_fn, normalize)
        unit = 1e-3 * float(theta.norm() * features(X, W, weight_fn, normalize).norm())
        assert error(got, expected, unit) <= ACCURACY[dtype], (n, d)
    assert (dominated > 0) == normalize


@backends
@weight_fns
@dtypes
@settings(max_examples=8, suppress_health_check=[HealthCheck.filter_too_much])
@given(data=st.data())
def test_adversarial_texts(backend, weight_fn, normalize, dtype, data):
    case = data.draw(cases(weight_fn, normalize, dtype))
    _, norm = truth(case)
    n, m, d = case.delta.shape
    entries = st.lists(st.floats(-2, 2, width=16), min_size=n * d, max_size=n * d)
    theta = torch.tensor(data.draw(entries), dtype=torch.float64).view(n, d)
    X, W, weights = exact(case.X), exact(case.W), exact(theta)
    expected = torch.zeros(n, m, dtype=torch.float64)
    for i in range(n):
        for k in range(m):
            change = exact_deltas(X, W, i, exact(case.delta[i, k]), weight_fn, normalize)
            expected[i, k] = float((change * weights).sum())
    fn = WeightFn(weight_fn, normalize)
    got, _ = evaluate(case.X, case.W, theta, fn, backend, dtype, delta=case.delta)
    assert torch.equal(got[:, 1], torch.zeros_like(got[:, 1])), "no change, yet a value"
    assert error(got, expected, 1e-3 * norm * float(theta.norm())) <= HARD[dtype]


@backends
def test_by_hand(backend):
    one = WeightFn("softmax")
    # n = 1: φ(x) = x, so the functional is θ·Δ, whatever W is.
    X, theta, delta = normals(1, 3), normals(1, 3, seed=1), normals(1, 1, 3, seed=2)
    value, gradient = evaluate(X, normals(3, 3, seed=3), theta, one, backend, delta=delta)
    assert float(value) == pytest.approx(float((theta[0] * delta[0, 0]).sum()))
    torch.testing.assert_close(gradient[0, 0], theta[0])
    # W = 0: φ is the mean in every row, and moves by Δ/n.
    X, theta = normals(4, 2), torch.tensor([[1.0, 0], [2, 0], [3, 0], [4, 10]]).double()
    delta = torch.tensor([4.0, 0.0]).double().expand(4, 1, 2)
    value, gradient = evaluate(X, torch.zeros(2, 2).double(), theta, one, backend, delta=delta)
    assert value.flatten().tolist() == pytest.approx([10.0] * 4)
    assert gradient[:, 0, 1].tolist() == pytest.approx([2.5] * 4)
    # Two words, d = 1, W = 1, ReLU unnormalised: from (1, -8) to (-5, -10), as in
    # test_delta_norms.py.
    X, delta = torch.tensor([[1.0], [-2.0]]).double(), torch.tensor([-2.0, 0.0]).double()
    theta = torch.tensor([[2.0], [1.0]]).double()
    value, _ = evaluate(
        X,
        torch.ones(1, 1).double(),
        theta,
        WeightFn("relu", normalize=False),
        backend,
        delta=delta[:, None, None],
    )
    assert value.flatten().tolist() == pytest.approx([2 * -6.0 + -2.0, 0.0])


@backends
@weight_fns
@dtypes
@pytest.mark.parametrize("size", [1e-5, 1e-7])
def test_tiny_changes_keep_their_relative_accuracy(backend, weight_fn, normalize, dtype, size):
    X, W = random_text(6, 4, 1, dtype)
    theta, delta = normals(6, 4, seed=1), size * normals(6, 1, 4, seed=2, dtype=dtype)
    fn = WeightFn(weight_fn, normalize)
    got, _ = evaluate(X, W, theta, fn, backend, dtype, delta=delta)
    for i in range(6):
        change = exact_deltas(exact(X), exact(W), i, exact(delta[i, 0]), weight_fn, normalize)
        terms = torch.tensor((change * exact(theta)).astype(float))
        limit = {torch.float32: 1e-5, torch.float64: 1e-10}[dtype]
        assert abs(float(got[i, 0]) - float(terms.sum())) <= limit * float(terms.abs().sum())


@backends
def test_common_shift_of_the_words_loses_nothing(backend):
    """Words a thousand times nearer to one another than to 0, in float32."""
    X, W = random_text(6, 5, 3)
    shift = normals(5, seed=8)
    X, W = (X + 1000 * shift).float(), (W * 1e-5).float()
    theta, delta = normals(6, 5, seed=1), normals(6, 2, 5, seed=2, dtype=torch.float32)
    fn = WeightFn("softmax")
    got, _ = evaluate(X, W, theta, fn, backend, torch.float32, delta=delta)
    expected = defined(X, W, theta, delta)
    assert error(got, expected, 1e-2 * float(expected.abs().max())) <= 1e-4


# -- the gradient ---------------------------------------------------------------------------------


@backends
@searched
@pytest.mark.parametrize("saturated", [False, True])
def test_gradient_is_the_slope_of_the_value(backend, fn, saturated):
    step = 1e-6
    for n, d in ((1, 1), (1, 3), (2, 1), (5, 4), (9, 3)):
        X, W = saturated_text(n, d) if saturated else random_text(n, d, n)
        theta, delta = normals(n, d, seed=1), normals(n, 2, d, seed=2)
        evaluator = closed(X, W, theta, fn, backend).evaluator(2)
        gradient = evaluator.value_and_gradient(delta)[1].clone()
        size = gradient.norm(dim=-1)
        for k in range(d):
            shift = torch.zeros(d, dtype=torch.float64)
            shift[k] = step
            up = evaluator.value_and_gradient(delta + shift)[0].clone()
            down = evaluator.value_and_gradient(delta - shift)[0].clone()
            slope = (up - down) / (2 * step)
            assert bool(((slope - gradient[..., k]).abs() <= 1e-5 * size + 1e-7).all()), (n, d)


@native_only
@searched
@pytest.mark.parametrize(
    "level",
    [
        "baseline",
        pytest.param("avx2", marks=pytest.mark.needs("avx2")),
        pytest.param("avx512", marks=pytest.mark.needs("avx512")),
    ],
)
def test_kernel_at_every_instruction_set(fn, level, isa):
    """Sizes around the width of a vector, both dtypes."""
    isa(level)
    for dtype, lanes, limit in ((torch.float64, 8, 1e-9), (torch.float32, 16, 2e-3)):
        for n in (1, 2, lanes - 1, lanes, lanes + 1, 2 * lanes + 1):
            X, W = saturated_text(n, 5) if n % 2 else random_text(n, 5, n)
            theta, delta = normals(n, 5, seed=1), normals(n, 2, 5, seed=2, dtype=dtype)
            value, gradient = evaluate(X, W, theta, fn, "native", dtype, delta=delta)
            expected = evaluate(X, W, theta, fn, delta=delta.double())
            assert error(value, expected[0], 1e-3 * float(theta.norm() * X.norm())) <= limit
            away = (gradient.double() - expected[1]).norm(dim=-1)
            floor = 1e-3 * float(expected[1].norm(dim=-1).max())
            size = expected[1].norm(dim=-1).clamp(min=floor)
            assert float((away / size).max()) <= limit, (dtype, n)


@native_only
@searched
@dtypes
def test_thread_count_changes_no_bit(fn, dtype, monkeypatch):
    """The kernel splits rows; the products keep to one thread here."""
    X, W = random_text(40, 33, 5)
    theta, delta = normals(40, 33, seed=1), normals(40, 4, 33, seed=2, dtype=dtype)
    results = []
    for threads in (1, 2, 5):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        results.append(evaluate(X, W, theta, fn, "native", dtype, delta=delta))
    monkeypatch.undo()
    for result in results[1:]:
        assert all(map(torch.equal, result, results[0]))


@native_only
def test_inputs_are_left_alone_and_calls_are_independent():
    fn = WeightFn("relu")
    X, W = random_text(7, 4)
    theta, delta = normals(7, 4, seed=1), normals(7, 3, 4, seed=2)
    before = [x.clone() for x in (X, W, theta, delta)]
    evaluator = closed(X, W, theta, fn, "native").evaluator(3)
    first = [x.clone() for x in evaluator.value_and_gradient(delta)]
    evaluator.value_and_gradient(-2 * delta)
    strided = delta.mT.contiguous().mT
    assert all(map(torch.equal, evaluator.value_and_gradient(strided), first))
    assert all(map(torch.equal, (X, W, theta, delta), before))


# -- what the search does with it -----------------------------------------------------------------


@backends
@searched
def test_positions_can_be_selected(backend, fn):
    X, W = saturated_text(8, 5)
    theta, delta = normals(8, 5, seed=1), normals(8, 2, 5, seed=2)
    value, gradient = evaluate(X, W, theta, fn, backend, delta=delta)
    keep = torch.tensor([1, 4, 6])
    all_of_them = closed(X, W, theta, fn, backend)
    some = all_of_them.select(keep)
    assert (all_of_them.places, some.places) == (8, 3)
    got = some.evaluator(2).value_and_gradient(delta[keep])
    torch.testing.assert_close(got[0], value[keep])
    torch.testing.assert_close(got[1], gradient[keep])
    alone = closed(X, W, theta, fn, backend, torch.float64, keep)
    torch.testing.assert_close(alone.evaluator(2).value_and_gradient(delta[keep])[0], value[keep])


@backends
@searched
def test_projection_is_the_same_problem(backend, fn):
    """In the span of the rows of X, XW, XWᵀ and Θ."""
    n, d = 3, 16
    X, W = random_text(n, d, 1)
    theta = normals(n, d, seed=1)
    basis = torch.linalg.qr(torch.cat([X, X @ W, X @ W.T, theta]).T).Q
    inside = normals(n, 2, 12, seed=2)
    value, gradient = evaluate(X, W, theta, fn, backend, delta=inside @ basis.T)
    whole = closed(X, W, theta, fn, backend)
    projected = AttentionObjective(whole.engine, whole.state.project(basis))
    got = projected.evaluator(2).value_and_gradient(inside)
    torch.testing.assert_close(got[0], value)
    torch.testing.assert_close(got[1], gradient @ basis)


@pytest.mark.parametrize(("weight_fn", "normalize"), WEIGHT_FNS)
def test_defined_functional(weight_fn, normalize):
    fn = WeightFn(weight_fn, normalize)
    X, W = random_text(5, 4, 2)
    theta, delta = normals(5, 4, seed=1), normals(5, 3, 4, seed=2)

    for budget in (1, 2**12, 2**20):
        text = attention_text(X, W, fn, "reference", budget)
        whole = text.objective(
            Sites.of_words(torch.arange(5)), Functional(theta.flatten()), radius=1.0
        )
        value, gradient = whole.evaluator(3).value_and_gradient(delta)
        torch.testing.assert_close(value, defined(X, W, theta, delta, weight_fn, normalize))
        expected = evaluate(X, W, theta, fn, delta=delta)
        torch.testing.assert_close(value, expected[0])
        torch.testing.assert_close(gradient, expected[1])
        some = whole.select(torch.tensor([0, 3]))
        torch.testing.assert_close(some.value_and_gradient(delta[[0, 3]])[0], value[[0, 3]])


def test_differentiable_once_more_than_needed():
    """The PyTorch form is what autograd takes: its second derivatives are finite too."""
    X, W = random_text(4, 3)
    form = closed(X, W, normals(4, 3, seed=1), WeightFn("softmax")).state
    delta = normals(4, 1, 3, seed=2).requires_grad_()
    torch.autograd.gradcheck(lambda at: functional.values(form, at), delta)
