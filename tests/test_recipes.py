"""What CONTRIBUTING.md tells to write is taken by every study and every engine."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from definition import features, random_text
from parameters import all_backends

import wsfast
from wsfast.engines import choose
from wsfast.maps.attention import WeightFn, Weights
from wsfast.maps.attention_text import AttentionMap
from wsfast.maps.draws import BUILDERS
from wsfast.perturbation.change import Change, Sites
from wsfast.search.options import SearchOptions
from wsfast.search.search import Search

CONTRIBUTING = Path(__file__).parents[1] / "CONTRIBUTING.md"


@pytest.fixture(scope="module")
def recipes():
    """What the code blocks of the three recipes define."""
    if not CONTRIBUTING.is_file():
        pytest.skip("CONTRIBUTING.md is not beside the tests")
    text = CONTRIBUTING.read_text(encoding="utf-8")
    heading = r"^## Add a (?:feature map|perturbation|measure)$(.*?)(?=^## )"
    parts = re.findall(heading, text, re.M | re.S)
    assert len(parts) == 3
    known: dict = {}
    try:
        for block in re.findall(r"^```python$(.*?)^```$", "".join(parts), re.M | re.S):
            exec(block, known)
        yield known
    finally:
        BUILDERS.pop("pooled", None)


def test_map_is_taken_by_every_study(recipes):
    map_ = recipes["Pooled"](16, seed=0)
    X = torch.randn(5, 16)
    found = wsfast.word_sensitivity(map_, X, seed=1)
    as_function = wsfast.word_sensitivity(lambda texts: map_.features(texts), X, seed=1)
    torch.testing.assert_close(found.per_word, as_function.per_word)
    table = wsfast.scaling("pooled", [3, 6], 16, draws=2, max_steps=5)
    assert {cell.map for cell in table.rows} == {"pooled"}
    texts, labels = torch.randn(4, 5, 16), [1, -1, 1, -1]
    for given in (map_, "pooled"):
        result = wsfast.generalization.experiment(texts, labels, X, 1, map=given, max_steps=5)
        assert torch.isfinite(result.error).all()


@all_backends
def test_perturbation_is_taken_by_every_engine(recipes, backend):
    X, W = random_text(6, 16, 0)
    result = wsfast.raf_sensitivity(X, W, perturbation=recipes["halve"], backend=backend)
    norms = wsfast.raf_delta_norms(X, W, perturbation=recipes["halve"], backend=backend)
    for i in range(6):
        moved = X.clone()
        moved[i] /= 2
        change = features(moved, W) - features(X, W)
        assert float(norms[i]) == pytest.approx(float(change.norm()), rel=1e-10)
        whole = float(features(X, W).norm())
        assert float(result.per_word[i]) == pytest.approx(float(change.norm()) / whole, rel=1e-10)
    assert result.info["perturbation"] == "halve"


@all_backends
def test_measure_is_taken_by_prepared_texts(recipes, backend):
    X, W = random_text(5, 16, 0)
    engine = choose.engine(backend, X.device)
    map_ = AttentionMap(Weights(W), WeightFn("softmax"))
    (text,) = map_.prepare([X], engine, 2**28)
    sites, measure = Sites.of_words(torch.arange(5)), recipes["LargestRow"]()
    options = SearchOptions([torch.arange(5)], 4.0, 0, 4, 20, 1e-4, 2**28)
    point, _ = Search(options).run(text.objective(sites, measure, 4.0))
    found = text.measured(sites, Change(add=point.delta[:, None, None]), measure, torch.float64)
    for i in range(5):
        moved = X.clone()
        moved[i] += point.delta[i]
        change = features(moved, W) - features(X, W)
        assert float(found[i]) == pytest.approx(float(change.norm(dim=1).max()), rel=1e-10)
    random = torch.randn(5, 20, 1, 16, dtype=X.dtype)
    random = Change(add=4 * random / random.norm(dim=-1, keepdim=True))
    assert bool((found > text.measured(sites, random, measure, torch.float64)).all())
