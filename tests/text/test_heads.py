"""Heads of trained layers by the closed form, against the model's own code."""

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
from wsfast.text.attention_layers import AttentionModel

pytestmark = pytest.mark.needs("text")

N = 11
QUICK = ("BERT", "Gemma2", "GPT-OSS")  # linear; a cap, a window and norms; sinks
NAMES = [
    pytest.param(name, marks=() if name in QUICK else pytest.mark.deep) for name in ARCHITECTURES
]
# Relative to max(norm, 1e-3 ‖φ(X)‖). T5 does not scale its scores, which reach hundreds here.
EXACT = {"T5": 1e-10}
SITES = ([[i] for i in range(N)], [[1, 2], [2, 7]], [[0, 3, 4, N - 1]], [list(range(N))])


@cache
def layers(name):
    return AttentionModel(tiny(name)).layers(inputs(N))


def prepared(layer, at, heads, backend="torch", *, projected=False):
    given = LayerInput(layer, at)
    (text,) = HeadsMap(given, heads, projected=projected).prepare(
        [given.X], engine(backend, given.X.device), 2**28
    )
    return text


def changes(text, at, seed=0):
    """Δ of three sizes, words put in place, and hidden words, at places (P, m)."""
    P, m = at.shape
    generator = torch.Generator().manual_seed(seed)
    delta = torch.randn(P, 3, m, text.d, dtype=torch.float64, generator=generator)
    yield Change(add=delta * torch.tensor([1e-3, 1.0, 10.0], dtype=torch.float64)[:, None, None])
    yield Change(put=delta[:, :1])
    yield Change()


def check(text, most, sites=SITES):
    for places in sites:
        at = Sites(torch.tensor(places))
        for change in changes(text, at.at):
            expected = PreparedText.changes(text, at, change).flatten(2)
            norm = expected.norm(dim=2)
            unit = torch.maximum(norm, 1e-3 * text.norm)
            got = text.changes(at, change).flatten(2)
            assert ((got - expected).norm(dim=2) <= most * unit).all()
            for dtype, near in ((torch.float64, 1e-10), (torch.float32, 1e-4)):
                value = text.measured(at, change, Norm(), dtype)
                assert ((value - norm).abs() <= near * unit).all()


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_every_change_of_a_head_is_that_of_the_models_code(name):
    for layer in layers(name):
        for at in AT:
            check(prepared(layer, at, [1]), EXACT.get(name, 1e-11))


@pytest.mark.parametrize("projected", [False, True])
@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_heads_together_before_and_after_the_output_map(name, projected):
    text = prepared(layers(name)[1], "attention", [0, 1, 3], projected=projected)
    check(text, EXACT.get(name, 1e-11), SITES[:2])


@pytest.mark.parametrize("name", ["BERT", "Gemma2"])
@torch.no_grad()
def test_changes_of_one_word_may_stand_beside_those_of_others(name):
    """Rows of changed words, of whatever places are asked for together."""
    given = LayerInput(layers(name)[1], "residual")
    at = torch.tensor([[4], [0], [4], [7], [4], [0]])
    generator = torch.Generator().manual_seed(1)
    delta = torch.randn(6, 2, 1, given.X.shape[1], dtype=torch.float64, generator=generator)
    together = given.moves(at, delta)
    for k in range(6):
        apart = given.moves(at[k : k + 1], delta[k : k + 1])[0]
        torch.testing.assert_close(together[k], apart, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_other_rows_alone(name):
    text = prepared(layers(name)[0], "attention", [2])
    for places in SITES:
        at = Sites(torch.tensor(places))
        for change in changes(text, at.at):
            expected = PreparedText.measured(text, at, change, Norm("others"), torch.float64)
            got = text.measured(at, change, Norm("others"), torch.float64)
            assert ((got - expected).abs() <= 1e-10 * (expected + 1e-3 * text.norm)).all()


@pytest.mark.needs("native")
@pytest.mark.parametrize("heads", [[1], [0, 2]])
@pytest.mark.parametrize("name", ["BERT", pytest.param("GPT-2", marks=pytest.mark.deep)])
def test_kernels_give_what_pytorch_gives(name, heads):
    text, other = (
        prepared(layers(name)[1], "attention", heads, one) for one in ("native", "torch")
    )
    with torch.no_grad():
        check(text, 1e-11, SITES[:1])
    compare_objectives(text, other, 1e-4)


def compare_objectives(text, other, most):
    """Values and gradients of what is searched, and of the same in fewer dimensions."""
    at = Sites(torch.tensor([[0], [4], [N - 1]]))
    generator = torch.Generator().manual_seed(3)
    delta = 0.3 * torch.randn(3, 2, text.d, dtype=torch.float64, generator=generator)
    objective, true = text.objective(at, Norm(), 1.0), other.objective(at, Norm(), 1.0)
    value, slope = true.evaluator(2).value_and_gradient(delta.to(true.dtype))
    found = objective.evaluator(2).value_and_gradient(delta.to(objective.dtype))
    torch.testing.assert_close(found[0], value.to(found[0]), rtol=most, atol=0)
    assert ((found[1] - slope).norm(dim=-1) <= most * slope.norm(dim=-1)).all()
    if (small := objective.small()) is not None:
        inside = small.inside(delta.to(objective.dtype))
        seen = small.objective.evaluator(2).value_and_gradient(inside)
        torch.testing.assert_close(seen[0], value.to(seen[0]), rtol=most, atol=0)
        lifted = small.lifted(seen[1].flatten(0, 1)).view_as(slope)
        assert ((lifted - slope).norm(dim=-1) <= most * slope.norm(dim=-1)).all()


@pytest.mark.parametrize(("heads", "projected"), [([1], False), ([0, 2], False), ([0, 1], True)])
@pytest.mark.parametrize("at", AT)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=NAMES[k].marks)
        for k, name in enumerate(ARCHITECTURES)
        if name != "T5"
    ],
)
def test_what_is_searched_is_the_square_of_the_change(name, at, heads, projected):
    layer = layers(name)[1]
    text = prepared(layer, at, heads, projected=projected)
    compare_objectives(text, prepared(layer, at, heads, "reference", projected=projected), 1e-4)


@pytest.mark.parametrize("name", QUICK)
def test_nothing_is_lost_in_the_dimensions_of_a_head(name):
    objective = prepared(layers(name)[0], "attention", [0]).objective(
        Sites(torch.tensor([[1]])), Norm(), 1.0
    )
    small = objective.small()
    if name == "BERT":
        assert small.lossless
        assert small.bases[0].shape == (48, 36)
    else:
        assert small is None
