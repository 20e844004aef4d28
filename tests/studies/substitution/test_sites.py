"""Several words replaced at once, by an explicit list of candidates."""

from __future__ import annotations

import pytest
import torch
from definition import features, random_text
from parameters import all_backends, weight_fns

from wsfast import SubstitutionResult, _inputs, random_weights, substitution_sensitivity
from wsfast.maps.attention import weight_function
from wsfast.maps.draws import attention_draws
from wsfast.studies.substitution.search import substitution_under

SITES = [(0, 3), 2, (1, 4)]
CANDIDATES = [(7, 1), (3,), (2, 2), (0, 6), (5,)]


def changes(X, W, E, weight_fn, normalize):
    """The relative change of every pair (P, C), by the definition; NaN where lengths differ."""
    before = features(X.double(), W.double(), weight_fn, normalize)
    table = torch.full((len(SITES), len(CANDIDATES)), torch.nan, dtype=torch.float64)
    for p, site in enumerate(SITES):
        site = [site] if isinstance(site, int) else list(site)
        for c, rows in enumerate(CANDIDATES):
            if len(rows) == len(site):
                moved = X.double().clone()
                moved[site] = E[list(rows)].double()
                after = features(moved, W.double(), weight_fn, normalize)
                table[p, c] = (after - before).norm() / before.norm()
    return table


@all_backends
@weight_fns
@pytest.mark.parametrize("largest", [True, False])
def test_every_pair_is_that_of_the_definition(backend, weight_fn, normalize, largest):
    X, W = random_text(5, 4, 3, torch.float32)
    E = torch.randn(9, 4)
    found = substitution_sensitivity(
        X, E, W, positions=SITES, candidates=CANDIDATES, full=True, largest=largest, top_k=4,
        weight_fn=weight_fn, normalize=normalize, backend=backend,
    )  # fmt: skip
    expected = changes(X, W, E, weight_fn, normalize)
    torch.testing.assert_close(found.table.double(), expected, rtol=1e-6, atol=0, equal_nan=True)
    order = expected.flatten().nan_to_num(-torch.inf if largest else torch.inf)
    best = order.argsort(descending=largest)[:4]
    assert found.top_position.tolist() == (best // 5).tolist()
    assert found.top_candidate.tolist() == (best % 5).tolist()
    assert float(found) == pytest.approx(float(order[best[0]]), rel=1e-6)
    shown = found.grid_value.double()
    torch.testing.assert_close(
        shown, expected[:, found.grid_candidate], rtol=1e-6, atol=0, equal_nan=True
    )


def test_batches_masks_and_files(tmp_path):
    texts = [random_text(n, 4, n, torch.float32)[0] for n in (5, 4)]
    mask = [torch.ones(5, dtype=torch.bool), torch.tensor([True, True, False, True])]
    W, E = random_weights(4, draws=2), torch.randn(9, 4)
    how = {"positions": SITES, "candidates": CANDIDATES, "top_k": 2}
    found = substitution_sensitivity(texts, E, W, mask=mask, **how)
    assert found.best_value.shape == (2, 2, 3)
    assert (found.best_candidate[1, 0] >= 0).tolist() == [True, False, False]
    alone = substitution_sensitivity(texts[0], E, W[0], **how)
    torch.testing.assert_close(found.best_value[0, 0], alone.best_value)
    first = alone.top()[0]
    names = " + ".join(map(str, CANDIDATES[first.candidate]))
    assert (first.word, first.name) == (["0 + 3", "2", "1 + 4"][first.position], names)
    assert alone.with_words(list("abcde")).words == ["a + d", "c", "b + e"]
    alone.save(tmp_path / "r")
    loaded = SubstitutionResult.load(tmp_path / "r")
    assert (loaded.sites, loaded.tuples) == ([(0, 3), (2,), (1, 4)], CANDIDATES)
    assert repr(loaded) == repr(alone)


def test_no_site_is_replaced_by_its_own_words():
    X, W = random_text(5, 4, 3, torch.float32)
    E = torch.randn(9, 4)
    own = [7, 2, 3, 1, 2]  # the first, the second and the third of the candidates
    found = substitution_sensitivity(
        X, E, W, positions=SITES, candidates=CANDIDATES, own=own, full=True, top_k=5
    )
    expected = changes(X, W, E, "softmax", True)
    expected[[0, 1, 2], [0, 1, 2]] = torch.nan
    torch.testing.assert_close(found.table.double(), expected, rtol=1e-6, atol=0, equal_nan=True)
    assert len(found.top()) == 5


def test_change_of_the_other_rows_as_a_site_gets_any_number_of_words():
    """By the definition on the text of another length; padding plays no part."""
    X, W = random_text(6, 4, 3, torch.float32)
    E = torch.randn(9, 4)
    mask = torch.tensor([True] * 5 + [False])
    inputs = _inputs.texts(X, mask)
    maps = attention_draws(inputs, weight_function("softmax", True), W, None, 0, None)
    candidates = [(7, 1), (3,), (4, 4, 8)]
    found = substitution_under(
        maps, inputs, E, positions=SITES, candidates=candidates, rows="others", full=True, top_k=9
    )
    X, before = X[:5], features(X[:5], W)
    for p, site in enumerate([(0, 3), (2,), (1, 4)]):
        others = [i for i in range(5) if i not in site]
        start = site[0]  # so many of the others stand before it
        for c, rows in enumerate(candidates):
            moved = torch.cat([X[others[:start]], E[list(rows)], X[others[start:]]])
            after = features(moved, W)
            after = torch.cat([after[:start], after[start + len(rows) :]])
            change = (after - before[others]).norm() / before.norm()
            assert float(found.table[p, c]) == pytest.approx(float(change), rel=1e-6)
    assert found.info["rows"] == "others"


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"candidates": None}, TypeError, "must be a list of tuples of rows .*, got NoneType"),
        ({"candidates": [1, 2]}, TypeError, r"got 1 in candidates\[0\]"),
        ({"candidates": [(1, 9)]}, ValueError, r"candidates\[0\]\[1\] must be from 0 to 8, got 9"),
        ({"candidates": [(1, 2, 3)]}, ValueError, r"candidates\[0\] must have as many rows as a"),
        ({"candidates": [(1, 2)]}, ValueError, r"one of 1 rows, for the site \(2,\), got none"),
        ({"self_scores": [0.0] * 9}, ValueError, "self_scores must be left out where"),
        ({"top_k": 9}, ValueError, "top_k must be at most .*, 8, got 9"),
        ({"positions": [(1, 1)]}, ValueError, "must hold positions that differ"),
    ],
)
def test_bad_input(options, error, message):
    X, W = random_text(5, 4, 3, torch.float32)
    given = {"positions": SITES, "candidates": CANDIDATES, "top_k": 2, **options}
    with pytest.raises(error, match=message):
        substitution_sensitivity(X, torch.ones(9, 4), W, **given)
