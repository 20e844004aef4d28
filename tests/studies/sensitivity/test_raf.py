"""raf_sensitivity: what is returned is attained, and nothing in reach is better."""

from __future__ import annotations

import math
from decimal import Decimal

import numpy as np
import pytest
import torch
from definition import deltas, exact, exact_norm, features, random_text
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from parameters import all_backends, backends, dtypes, weight_fns

import wsfast
from wsfast import raf_sensitivity, random_weights
from wsfast.engines.native import Native


def relative_change(X, W, i, delta, *options) -> float:
    """‖φ(X^i(Δ)) - φ(X)‖/‖φ(X)‖ by the definition, in float64."""
    return float(deltas(X, W, i, delta, *options).norm() / features(X, W, *options).norm())


def on_grid(X, W, radius, shells=40, angles=120) -> float:
    """The largest relative change by softmax, over all positions and a grid of the ball, d ≤ 2."""
    X, W = X.double(), W.double()
    n, d = X.shape
    lengths = torch.arange(1, shells + 1, dtype=torch.float64) * (radius / shells)
    if d == 1:
        steps = torch.arange(1, 2001, dtype=torch.float64) * (radius / 2000)
        grid = torch.cat([steps, -steps])[:, None]
    else:
        angle = torch.arange(angles, dtype=torch.float64) * (2 * math.pi / angles)
        around = torch.stack([angle.cos(), angle.sin()], 1)
        grid = (lengths[:, None, None] * around).reshape(-1, 2)
    before = features(X, W)
    largest = 0.0
    for i in range(n):
        moved = X.repeat(len(grid), 1, 1)
        moved[:, i] += grid
        weights = torch.softmax(moved @ W @ moved.mT / math.sqrt(d), -1)
        change = (weights @ moved - before).flatten(1).norm(dim=1)
        largest = max(largest, float(change.max()))
    return largest / float(before.norm())


# -- what is returned is true ---------------------------------------------------------------------


@all_backends
@weight_fns
@dtypes
def test_value_is_the_definition_at_delta(backend, weight_fn, normalize, dtype):
    for n, d in ((1, 1), (1, 3), (2, 1), (2, 2), (5, 4), (12, 9), (4, 24)):
        X, W = random_text(n, d, n + d, dtype)
        W = W + torch.eye(d, dtype=dtype)  # no row without weight
        result = raf_sensitivity(
            X, W, weight_fn=weight_fn, normalize=normalize, backend=backend, max_steps=20
        )
        i = int(result.position)
        value = relative_change(X, W, i, result.delta, weight_fn, normalize)
        limit = {torch.float32: 2e-7, torch.float64: 1e-10}[dtype]
        assert float(result.value) == pytest.approx(value, rel=limit)
        assert float(result.value) == float(result.per_word.max()) == float(result.per_word[i])
        # Strictly within the ball, not only up to rounding.
        assert exact_norm(exact(result.delta)) <= Decimal(result.radius)
        assert result.radius == math.sqrt(d)
        assert result.value.dtype == result.per_word.dtype == result.delta.dtype == dtype
        assert result.position.dtype == torch.int64


@pytest.mark.deep
@backends
@weight_fns
def test_every_per_word_value_is_attained(backend, weight_fn, normalize):
    """S_i of each position alone is the S that all positions together report for it."""
    X, W = random_text(6, 5, 3)
    options = {"weight_fn": weight_fn, "normalize": normalize, "backend": backend}
    together = raf_sensitivity(X, W, **options)
    for i in range(6):
        alone = raf_sensitivity(X, W, positions=[i], **options)
        assert int(alone.position) == i
        value = relative_change(X, W, i, alone.delta, weight_fn, normalize)
        assert float(alone.value) == pytest.approx(value, rel=1e-10)
        assert float(together.per_word[i]) == pytest.approx(value, rel=1e-6)
        assert alone.per_word.isnan().tolist() == [k != i for k in range(6)]


@backends
@weight_fns
def test_beats_random_changes(backend, weight_fn, normalize):
    X, W = random_text(8, 6, 2)
    result = raf_sensitivity(X, W, weight_fn=weight_fn, normalize=normalize, backend=backend)
    delta = torch.randn(300, 6, dtype=torch.float64)
    delta = delta / delta.norm(dim=1, keepdim=True) * result.radius
    norms = wsfast.raf_delta_norms(X, W, delta, weight_fn=weight_fn, normalize=normalize)
    norms = norms / features(X, W, weight_fn, normalize).norm()
    assert bool((result.per_word >= norms.amax(1)).all())


def test_default_effort_comes_near_to_twelve_times_the_starts():
    """Without the starts towards a saturated own row it is 0.984."""
    shares = []
    for seed in range(4):
        generator = torch.Generator().manual_seed(seed)
        X = torch.randn(32, 192, generator=generator)
        X *= 192**0.5 / X.norm(dim=1, keepdim=True)
        best = raf_sensitivity(X, seed=seed, starts=48, max_steps=300)
        shares.append((raf_sensitivity(X, seed=seed).per_word / best.per_word).mean())
    assert float(torch.stack(shares).mean()) >= 0.986


# -- nothing in reach is better -------------------------------------------------------------------


@pytest.mark.deep
@backends
@settings(max_examples=40)
@given(
    n=st.integers(1, 8),
    d=st.integers(1, 2),
    seed=st.integers(0, 10**6),
    scale=st.sampled_from([0.1, 1.0, 3.0]),
    largest=st.sampled_from([None, 5.0, 50.0]),
    radius=st.sampled_from([0.05, None, 4.0]),
)
# Ascents from a few starts alone miss these, by 20 and 38 %.
@example(n=3, d=2, seed=103, scale=1.0, largest=5.0, radius=None)
@example(n=2, d=2, seed=14, scale=1.0, largest=5.0, radius=None)
def test_no_grid_point_beats_it(backend, n, d, seed, scale, largest, radius):
    X, W = random_text(n, d, seed, scale=scale)
    if d == 1:
        X = X * (0.5 + torch.rand(n, 1, generator=torch.Generator().manual_seed(seed)).double())
    if largest is not None:
        W = W * (largest / float((X @ W @ X.T).abs().max() / math.sqrt(d)))
    radius = math.sqrt(d) if radius is None else radius
    # By definition S means nothing where the features all but cancel.
    assume(float(features(X, W).norm()) > 1e-3 * float(X.norm()))
    found = float(raf_sensitivity(X, W, radius=radius, backend=backend))
    assert on_grid(X, W, radius) <= 1.01 * found


@pytest.mark.deep
@weight_fns
@pytest.mark.needs("native")
def test_backends_agree(weight_fn, normalize):
    for n, d in ((2, 3), (5, 4), (9, 6)):
        X, W = random_text(n, d, n)
        found = [
            float(
                raf_sensitivity(
                    X, W, weight_fn=weight_fn, normalize=normalize, backend=backend, tol=1e-6
                )
            )
            for backend in ("reference", "torch", "native")
        ]
        assert max(found) <= (1 + 1e-3) * min(found)


def test_small_basis_loses_little():
    from wsfast.maps import attention_text

    X, W = random_text(10, 300, 1)
    with pytest.MonkeyPatch.context() as patch:
        inside = float(raf_sensitivity(X, W))
        patch.setattr(attention_text, "_WORTHWHILE", 0.0)
        outside = float(raf_sensitivity(X, W))
    assert inside >= 0.99 * outside


# -- known values ---------------------------------------------------------------------------------


@all_backends
@pytest.mark.parametrize("radius", [None, 0.5, 7.0])
def test_one_word(backend, radius):
    # φ(x) = x, so S = radius/‖x‖.
    X, W = random_text(1, 4)
    result = raf_sensitivity(3 * X, W, radius=radius, backend=backend)
    expected = (2.0 if radius is None else radius) / float(3 * X.norm())
    assert float(result) == pytest.approx(expected, rel=1e-12)


@all_backends
def test_uniform_attention(backend):
    # W = 0: each row of φ is the mean of the words, and moves by Δ/n.
    X = torch.randn(5, 3, dtype=torch.float64)
    result = raf_sensitivity(X, torch.zeros(3, 3, dtype=torch.float64), radius=2.0, backend=backend)
    expected = 2 / 5 / float(X.mean(0).norm())
    torch.testing.assert_close(result.per_word, torch.full((5,), expected).double())


@all_backends
@weight_fns
def test_radius_zero(backend, weight_fn, normalize):
    X, W = random_text(4, 3)
    result = raf_sensitivity(
        X, W, radius=0, weight_fn=weight_fn, normalize=normalize, backend=backend
    )
    assert float(result) == 0
    assert torch.equal(result.per_word, torch.zeros(4, dtype=X.dtype))
    assert torch.equal(result.delta, torch.zeros(3, dtype=X.dtype))
    assert result.radius == 0


@all_backends
def test_zero_features(backend):
    X = torch.zeros(3, 2)
    with pytest.warns(RuntimeWarning, match="S is NaN for text 0"):
        result = raf_sensitivity(X, torch.eye(2), backend=backend)
    assert math.isnan(float(result))
    assert result.per_word.isnan().all()
    assert int(result.position) == -1
    assert result.delta.isnan().all()
    batch = torch.stack([X, torch.eye(3)[:, :2] + 1])
    with pytest.warns(RuntimeWarning, match="S is NaN for text 0"):
        result = raf_sensitivity(batch, torch.eye(2), backend=backend)
    assert result.value.isnan().tolist() == [True, False]
    assert result.position.tolist()[0] == -1


def test_no_searched_position_is_a_word_of_a_text():
    texts = [random_text(n, 3, n)[0] for n in (2, 4)]
    W = random_weights(3, dtype=torch.float64)
    with pytest.warns(RuntimeWarning, match="S is NaN for text 0"):
        result = raf_sensitivity(texts, W, positions=[3])
    assert result.value.isnan().tolist() == [True, False]


@backends
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_hard_texts(backend, dtype):
    """Duplicates, zero words, sinks: a finite S, attained within the ball."""
    X, W = random_text(6, 3, 1, dtype)
    X[1] = X[0]
    X[2] = 0
    X[3] *= 10
    W = W * (300 / float((X @ W @ X.T).abs().max() / math.sqrt(3)))
    result = raf_sensitivity(X, W, backend=backend)
    assert torch.isfinite(result.per_word).all()
    value = relative_change(X, W, int(result.position), result.delta)
    assert float(result) == pytest.approx(value, rel=1e-6)
    torch.testing.assert_close(result.per_word[0], result.per_word[1], rtol=2e-2, atol=0)


# -- invariance -----------------------------------------------------------------------------------


@all_backends
@weight_fns
def test_permuting_words_permutes_the_result(backend, weight_fn, normalize):
    X, W = random_text(7, 5, 4)
    order = torch.tensor([3, 0, 6, 1, 5, 2, 4])
    options = {"weight_fn": weight_fn, "normalize": normalize, "backend": backend}
    result, permuted = raf_sensitivity(X, W, **options), raf_sensitivity(X[order], W, **options)
    torch.testing.assert_close(permuted.per_word, result.per_word[order], rtol=1e-6, atol=0)
    assert int(order[permuted.position]) == int(result.position)


@all_backends
@weight_fns
@pytest.mark.parametrize("kind", ["batch", "list"])
def test_batch_mates_and_padding_change_nothing(backend, weight_fn, normalize, kind):
    options = {"weight_fn": weight_fn, "normalize": normalize, "backend": backend, "max_steps": 20}
    texts = [random_text(n, 3, n)[0] for n in (4, 6, 1)]
    W = random_weights(3, dtype=torch.float64) + 3 * torch.eye(3)  # no text without weight
    alone = [raf_sensitivity(text, W, **options) for text in texts]
    if kind == "list":
        result = raf_sensitivity(texts, W, **options)
    else:
        padded = torch.full((3, 6, 3), 7.0, dtype=torch.float64)
        mask = torch.zeros(3, 6, dtype=torch.bool)
        for b, text in enumerate(texts):
            padded[b, -len(text) :] = text
            mask[b, -len(text) :] = True
        result = raf_sensitivity(padded, W, mask=mask, **options)
    assert result.axes == ("texts",)
    for b, one in enumerate(alone):
        n = len(texts[b])
        here = result.per_word[b][-n:] if kind == "batch" else result.per_word[b][:n]
        torch.testing.assert_close(here, one.per_word, rtol=1e-6, atol=0)
        assert int(result.per_word[b].isnan().sum()) == 6 - n
        shift = 6 - n if kind == "batch" else 0
        assert int(result.position[b]) == int(one.position) + shift
        torch.testing.assert_close(result.value[b], one.value, rtol=1e-6, atol=0)
        assert result.delta.shape == (3, 3)


@pytest.mark.needs("native")
@weight_fns
@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize(("n", "d"), [(3, 20), (5, 64), (7, 40), (15, 128), (33, 24)])
def test_texts_of_one_length_are_searched_together_as_alone(
    n, d, quick, weight_fn, normalize, monkeypatch
):
    """To the last bit, whether the rows of a text lie aligned among those of others or not."""
    together, joined = [], Native.norms_of_texts

    def counted(self, states, starts):
        together.append(len(states))
        return joined(self, states, starts)

    monkeypatch.setattr(Native, "norms_of_texts", counted)
    texts = [random_text(n, d, k)[0].float() for k in range(5)]
    texts.insert(2, random_text(n + 1, d, 5)[0].float())
    W = random_weights(d) + torch.eye(d)  # no text without weight
    options = {"weight_fn": weight_fn, "normalize": normalize, "quick": quick}
    result = raf_sensitivity(texts, W, **options)
    assert 5 in together
    together.clear()
    for b, text in enumerate(texts):
        alone = raf_sensitivity(text, W, **options)
        assert torch.equal(result.per_word[b, : len(text)], alone.per_word)
        assert torch.equal(result.delta[b], alone.delta)
    assert not together


@backends
def test_strides_change_nothing(backend):
    X, W = random_text(7, 5, 4)
    expected = raf_sensitivity(X, W, backend=backend)
    strided = raf_sensitivity(X.t().contiguous().t(), W.t().contiguous().t(), backend=backend)
    torch.testing.assert_close(strided.per_word, expected.per_word, rtol=1e-6, atol=0)
    every_other = torch.zeros(14, 10, dtype=X.dtype)
    every_other[::2, ::2] = X
    got = raf_sensitivity(every_other[::2, ::2], W, backend=backend)
    torch.testing.assert_close(got.per_word, expected.per_word, rtol=1e-6, atol=0)


@all_backends
@weight_fns
@pytest.mark.parametrize("d", [1, 3])
def test_inputs_are_not_changed(backend, weight_fn, normalize, d):
    X, W = random_text(4, d, 4)
    # Column by column: its transpose needs no copy.
    W = (W + torch.eye(d)).t().contiguous().t()
    before = X.clone(), W.clone()
    raf_sensitivity(X, W, weight_fn=weight_fn, normalize=normalize, backend=backend, max_steps=5)
    assert torch.equal(X, before[0])
    assert torch.equal(W, before[1])


@pytest.mark.needs("native")
@weight_fns
def test_thread_count_changes_nothing(weight_fn, normalize, threads):
    X, W = random_text(40, 30, 4, torch.float32)
    options = {"weight_fn": weight_fn, "normalize": normalize, "max_steps": 20}
    results = []
    for count in (1, 2):
        with threads(count):
            results.append(raf_sensitivity(X, W, **options))
    torch.testing.assert_close(results[0].value, results[1].value, rtol=1e-3, atol=0)
    close = (results[0].per_word / results[1].per_word - 1).abs() < 1e-3
    # Rounding may send a position to another peak, but hardly ever does.
    assert int(close.sum()) >= 38


@pytest.mark.deep
@backends
@weight_fns
def test_searching_fewer_positions_changes_nothing(backend, weight_fn, normalize):
    X, W = random_text(7, 5, 4)
    options = {"weight_fn": weight_fn, "normalize": normalize, "backend": backend}
    everywhere = raf_sensitivity(X, W, **options)
    some = raf_sensitivity(X, W, positions=[5, 0, 5], **options)
    torch.testing.assert_close(
        some.per_word[[0, 5]], everywhere.per_word[[0, 5]], rtol=1e-6, atol=0
    )
    assert some.per_word.isnan().tolist() == [False, True, True, True, True, False, True]
    for positions in (torch.tensor([0, 5]), np.array([0, 5]), (0, 5), range(0, 6, 5)):
        again = raf_sensitivity(X, W, positions=positions, **options)
        assert torch.equal(again.per_word.nan_to_num(-1), some.per_word.nan_to_num(-1))


@pytest.mark.deep
@backends
@weight_fns
def test_memory_budget_changes_nothing(backend, weight_fn, normalize):
    X, W = random_text(7, 5, 4)
    options = {"weight_fn": weight_fn, "normalize": normalize, "backend": backend, "max_steps": 20}
    tiny = raf_sensitivity(X, W, memory_budget=1, **options)
    expected = raf_sensitivity(X, W, **options)
    torch.testing.assert_close(tiny.per_word, expected.per_word, rtol=1e-6, atol=0)


@all_backends
def test_seed(backend, untouched):
    X = random_text(6, 4, dtype=torch.float32)[0]
    with untouched():
        first = raf_sensitivity(X, seed=3, backend=backend)
    torch.rand(5)
    again = raf_sensitivity(X, seed=3, backend=backend)
    for name in ("value", "per_word", "position", "delta"):
        assert torch.equal(getattr(first, name), getattr(again, name))
    assert not torch.equal(raf_sensitivity(X, seed=4, backend=backend).value, first.value)
    # The same W, whether drawn inside or given.
    given_W = raf_sensitivity(X, random_weights(4, seed=3), seed=3, backend=backend)
    assert torch.equal(given_W.per_word, first.per_word)


# -- axes, kinds, options -------------------------------------------------------------------------


@all_backends
def test_draws_are_single_runs(backend):
    X = torch.stack([random_text(4, 3, seed)[0] for seed in (0, 1)])
    result = raf_sensitivity(X, draws=3, seed=5, backend=backend, max_steps=20)
    assert result.axes == ("texts", "draws")
    assert result.value.shape == result.position.shape == (2, 3)
    assert result.per_word.shape == (2, 3, 4)
    assert result.delta.shape == (2, 3, 3)
    W = random_weights(3, draws=3, seed=5, dtype=torch.float64)
    for b in range(2):
        for r in range(3):
            one = raf_sensitivity(X[b], W[r], seed=5, backend=backend, max_steps=20)
            assert one.axes == ()
            torch.testing.assert_close(result.per_word[b, r], one.per_word, rtol=1e-9, atol=0)
            torch.testing.assert_close(result.delta[b, r], one.delta)
    stacked = raf_sensitivity(X[0], W, seed=5, backend=backend, max_steps=20)
    assert stacked.axes == ("draws",)
    torch.testing.assert_close(stacked.per_word, result.per_word[0], rtol=1e-9, atol=0)
    assert raf_sensitivity(X[0], W[:1], max_steps=1, backend=backend).value.shape == (1,)
    assert raf_sensitivity(X[0], draws=1, max_steps=1, backend=backend).value.shape == (1,)
    summary = stacked.over_draws()
    assert float(summary.mean) == pytest.approx(float(stacked.value.mean()))


def test_numpy_in_numpy_out():
    X, W = (x.numpy() for x in random_text(5, 3))
    result = raf_sensitivity(X, W)
    for name in ("value", "per_word", "position", "delta"):
        assert isinstance(getattr(result, name), np.ndarray), name
    expected = raf_sensitivity(torch.from_numpy(X), torch.from_numpy(W))
    np.testing.assert_array_equal(result.per_word, expected.per_word.numpy())
    assert float(result) == float(expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
def test_half_precision_becomes_float32(dtype):
    X = random_text(5, 3)[0].to(dtype)
    result = raf_sensitivity(X)
    assert result.value.dtype == torch.float32
    assert float(result) == float(raf_sensitivity(X.float()))


def test_inputs_that_require_gradients():
    X, W = (x.requires_grad_() for x in random_text(5, 3))
    result = raf_sensitivity(X, W)
    assert not result.value.requires_grad
    assert not result.delta.requires_grad
    assert X.grad is None


@all_backends
def test_info(backend):
    import json

    X = random_text(4, 3, dtype=torch.float32)[0]
    result = raf_sensitivity(
        X, weight_fn="relu", normalize=False, seed=9, starts=2, max_steps=7, backend=backend
    )
    info = json.loads(json.dumps(result.info))
    expected = {
        "map": "raf",
        "weight_fn": "relu",
        "normalize": False,
        "weights": "random",
        "backend": backend,
        "dtype": "float32",
        "seed": 9,
        "starts": 2,
        "max_steps": 7,
    }
    assert {key: info[key] for key in expected} == expected
    assert info["steps"] >= 1
    assert info["versions"]["wsfast"] == wsfast.__version__


@pytest.mark.deep
@backends
def test_more_effort_helps(backend):
    """More starts and steps, on average over texts: the schedule does not promise it of each."""
    ratios = []
    for seed in range(12):
        X, W = random_text(8, 6, seed)
        more = float(raf_sensitivity(X, W, backend=backend, starts=8, max_steps=100, tol=1e-7))
        less = float(raf_sensitivity(X, W, backend=backend, starts=1, max_steps=5))
        ratios.append(more / less)
    assert min(ratios) >= 0.99
    assert np.mean(ratios) > 1.001


@all_backends
@weight_fns
def test_quick_ends_with_a_longer_search_where_it_is_worst(backend, weight_fn, normalize):
    options = {"weight_fn": weight_fn, "normalize": normalize, "backend": backend}
    for n, d, seed in ((6, 5, 0), (14, 20, 1), (9, 40, 2)):
        X, W = random_text(n, d, seed)
        result = raf_sensitivity(X, W, quick=True, **options)
        i = int(result.position)
        assert float(result.value) == pytest.approx(
            relative_change(X, W, i, result.delta, weight_fn, normalize), rel=2e-7
        )
        alone = raf_sensitivity(X, W, positions=[i], **options)
        assert float(result.value) >= float(alone.value) * (1 - 1e-6)
        assert int(result.info["max_steps"]) == 60


def test_quick_and_a_bound_go_together():
    X, W = random_text(10, 24, 3)
    result = raf_sensitivity(X, W, quick=True, bound=True)
    assert bool((result.upper >= result.per_word).all())
    assert float(result.value) >= float(raf_sensitivity(X, W, quick=True).value) * (1 - 1e-6)
    with pytest.raises(TypeError, match="quick must be True or False, got 1"):
        raf_sensitivity(X, W, quick=1)


@all_backends
@weight_fns
def test_fewest_steps(backend, weight_fn, normalize):
    X, W = random_text(4, 3)
    options = {"weight_fn": weight_fn, "normalize": normalize, "backend": backend}
    result = raf_sensitivity(X, W, starts=1, max_steps=1, **options)
    i = int(result.position)
    value = relative_change(X, W, i, result.delta, weight_fn, normalize)
    assert float(result) == pytest.approx(value, rel=1e-10)


def test_progress(capfd):
    X = random_text(4, 3, dtype=torch.float32)[0]
    raf_sensitivity(X)
    assert capfd.readouterr().err == ""
    raf_sensitivity(X, draws=2, progress=True)
    captured = capfd.readouterr()
    assert "8/8" in captured.err
    assert "word" in captured.err
    assert captured.out == ""
