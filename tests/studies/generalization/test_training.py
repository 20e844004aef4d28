"""Min-norm solutions by the N×N matrix alone, against the pseudo-inverse."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from parameters import dtypes
from studies.generalization.truth import Problem, learn, phi_of, problem, solution

from wsfast.studies.generalization.training import MinNorm

LARGE = 2**28


def normals(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


@given(N=st.integers(1, 8), more=st.integers(0, 6), seed=st.integers(0, 99))
def test_pseudo_inverse(N, more, seed):
    features, labels = normals(N, N + more, seed=seed), normals(N, seed=seed + 1).sign()
    got = MinNorm(features, labels, LARGE)
    expected = solution(list(features), labels)
    size = got.condition * 1e-15
    assert float((got.theta - expected).norm()) <= size * float(expected.norm()) + 1e-12
    assert float((features @ got.theta - labels).norm()) <= 1e-9 + size
    assert got.condition == pytest.approx(float(torch.linalg.cond(features)) ** 2, rel=1e-4)


@given(N=st.integers(1, 8), more=st.integers(1, 6), seed=st.integers(0, 99))
def test_away_from_the_rows(N, more, seed):
    features = normals(N, N + more, seed=seed)
    phi = normals(3, N + more, seed=seed + 1)
    got = MinNorm(features, torch.ones(N, dtype=torch.float64), LARGE).away(phi)
    span = torch.linalg.pinv(features) @ features
    torch.testing.assert_close(got, phi - phi @ span, rtol=1e-7, atol=1e-9)
    assert float((got @ features.T).abs().max()) <= 1e-10 * float(features.norm())


def test_by_hand():
    # Φ = (1, 0, 0), (1, 1, 0): θ* is the shortest vector with θ_1 = 1 and θ_1 + θ_2 = -1.
    features = torch.tensor([[1.0, 0, 0], [1, 1, 0]], dtype=torch.float64)
    got = MinNorm(features, torch.tensor([1.0, -1]).double(), LARGE)
    assert got.theta.tolist() == pytest.approx([1, -2, 0])
    assert got.away(torch.tensor([[5.0, 6, 7]]).double())[0].tolist() == pytest.approx([0, 0, 7])
    # K = ((1, 1), (1, 2)) has the eigenvalues (3 ± √5)/2.
    assert got.condition == pytest.approx((3 + 5**0.5) / (3 - 5**0.5))


def test_fitting_all_samples_again_is_what_retraining_does():
    """θ* + P⊥φ (y - f)/‖P⊥φ‖² is the min-norm solution on N + 1 samples."""
    for seed in range(5):
        known = problem(7, 3, 4, seed, y=-1.0)
        phi = phi_of("raf", normals(4, 4, seed=seed) / 2)
        rows = torch.stack([phi(text) for text in known.texts])
        fitted = MinNorm(rows, known.labels.double(), LARGE)
        one = phi(known.X)
        away = fitted.away(one[None])[0]
        theta = fitted.theta + away * ((known.y - one @ fitted.theta) / (away @ away))
        torch.testing.assert_close(theta, learn(phi, known, "retraining").after)


@dtypes
def test_memory_budget_changes_nothing(dtype):
    features, labels = normals(9, 50).to(dtype), normals(9, seed=1).sign()
    phi = normals(4, 50, seed=2)
    whole, parts = MinNorm(features, labels, LARGE), MinNorm(features, labels, 1)
    torch.testing.assert_close(parts.theta, whole.theta, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(parts.away(phi), whole.away(phi), rtol=1e-12, atol=1e-13)
    # What is held in float32 is computed with in float64.
    exact = MinNorm(features.double(), labels, LARGE)
    assert whole.theta.dtype == torch.float64
    torch.testing.assert_close(whole.theta, exact.theta, rtol=1e-12, atol=1e-14)


def test_ill_conditioned_features_keep_what_can_be_kept():
    features, labels = normals(6, 40), normals(6, seed=1).sign()
    features[1] = features[0] + 1e-5 * features[1]
    got = MinNorm(features, labels, LARGE)
    assert 1e9 < got.condition < 1e13
    phi = normals(1, 40, seed=2)
    away = got.away(phi)
    # Not to the condition number: P⊥φ is formed twice.
    assert float((features @ away[0]).abs().max()) <= 1e-12
    torch.testing.assert_close(features @ got.theta, labels, rtol=0, atol=1e-4)


def test_dependent_features_are_refused():
    features, labels = normals(4, 9), torch.ones(4, dtype=torch.float64)
    for row in (features[1], 2 * features[1], features[1] + features[3]):
        dependent = features.clone()
        dependent[0] = row
        with pytest.raises(ValueError, match=r"texts must have independent features.*N = 4"):
            MinNorm(dependent, labels, LARGE)
    features[2] = 0
    with pytest.raises(ValueError, match="texts must have features, but φ = 0 for text 2"):
        MinNorm(features, labels, LARGE)
    with pytest.raises(ValueError, match="at most as many as there are features, got N = 4 texts"):
        MinNorm(features[:, :3], labels, LARGE)


@dtypes
def test_features_that_the_texts_already_span_are_refused(dtype):
    features, labels = normals(4, 9), torch.ones(4, dtype=torch.float64)
    fitted = MinNorm(features.to(dtype), labels, LARGE)
    inside = features[1] - 3 * features[2]
    with pytest.raises(ValueError, match=r"P⊥φ\(X\) = 0 for text 1 of X"):
        fitted.away(torch.stack([normals(9, seed=5), inside]))
    square = MinNorm(normals(4, 4), labels, LARGE)
    with pytest.raises(ValueError, match="N = 4 texts and D = 4"):
        square.away(normals(1, 4, seed=5))


def test_truth_itself():
    """The truth of these tests, by hand: one text, features that are the text."""
    known = Problem(torch.tensor([[[2.0, 0]]]), torch.ones(1), torch.tensor([[1.0, 1]]), -1.0)
    fine = learn(lambda X: X.double().flatten(), known, "fine_tuning")
    again = learn(lambda X: X.double().flatten(), known, "retraining")
    assert fine.before.tolist() == pytest.approx([0.5, 0])
    # f(X) = 1/2: (y - f)/‖φ‖² = -3/4; P⊥φ = (0, 1).
    assert fine.after.tolist() == pytest.approx([-0.25, -0.75])
    assert again.away.tolist() == pytest.approx([0, 1], abs=1e-12)
    assert again.after.tolist() == pytest.approx([0.5, -1.5])
