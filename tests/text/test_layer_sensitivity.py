"""`layer_sensitivity`: what a user relies on."""

from __future__ import annotations

import gc
import math

import pytest
import torch
from text.architectures import inputs, tiny

import wsfast
from wsfast import LayerSensitivityResult, attention_layers, layer_sensitivity
from wsfast.maps.heads import HeadsMap
from wsfast.maps.layer_input import LayerInput
from wsfast.studies.layers import LayerQuestion, of_text
from wsfast.text import models
from wsfast.text.attention_layers import AttentionModel

pytestmark = pytest.mark.needs("text")

TEXT = "I love her much"
FEW = {"layers": [2], "heads": [0, 3]}


@pytest.fixture(scope="module")
def layer():
    (found,) = attention_layers("minilm", TEXT, layers=[2])
    return found


def output(layer, X, head):
    return HeadsMap(LayerInput(layer), [head]).features(X[None])[0]


def test_value_is_the_change_by_the_models_code_at_the_delta_returned(layer):
    result = layer_sensitivity("minilm", TEXT, **FEW)
    assert result.value.shape == (1, 2, 2)
    assert result.words == [["I", "love", "her", "much"]]
    for place, head in enumerate(FEW["heads"]):
        before = output(layer, layer.X, head)
        for k, relative in enumerate(result.radius):
            row = int(result.position[0, place, k]) + 1  # after [CLS]
            delta = result.delta[0, place, k, 0].double()
            X = layer.X.index_add(0, torch.tensor([row]), delta[None])
            S = (output(layer, X, head) - before).norm() / before.norm()
            torch.testing.assert_close(result.value[0, place, k], S, rtol=1e-7, atol=0)
            assert delta.norm() <= relative * layer.X[row].norm() * (1 + 1e-6)
            torch.testing.assert_close(
                result.value[0, place, k], result.per_word[0, place, k].max()
            )


def test_masks_are_those_of_the_definition(layer):
    result = layer_sensitivity("minilm", TEXT, **FEW, perturbation="mask")
    assert math.isnan(result.radius[0])  # nothing is searched
    given = HeadsMap(LayerInput(layer), [3])
    before = given.features(layer.X[None])[0]
    for word in range(4):
        hidden = torch.zeros(1, len(layer.X), dtype=torch.bool)
        hidden[0, word + 1] = True
        after = given.features(layer.X[None], hidden)[0]
        expected = (after - before).norm() / before.norm()
        torch.testing.assert_close(result.per_word[0, 1, 0, word], expected, rtol=1e-10, atol=0)


@pytest.mark.deep
def test_memory_does_not_grow():
    model = models.load("minilm")

    def use(calls):
        for _ in range(calls):
            for change in ({"relative_radius": 0.1, "max_steps": 1}, {"perturbation": "mask"}):
                layer_sensitivity(model, [TEXT] * 10, layers=[0], heads=[1], **change)
        gc.collect()
        return sum(issubclass(type(one), torch.Tensor) for one in gc.get_objects())

    before = use(1)
    assert use(3) <= before


def test_backends_agree_and_a_site_is_no_less_than_its_words():
    found = [
        layer_sensitivity("minilm", TEXT, **FEW, positions=[1, 2, (1, 2)], backend=backend)
        for backend in ("torch", None)
    ]
    torch.testing.assert_close(found[0].per_word, found[1].per_word, rtol=1e-3, atol=0)
    S = found[1].per_word
    assert (S[..., 2] >= 0.999 * S[..., :2].amax(-1)).all()
    assert found[1].delta.shape[-2] == 2


def test_a_head_does_not_depend_on_those_searched_beside_it():
    """Whether they fit into one search or not."""
    few = {**FEW, "positions": [0, 2, 3]}
    both = layer_sensitivity("minilm", TEXT, **few)
    for change in ({"heads": [3]}, {"memory_budget": 1 << 15}):
        other = layer_sensitivity("minilm", TEXT, **few | change)
        torch.testing.assert_close(
            other.per_word[:, -1], both.per_word[:, -1], rtol=1e-6, atol=0, equal_nan=True
        )


def test_heads_together(layer):
    S = layer_sensitivity("minilm", TEXT, layers=[2], perturbation="zero")
    together = layer_sensitivity(
        "minilm", TEXT, layers=[2], perturbation="zero", combine="concatenated"
    )
    heads = layer.heads.output().flatten(1).norm(dim=1)[:, None]  # (H, 1)
    changes = (S.per_word[0, :, 0] * heads).norm(dim=0) / heads.norm()
    torch.testing.assert_close(together.per_word[0, 0, 0], changes)
    assert together.heads is None


def test_a_list_leaves_out_what_cannot_be_done_and_texts_do_not_depend_on_one_another():
    both = layer_sensitivity("minilm", [TEXT, "", "so what"], **FEW, perturbation="mask")
    alone = layer_sensitivity("minilm", "so what", **FEW, perturbation="mask")
    assert list(both.left_out) == [1]
    assert both.value[1].isnan().all()
    assert (both.position[1] == -1).all()
    assert torch.equal(both.per_word[2, ..., :2], alone.per_word)
    assert both.per_word[2, ..., 2:].isnan().all()


def test_shuffled_twins_are_another_draw_each_and_the_same_for_a_seed():
    options = {**FEW, "perturbation": "mask", "control": "shuffled", "control_draws": 3}
    first, again, other = (
        layer_sensitivity("minilm", TEXT, **options, seed=seed).control for seed in (0, 0, 1)
    )
    assert first.shape == (3, 1, 2, 1)
    assert torch.equal(first, again)
    assert first.unique().numel() == first.numel()
    assert not torch.equal(first, other)


def test_save_and_load(tmp_path):
    options = {**FEW, "control": "shuffled", "control_draws": 2, "positions": [0, (1, 3)]}
    result = layer_sensitivity("minilm", [TEXT, ""], **options, max_steps=3)
    result.save(tmp_path / "x.npz")
    loaded = LayerSensitivityResult.load(tmp_path / "x.npz")
    assert repr(loaded) == repr(result)
    assert loaded.sites == [(0,), (1, 3)]
    assert loaded.left_out == result.left_out
    torch.testing.assert_close(loaded.control, result.control, equal_nan=True)
    torch.testing.assert_close(loaded.delta, result.delta, equal_nan=True)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"layers": [6]}, ValueError, "layers"),
        ({"heads": [12]}, ValueError, "heads must be from 0 to 11 in layer 0, got 12"),
        ({"layers": []}, ValueError, "layers must hold at least one number"),
        ({"radius": 1.0, "relative_radius": 1.0}, ValueError, "cannot both be given"),
        ({"relative_radius": []}, ValueError, "relative_radius must hold at least one"),
        ({"radius": -1.0}, ValueError, "radius must be finite and at least 0"),
        ({"perturbation": "mask", "radius": 1.0}, ValueError, "^radius must be left out"),
        (
            {"perturbation": "mask", "relative_radius": 1.0},
            ValueError,
            "^relative_radius must be left out",
        ),
        ({"combine": "sum"}, ValueError, "combine must be"),
        ({"at": "output"}, ValueError, "at must be"),
        ({"control": "random"}, ValueError, "control must be None or 'shuffled'"),
        ({"positions": [4]}, ValueError, "positions"),
        ({"rows": "others"}, ValueError, "rows must be 'all'"),
        ({"bound": True, "perturbation": "mask"}, ValueError, "bound must be False but for"),
        ({"bound": True, "combine": "projected"}, ValueError, "bound must be False but for"),
        ({"bound": 1}, TypeError, "bound must be True or False"),
        ({"heads": 3}, TypeError, "heads must be an iterable"),
    ],
)
def test_what_is_refused(options, error, message):
    with pytest.raises(error, match=message):
        layer_sensitivity("minilm", TEXT, **options)


def test_a_rotated_head_by_the_models_code():
    """Row maps that are not linear: the search goes through the model's own code."""
    from wsfast import _inputs
    from wsfast.maps.measure import Norm
    from wsfast.search.options import SearchOptions
    from wsfast.studies.worst_case import Asked

    (layer,) = AttentionModel(tiny("Llama")).layers(inputs(5), [1])
    options = SearchOptions([], 0.5, 0, 2, 20, 1e-4, 2**26)
    question = LayerQuestion("each", "residual", [1], [Asked(options, measure=Norm())], 0, None)
    (places,), _ = _inputs.places(None, _inputs.texts(torch.zeros(5, 1)))
    found = of_text([layer], places, question, _Silent())
    given = HeadsMap(LayerInput(layer, "residual"), [1])
    word = int(found.place[0, 0, 0])
    X = layer.residual.clone()
    X[word] += found.delta[0, 0, 0, 0].double()
    before, after = given.features(torch.stack([layer.residual, X]))
    S = (after - before).norm() / before.norm()
    torch.testing.assert_close(found.value[0, 0, 0], S, rtol=1e-5, atol=0)
    assert float((X - layer.residual).norm()) <= 0.5 * (1 + 1e-6)


class _Silent:
    def update(self, n):
        pass


def test_bounds_of_heads(tmp_path):
    texts = [TEXT, "", "Never again"]
    result = layer_sensitivity("minilm", texts, **FEW, bound=True)
    plain = layer_sensitivity("minilm", texts, **FEW)
    assert plain.upper is None
    assert plain.ratio is None
    known = ~result.per_word.isnan()
    assert torch.equal(known, ~result.upper.isnan())
    assert bool((result.per_word <= result.upper)[known].all())
    assert bool((result.per_word >= plain.per_word)[known].all())
    torch.testing.assert_close(result.ratio, result.upper_value / result.value, equal_nan=True)
    assert float(result.ratio[0, ..., 1].max()) < 1.6
    assert "times as large, which is proved" in repr(result)
    frame = result.to_frame()
    assert bool((frame["S_i"] <= frame["upper"]).all())
    result.save(tmp_path / "x.npz")
    loaded = LayerSensitivityResult.load(tmp_path / "x.npz")
    torch.testing.assert_close(loaded.upper, result.upper, equal_nan=True)
    sites = layer_sensitivity("minilm", TEXT, **FEW, positions=[0, (1, 2)], bound=True)
    assert sites.upper.isnan()[..., 1].all()
    assert not sites.upper.isnan()[..., 0].any()
    assert sites.info["bound"] == {"none": "bounds are of single words"}


def test_it_is_public():
    assert wsfast.layer_sensitivity is layer_sensitivity
