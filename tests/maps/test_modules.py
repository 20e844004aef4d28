"""RandomAttentionFeatures: the function with a W of its own."""

from __future__ import annotations

import copy
import io

import pytest
import torch
from definition import WEIGHT_FNS, random_text

from wsfast import raf_features, random_weights
from wsfast.nn import RandomAttentionFeatures


@pytest.mark.parametrize(("weight_fn", "normalize"), WEIGHT_FNS)
@pytest.mark.parametrize("draws", [None, 3])
def test_is_the_function(weight_fn, normalize, draws):
    X = random_text(5, 4, dtype=torch.float32)[0]
    mask = torch.tensor([True, True, False, True, True])
    options = {"weight_fn": weight_fn, "normalize": normalize}
    layer = RandomAttentionFeatures(4, draws=draws, seed=7, **options)
    W = random_weights(4, draws=draws, seed=7)
    assert torch.equal(layer.W, W)
    assert torch.equal(layer(X, mask), raf_features(X, W, mask=mask, **options))


def test_w_is_a_buffer():
    layer = RandomAttentionFeatures(4)
    assert list(layer.parameters()) == []
    assert list(layer.state_dict()) == ["W"]
    assert layer.double().W.dtype == torch.float64
    assert not layer.W.requires_grad


def test_state_dict_round_trip():
    layer, other = RandomAttentionFeatures(4, seed=1), RandomAttentionFeatures(4, seed=2)
    X = random_text(5, 4, dtype=torch.float32)[0]
    assert not torch.equal(layer(X), other(X))
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(layer(X), other(X))
    assert torch.equal(copy.deepcopy(layer)(X), layer(X))


@pytest.mark.needs("native")
def test_arguments_reach_the_function():
    layer = RandomAttentionFeatures(4, dtype=torch.float64, backend="reference", weight_fn="relu")
    assert layer.W.dtype == torch.float64
    assert "d=4" in repr(layer)
    assert "relu" in repr(layer)
    X = random_text(5, 4)[0]
    assert torch.equal(layer(X), raf_features(X, layer.W, weight_fn="relu", backend="reference"))


def test_gradient_reaches_the_text():
    X = random_text(5, 4, dtype=torch.float32)[0].requires_grad_()
    RandomAttentionFeatures(4)(X).sum().backward()
    assert (X.grad.norm(dim=-1) > 0).all()


@pytest.mark.parametrize(
    "arguments",
    [{"d": 0}, {"d": 4, "weight_fn": "cosine"}, {"d": 4, "normalize": False}, {"d": 4, "draws": 0}],
)
def test_wrong_arguments(arguments):
    with pytest.raises(ValueError, match="must be"):
        RandomAttentionFeatures(**arguments)
