"""Heads of trained layers between what is found and what is proved."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from text.architectures import ARCHITECTURES, inputs, tiny

from wsfast.engines.choose import engine
from wsfast.maps.feature_map import PreparedText
from wsfast.maps.heads import HeadsMap
from wsfast.maps.layer_input import AT, LayerInput
from wsfast.maps.measure import Norm
from wsfast.perturbation.change import Change, Sites
from wsfast.search.options import SearchOptions
from wsfast.search.search import Search
from wsfast.text.attention_layers import AttentionModel

pytestmark = pytest.mark.needs("text")

N = 9
QUICK = ("BERT", "GPT-OSS", "Gemma2")  # linear; sinks; a cap
NAMES = [
    pytest.param(name, marks=() if name in QUICK else pytest.mark.deep) for name in ARCHITECTURES
]
TRIALS = 40


@cache
def layers(name):
    return AttentionModel(tiny(name)).layers(inputs(N))


@pytest.mark.parametrize("radius", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("name", NAMES)
def test_no_change_of_a_word_by_the_models_code_exceeds_the_bound(name, radius):
    for layer in layers(name):
        for at in AT:
            given = LayerInput(layer, at)
            chosen = engine("torch", given.X.device)
            (text,) = HeadsMap(given, [1]).prepare([given.X], chosen, 2**28)
            everywhere = Sites.of_words(torch.arange(N))
            if text.unbounded(everywhere):
                continue
            radii = radius * text.X.norm(dim=1)
            largest = float(radii.max())
            options = SearchOptions([], largest, 0, 4, 40, 1e-4, 2**26)
            point, _ = Search(options).run(text.objective(everywhere, Norm(), largest))
            found = within(point.delta.double(), radii)
            norms = change(text, everywhere, found[:, None])[:, 0]
            upper = text.bracket(everywhere, found[:, None], norms, radii).upper
            assert bool((norms <= upper).all())
            assert float(norms.max()) >= 0.05 * float(upper.max())
            generator = torch.Generator().manual_seed(0)
            noise = torch.randn(N, TRIALS, text.d, dtype=torch.float64, generator=generator)
            near = found[:, None] + 0.1 * largest * noise / text.d**0.5
            trials = within(torch.cat([noise, near, -text.X[:, None]], 1), radii[:, None])
            assert bool((change(text, everywhere, trials) <= upper[:, None]).all())


def within(delta, radii):
    return delta * (radii / delta.norm(dim=-1)).clamp(max=1e9)[..., None]


def change(text, sites, delta):
    """‖φ(X^i(Δ)) - φ(X)‖ (P, s) by the model's own code."""
    moved = Change(add=delta[:, :, None])
    return PreparedText.changes(text, sites, moved).flatten(2).norm(dim=2)


@pytest.mark.parametrize(
    ("name", "reason"), [("Llama", "linear in the word"), ("Gemma2", "soft cap|linear in the word")]
)
def test_where_there_is_no_proof_a_head_says_why(name, reason):
    import re

    given = LayerInput(layers(name)[0])
    (text,) = HeadsMap(given, [0]).prepare([given.X], engine("torch", given.X.device), 2**28)
    assert re.search(reason, text.unbounded(Sites.of_words(torch.arange(N))))


def test_a_word_that_must_not_move_is_bounded_beside_others_that_may():
    given = LayerInput(layers("BERT")[0])
    (text,) = HeadsMap(given, [0]).prepare([given.X], engine("torch", given.X.device), 2**28)
    everywhere = Sites.of_words(torch.arange(N))
    still = torch.zeros(N, 1, text.d, dtype=torch.float64)
    radii = text.X.norm(dim=1).index_fill(0, torch.tensor([2]), 0.0)
    upper = text.bracket(everywhere, still, still.new_zeros(N), radii).upper
    assert bool(upper.isfinite().all())
    assert float(upper[2]) <= 1e-3 * float(upper.max())


def test_parts_of_a_text_are_bounded_as_the_whole():
    """Also where the longest words of the parts differ."""
    given = LayerInput(layers("BERT")[0])
    everywhere = Sites.of_words(torch.arange(N))
    uppers = []
    for budget in (2**28, 1):
        (text,) = HeadsMap(given, [0]).prepare([given.X], engine("torch", given.X.device), budget)
        radii = torch.linspace(0.1, 1.0, N, dtype=torch.float64)
        found = within(torch.ones(N, text.d, dtype=torch.float64), radii)
        norms = change(text, everywhere, found[:, None])[:, 0]
        uppers.append(text.bracket(everywhere, found[:, None], norms, radii).upper)
    torch.testing.assert_close(uppers[0], uppers[1], rtol=1e-3, atol=0)
