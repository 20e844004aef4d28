"""raf_delta_norms and raf_deltas: every backend against the definition."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from attention.adversarial import ACCURACY, LARGEST_SCORE, cases, truth
from definition import (
    delta_norms,
    deltas,
    exact,
    exact_deltas,
    exact_norm,
    features,
    random_text,
    relative_error,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from parameters import all_backends, backends, dtypes, weight_fns

from wsfast import raf_delta_norms, raf_deltas, raf_features, random_weights


def random_deltas(n: int, m: int, d: int, dtype: torch.dtype, size: float = 1.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(n * 100 + m)
    delta = torch.randn(n, m, d, generator=generator, dtype=torch.float64)
    return (delta / delta.norm(dim=-1, keepdim=True) * size * math.sqrt(d)).to(dtype)


# -- adversarial inputs, the truth in decimals ----------------------------------------------------


@pytest.mark.deep
@backends
@weight_fns
@dtypes
@settings(max_examples=40, suppress_health_check=[HealthCheck.filter_too_much])
@given(data=st.data())
def test_adversarial_texts(backend, weight_fn, normalize, dtype, data):
    case = data.draw(cases(weight_fn, normalize, dtype))
    expected, norm = truth(case)
    got = raf_delta_norms(case.X, case.W, case.delta, **case.options, backend=backend)
    assert got.dtype == dtype
    assert torch.equal(got[:, 1], torch.zeros_like(got[:, 1])), "no change, yet a norm"
    # The last is where squares leave the range of float32.
    assert relative_error(got, expected, max(1e-3 * norm, 1e-18)) <= ACCURACY[dtype]


@backends
@dtypes
@pytest.mark.parametrize("gap", [0.5, 5.0, 20.0, 40.0, 100.0, 700.0, None])
def test_saturated_rows(backend, dtype, gap):
    """One word far ahead of the others in every row, up to the largest scores there may be."""
    gap = LARGEST_SCORE[dtype] if gap is None else gap
    X, W = random_text(7, 4, 3, dtype)
    # Word 2 is an attention sink: the scores on it are about `gap`, those on others small.
    X[:, 0] = 1.0
    X[2, 1] = 10.0
    W = W * 0.1
    W[0] = 0
    W[0, 1] = 2 * gap / 10 / 1.3
    delta = random_deltas(7, 3, 4, dtype)
    delta[:, 1] *= 1e-3
    delta[:, 2] *= 1e-6
    delta[:, :, 1] = delta[:, :, 1].clamp(-1, 1)
    expected = torch.zeros(7, 3, dtype=torch.float64)
    for i in range(7):
        for k in range(3):
            change = exact_deltas(exact(X), exact(W), i, exact(delta[i, k]))
            expected[i, k] = float(exact_norm(change))
    got = raf_delta_norms(X, W, delta, backend=backend)
    floor = 1e-3 * float(features(X, W).norm())
    assert relative_error(got, expected, floor) <= ACCURACY[dtype]


@backends
@weight_fns
@dtypes
@pytest.mark.parametrize("size", [1e-5, 1e-8])
def test_tiny_changes_keep_their_relative_accuracy(backend, weight_fn, normalize, dtype, size):
    X, W = random_text(5, 3, 1, dtype)
    delta = random_deltas(5, 1, 3, dtype, size)
    options = {"weight_fn": weight_fn, "normalize": normalize}
    # What a relative change of ε loses in the scores is all that may be lost: no floor here.
    limit = {torch.float32: 2e-6, torch.float64: 1e-12}[dtype]
    norms = raf_delta_norms(X, W, delta, **options, backend=backend)
    for i in range(5):
        change = exact_deltas(exact(X), exact(W), i, exact(delta[i, 0]), weight_fn, normalize)
        rows = torch.tensor(change.astype(float))
        got = raf_deltas(X, W, i, delta[i, 0], **options, backend=backend)
        assert float((got.double() - rows).norm() / rows.norm()) <= limit
        assert abs(float(norms[i, 0]) / float(exact_norm(change)) - 1) <= ACCURACY[dtype]


@backends
@dtypes
def test_score_that_comes_to_the_kink_of_relu(backend, dtype):
    """Word 3 moves to 0, and its scores, all negative, to 0: no weight changes."""
    X = torch.tensor([[0.75, 0, 1.25], [0, 0, 0], [0, 0, 0], [1, 0, 1]], dtype=dtype)
    W = math.sqrt(3) * torch.tensor([[-1, 0, -1.5], [0, 0, 0], [0, 0, 1.5]], dtype=dtype)
    got = raf_delta_norms(X, W, -X[3:], weight_fn="relu", normalize=False, backend=backend)
    assert float(got[3, 0]) <= 1e-3 * ACCURACY[dtype]


@backends
@dtypes
def test_scores_whose_terms_are_larger(backend, dtype):
    """Words 0 and 2 give each other a score of 1e3, a sum of terms of 1e4; word 2 moves to 0."""
    X = torch.tensor([[1.625, -1.5, 1.0], [0, 0, 0], [1.625, -1.5, 1.0]], dtype=dtype)
    W = torch.tensor([[4, -2, 0], [2, -1, 0], [-1, 4, 0]], dtype=dtype) * 2519.4
    delta = torch.zeros(3, 1, 3, dtype=dtype)
    delta[2, 0] = -X[2]
    expected = delta_norms(X, W, delta)
    got = raf_delta_norms(X, W, delta, backend=backend)
    assert relative_error(got, expected, 1e-3 * float(features(X, W).norm())) <= ACCURACY[dtype]


@all_backends
@weight_fns
@dtypes
def test_no_change_is_exactly_zero(backend, weight_fn, normalize, dtype):
    X, W = random_text(6, 4, 2, dtype)
    options = {"weight_fn": weight_fn, "normalize": normalize, "backend": backend}
    zero = torch.zeros(4, dtype=dtype)
    norms, change = (
        raf_delta_norms(X, W, zero[None], **options),
        raf_deltas(X, W, 3, zero, **options),
    )
    # The reference takes the difference of two products, which may be summed in different orders.
    limit = 8 * torch.finfo(dtype).eps * float(X.norm()) if backend == "reference" else 0.0
    assert float(norms.abs().max()) <= limit
    assert float(change.abs().max()) <= limit


# -- random inputs --------------------------------------------------------------------------------


@all_backends
@weight_fns
@dtypes
@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_definition_at_every_size(backend, weight_fn, normalize, dtype, scale):
    for n in (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 33):
        for d in (1, 2, 7, 17):
            if n > 9 and d != 7:
                continue
            X, W = random_text(n, d, n, dtype, scale)
            delta = random_deltas(n, 2, d, dtype)
            got = raf_delta_norms(
                X, W, delta, weight_fn=weight_fn, normalize=normalize, backend=backend
            )
            expected = delta_norms(X, W, delta, weight_fn, normalize)
            floor = 1e-3 * float(features(X, W, weight_fn, normalize).norm())
            # The reference backend in float32 is a difference of float32 features.
            limit = 1e-3 if (backend, dtype) == ("reference", torch.float32) else ACCURACY[dtype]
            assert relative_error(got, expected, floor) <= limit, (n, d)


@all_backends
@weight_fns
@dtypes
def test_change_of_every_row(backend, weight_fn, normalize, dtype):
    for n, d in ((1, 1), (1, 4), (2, 1), (6, 5), (17, 4)):
        X, W = random_text(n, d, n, dtype)
        delta = random_deltas(n, 1, d, dtype)[:, 0]
        for i in (0, n // 2, n - 1):
            got = raf_deltas(
                X, W, i, delta[i], weight_fn=weight_fn, normalize=normalize, backend=backend
            )
            expected = deltas(X, W, i, delta[i], weight_fn, normalize)
            assert got.dtype == dtype
            limit = {torch.float32: 1e-6, torch.float64: 1e-12}[dtype]
            assert float((got.double() - expected).abs().max()) <= limit * float(X.abs().max())


def test_change_by_hand():
    # n = 1: φ(x) = x, whatever W is.
    X, delta = torch.tensor([[3.0, 4.0]]), torch.tensor([0.5, -1.0])
    W = random_weights(2)
    assert torch.equal(raf_deltas(X, W, 0, delta), delta[None])
    torch.testing.assert_close(
        raf_delta_norms(X, W, delta[None]), torch.tensor([[math.sqrt(1.25)]])
    )
    # d = 1, W = 0: φ is the mean in every row, and moves by Δ/n.
    X = torch.tensor([[1.0], [2.0], [6.0]])
    W = torch.zeros(1, 1)
    assert raf_deltas(X, W, 1, torch.tensor([3.0])).flatten().tolist() == pytest.approx([1, 1, 1])
    assert raf_delta_norms(X, W, torch.tensor([[3.0]])).flatten().tolist() == pytest.approx(
        [math.sqrt(3)] * 3
    )
    # Two words, d = 1, W = 1, ReLU unnormalised: φ_j = relu(x_j x_0) x_0 + relu(x_j x_1) x_1.
    X = torch.tensor([[1.0], [-2.0]])
    change = raf_deltas(
        X, torch.ones(1, 1), 0, torch.tensor([-2.0]), weight_fn="relu", normalize=False
    )
    # From (1, -8) to (-1 - 4, -8 - 2): x_0 = -1 now, so both words attend to both.
    assert change.flatten().tolist() == pytest.approx([-6.0, -2.0])


@all_backends
@weight_fns
def test_word_moved_onto_another(backend, weight_fn, normalize):
    X, W = random_text(5, 3, 4)
    delta = (X.roll(1, 0) - X)[:, None]
    got = raf_delta_norms(X, W, delta, weight_fn=weight_fn, normalize=normalize, backend=backend)
    expected = delta_norms(X, W, delta, weight_fn, normalize)
    assert relative_error(got, expected) <= 1e-10


@all_backends
def test_word_removed_from_normalised_relu(backend):
    errors = []
    for seed in range(20):
        X, W = random_text(4, 3, seed)
        got = raf_delta_norms(X, W, -X[:, None], weight_fn="relu", backend=backend)
        expected = delta_norms(X, W, -X[:, None], "relu", True)
        floor = 1e-3 * float(features(X, W, "relu").norm())
        errors.append(relative_error(got, expected, floor))
    assert max(errors) <= 1e-10


@all_backends
@weight_fns
def test_duplicate_and_zero_words(backend, weight_fn, normalize):
    X, W = random_text(6, 3, 5)
    X[3] = X[0]
    X[4] = 0
    delta = random_deltas(6, 3, 3, torch.float64)
    delta[:, 1] *= 1e-4
    got = raf_delta_norms(X, W, delta, weight_fn=weight_fn, normalize=normalize, backend=backend)
    expected = delta_norms(X, W, delta, weight_fn, normalize)
    assert (
        relative_error(got, expected, 1e-3 * float(features(X, W, weight_fn, normalize).norm()))
        <= 1e-10
    )
    torch.testing.assert_close(
        expected[0, :1], delta_norms(X, W, delta, weight_fn, normalize)[0, :1]
    )


@all_backends
@pytest.mark.parametrize("normalize", [True, False])
def test_relu_rows_that_fill_and_empty(backend, normalize):
    # Row 0 has no weight, and rows 1 and 2 have theirs on word 0 alone.
    X = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], dtype=torch.float64)
    W = torch.tensor([[-1.0, -1.0], [1.5, -3.0]], dtype=torch.float64)
    assert (X @ W @ X.T > 0).tolist() == [[False] * 3, [True, False, False], [True, False, False]]
    delta = torch.tensor(
        [[-2.0, 0.5], [0.0, -3.0], [3.0, -0.5], [-0.5, -0.25]], dtype=torch.float64
    ).expand(3, -1, -1)
    # Both happen: a row that fills, and one that empties.
    fills = [deltas(X, W, 1, delta[1, 1], "relu", normalize)[0].norm()]
    fills.append(
        features(X + torch.eye(3, 1).double() * delta[0, 0], W, "relu", normalize)[1].norm()
    )
    assert [float(norm) > 0 for norm in fills] == [True, False]
    expected = delta_norms(X, W, delta, "relu", normalize)
    got = raf_delta_norms(X, W, delta, weight_fn="relu", normalize=normalize, backend=backend)
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=0)


# -- shapes ---------------------------------------------------------------------------------------


@all_backends
@weight_fns
def test_shapes_of_delta(backend, weight_fn, normalize):
    B, R, n, m, d = 2, 3, 4, 5, 3
    X = torch.stack([random_text(n, d, seed)[0] for seed in range(B)])
    W = random_weights(d, draws=R, dtype=torch.float64)
    delta = random_deltas(B * n, m, d, torch.float64).view(B, n, m, d)
    options = {"weight_fn": weight_fn, "normalize": normalize, "backend": backend}
    per_text = raf_delta_norms(X, W, delta, **options)
    assert per_text.shape == (B, R, n, m)
    for b in range(B):
        for r in range(R):
            expected = delta_norms(X[b], W[r], delta[b], weight_fn, normalize)
            torch.testing.assert_close(per_text[b, r], expected, rtol=1e-10, atol=0)
    per_position = raf_delta_norms(X, W, delta[1], **options)
    torch.testing.assert_close(per_position[1], per_text[1], rtol=1e-12, atol=0)
    shared = raf_delta_norms(X, W, delta[1, 2], **options)
    assert shared.shape == (B, R, n, m)
    torch.testing.assert_close(shared[1, :, 2], per_text[1, :, 2], rtol=1e-12, atol=0)
    assert raf_delta_norms(X[0], W[0], delta[1, 2], **options).shape == (n, m)
    assert raf_delta_norms(X[0], W, delta[0], **options).shape == (R, n, m)
    assert raf_delta_norms(X, W[0], delta[0], **options).shape == (B, n, m)
    torch.testing.assert_close(
        raf_delta_norms(X[1], W[2], delta[1], **options), per_text[1, 2], rtol=1e-12, atol=0
    )


@all_backends
@weight_fns
def test_shapes_of_raf_deltas(backend, weight_fn, normalize):
    X = torch.stack([random_text(4, 3, seed)[0] for seed in range(2)])
    W = random_weights(3, draws=2, dtype=torch.float64)
    delta = random_deltas(2, 1, 3, torch.float64)[:, 0]
    options = {"weight_fn": weight_fn, "normalize": normalize, "backend": backend}
    change = raf_deltas(X, W, 2, delta, **options)
    assert change.shape == (2, 2, 4, 3)
    for b in range(2):
        for r in range(2):
            expected = deltas(X[b], W[r], 2, delta[b], weight_fn, normalize)
            torch.testing.assert_close(change[b, r], expected)
    assert raf_deltas(X[0], W[0], 2, delta[0], **options).shape == (4, 3)
    torch.testing.assert_close(raf_deltas(X, W, 2, delta[1], **options)[1], change[1])


@all_backends
@weight_fns
def test_mask(backend, weight_fn, normalize):
    X, W = random_text(6, 3)
    mask = torch.tensor([True, False, True, True, False, True])
    delta = random_deltas(6, 2, 3, torch.float64)
    options = {"weight_fn": weight_fn, "normalize": normalize, "backend": backend}
    got = raf_delta_norms(X, W, delta, mask=mask, **options)
    assert got[~mask].isnan().all()
    expected = delta_norms(X[mask], W, delta[mask], weight_fn, normalize)
    torch.testing.assert_close(got[mask], expected, rtol=1e-10, atol=0)
    change = raf_deltas(X, W, 3, delta[3, 0], mask=mask, **options)
    assert torch.equal(change[~mask], torch.zeros_like(change[~mask]))
    expected = deltas(X, W, 3, delta[3, 0], weight_fn, normalize, mask)
    torch.testing.assert_close(change, expected)


@all_backends
def test_one_word_left_by_the_mask(backend):
    X, W = random_text(4, 3)
    mask = torch.tensor([False, False, True, False])
    delta = random_deltas(4, 2, 3, torch.float64)
    got = raf_delta_norms(X, W, delta, mask=mask, backend=backend)
    torch.testing.assert_close(got[2], delta[2].norm(dim=-1))
    assert got[[0, 1, 3]].isnan().all()


@all_backends
def test_list_of_texts(backend):
    texts = [random_text(n, 3, n)[0] for n in (2, 5)]
    W = random_weights(3, dtype=torch.float64)
    delta = random_deltas(5, 2, 3, torch.float64)
    got = raf_delta_norms(texts, W, delta, backend=backend)
    assert got.shape == (2, 5, 2)
    torch.testing.assert_close(got[0, :2], delta_norms(texts[0], W, delta[:2]))
    torch.testing.assert_close(got[1], delta_norms(texts[1], W, delta))
    assert got[0, 2:].isnan().all()
    change = raf_deltas(texts, W, 1, delta[0, 0], backend=backend)
    torch.testing.assert_close(change[0, :2], deltas(texts[0], W, 1, delta[0, 0]))
    assert change[0, 2:].isnan().all()


@all_backends
@weight_fns
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
def test_memory_budget_changes_nothing(backend, weight_fn, normalize, dtype):
    X, W = random_text(13, 5, 1, dtype)
    delta = random_deltas(13, 7, 5, dtype)
    delta[:, 3] *= 1e-6
    options = {"weight_fn": weight_fn, "normalize": normalize, "backend": backend}
    tiny = raf_delta_norms(X, W, delta, memory_budget=1, **options)
    floor = 1e-2 * float(X.norm()) if backend == "reference" else 0.0
    limit = 1e-5 if dtype == torch.float32 else 1e-12
    assert relative_error(tiny, raf_delta_norms(X, W, delta, **options), floor) <= limit


@pytest.mark.deep
@backends
def test_more_points_than_are_evaluated_together(backend):
    X, W = random_text(3, 2)
    delta = random_deltas(1, 700, 2, torch.float64)[0]
    got = raf_delta_norms(X, W, delta, backend=backend)
    expected = delta_norms(X, W, delta.expand(3, -1, -1))
    assert relative_error(got, expected) <= 1e-10


@all_backends
def test_kinds_of_arrays(backend):
    X, W = random_text(4, 3)
    delta = random_deltas(4, 2, 3, torch.float64)
    expected = raf_delta_norms(X, W, delta, backend=backend)
    arrays = [x.numpy() for x in (X, W, delta)]
    got = raf_delta_norms(*arrays, backend=backend)
    assert isinstance(got, np.ndarray)
    np.testing.assert_allclose(got, expected.numpy(), rtol=1e-12)
    assert isinstance(raf_deltas(arrays[0], arrays[1], 0, arrays[2][0, 0]), np.ndarray)
    half = [x.to(torch.bfloat16) for x in (X, W, delta)]
    got = raf_delta_norms(*half, backend=backend)
    assert got.dtype == torch.float32
    limit = 1e-3 if backend == "reference" else 1e-4
    assert relative_error(got, delta_norms(*half)) <= limit
    strided = [X.t().contiguous().t(), W.t().contiguous().t(), delta.flip(1).flip(1)]
    torch.testing.assert_close(raf_delta_norms(*strided, backend=backend), expected)


@all_backends
@weight_fns
@pytest.mark.parametrize("d", [1, 3])
def test_inputs_are_not_changed(backend, weight_fn, normalize, d):
    X, W = random_text(4, d)
    W = W.t().contiguous().t()  # column by column: its transpose needs no copy
    delta = random_deltas(4, 2, d, torch.float64)
    before = [x.clone() for x in (X, W, delta)]
    options = {"weight_fn": weight_fn, "normalize": normalize, "backend": backend}
    raf_delta_norms(X, W, delta, **options)
    raf_deltas(X, W, 1, delta[0, 0], **options)
    assert all(map(torch.equal, (X, W, delta), before))


def test_agrees_with_the_features_themselves():
    X, W = random_text(8, 6)
    delta = random_deltas(1, 1, 6, torch.float64)[0, 0]
    moved = X.clone()
    moved[3] += delta
    expected = raf_features(moved, W) - raf_features(X, W)
    torch.testing.assert_close(raf_deltas(X, W, 3, delta), expected)
