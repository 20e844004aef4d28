"""Words that are hidden or replaced, and causal attention: the public functions, by definition."""

from __future__ import annotations

import math

import pytest
import torch
from definition import random_text
from parameters import all_backends, dtypes, weight_fns

import wsfast

KINDS = ["mask", "zero", "mean"]
kinds = pytest.mark.parametrize("kind", KINDS)
causals = pytest.mark.parametrize("causal", [False, True], ids=["every word", "causal"])
ACCURACY = {torch.float64: 1e-11, torch.float32: 1e-4}


def features(X, W, weight_fn="softmax", normalize=True, *, causal=False, hidden=None):
    """φ(X) in float64, one row at a time."""
    X, W = X.double(), W.double()
    n, d = X.shape
    phi = torch.zeros_like(X)
    for j in range(n):
        words = [k for k in range(j + 1 if causal else n) if k != hidden]
        if not words:
            continue
        scores = torch.stack([X[j] @ W @ X[k] for k in words]) / math.sqrt(d)
        weights = scores.softmax(0) if weight_fn == "softmax" else scores.clamp(min=0)
        if weight_fn == "relu" and normalize and weights.sum() > 0:
            weights = weights / weights.sum()
        phi[j] = weights @ X[words]
    return phi


def changes(X, W, kind, *options, causal=False):
    """φ(X') - φ(X), (n, n, d): row i is the change of word i."""
    before = features(X, W, *options, causal=causal)
    out = []
    for i in range(len(X)):
        if kind == "mask":
            after = features(X, W, *options, causal=causal, hidden=i)
        else:
            moved = X.double().clone()
            moved[i] = 0 if kind == "zero" else X.double().mean(0)
            after = features(moved, W, *options, causal=causal)
        out.append(after - before)
    return torch.stack(out), float(before.norm())


def others(change):
    """Without the row of the changed word."""
    return change.masked_fill(torch.eye(len(change), dtype=torch.bool)[:, :, None], 0.0)


def texts(dtype):
    """Usual, saturated, of one word, of two, equal words, nearly equal ones far from 0."""
    for n, d, seed in ((7, 5, 0), (7, 5, 1), (1, 3, 2), (2, 3, 3), (4, 3, 4), (5, 4, 5)):
        X, W = random_text(n, d, seed)
        if seed == 1:
            X[2] *= 6
        if seed == 4:
            X[:] = X[0]
        if seed == 5:
            X, W = X * 1e-2 + 30 * X[0], W * 1e-3
        yield X.to(dtype), W.to(dtype)


@all_backends
@weight_fns
@dtypes
@kinds
@causals
def test_norms(backend, weight_fn, normalize, dtype, kind, causal):
    options = {"weight_fn": weight_fn, "normalize": normalize, "causal": causal}
    for X, W in texts(dtype):
        change, size = changes(X, W, kind, weight_fn, normalize, causal=causal)
        for rows, expected in (("all", change), ("others", others(change))):
            expected = expected.flatten(1).norm(dim=1)
            got = wsfast.raf_delta_norms(
                X, W, perturbation=kind, rows=rows, backend=backend, **options
            )
            floor = expected.clamp(min=1e-3 * size)
            assert got.shape == (len(X),)
            assert float(((got.double() - expected) / floor).abs().max()) <= ACCURACY[dtype]


@all_backends
@weight_fns
@kinds
@causals
def test_changes_and_sensitivity(backend, weight_fn, normalize, kind, causal):
    options = {"weight_fn": weight_fn, "normalize": normalize, "causal": causal}
    for X, W in texts(torch.float64):
        change, size = changes(X, W, kind, weight_fn, normalize, causal=causal)
        for i in (0, len(X) - 1):
            got = wsfast.raf_deltas(X, W, i, perturbation=kind, backend=backend, **options)
            torch.testing.assert_close(got, change[i], rtol=1e-9, atol=1e-12 * size)
        result = wsfast.raf_sensitivity(X, W, perturbation=kind, backend=backend, **options)
        torch.testing.assert_close(
            result.per_word, change.flatten(1).norm(dim=1) / size, rtol=1e-9, atol=1e-12
        )
        assert result.value == result.per_word.max()


def test_masks_batches_and_draws():
    """A word that `mask` leaves out is no word; a hidden one stays as a query."""
    X, W = torch.randn(2, 5, 4), wsfast.random_weights(4, draws=2)
    mask = torch.tensor([[True, True, False, True, True], [True] * 5])
    got = wsfast.raf_sensitivity(X, W, mask=mask, perturbation="mask", causal=True)
    assert got.per_word.shape == (2, 2, 5)
    assert got.per_word[0, :, 2].isnan().all()
    alone = wsfast.raf_sensitivity(X[0, mask[0]], W[1], perturbation="mask", causal=True)
    torch.testing.assert_close(got.per_word[0, 1, mask[0]], alone.per_word)


@causals
@all_backends
@weight_fns
def test_causal_features_and_their_gradients(backend, weight_fn, normalize, causal):
    options = {"weight_fn": weight_fn, "normalize": normalize, "causal": causal}
    X, W = random_text(6, 4, 0)
    got = wsfast.raf_features(X, W, backend=backend, **options)
    expected = features(X, W, weight_fn, normalize, causal=causal)
    torch.testing.assert_close(got, expected, rtol=1e-11, atol=1e-12)
    mask = torch.tensor([False, True, True, False, True, True])
    got = wsfast.raf_features(X, W, mask=mask, backend=backend, **options)
    expected = features(X[mask], W, weight_fn, normalize, causal=causal)
    torch.testing.assert_close(got[mask], expected, rtol=1e-11, atol=1e-12)
    assert not got[~mask].any()

    def loss(x, w):
        return wsfast.raf_features(x, w, mask=mask, backend=backend, **options)

    torch.autograd.gradcheck(loss, (X.requires_grad_(), W.requires_grad_()))


@all_backends
@pytest.mark.parametrize("weight_fn", ["softmax", "relu"])
def test_search_of_causal_attention(backend, weight_fn):
    """S is attained, and no probe of the ball beats it."""
    X, W = random_text(6, 5, 3)
    found = wsfast.raf_sensitivity(X, W, causal=True, weight_fn=weight_fn, backend=backend)
    before = features(X, W, weight_fn, causal=True)
    for i in range(6):
        probes = torch.randn(50, 5, dtype=torch.float64)
        probes = 5**0.5 * probes / probes.norm(dim=1, keepdim=True)
        probes[0] = found.delta if i == found.position else 0
        for probe in probes:
            moved = X.clone()
            moved[i] += probe
            change = features(moved, W, weight_fn, causal=True) - before
            assert float(change.norm() / before.norm()) <= float(found.per_word[i]) * (1 + 1e-9)
        if i == found.position:
            moved = X.clone()
            moved[i] += found.delta
            change = features(moved, W, weight_fn, causal=True) - before
            assert float(change.norm() / before.norm()) == pytest.approx(float(found.value), 1e-10)


def test_the_first_causal_word_sees_itself_alone():
    X, W = random_text(4, 3, 0)
    assert torch.equal(wsfast.raf_features(X, W, causal=True)[0], X[0])
    got = wsfast.raf_deltas(X, W, 0, perturbation="mask", causal=True)
    torch.testing.assert_close(got[0], -X[0])


# -- other maps ------------------------------------------------------------------------------------


class Attention(torch.nn.Module):
    """Softmax attention that takes a mask of keys."""

    def forward(self, x, mask=None):
        scores = x @ x.mT
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None], -torch.inf)
        return scores.softmax(-1) @ x


def test_word_sensitivity_hides_through_the_mask_of_a_module():
    X = torch.randn(5, 4, dtype=torch.float64)
    for kind in KINDS:
        got = wsfast.word_sensitivity(Attention(), X, perturbation=kind, rows="others")
        W = 4**0.5 * torch.eye(4, dtype=torch.float64)
        expected = wsfast.raf_sensitivity(X, W, perturbation=kind, rows="others")
        torch.testing.assert_close(got.per_word, expected.per_word, rtol=1e-9, atol=1e-12)
    with pytest.raises(TypeError, match="mask"):
        wsfast.word_sensitivity(lambda x: x.tanh(), X, perturbation="mask")


@pytest.mark.parametrize("kind", ["zero", "mean"])
@all_backends
def test_random_features(kind, backend):
    X = torch.randn(4, 3, dtype=torch.float64)
    V = torch.randn(7, 12, dtype=torch.float64)
    got = wsfast.rf_sensitivity(X, V, perturbation=kind, backend=backend)
    before = (V @ X.flatten()).relu()
    for i in range(4):
        moved = X.clone()
        moved[i] = 0 if kind == "zero" else X.mean(0)
        change = (V @ moved.flatten()).relu() - before
        assert float(got.per_word[i]) == pytest.approx(float(change.norm() / before.norm()), 1e-10)
    assert got.upper is None
    deep = wsfast.drf_sensitivity(X, depth=2, k=5, perturbation=kind, backend=backend)
    assert deep.per_word.isfinite().all()


# -- what results tell -----------------------------------------------------------------------------


def test_result(tmp_path):
    X = torch.randn(4, 3)
    result = wsfast.raf_sensitivity(X, perturbation="mean", rows="others")
    i = int(result.position)
    torch.testing.assert_close(result.delta, X.mean(0) - X[i])
    assert math.isnan(result.radius)
    assert result.info["perturbation"] == "mean"
    assert result.info["rows"] == "others"
    assert "starts" not in result.info
    assert "replaced by the mean word in turn, its own row left out" in repr(result)
    assert "radius" not in repr(result)
    assert "lower bound" not in repr(result)
    result.save(tmp_path / "one.npz")
    again = wsfast.SensitivityResult.load(tmp_path / "one.npz")
    assert torch.equal(again.per_word, result.per_word)
    assert math.isnan(again.radius)
    assert wsfast.raf_sensitivity(X, perturbation="mask").delta.isnan().all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda X: wsfast.raf_sensitivity(X, perturbation="hide"), "perturbation must be"),
        (lambda X: wsfast.raf_sensitivity(X, perturbation="mask", radius=1.0), "radius must be"),
        (lambda X: wsfast.raf_sensitivity(X, rows="others"), "rows"),
        (lambda X: wsfast.raf_sensitivity(X, perturbation="mask", rows="own"), "rows must be"),
        (lambda X: wsfast.raf_sensitivity(X, causal=1), "causal must be"),
        (lambda X: wsfast.rf_sensitivity(X, perturbation="mask"), "perturbation must be"),
        (lambda X: wsfast.raf_deltas(X, X.T @ X, 0), "delta"),
        (lambda X: wsfast.raf_delta_norms(X, X.T @ X, X[:1], perturbation="mask"), "delta"),
        (lambda X: wsfast.raf_delta_norms(X, X.T @ X, perturbation="ball"), "perturbation must"),
        (
            lambda X: wsfast.raf_sensitivity(X, perturbation=lambda x, at: x),
            "perturbation must return a Change",
        ),
        (
            lambda X: wsfast.raf_sensitivity(X, perturbation=lambda x, at: wsfast.Change(put=x)),
            "has shape",
        ),
        (
            lambda X: wsfast.rf_sensitivity(X, perturbation=lambda x, at: wsfast.Change()),
            "must not hide",
        ),
    ],
)
def test_errors(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call(torch.randn(3, 2))
