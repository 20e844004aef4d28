"""Where the experiment looks for Δ, and how; any feature map."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from definition import features
from studies.generalization.running import FAST, check, run, weights_of
from studies.generalization.truth import (
    LOSSES,
    TRAININGS,
    learn,
    phi_of,
    problem,
)
from torch import nn

import wsfast
from wsfast.maps.attention_text import AttentionMap, AttentionText

# -- the search -----------------------------------------------------------------------------------


@pytest.mark.deep
@pytest.mark.parametrize("name", ["raf", "rf"])
def test_positions(name):
    known = problem(8, 5, 4, seed=3)
    everywhere = run(known, map=name, radius=1.0)
    apart = [run(known, map=name, radius=1.0, positions=[i]) for i in range(5)]
    for i, one in enumerate(apart):
        assert bool((one.position == i).all())
    best, where = torch.stack([one.loss for one in apart]).min(0)
    torch.testing.assert_close(everywhere.loss, best, rtol=1e-4, atol=1e-12)
    assert torch.equal(everywhere.position, where)
    assert int(where.max()) > 0
    some = run(known, map=name, radius=1.0, positions=[4, 2, 2])
    assert set(some.position.flatten().tolist()) <= {2, 4}


def test_radius():
    known = problem(8, 5, 4, seed=3)
    small = run(known, radius=1e-3)
    assert small.radius == 1e-3
    assert bool((small.delta.norm(dim=-1) <= 1e-3).all())
    assert bool((small.loss > 3.9).all())
    nowhere = run(known, radius=0)
    assert nowhere.loss.flatten().tolist() == pytest.approx([4.0] * 6)
    assert nowhere.error.flatten().tolist() == pytest.approx([4.0] * 6)
    assert float(nowhere.delta.abs().max()) == 0
    by_radius = [run(known, radius=radius).loss for radius in (0.5, 1.0, 2.0)]
    for smaller, larger in pairwise(by_radius):
        assert bool((larger <= smaller + 1e-9).all())


@pytest.mark.parametrize("name", ["raf", "rf"])
def test_backends_find_the_same(name):
    known = problem(10, 6, 5, seed=4)
    results = [
        run(known, map=name, weights=weights_of(name, 6, 5), backend=backend)
        for backend in ("reference", "torch", None)
    ]
    for one in results[1:]:
        torch.testing.assert_close(one.loss, results[0].loss, rtol=2e-2, atol=1e-6)


def test_root_of_random_features():
    """Of few words one is enough to turn random features around; Δ is then shortened."""
    known = problem(3, 2, 20, seed=2)
    V = weights_of("rf", 2, 20)
    result = run(known, map="rf", weights=V, loss="error", radius=20.0)
    assert float(result.error.max()) <= 1e-20
    assert bool((result.delta.norm(dim=-1) < 19).all())
    check(result, known, phi_of("rf", V))


def test_first_start_pulls_every_row():
    """The same for every seed, and the only one where one is asked for."""
    known = problem(2, 69, 60)
    W = wsfast.random_weights(60, dtype=torch.float64)
    options = {"weights": W, "starts": 1, "max_steps": 1, "positions": [3], "loss": "error"}
    one, other = (run(known, seed=seed, **options) for seed in (1, 2))
    assert torch.equal(one.delta, other.delta)


@pytest.mark.deep
def test_smooth_starts_help_relu(monkeypatch):
    texts = [problem(8, 8, 16, seed) for seed in range(4)]
    with_them = [run(known, map="relu_raf", radius=2.0).loss.mean() for known in texts]
    monkeypatch.setattr(AttentionMap, "smooth_fns", [])
    without_them = [run(known, map="relu_raf", radius=2.0).loss.mean() for known in texts]
    assert sum(with_them) < sum(without_them) - 1e-3


@pytest.mark.parametrize("name", ["raf", "relu_raf", "rf"])
def test_torch_backend_needs_no_compiled_module(name, monkeypatch):
    from wsfast.engines import compiled

    def missing(device):
        raise AssertionError("asked for compiled kernels")

    monkeypatch.setattr(compiled, "kernels", missing)
    assert run(problem(4, 3, 4), map=name, backend="torch", **FAST).info["backend"] == "torch"


def test_small_basis_is_taken_and_loses_nothing(monkeypatch):
    known = problem(6, 3, 200, seed=5)
    taken = []
    before = AttentionText.basis

    def basis(self, measure, radius):
        taken.append(before(self, measure, radius))
        return taken[-1]

    monkeypatch.setattr(AttentionText, "basis", basis)
    result = run(known, radius=2.0)
    assert taken
    # Θ of the first loss is φ(X), which the words span.
    assert {one.shape for one in taken} == {(200, 9), (200, 12)}
    monkeypatch.setattr(AttentionText, "basis", lambda self, measure, radius: None)
    torch.testing.assert_close(run(known, radius=2.0).loss, result.loss, rtol=1e-5, atol=1e-12)


def test_memory_budget_changes_nothing():
    known = problem(6, 5, 3)
    for name in ("raf", "rf"):
        results = [run(known, map=name, memory_budget=m, **FAST) for m in (1, 2**28)]
        torch.testing.assert_close(results[0].loss, results[1].loss, rtol=1e-9, atol=1e-18)


def test_what_is_shared_is_searched_once(monkeypatch):
    from wsfast.studies.generalization import experiment as module

    calls = []
    before = module.minimise
    monkeypatch.setattr(module, "minimise", lambda *a: calls.append(1) or before(*a))
    known = problem(5, 3, 4)
    for losses, trainings, expected in (
        (LOSSES, TRAININGS, 4),
        (("feature",), TRAININGS, 1),
        (("error",), TRAININGS, 2),
        (("alignment", "error"), ("retraining",), 2),
    ):
        calls.clear()
        run(known, loss=losses, training=trainings, **FAST)
        assert len(calls) == expected


# -- any feature map ------------------------------------------------------------------------------


def test_callable():
    known = problem(6, 4, 3, seed=1)
    W = wsfast.random_weights(3, dtype=torch.float64)
    result = run(known, map=lambda X: wsfast.raf_features(X, W))
    expected = run(known, map="raf", weights=W)
    torch.testing.assert_close(result.output_before, expected.output_before)
    torch.testing.assert_close(result.loss, expected.loss, rtol=2e-2, atol=1e-6)
    check(result, known, lambda X: features(X, W).flatten())
    assert result.info["map"] == "<lambda>"


def test_linear_map_by_hand():
    """φ(X) = flat(X): every optimum is known."""
    known = problem(4, 3, 5, seed=6)
    X, radius = known.X, 0.5
    result = run(known, map=lambda X: X.flatten(1), radius=radius, training="fine_tuning")
    # Feature: ⟨X', X⟩ falls fastest along the longest word, here all are √d long.
    size = float(X.square().sum())
    assert float(result.loss[0, 0]) == pytest.approx((2 - radius * 5**0.5 / size) ** 2)
    theta = learn(lambda X: X.double().flatten(), known, "fine_tuning").after
    rows = theta.view(3, 5).norm(dim=1)
    assert int(result.position[0, 2]) == int(rows.argmax())
    assert float(result.error[0, 2]) == pytest.approx(float(2 - radius * rows.max()) ** 2)
    # With room enough Δ stops where the error is 0, on the ray.
    far = run(known, map=lambda X: X.flatten(1), radius=50.0, training="fine_tuning")
    assert float(far.error[0, 2]) <= 1e-25
    torch.testing.assert_close(
        far.delta[0, 2], -2 * theta.view(3, 5)[rows.argmax()] / rows.max() ** 2
    )


def test_module_is_left_as_it_was(untouched):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    layer.train()
    layer.self_attn.eval()
    modes = {name: module.training for name, module in layer.named_modules()}
    calls = []
    handle = layer.register_forward_hook(lambda *_: calls.append(layer.training))
    known = problem(6, 4, 16, dtype=torch.float32)
    with untouched():
        result = run(known, map=layer, positions=[0, 2], **FAST)
    handle.remove()
    assert calls
    assert not any(calls), "φ was computed in train mode"
    assert {name: module.training for name, module in layer.named_modules()} == modes
    assert all(p.grad is None and p.requires_grad for p in layer.parameters())
    assert result.info["map"] == "TransformerEncoderLayer"
    assert bool(result.loss.isfinite().all())
    assert set(result.position.flatten().tolist()) <= {0, 2}
