"""Word sensitivity of random features: attained, as large as others find, and below its bound."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from parameters import all_backends, dtypes
from peak_memory import growth, linux_only

from wsfast import (
    SensitivityResult,
    _inputs,
    drf_sensitivity,
    drf_weights,
    rf_sensitivity,
    rf_weights,
)
from wsfast.maps.draws import MapOptions, draws_of
from wsfast.studies.sensitivity import sensitivity_under

ACTIVATIONS = {"relu": torch.relu, "tanh": torch.tanh, "gelu": torch.nn.functional.gelu}


def text(n, d, dtype=torch.float32, seed=0):
    X = torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (X * d**0.5 / X.norm(dim=1, keepdim=True)).to(dtype)


def definition(X, layers, position, delta, activation="relu"):
    """‖φ(X^i(Δ)) - φ(X)‖ / ‖φ(X)‖ in float64."""

    def phi(X):
        values = X.flatten()
        for V in layers:
            values = ACTIVATIONS[activation](V.double() @ values)
        return values

    moved = X.double().clone()
    moved[position] += delta.double()
    return float((phi(moved) - phi(X.double())).norm() / phi(X.double()).norm())


def test_by_hand():
    # One word, one number, one feature: φ = max(x, 0), x = 2 and |Δ| ≤ 1 gives 3 or 1.
    result = rf_sensitivity(torch.tensor([[2.0]]), torch.tensor([[1.0]]), radius=1.0)
    assert float(result) == pytest.approx(0.5, rel=1e-6)
    assert abs(float(result.delta)) == pytest.approx(1.0, rel=1e-5)
    assert float(result.upper) == pytest.approx(0.5, rel=1e-4)
    # Two features of opposite sign: φ = (2, 0); Δ = 4 gives (6, 0), but Δ = -4 gives (0, 6).
    result = rf_sensitivity(torch.tensor([[2.0]]), torch.tensor([[1.0], [-3.0]]), radius=4.0)
    assert float(result) == pytest.approx(math.sqrt(4 + 36) / 2, rel=1e-5)
    # So it is in three dimensions, where one start, upwards, ends at the lesser optimum.
    X, V = torch.tensor([[2.0, 0, 0]]), torch.tensor([[1.0, 0, 0], [-3.0, 0, 0]])
    for starts, value in ((1, 2.0), (2, math.sqrt(4 + 36) / 2)):
        result = rf_sensitivity(X, V, radius=4.0, starts=starts)
        assert float(result) == pytest.approx(value, rel=1e-5)
    # z = (1, 1) = V flat(X); word 0 moves the first alone, word 1 the second by twice as much.
    V = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    result = rf_sensitivity(torch.tensor([[1.0], [0.5]]), V, radius=1.0)
    assert result.per_word.tolist() == pytest.approx([1 / 2**0.5, 2 / 2**0.5], rel=1e-5)
    assert int(result.position) == 1


@all_backends
@dtypes
@pytest.mark.parametrize("activation", list(ACTIVATIONS))
def test_attained_and_bounded(backend, dtype, activation):
    X = text(4, 12, dtype)
    V = rf_weights(4, 12, dtype=dtype)
    for result, layers in (
        (rf_sensitivity(X, activation=activation, backend=backend), [V]),
        (rf_sensitivity(X, V, activation=activation, backend=backend), [V]),
        (
            drf_sensitivity(X, depth=3, activation=activation, backend=backend),
            drf_weights(4, 12, 3, dtype=dtype),
        ),
    ):
        assert result.per_word.dtype == dtype
        assert float(result.delta.double().norm()) <= result.radius
        attained = definition(X, layers, int(result.position), result.delta, activation)
        assert float(result) == pytest.approx(attained, rel=1e-5)
        assert float(result) == float(result.per_word.max())
        assert bool((result.per_word <= result.upper).all())
        slopes = [torch.linalg.matrix_norm(V_l.double(), 2) for V_l in layers[1:]]
        size = {"relu": 1, "tanh": 1, "gelu": 1.1289}[activation] ** len(layers)
        for i in range(4):
            first = torch.linalg.matrix_norm(layers[0][:, 12 * i : 12 * (i + 1)].double(), 2)
            values = X.double().flatten()
            for V_l in layers:
                values = ACTIVATIONS[activation](V_l.double() @ values)
            bound = size * float(first) * math.prod(map(float, slopes)) * 12**0.5
            assert float(result.upper[i]) == pytest.approx(bound / float(values.norm()), rel=1e-4)


@pytest.mark.parametrize("name", ["rf", "drf"])
def test_no_random_direction_is_worse(name):
    X = text(3, 8, torch.float64)
    layers = [rf_weights(3, 8, dtype=torch.float64)]
    result = rf_sensitivity(X)
    if name == "drf":
        layers = drf_weights(3, 8, 2, dtype=torch.float64)
        result = drf_sensitivity(X, depth=2)
    directions = torch.randn(3, 300, 8, dtype=torch.float64)
    deltas = directions * 8**0.5 / directions.norm(dim=-1, keepdim=True)
    for i in range(3):
        tried = max(definition(X, layers, i, delta) for delta in deltas[i])
        assert tried < float(result.per_word[i])
        assert tried > 0.3 * float(result.per_word[i])


@pytest.mark.parametrize("name", ["rf", "drf"])
def test_backends_agree(name):
    X = text(5, 16, torch.float64)
    search = rf_sensitivity if name == "rf" else drf_sensitivity
    values = [search(X, backend=backend).per_word for backend in ("reference", "torch", None)]
    torch.testing.assert_close(values[1], values[2], rtol=1e-6, atol=0)
    torch.testing.assert_close(values[0], values[2], rtol=1e-6, atol=0)


def of_draw(name, X, draw, starts=4, **options):
    """That of one draw alone."""
    search = {"radius": None, "positions": None, "seed": 0}
    search |= {"starts": starts, "max_steps": 60, "tol": 1e-4}
    maps = draws_of(name, _inputs.texts(X), MapOptions(**options), search.get("seed", 0), 1)
    return sensitivity_under(maps.only(draw), X, memory_budget=1, **search)


def test_axes_and_kinds_of_input():
    X = torch.stack([text(3, 6), text(3, 6, seed=1)])
    whole = rf_sensitivity(X, draws=2, k=40)
    assert whole.axes == ("texts", "draws")
    assert whole.value.shape == (2, 2)
    assert whole.per_word.shape == whole.upper.shape == (2, 2, 3)
    for b in range(2):
        for r in range(2):
            alone = of_draw("rf", X[b], r, k=40)
            torch.testing.assert_close(whole.per_word[b, r], alone.per_word)
            torch.testing.assert_close(whole.upper[b, r], alone.upper)
    one = rf_sensitivity(X[0], k=40, positions=[2, 0])
    assert one.per_word.isnan().tolist() == one.upper.isnan().tolist() == [False, True, False]
    torch.testing.assert_close(one.per_word[[0, 2]], whole.per_word[0, 0, [0, 2]])
    array = rf_sensitivity(X.numpy(), k=40)
    assert isinstance(array.upper, np.ndarray)
    np.testing.assert_allclose(array.per_word, whole.per_word[:, 0].numpy(), rtol=1e-4)
    listed = rf_sensitivity([X[0], X[1, :2]], k=40)
    assert listed.per_word.isnan().tolist() == [[False] * 3, [False, False, True]]
    torch.testing.assert_close(listed.per_word[1, :2], rf_sensitivity(X[1, :2], k=40).per_word)
    assert rf_sensitivity([X[0], X[1, :2]]).info["k"] == [18, 12]


def test_draws_of_deep_features():
    X = text(3, 6)
    whole = drf_sensitivity(X, depth=2, k=20, draws=3, starts=2)
    for r in range(3):
        alone = of_draw("drf", X, r, depth=2, k=20, starts=2)
        torch.testing.assert_close(whole.per_word[r], alone.per_word)
    layers = drf_weights(3, 6, 2, k=20, draws=3)
    assert not torch.equal(layers[1][0], layers[1][1])
    given = drf_sensitivity(X, layers, starts=2)
    torch.testing.assert_close(given.per_word, whole.per_word, rtol=1e-4, atol=0)


@pytest.mark.deep
def test_info_and_storage(tmp_path):
    result = rf_sensitivity(text(3, 6), draws=2, k=40)
    about = {"map": "rf", "activation": "relu", "depth": 1, "k": 40, "k_capped": False}
    assert {name: result.info[name] for name in about} == about
    deep = drf_sensitivity(text(6, 400), depth=2, positions=[0], max_steps=2)
    assert (deep.info["k"], deep.info["k_capped"], deep.info["depth"]) == (2048, True, 2)
    result.save(tmp_path / "r.npz")
    loaded = SensitivityResult.load(tmp_path / "r.npz")
    assert torch.equal(loaded.upper, result.upper)
    assert loaded.over_draws().mean == result.value.double().mean().float()


def test_whole_words_keep_the_bound():
    class Words:
        def __init__(self, words, spans):
            self.words, self.word_spans = words, spans

    X = torch.stack([text(3, 6), text(3, 6, seed=1)])
    result = rf_sensitivity(X, k=40)
    one = Words(["a", "b"], [(0, 1), (1, 3)])
    merged = result.whole_words([one, one])
    torch.testing.assert_close(merged.upper[:, 1], result.upper[:, 1:].amax(1))
    torch.testing.assert_close(merged.upper[:, 0], result.upper[:, 0])
    single = rf_sensitivity(X[0], k=40).whole_words(one)
    torch.testing.assert_close(single.upper, merged.upper[0])


def test_callable_activation_has_no_bound():
    result = rf_sensitivity(text(3, 6), activation=torch.sigmoid)
    assert bool(result.upper.isnan().all())
    same = rf_sensitivity(text(3, 6), activation=lambda x: torch.tanh(x))
    named = rf_sensitivity(text(3, 6), activation="tanh")
    torch.testing.assert_close(same.per_word, named.per_word)


def test_zero_features():
    X = -torch.ones(2, 3)
    with pytest.warns(RuntimeWarning, match="S is NaN"):
        result = rf_sensitivity(X, torch.ones(4, 6))
    assert math.isnan(float(result))
    assert int(result.position) == -1


def test_radius_zero_and_extreme_scales():
    still = rf_sensitivity(text(3, 6), radius=0.0)
    assert still.per_word.tolist() == [0.0] * 3
    usual = rf_sensitivity(text(3, 6))
    for scale in (1e-20, 1e20):
        scaled = rf_sensitivity(text(3, 6) * scale, radius=6**0.5 * scale)
        torch.testing.assert_close(scaled.per_word, usual.per_word, rtol=1e-3, atol=0)


@given(n=st.integers(1, 5), d=st.integers(1, 5), k=st.integers(1, 12), seed=st.integers(0, 99))
def test_any_small_case_is_attained_and_bounded(n, d, k, seed):
    X = text(n, d, torch.float64, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # φ may be 0
        result = rf_sensitivity(X, k=k, seed=seed, max_steps=10)
    if not bool(result.per_word.isnan().any()):
        assert bool((result.per_word <= result.upper * (1 + 1e-9)).all())
        V = rf_weights(n, d, k=k, seed=seed, dtype=torch.float64)
        attained = definition(X, [V], int(result.position), result.delta)
        assert float(result) == pytest.approx(attained, rel=1e-9, abs=1e-15)


def test_more_steps_and_starts_are_never_worse():
    X = text(6, 20)
    few = rf_sensitivity(X, starts=1, max_steps=3)
    many = rf_sensitivity(X, starts=8, max_steps=100)
    assert bool((many.per_word >= few.per_word * (1 - 1e-6)).all())


def test_threads_and_state(threads, untouched):
    X = text(6, 20)
    with untouched():
        one = rf_sensitivity(X)
    with threads(2):
        two = rf_sensitivity(X)
    torch.testing.assert_close(one.per_word, two.per_word, rtol=1e-4, atol=0)
    with torch.inference_mode():
        torch.testing.assert_close(rf_sensitivity(X).per_word, one.per_word)


@pytest.mark.deep
@linux_only
@pytest.mark.needs("native")
def test_memory_is_that_of_one_word():
    code = """
X = torch.randn(60, 128)
wsfast.rf_sensitivity(X[:2], positions=[0])
before = peak()
wsfast.rf_sensitivity(X, positions=[0, 7])
wsfast.rf_features(X)
"""
    one_word, whole = 60 * 128 * 128 * 4, (60 * 128) ** 2 * 4
    assert growth(code) < 10 * one_word < whole / 5


@pytest.mark.needs("text")
def test_progress(capsys):
    rf_sensitivity(text(3, 6), draws=2, progress=True)
    assert "100%" in capsys.readouterr().err
    rf_sensitivity(text(3, 6))
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"radius": -1}, ValueError, "radius"),
        ({"positions": [3]}, ValueError, "positions"),
        ({"positions": []}, ValueError, "positions"),
        ({"starts": 0}, ValueError, "starts"),
        ({"max_steps": 0}, ValueError, "max_steps"),
        ({"progress": 1}, TypeError, "progress"),
        ({"k": -1}, ValueError, "k must be"),
        ({"activation": "sine"}, ValueError, "activation"),
        ({"backend": "gpu"}, ValueError, "backend"),
        ({"V": torch.ones(2, 2)}, ValueError, "V must have shape"),
    ],
)
def test_errors(options, error, message):
    with pytest.raises(error, match=message):
        rf_sensitivity(text(3, 6), **options)
    if "V" not in options:
        with pytest.raises(error, match=message):
            drf_sensitivity(text(3, 6), **options)
