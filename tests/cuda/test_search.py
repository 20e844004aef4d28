"""Worst cases over the ball, on CUDA tensors: the value is the definition's, and no lower one."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from definition import deltas, features
from parameters import dtypes, weight_fns

from wsfast import raf_features, raf_sensitivity, word_sensitivity
from wsfast.engines.engine import TORCH
from wsfast.search.ascent import Limits, Point, ascend_unattended

# A search ends where steps raise the norm by less than 1e-4 of itself: rounding moves that place,
# and where the objective has kinks it may lead to another one.
SAME_END = 3e-2


def check_value(result, X, W, weight_fn="softmax", normalize=True):
    """The value is what the definition gives at the Δ returned, which is in the ball."""
    i, delta = int(result.position), result.delta.cpu()
    change = deltas(X.cpu(), W.cpu(), i, delta, weight_fn, normalize)
    norm = features(X.cpu(), W.cpu(), weight_fn, normalize).norm()
    assert float(result.value) == pytest.approx(float(change.norm() / norm), rel=2e-7)
    assert float(result.value) == float(result.per_word.max())
    assert float(delta.double().norm()) <= result.radius * (1 + 1e-6)


@pytest.mark.needs("native")
@weight_fns
@dtypes
def test_sizes(text, on_cpu, weight_fn, normalize, dtype):
    options = {"weight_fn": weight_fn, "normalize": normalize, "max_steps": 12}
    for n, d in ((1, 1), (2, 3), (5, 2), (7, 8)):
        X, W = text(n, d, dtype)
        result = raf_sensitivity(X, W, **options, backend="native")
        for value in (result.value, result.per_word, result.position, result.delta):
            assert value.device == X.device
        check_value(result, X, W, weight_fn, normalize)
        other = on_cpu(raf_sensitivity, X, W, **options)
        torch.testing.assert_close(result.per_word.cpu(), other.per_word, rtol=SAME_END, atol=1e-6)


@pytest.mark.needs("native")
def test_many_dimensions(text, on_cpu):
    """Where the CPU searches in a small basis, and a device starts in its span."""
    X, W = text(7, 40)
    result, other = raf_sensitivity(X, W, backend="native"), on_cpu(raf_sensitivity, X, W)
    torch.testing.assert_close(result.per_word.cpu(), other.per_word, rtol=SAME_END, atol=1e-6)


@pytest.mark.needs("cuda", "native")
@dtypes
def test_long_texts(text, on_cpu, dtype):
    X, W = text(40, 768, dtype, texts=2)
    result = raf_sensitivity(X, W)
    other = on_cpu(raf_sensitivity, X, W)
    torch.testing.assert_close(result.per_word.cpu(), other.per_word, rtol=SAME_END, atol=1e-6)
    assert result.info["backend"] == "native"


@pytest.mark.parametrize("d", [1, 7, 8, 130])
@pytest.mark.parametrize("tol", [1e-6, 1e-2])
@pytest.mark.parametrize("steps", [1, 5, 40])
def test_a_place_ends_where_it_stops_rising(text, changes, objective, tol, steps, d):
    """As in PyTorch's own operations, whose closed form has its gradient by autograd."""
    X, W = text(9, d, torch.float64)
    ball, aim = Limits(d**0.5, tol), objective(X, W)
    start = Point(changes(9, d, dtype=X.dtype), torch.full_like(X[:, 0], -torch.inf))
    point, taken = ascend_unattended(aim, start, ball, steps)
    expected, count = ascend_unattended(replace(aim, engine=TORCH), start, ball, steps)
    assert taken.tolist() == count.tolist()
    torch.testing.assert_close(point.value, expected.value, rtol=1e-9, atol=0)
    torch.testing.assert_close(point.delta, expected.delta, rtol=1e-6, atol=1e-6)


@dtypes
def test_batch_draws_mask_and_positions(text, dtype):
    X, W = text(6, 8, dtype, texts=2)
    mask = torch.ones(2, 6, dtype=torch.bool, device=X.device)
    mask[1, 2] = False
    options = {"mask": mask, "positions": [0, 2, 5], "max_steps": 12, "backend": "native"}
    result = raf_sensitivity(X, torch.stack([W, W.mT]), **options)
    assert result.per_word.shape == (2, 2, 6)
    searched = ~result.per_word.isnan()
    assert searched[0, 0].tolist() == [True, False, True, False, False, True]
    assert searched[1, 1].tolist() == [True, False, False, False, False, True]
    drawn = raf_sensitivity(X, draws=2, seed=3, max_steps=5, backend="native")
    assert drawn.per_word.device == X.device


@dtypes
def test_any_feature_map(text, dtype):
    X, W = text(5, 6, dtype)
    result = word_sensitivity(lambda x: raf_features(x, W, backend="native"), X, max_steps=12)
    assert result.per_word.device == X.device
    i, delta = int(result.position), result.delta.cpu()
    change = deltas(X.cpu(), W.cpu(), i, delta).norm() / features(X.cpu(), W.cpu()).norm()
    assert float(result.value) == pytest.approx(float(change), rel=1e-4)


def test_a_module_of_pytorch(device):
    layer = torch.nn.Linear(6, 4, device=device)
    result = word_sensitivity(layer, torch.randn(5, 6, device=device), max_steps=5, positions=[1])
    assert result.per_word.device == torch.empty(0, device=device).device
    assert result.per_word.isnan().tolist() == [True, False, True, True, True]
