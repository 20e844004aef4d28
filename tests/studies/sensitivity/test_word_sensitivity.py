"""word_sensitivity: any differentiable feature map."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from definition import random_text
from torch import nn

from wsfast import raf_features, raf_sensitivity, word_sensitivity


def linear_map(X):
    """Flattened text times a fixed matrix: S_i = radius · ‖A_i‖₂/‖φ(X)‖."""
    generator = torch.Generator().manual_seed(1)
    A = torch.randn(8, X.shape[1] * X.shape[2], generator=generator, dtype=torch.float64)
    return X.flatten(1) @ A.T.to(X.dtype)


def test_linear_map_has_its_spectral_norms():
    X = random_text(5, 3)[0]
    result = word_sensitivity(linear_map, X, tol=1e-9, max_steps=200)
    A = linear_map(torch.eye(15, dtype=torch.float64).view(15, 5, 3)).T
    base = linear_map(X[None]).norm()
    expected = [
        math.sqrt(3) * float(torch.linalg.matrix_norm(A[:, 3 * i : 3 * i + 3], 2) / base)
        for i in range(5)
    ]
    assert result.per_word.tolist() == pytest.approx(expected, rel=1e-4)
    assert int(result.position) == int(np.argmax(expected))


@pytest.mark.parametrize(("weight_fn", "least"), [("softmax", 0.98), ("relu", 0.9)])
def test_raf_features_as_a_function(weight_fn, least):
    for seed in range(4):
        X, W = random_text(6, 4, seed)
        expected = float(raf_sensitivity(X, W, weight_fn=weight_fn))
        result = word_sensitivity(lambda X, W=W: raf_features(X, W, weight_fn=weight_fn), X)
        assert least * expected <= float(result) <= expected / least
        # Attained, by the map itself.
        moved = X.clone()
        moved[int(result.position)] += result.delta
        phi = raf_features(X, W, weight_fn=weight_fn)
        change = (raf_features(moved, W, weight_fn=weight_fn) - phi).norm() / phi.norm()
        assert float(result) == pytest.approx(float(change), rel=1e-9)
        assert float(result.delta.norm()) <= result.radius


@pytest.fixture
def layer():
    torch.manual_seed(0)
    return nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)


def test_module_is_left_as_it_was(layer, untouched):
    layer.train()
    layer.self_attn.eval()
    calls = []
    handle = layer.register_forward_hook(lambda *_: calls.append(layer.training))
    modes = {name: module.training for name, module in layer.named_modules()}
    X = random_text(5, 16, dtype=torch.float32)[0]
    before = {name: value.clone() for name, value in layer.state_dict().items()}
    with untouched():
        result = word_sensitivity(layer, X, positions=[0, 3], max_steps=10)
    assert calls
    assert not any(calls), "φ was computed in train mode"
    assert {name: module.training for name, module in layer.named_modules()} == modes
    assert all(p.grad is None and p.requires_grad for p in layer.parameters())
    assert all(torch.equal(value, before[name]) for name, value in layer.state_dict().items())
    assert len(layer._forward_hooks) == 1
    handle.remove()
    assert result.per_word.isnan().tolist() == [False, True, True, False, True]
    # Dropout is off: the same every time.
    again = word_sensitivity(layer, X, positions=[0, 3], max_steps=10)
    assert torch.equal(again.value, result.value)
    layer.eval()
    moved = X.clone()
    moved[int(result.position)] += result.delta
    with torch.no_grad():
        phi = layer(X[None])
        change = (layer(moved[None]) - phi).norm() / phi.norm()
    assert float(result) == pytest.approx(float(change), rel=1e-4)


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
@pytest.mark.parametrize("at", [1, 2, 5])
def test_an_error_in_phi_passes_through(error, at):
    class Broken(nn.Module):
        def __init__(self):
            super().__init__()
            self.part = nn.Dropout()
            self.calls = 0

        def forward(self, X):
            assert not self.training
            self.calls += 1
            if self.calls >= at:
                raise error
            return X.square()

    phi = Broken()
    phi.part.eval()
    with pytest.raises(error):
        word_sensitivity(phi, torch.ones(3, 2))
    assert phi.calls == at
    assert phi.training
    assert not phi.part.training
    assert torch.is_grad_enabled()


def test_batch_list_mask_and_numpy():
    texts = [random_text(n, 3, n)[0] for n in (4, 2)]
    W = random_text(1, 3)[1]

    def phi(X):
        return raf_features(X, W)

    alone = [word_sensitivity(phi, text, max_steps=20) for text in texts]
    listed = word_sensitivity(phi, texts, max_steps=20)
    assert listed.axes == ("texts",)
    padded = torch.full((2, 4, 3), 9.0, dtype=torch.float64)
    padded[0], padded[1, 1:3] = texts[0], texts[1]
    mask = torch.tensor([[True] * 4, [False, True, True, False]])
    masked = word_sensitivity(phi, padded, mask=mask, max_steps=20)
    torch.testing.assert_close(listed.per_word[1, :2], alone[1].per_word)
    torch.testing.assert_close(masked.per_word[1, 1:3], alone[1].per_word)
    torch.testing.assert_close(masked.per_word[0], alone[0].per_word)
    assert int(masked.position[1]) == int(alone[1].position) + 1
    assert masked.per_word[1].isnan().tolist() == [True, False, False, True]
    arrays = word_sensitivity(phi, [text.numpy() for text in texts], max_steps=20)
    assert isinstance(arrays.value, np.ndarray)
    np.testing.assert_allclose(arrays.per_word, listed.per_word.numpy())


def test_memory_budget_and_positions_change_nothing():
    X, W = random_text(5, 3)

    def phi(X):
        return raf_features(X, W)

    expected = word_sensitivity(phi, X, max_steps=20)
    sizes = []

    def watched(X):
        sizes.append(len(X))
        return phi(X)

    tiny = word_sensitivity(watched, X, max_steps=20, memory_budget=1, positions=[1, 4])
    torch.testing.assert_close(tiny.per_word[[1, 4]], expected.per_word[[1, 4]])
    # One text at a time, but for the look at what φ returns.
    assert set(sizes[1:]) == {1}


def test_seed_and_radius():
    X, W = random_text(5, 3)

    def phi(X):
        return raf_features(X, W, weight_fn="relu")

    one, same = (word_sensitivity(phi, X, seed=1, max_steps=5) for _ in range(2))
    assert torch.equal(one.per_word, same.per_word)
    assert not torch.equal(one.per_word, word_sensitivity(phi, X, seed=2, max_steps=5).per_word)
    zero = word_sensitivity(phi, X, radius=0)
    assert zero.per_word.tolist() == [0.0] * 5
    small = word_sensitivity(phi, X, radius=0.1)
    assert float(small.delta.norm()) <= 0.1
    assert 0 < float(small) < float(one)


def test_zero_features():
    with pytest.warns(RuntimeWarning, match="S is NaN for text 0"):
        result = word_sensitivity(lambda X: X.sum((1, 2))[:, None], torch.zeros(3, 2))
    assert math.isnan(float(result))


def test_info():
    result = word_sensitivity(linear_map, random_text(2, 2)[0], max_steps=3, seed=4)
    assert result.info["map"] == "linear_map"
    assert result.info["seed"] == 4
    assert word_sensitivity(nn.Linear(2, 2), torch.ones(2, 2), max_steps=1).info["map"] == "Linear"


def test_progress(capfd):
    X = random_text(3, 2)[0]
    word_sensitivity(linear_map, X, max_steps=2)
    assert capfd.readouterr().err == ""
    word_sensitivity(linear_map, X, max_steps=2, progress=True)
    assert "3/3" in capfd.readouterr().err


def test_input_that_requires_a_gradient_gets_none():
    X = random_text(3, 2)[0].requires_grad_()
    result = word_sensitivity(linear_map, X, max_steps=2)
    assert X.grad is None
    assert not result.value.requires_grad


@pytest.mark.parametrize(
    ("phi", "error", "message"),
    [
        (3, TypeError, "phi must be a function or an nn.Module, got int"),
        (lambda X: X.detach().numpy(), TypeError, "phi must return a real tensor, got ndarray"),
        (lambda X: X > 0, TypeError, "phi must return a real tensor, got torch.bool"),
        (lambda X: X.sum(), ValueError, r"features \(m, ...\).*got \(\)"),
        (lambda X: X[:1], ValueError, r"got \(1, 3, 2\) for \(2, 3, 2\)"),
        (lambda X: X.detach(), ValueError, "phi must be differentiable"),
        (lambda X: X / 0, ValueError, r"phi\(X\) must be finite, got inf at index \(0,\)"),
    ],
)
def test_phi_that_cannot_serve(phi, error, message):
    with pytest.raises(error, match=message):
        word_sensitivity(phi, torch.ones(3, 2))
