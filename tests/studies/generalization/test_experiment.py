"""The experiment against its definition: every figure, for every map."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from parameters import all_backends
from studies.generalization.running import ALL_MAPS, FAST, check, run, weights_of
from studies.generalization.truth import (
    ATTENTION,
    LOSSES,
    TRAININGS,
    figures,
    phi_of,
    problem,
)

import wsfast
from wsfast.generalization import experiment
from wsfast.results.generalization import FIGURES

maps = pytest.mark.parametrize("name", ALL_MAPS)

# -- figures --------------------------------------------------------------------------------------


@maps
@all_backends
@pytest.mark.parametrize("y", [1, -1])
def test_figures(name, backend, y):
    n, d = 4, 3
    known = problem(6, n, d, seed=y + 3, y=y)
    weights = weights_of(name, n, d)
    result = run(known, map=name, weights=weights, backend=backend, **FAST)
    assert result.axes == ()
    assert (result.trainings, result.losses) == (TRAININGS, LOSSES)
    assert result.error.shape == (2, 3)
    assert result.delta.shape == (2, 3, d)
    assert result.info["backend"] == backend
    assert (result.info["N"], result.info["D"]) == (6, 12 if name in ATTENTION else 40)
    phi = phi_of(name, weights)
    check(result, known, phi)
    # Before the word changes, the label is learnt.
    assert result.output_after.flatten().tolist() == pytest.approx([y] * 6)
    rows = torch.stack([phi(text) for text in known.texts])
    assert float(result.condition) == pytest.approx(float(torch.linalg.cond(rows)) ** 2, rel=1e-6)
    # f(X', θ) = f(X', θ*) + alignment (y - f(X, θ*)), and what follows for the error.
    shift = result.alignment * (y - result.output_before)
    torch.testing.assert_close(result.changed_after, result.changed_before + shift)
    least = 2 - result.gamma - (1 - result.alignment).abs() * (y - result.output_before).abs()
    assert bool((result.error.sqrt() >= least - 1e-9).all())
    # Both trainings share the Δ of the losses that do not depend on them.
    assert torch.equal(result.delta[0, :2], result.delta[1, :2])
    if name.startswith("relu"):
        return
    # Each Δ is the best of the six for its own loss, as nearly as a short search of a text finds.
    for k, loss in enumerate(LOSSES):
        for t, training in enumerate(TRAININGS):
            others = [
                figures(phi, known, training, loss, int(result.position[a, b]), result.delta[a, b])[
                    "loss"
                ]
                for a in range(2)
                for b in range(3)
            ]
            assert float(result.loss[t, k]) <= 1.05 * min(others) + 1e-6, (loss, training)


@maps
def test_float32(name):
    known = problem(6, 4, 3, seed=1, dtype=torch.float32)
    weights = weights_of(name, 4, 3, dtype=torch.float32)
    result = run(known, map=name, weights=weights, **FAST)
    assert result.delta.dtype == torch.float32
    assert result.error.dtype == torch.float64
    check(result, known, phi_of(name, weights), rel=2e-5)


@pytest.mark.parametrize("name", ["raf", "relu_raf"])
def test_error_of_attention_vanishes(name):
    """As the paper finds: some Δ of one word makes the model wrong for the changed text."""
    known = problem(30, 6, 24, seed=2)
    result = run(known, map=name, loss="error")
    assert float(result.error.max()) <= 1e-20
    assert bool((result.error == result.loss).all())
    # No further than needed: the model is not moved beyond the new label.
    torch.testing.assert_close(result.changed_after, torch.full_like(result.error, -1.0))


def test_error_of_random_features_does_not():
    known = problem(60, 24, 8, seed=2)
    result = run(known, map="rf", loss="error")
    attention = run(known, map="raf", loss="error")
    assert float(result.error.min()) > 1 > 1e-12 > float(attention.error.max())


# -- axes -----------------------------------------------------------------------------------------


@pytest.mark.deep
@maps
def test_trials_and_draws(name):
    n, d, T, R = 5, 4, 2, 2
    known = problem(4, n, d)
    X = torch.stack([problem(4, n, d, seed).X for seed in (7, 8)])
    y = [1, -1]
    weights = weights_of(name, n, d, draws=R)
    result = experiment(known.texts, known.labels, X, y, map=name, weights=weights, **FAST)
    assert result.axes == ("trials", "draws")
    assert result.error.shape == result.position.shape == (T, R, 2, 3)
    assert result.condition.shape == (R,)
    for t in range(T):
        one = known._replace(X=X[t], y=float(y[t]))
        for r in range(R):
            of_draw = [V[r] for V in weights] if isinstance(weights, list) else weights[r]
            check(result, one, phi_of(name, of_draw), (t, r))
            alone = run(one, map=name, weights=of_draw, **FAST)
            torch.testing.assert_close(alone.output_before, result.output_before[t, r])
            if name == "raf":  # without kinks, rounding does not lead the search elsewhere
                torch.testing.assert_close(alone.delta, result.delta[t, r])
    only_trials = experiment(
        known.texts, known.labels, X, 1, map=name, weights=of_draw, loss="feature", **FAST
    )
    assert only_trials.axes == ("trials",)
    assert only_trials.error.shape == (T, 2, 1)
    only_draws = run(known, map=name, weights=weights, training="retraining", **FAST)
    assert only_draws.axes == ("draws",)
    assert only_draws.error.shape == (R, 1, 3)


@pytest.mark.deep
@maps
def test_random_weights(name):
    """Those of `random_weights` and its like, for each seed and draw."""
    n, d = 5, 4
    known = problem(4, n, d)
    options = {} if name in ATTENTION else {"k": 40}
    if name == "drf":
        options["depth"] = 2
    result = run(known, map=name, seed=5, draws=2, **options, **FAST)
    given = run(known, map=name, seed=5, weights=weights_of(name, n, d, seed=5, draws=2), **FAST)
    torch.testing.assert_close(result.output_before, given.output_before)
    torch.testing.assert_close(result.loss, given.loss, rtol=5e-2, atol=1e-6)
    assert (result.info["weights"], given.info["weights"]) == ("random", "given")
    assert not torch.equal(result.error[0], result.error[1])
    alone = run(known, map=name, seed=5, **options, **FAST)
    assert alone.axes == ()
    torch.testing.assert_close(alone.output_before, result.output_before[0])
    other = run(known, map=name, seed=6, **options, **FAST)
    assert not torch.equal(alone.output_before, other.output_before)


def test_options_of_random_features():
    known = problem(5, 3, 4)
    wide = run(known, map="rf", activation="tanh", positions=[0], **FAST)
    assert (wide.info["D"], wide.info["activation"], wide.info["depth"]) == (12, "tanh", 1)
    deep = run(known, map="drf", k=30, activation="gelu", positions=[0], **FAST)
    assert (deep.info["D"], deep.info["activation"], deep.info["depth"]) == (30, "gelu", 3)


# -- kinds of input, state ------------------------------------------------------------------------


def test_kinds_of_arrays():
    known = problem(5, 3, 4)
    W = wsfast.random_weights(4, dtype=torch.float64)
    expected = run(known, weights=W, **FAST)
    arrays = [x.numpy() for x in (known.texts, known.labels, known.X, W)]
    got = experiment(*arrays[:3], 1, weights=arrays[3], **FAST)
    for name in (*FIGURES, "position", "delta", "condition"):
        assert isinstance(getattr(got, name), np.ndarray), name
        np.testing.assert_array_equal(getattr(got, name), getattr(expected, name).numpy())
    for labels in (
        known.labels.tolist(),
        tuple(known.labels.int().tolist()),
        known.labels.double(),
        known.labels.to(torch.int8),
    ):
        again = experiment(known.texts, labels, known.X, torch.tensor(1), weights=W, **FAST)
        assert torch.equal(again.error, expected.error)
    half = [x.half() for x in (known.texts, known.X, W)]
    low = experiment(half[0], known.labels, half[1], 1, weights=half[2], **FAST)
    assert low.delta.dtype == torch.float32
    check(low, known._replace(texts=half[0], X=half[1]), phi_of("raf", half[2]), rel=2e-5)


def test_deterministic_and_nothing_is_changed(untouched):
    known = problem(5, 3, 4)
    known.X.requires_grad_()
    before = [x.clone() for x in known[:3]]
    with untouched():
        results = [run(known, draws=2, map=name, **FAST) for name in ("raf", "rf") * 2]
    assert all(map(torch.equal, known[:3], before))
    for name in (*FIGURES, "position", "delta"):
        for a, b in ((0, 2), (1, 3)):
            assert torch.equal(getattr(results[a], name), getattr(results[b], name))
            assert not getattr(results[a], name).requires_grad
    with torch.inference_mode():
        again = run(known, draws=2, **FAST)
    assert torch.equal(again.error, results[0].error)


def test_starts_differ_by_seed_alone():
    known = problem(5, 3, 40)
    W = wsfast.random_weights(40, dtype=torch.float64)
    few = {"starts": 3, "max_steps": 1, "weights": W}
    one, other = run(known, seed=1, **few), run(known, seed=2, **few)
    assert torch.equal(one.output_before, other.output_before)
    assert not torch.equal(one.delta, other.delta)


@pytest.mark.needs("text")
def test_progress(capsys):
    known = problem(5, 3, 4)
    run(known, progress=True, draws=2, **FAST)
    assert "24/24" in capsys.readouterr().err  # 3 positions, 4 searches, 2 draws
    run(known, progress=True, loss="error", training="retraining", **FAST)
    assert "3/3" in capsys.readouterr().err
    run(known, **FAST)
    assert capsys.readouterr().err == ""


def test_warning_of_the_condition():
    known = problem(5, 3, 4)
    texts = known.texts.clone()
    texts[1] = texts[0] + 1e-6 * texts[2]
    with pytest.warns(RuntimeWarning, match=r"condition number [\d.e+]+ in draw [01]: few digits"):
        result = experiment(texts, known.labels, known.X, 1, draws=2, **FAST)
    assert bool((result.condition > 1e12).any())


@pytest.mark.deep
def test_numbers_of_words_and_of_texts():
    for n, d, N in ((1, 2, 1), (1, 5, 3), (3, 2, 1), (6, 1, 2)):
        known = problem(N, n, d, seed=n)
        for name in ALL_MAPS:
            options = {"k": 20} if name in ("rf", "drf") else {}
            if n == 1 and name.startswith("relu"):
                continue  # a word that does not attend to itself has no features
            result = run(known, map=name, **options, **FAST)
            assert bool(result.loss.isfinite().all()), (n, d, N, name)
            assert bool((result.loss <= 4 + 1e-9).all()), (n, d, N, name)
