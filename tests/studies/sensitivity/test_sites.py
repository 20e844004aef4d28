"""Several words at once: sites of `raf_sensitivity`, `raf_delta_norms` and their like."""

from __future__ import annotations

from itertools import pairwise, permutations

import numpy as np
import pytest
import torch
from definition import random_text
from parameters import all_backends, backends, dtypes, weight_fns

from wsfast import (
    SensitivityResult,
    drf_sensitivity,
    perturb,
    raf_delta_norms,
    raf_deltas,
    raf_features,
    raf_sensitivity,
    random_weights,
    rf_features,
    rf_sensitivity,
    rf_weights,
    word_sensitivity,
    worst_words,
)

SITES = [3, (4, 5), (0, 2, 6), (1,)]
EVERY = tuple(range(7))


def relative_change(phi, X, site, delta):
    """By the definition alone; `delta` (m, d) of the words of a site, ascending."""
    moved = X.double().clone()
    for i, by in zip(site, delta.double(), strict=False):
        moved[i] = moved[i] + by
    before = phi(X.double())
    return float((phi(moved) - before).norm() / before.norm())


# -- what is returned is true ----------------------------------------------------------------------


@all_backends
@weight_fns
@pytest.mark.parametrize("ball", ["joint", "each"])
def test_value_is_the_definition_at_delta(backend, weight_fn, normalize, ball):
    X, W = random_text(7, 5, 3, torch.float32)
    how = {"weight_fn": weight_fn, "normalize": normalize}
    for asked in (*SITES, EVERY):
        found = raf_sensitivity(
            X, W, positions=[asked, (0, 1)], ball=ball, backend=backend, max_steps=5, **how
        )
        site = [i for i in found.site.tolist() if i >= 0]
        assert tuple(site) == found.sites[int(found.position)]
        assert not found.delta[len(site) :].any()
        phi = lambda X: raf_features(X, W.double(), backend="reference", **how)  # noqa: E731
        defined = relative_change(phi, X, site, found.delta)
        assert float(found) == pytest.approx(defined, rel=1e-5)
        sizes = found.delta.double().norm(dim=-1)
        size = float(sizes.max() if ball == "each" else sizes.norm())
        assert size <= 5**0.5


@pytest.mark.parametrize("ball", ["joint", "each"])
def test_random_features(ball):
    X, _ = random_text(7, 5, 3)
    V = rf_weights(7, 5, k=11, seed=1, dtype=torch.float64)
    found = rf_sensitivity(X, V, positions=SITES, ball=ball)
    site = found.sites[int(found.position)]
    defined = relative_change(lambda X: rf_features(X, V), X, site, found.delta)
    assert float(found) == pytest.approx(defined, rel=1e-10)
    assert bool((found.per_word <= found.upper).all())
    reference = rf_sensitivity(X, V, positions=SITES, ball=ball, backend="reference")
    torch.testing.assert_close(found.per_word, reference.per_word, rtol=1e-3, atol=0)
    torch.testing.assert_close(found.upper, reference.upper)
    deep = drf_sensitivity(X, positions=SITES, ball=ball, k=9)
    assert bool((deep.per_word <= deep.upper).all())
    for kind in ("zero", "mean"):
        changed = rf_sensitivity(X, V, positions=SITES, perturbation=kind)
        for site, value in zip(changed.sites, changed.per_word, strict=True):
            word = X.mean(0) if kind == "mean" else torch.zeros(5, dtype=X.dtype)
            by = word - X[list(site)]
            expected = relative_change(lambda X: rf_features(X, V), X, site, by)
            assert float(value) == pytest.approx(expected, rel=1e-10)


def test_any_map():
    X, _ = random_text(7, 5, 3)
    phi = lambda X: torch.tanh(X.cumsum(-2) + X.roll(1, -2))  # noqa: E731
    found = word_sensitivity(phi, X, positions=SITES, max_steps=10)
    site = found.sites[int(found.position)]
    assert float(found) == pytest.approx(relative_change(phi, X, site, found.delta), rel=1e-9)


# -- what must hold of sites -----------------------------------------------------------------------


@backends
@weight_fns
def test_a_site_of_one_word_is_the_word(backend, weight_fn, normalize):
    X, W = random_text(6, 5, 1, torch.float32)
    how = {"weight_fn": weight_fn, "normalize": normalize, "backend": backend, "max_steps": 10}
    words = raf_sensitivity(X, W, **how)
    sites = raf_sensitivity(X, W, positions=[(5,), 2, (0,)], **how)
    torch.testing.assert_close(sites.per_word, words.per_word[[5, 2, 0]], rtol=1e-6, atol=0)


@pytest.mark.deep
@backends
def test_orders_change_nothing(backend):
    X, W = random_text(6, 5, 1, torch.float32)
    one = raf_sensitivity(X, W, positions=[(1, 2, 4), (0, 3), 5], backend=backend, max_steps=10)
    for order in permutations((4, 1, 2)):
        other = raf_sensitivity(X, W, positions=[5, order, (3, 0)], backend=backend, max_steps=10)
        torch.testing.assert_close(one.per_word[[2, 0, 1]], other.per_word, rtol=1e-5, atol=0)
        assert torch.equal(one.site, other.site)
        torch.testing.assert_close(one.delta, other.delta, rtol=1e-3, atol=1e-3)
    for site, value in zip(one.sites, one.per_word, strict=True):
        alone = raf_sensitivity(X, W, positions=[site], backend=backend, max_steps=10)
        assert float(alone) == pytest.approx(float(value), rel=1e-5)


@pytest.mark.deep
@backends
@weight_fns
@pytest.mark.parametrize("seed", range(3))
def test_a_site_moves_phi_as_far_as_each_of_its_words(backend, weight_fn, normalize, seed):
    """In the joint ball; and balls of their own are larger still."""
    n, d = 5 + seed, (4, 9, 24)[seed]
    X, W = random_text(n, d, seed, torch.float32, 2.0)
    how = {"weight_fn": weight_fn, "normalize": normalize, "backend": backend}
    words = raf_sensitivity(X, W, **how).per_word
    sites = [(0, 1), (1, 3, 4), tuple(range(n))]
    joint = raf_sensitivity(X, W, positions=sites, **how).per_word
    each = raf_sensitivity(X, W, positions=sites, ball="each", **how).per_word
    for site, value, larger in zip(sites, joint, each, strict=True):
        assert float(value) >= 0.999 * float(words[list(site)].max())
        assert float(larger) >= 0.999 * float(words[list(site)].max())


@pytest.mark.deep
@weight_fns
def test_backends_find_the_same(weight_fn, normalize):
    X, W = random_text(6, 5, 2)
    found = [
        raf_sensitivity(
            X, W, positions=[(0, 1), (2, 3, 5)], weight_fn=weight_fn, normalize=normalize,
            backend=backend,
        ).per_word
        for backend in ("torch", "native", "reference")
    ]  # fmt: skip
    for one in found[1:]:
        torch.testing.assert_close(one, found[0], rtol=1e-3, atol=0)


@pytest.mark.deep
@backends
def test_masks_batches_and_budgets(backend):
    """A site of which a word is masked, or beyond a shorter text, is none of that text."""
    texts = [random_text(n, 5, n, torch.float32)[0] for n in (6, 4)]
    W = random_weights(5, draws=2)
    mask = [torch.tensor([True, True, False, True, True, True]), torch.ones(4, dtype=torch.bool)]
    sites = [(0, 1), (1, 2), (3, 5), 3]
    how = {"positions": sites, "backend": backend, "max_steps": 10}
    found = raf_sensitivity(texts, W, mask=mask, **how)
    assert found.per_word.shape == (2, 2, 4)
    assert found.site.shape == (2, 2, 2)
    assert found.delta.shape == (2, 2, 2, 5)
    assert found.per_word[:, 0].isnan().tolist() == [
        [False, True, False, False],
        [False, False, True, False],
    ]
    alone = raf_sensitivity(texts[0][mask[0]], W, backend=backend, max_steps=10,
                            positions=[(0, 1), (2, 4), 2])  # fmt: skip
    kept = found.per_word[0][:, [0, 2, 3]]
    torch.testing.assert_close(alone.per_word, kept, rtol=1e-5, atol=0)
    # Where no site of the most words is left.
    narrow = raf_sensitivity(texts[1], W[0], mask=torch.arange(4) != 2, positions=[(1, 2), (3,)])
    assert narrow.site.tolist() == [3, -1]
    assert narrow.delta.shape == (2, 5)
    assert not narrow.delta[1].any()
    small = raf_sensitivity(texts, W, mask=mask, memory_budget=1, **how)
    torch.testing.assert_close(small.per_word, found.per_word, rtol=1e-5, atol=0, equal_nan=True)


@all_backends
@weight_fns
@pytest.mark.parametrize("kind", ["mask", "zero", "mean"])
def test_known_changes_of_sites(backend, weight_fn, normalize, kind):
    """The norms are those of the differences themselves, and the study divides by ‖φ‖."""
    X, W = random_text(7, 5, 3)
    how = {"weight_fn": weight_fn, "normalize": normalize, "backend": backend}
    norms = raf_delta_norms(X, W, perturbation=kind, positions=[*SITES, EVERY], **how)
    found = raf_sensitivity(X, W, perturbation=kind, positions=[*SITES, EVERY], **how)
    size = float(raf_features(X, W, weight_fn=weight_fn, normalize=normalize).norm())
    for k, site in enumerate([*SITES, EVERY]):
        change = raf_deltas(X, W, site, perturbation=kind, **how)
        assert float(norms[k]) == pytest.approx(float(change.norm()), rel=1e-10)
        assert float(found.per_word[k]) == pytest.approx(float(norms[k]) / size, rel=1e-10)


@all_backends
def test_given_changes(backend):
    X, W = random_text(7, 5, 3)
    shared = torch.randn(2, 3, 5, dtype=torch.float64)
    found = raf_delta_norms(X, W, shared, positions=SITES, backend=backend)
    assert found.shape == (4, 2)
    before = raf_features(X, W)
    for site, row in zip(SITES, found, strict=True):
        m = 1 if isinstance(site, int) else len(site)
        for by, norm in zip(shared, row, strict=True):
            by = by[0] if isinstance(site, int) else by[:m]
            change = raf_features(perturb(X, site, by), W) - before
            assert float(norm) == pytest.approx(float(change.norm()), rel=1e-9)
            torch.testing.assert_close(raf_deltas(X, W, site, by, backend=backend), change)
    own = shared.expand(4, 2, 3, 5)
    again = raf_delta_norms(X, W, own, positions=SITES, backend=backend)
    torch.testing.assert_close(again, found)


@backends
@dtypes
def test_two_words_that_had_all_attention_lose_it(backend, dtype):
    """Of what is left, 1e-13 of what was, no difference is taken."""
    X = torch.zeros(5, 4, dtype=dtype)
    X[0, 0], X[1, 0], X[1, 1] = 5, 5, 1
    X[2:, 2], X[2:, 3] = 1, torch.tensor([0.0, 0.5, 1.0])
    W = torch.zeros(4, 4, dtype=dtype)
    W[2, 0] = 20  # scores of 50, where all others are 0
    delta = torch.tensor([[[-3.0, 0.2, 0, 0], [-3.1, 0, 0.1, 0]]], dtype=dtype)
    found = raf_delta_norms(X, W, delta, positions=[(0, 1)], backend=backend)
    change = raf_features(perturb(X.double(), (0, 1), delta[0].double()), W.double())
    change = change - raf_features(X.double(), W.double())
    accuracy = {torch.float32: 1e-4, torch.float64: 1e-10}[dtype]
    assert float(found) == pytest.approx(float(change.norm()), rel=accuracy)
    direct = raf_deltas(X, W, (0, 1), delta[0], backend=backend).double()
    assert float((direct - change).norm() / change.norm()) <= 1e-6


@backends
def test_gradients(backend):
    X, W = random_text(5, 3, 3)
    delta = torch.randn(1, 2, 3, dtype=torch.float64, requires_grad=True)
    inputs = (X.requires_grad_(), W.requires_grad_(), delta)
    how = {"positions": [(0, 3), (1, 2)], "backend": "torch"}
    torch.autograd.gradcheck(lambda *given: raf_delta_norms(*given, **how), inputs)


# -- the worst words, one after the other ----------------------------------------------------------


@all_backends
@pytest.mark.parametrize("kind", ["ball", "mask"])
def test_worst_words(backend, kind):
    X, W = random_text(6, 4, 5)
    mask = torch.tensor([True, True, False, True, True, True])
    how = {"mask": mask, "perturbation": kind, "backend": backend, "max_steps": 10}
    found = worst_words(X, 3, W, **how)
    first = raf_sensitivity(X, W, **how)
    assert found[0].site.tolist() == [int(first.position)]
    for before, after in pairwise(found):
        chosen = before.site.tolist()
        assert {*chosen} < {*after.site.tolist()}
        assert {*after.sites} == {
            tuple(sorted((*chosen, i))) for i in (0, 1, 3, 4, 5) if i not in chosen
        }
        again = raf_sensitivity(X, W, positions=[tuple(after.site.tolist())], **how)
        assert float(after) == pytest.approx(float(again), rel=1e-5)
        assert float(after) == float(after.per_word.max())
    assert "words chosen greedily" in repr(found[-1])


def test_worst_words_of_bad_input():
    X, W = random_text(4, 3, 5)
    with pytest.raises(ValueError, match="m must be from 1 to 3, got 4"):
        worst_words(X, 4, W, mask=torch.arange(4) != 1)
    with pytest.raises(ValueError, match=r"X must be one text \(n, d\), got a batch of 2"):
        worst_words([X, X], 1, W)
    with pytest.raises(ValueError, match=r"W must be one W, of shape \(d, d\), got \(1, 3, 3\)"):
        worst_words(X, 1, W[None])
    with pytest.raises(ValueError, match="X must have features"), pytest.warns(RuntimeWarning):
        worst_words(torch.zeros(3, 3), 1)


# -- results ---------------------------------------------------------------------------------------


def test_results_name_and_keep_sites(tmp_path):
    X, W = random_text(5, 4, 2, torch.float32)
    found = raf_sensitivity(X.numpy(), W.numpy(), positions=[0, (3, 4)], perturbation="mask")
    assert isinstance(found.site, np.ndarray)
    named = found.with_words(["I", "love", "her", "very", "much"])
    assert named.words == ["I", "very + much"]
    assert found.with_words(["a", "b"]).words == ["a", "b"]
    found.save(tmp_path / "r")
    loaded = SensitivityResult.load(tmp_path / "r")
    assert loaded.sites == [(0,), (3, 4)]
    np.testing.assert_array_equal(loaded.site, found.site)
    worst = int(found.position)
    assert f"worst site: {['0', '3 + 4'][worst]!r} at site {worst}" in repr(found)
    assert "2 sites" in repr(found)
    assert ["I", "very + much"][worst] in named._repr_html_()
    with pytest.raises(ValueError, match="words must hold a label for each of 2 sites"):
        found.with_words(["one"])


@pytest.mark.needs("tables")
def test_frame_of_sites():
    X, W = random_text(5, 4, 2)
    frame = raf_sensitivity(X, W, positions=[(3, 4), 0], max_steps=3).to_frame()
    assert frame["site"].tolist() == ["3 4", "0"]
    assert frame["worst"].sum() == 1


# -- bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("positions", "error", "message"),
    [
        ([1, (2, 2)], ValueError, r"positions\[1\] must hold positions that differ, got \[2, 2\]"),
        ([1, ()], ValueError, r"positions\[1\] must hold at least one position, got none"),
        ([(0, 7)], ValueError, r"positions\[0\]\[1\] must be from 0 to 6, got 7"),
        ([(0, 1), -1], ValueError, r"positions\[1\] must be from 0 to 6, got -1"),
        ([(0, 1.5)], TypeError, r"positions\[0\]\[1\] must be an integer, got 1.5"),
        ([(0, (1, 2))], TypeError, r"positions\[0\]\[1\] must be an integer, got \(1, 2\)"),
    ],
)
def test_sites_that_are_none(positions, error, message):
    X, W = random_text(7, 3, 1)
    for call in (
        lambda: raf_sensitivity(X, W, positions=positions),
        lambda: raf_delta_norms(X, W, perturbation="mask", positions=positions),
        lambda: rf_sensitivity(X, positions=positions),
        lambda: word_sensitivity(torch.tanh, X, positions=positions),
    ):
        with pytest.raises(error, match=message):
            call()


def test_other_bad_input():
    X, W = random_text(7, 3, 1)
    with pytest.raises(ValueError, match="ball must be 'joint' or 'each', got 'own'"):
        raf_sensitivity(X, W, positions=[(0, 1)], ball="own")
    with pytest.raises(ValueError, match=r"delta must have shape \(s, 2, 3\) or \(2, s, 2, 3\)"):
        raf_delta_norms(X, W, torch.ones(2, 3, dtype=X.dtype), positions=[0, (1, 2)])
    with pytest.raises(ValueError, match=r"delta must have shape \(2, 3\), got \(3,\)"):
        raf_deltas(X, W, (1, 2), torch.ones(3, dtype=X.dtype))
    with pytest.raises(ValueError, match="position must be that of a word, got 2, masked"):
        raf_deltas(X, W, (1, 2), perturbation="mask", mask=torch.arange(7) != 2)
    with pytest.raises(ValueError, match="this result is of sites"):
        raf_sensitivity(X, W, positions=[(0, 1)], max_steps=1).whole_words([])
