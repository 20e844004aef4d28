"""raf_sensitivity(bound=True): a proof from above beside what is found."""

from __future__ import annotations

import json
import math

import pytest
import torch
from definition import random_text
from parameters import all_backends, backends

from wsfast import SensitivityResult, raf_delta_norms, raf_sensitivity
from wsfast.studies.assemble import _rounded_up

softmax_or_relu = pytest.mark.parametrize("weight_fn", ["softmax", "relu"])
X, W = random_text(14, 24, 1)


def bounded(text=X, weights=W, **options) -> SensitivityResult:
    return raf_sensitivity(text, weights, bound=True, **options)


def close(one: SensitivityResult, other: SensitivityResult, *, apart: int = 0) -> None:
    """S and its bound agree well; those of other positions too, but for so many S_i.

    They may end at another optimum of many: the starts that the proof gives are rounded otherwise.
    """
    for name, limit in (
        ("value", 1e-3),
        ("upper_value", 2e-3),
        ("upper", 0.05),
    ):
        a, b = getattr(one, name), getattr(other, name)
        torch.testing.assert_close(a, b, rtol=limit, atol=0, equal_nan=True)
    near = torch.isclose(one.per_word, other.per_word, rtol=0.02, atol=0, equal_nan=True)
    assert int((~near).sum()) <= apart


# -- what is promised ------------------------------------------------------------------------------


@softmax_or_relu
@backends
def test_it_is_above_what_is_found_and_near(backend, weight_fn):
    for options in ({}, {"causal": True}, {"mask": torch.arange(14) != 3}):
        result = bounded(weight_fn=weight_fn, backend=backend, **options)
        known = ~result.per_word.isnan()
        assert torch.equal(result.upper.isnan(), ~known)
        assert (result.upper >= result.per_word)[known].all()
        assert 1 <= result.ratio <= 1.25
        assert "none" not in result.info["bound"]


@softmax_or_relu
def test_nothing_in_the_ball_is_above(weight_fn):
    result = bounded(weight_fn=weight_fn)
    delta = torch.nn.functional.normalize(torch.randn(14, 400, 24, dtype=torch.float64), dim=-1)
    delta = torch.cat([delta, -X[:, None] / X.norm(dim=1)[:, None, None]], 1) * 24**0.5
    norms = raf_delta_norms(X, W, delta, weight_fn=weight_fn)
    norm = bounded(weight_fn=weight_fn).per_word.max() / result.value  # 1: both are relative
    features = raf_delta_norms(X, W, result.delta.expand(14, 1, 24), weight_fn=weight_fn)
    unit = features[result.position, 0] / result.value * norm
    assert (norms / unit <= result.upper[:, None]).all()


@softmax_or_relu
def test_s_with_a_bound_is_no_less(weight_fn):
    for seed in range(3):
        text, weights = random_text(10, 16, seed)
        plain = raf_sensitivity(text, weights, weight_fn=weight_fn)
        more = bounded(text, weights, weight_fn=weight_fn)
        assert (more.per_word >= plain.per_word).all()
        delta = torch.zeros(10, 1, 16, dtype=torch.float64)
        delta[more.position, 0] = more.delta
        assert more.delta.norm() <= 4 * (1 + 1e-12)


def test_without_it_there_is_no_bound():
    for result in (raf_sensitivity(X, W), raf_sensitivity(X, W, bound=False)):
        assert result.upper is None
        assert result.upper_value is None
        assert result.ratio is None
        assert "bound" not in result.info


def test_how_near_it_is():
    """The first of Gaussian texts as the paper has them; 1.07 when this was written."""
    text, weights = random_text(50, 384, 0)
    assert bounded(text, weights).ratio <= 1.12


@pytest.mark.parametrize("radius", [1e-4, 1e-2, 0.1])
def test_how_near_it_is_where_words_hardly_move(radius):
    """1.45 to 1.51 when this was written."""
    text, weights = random_text(20, 192, 0)
    assert bounded(text, weights, radius=radius).ratio <= 1.6


def test_bounds_of_others_than_the_worst_are_enough():
    """Positions that took all steps are told; no bound of another is needed for S."""
    result = bounded()
    (refined,) = result.info["bound"]["refined"]
    assert result.upper.argmax() in refined
    assert set(refined) <= set(range(14))


# -- texts and what is asked of them ---------------------------------------------------------------


@backends
@softmax_or_relu
def test_batch_mates_and_padding_change_nothing(backend, weight_fn):
    texts = [X, X[:5], random_text(9, 24, 7)[0], X[6:7]]
    both = bounded(texts, weight_fn=weight_fn, backend=backend)
    for k, text in enumerate(texts):
        alone = bounded(text, weight_fn=weight_fn, backend=backend)
        assert both.upper[k, len(text) :].isnan().all()
        torch.testing.assert_close(both.upper[k, : len(text)], alone.upper, rtol=1e-9, atol=0)
        torch.testing.assert_close(both.per_word[k, : len(text)], alone.per_word, rtol=1e-9, atol=0)


@backends
@softmax_or_relu
def test_memory_budget_changes_nothing(backend, weight_fn):
    """But for rounding, which the steps of the multipliers, and of a climb, may enlarge."""
    whole = bounded(weight_fn=weight_fn, backend=backend)
    parts = bounded(weight_fn=weight_fn, backend=backend, memory_budget=20_000)
    close(parts, whole, apart=1 if weight_fn == "relu" else 0)


@backends
def test_twice_the_same(backend):
    one, other = bounded(backend=backend), bounded(backend=backend)
    assert torch.equal(one.upper, other.upper)
    assert torch.equal(one.per_word, other.per_word)


@softmax_or_relu
def test_in_another_order_the_words_have_the_same_bounds(weight_fn):
    order = torch.randperm(14)
    one, other = bounded(weight_fn=weight_fn), bounded(X[order], weight_fn=weight_fn)
    torch.testing.assert_close(other.upper, one.upper[order], rtol=1e-2, atol=0)
    torch.testing.assert_close(other.upper_value, one.upper_value, rtol=3e-3, atol=0)


def test_some_positions():
    """Each has a bound of its own; how far it is refined depends on what is found elsewhere."""
    some, every = bounded(positions=[9, 3]), bounded()
    at = torch.tensor([3, 9])
    assert (~some.upper.isnan()).nonzero()[:, 0].tolist() == [3, 9]
    assert (some.upper >= some.per_word)[at].all()
    torch.testing.assert_close(some.upper[at], every.upper[at], rtol=0.1, atol=0)


def test_draws_and_texts():
    result = raf_sensitivity([X, X[:5]], draws=2, bound=True)
    assert result.upper.shape == result.per_word.shape == (2, 2, 14)
    assert torch.equal(result.upper.isnan(), result.per_word.isnan())
    known = ~result.upper.isnan()
    assert (result.upper >= result.per_word)[known].all()
    assert len(result.info["bound"]["refined"]) == 4


def test_masked_words_are_not_there():
    keep = torch.arange(14) % 3 != 1
    masked, short = bounded(mask=keep), bounded(X[keep])
    torch.testing.assert_close(masked.upper[keep], short.upper, rtol=1e-9, atol=0)
    assert masked.upper[~keep].isnan().all()


@softmax_or_relu
def test_extreme_texts_have_bounds(weight_fn):
    """Of any size, without words that differ, with radii that are tiny or beyond all words."""
    texts = {
        "one word": (X[:1], W, {}),
        "equal words": (X[:1].expand(6, -1).clone(), W, {}),
        "no scores": (X, 0 * W, {}),
        "sharp": (X, 30 * W, {}),
        "huge": (X * 1e10, W, {}),
        "huger": (X * 1e30, W, {}),
        "tiny": (X * 1e-10, W, {}),
        "zero word": (X * (torch.arange(14) != 4)[:, None], W, {}),
        "short radius": (X, W, {"radius": 1e-3}),
        "long radius": (X, W, {"radius": 500.0}),
        "no radius": (X, W, {"radius": 0.0}),
    }
    for name, (text, weights, options) in texts.items():
        if weight_fn == "relu":
            if name in ("no scores", "huger"):
                continue  # no features, or none that are finite
            weights = weights + torch.eye(24, dtype=torch.float64)  # no row without weight
        result = bounded(text, weights, weight_fn=weight_fn, **options)
        assert torch.equal(result.upper.isnan(), result.per_word.isnan()), name
        assert (result.upper >= result.per_word * (1 - 1e-12)).all(), name
        assert result.upper.isfinite().all() or name == "huger", name


def test_one_word_alone_is_known_exactly():
    """φ(x) = x: S is radius / ‖x‖."""
    result = bounded(X[:1], radius=2.0)
    torch.testing.assert_close(result.upper, 2.0 / X[:1].norm(dim=1), rtol=1e-2, atol=0)
    assert result.upper >= 2.0 / X[0].norm()


@backends
def test_without_scores_it_is_exact(backend):
    """Every row is the mean, and changes by Δ / n."""
    result = bounded(X, 0 * W, backend=backend)
    assert 1 <= result.ratio <= 1.005


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_bound_of_less_precision_is_rounded_up(dtype):
    text, weights = X.to(dtype), W.to(dtype)
    result, exact = bounded(text, weights), bounded(text.double(), weights.double())
    assert result.upper.dtype == (dtype if dtype == torch.float32 else torch.float32)
    assert (result.upper.double() >= exact.per_word).all()
    torch.testing.assert_close(result.upper.double(), exact.upper, rtol=2e-2, atol=0)


def test_rounding_is_upwards():
    values = torch.cat([torch.rand(1000, dtype=torch.float64), torch.tensor([0.0, 0.5, 1e-300])])
    for dtype in (torch.float32, torch.float64):
        rounded = _rounded_up(values, dtype)
        assert rounded.dtype == dtype
        assert (rounded.double() >= values).all()
        assert (rounded.double() <= values * (1 + 2e-7) + 2e-45).all()


@all_backends
def test_every_backend_proves_about_the_same(backend):
    text, weights = X[:6], W
    searched = raf_sensitivity(text, weights, starts=64, max_steps=200)
    result = bounded(text, weights, backend=backend)
    assert (result.upper >= searched.per_word).all()
    expected = bounded(text, weights, backend="torch")
    torch.testing.assert_close(result.upper_value, expected.upper_value, rtol=0.02, atol=0)


# -- where there is none ---------------------------------------------------------------------------


def test_unnormalised_attention_has_none():
    result = bounded(weight_fn="relu", normalize=False)
    assert result.upper.isnan().all()
    assert math.isnan(result.ratio)
    assert result.info["bound"]["none"] == "bounds are of normalised attention"
    plain = raf_sensitivity(X, W, weight_fn="relu", normalize=False)
    assert torch.equal(result.per_word, plain.per_word)


def test_sites_of_several_words_have_none():
    result = bounded(positions=[3, (4, 5)])
    assert result.upper.isnan().tolist() == [False, True]
    assert result.upper[0] >= result.per_word[0]
    assert math.isnan(result.upper_value)
    assert result.info["bound"]["none"] == "bounds are of single words"


@pytest.mark.parametrize("perturbation", ["mask", "zero", "mean"])
def test_known_changes_need_none(perturbation):
    with pytest.raises(ValueError, match=f"bound must be False with perturbation='{perturbation}'"):
        bounded(perturbation=perturbation)


@pytest.mark.parametrize("bound", [1, "yes", None])
def test_other_than_a_flag_is_refused(bound):
    with pytest.raises(TypeError, match="bound must be"):
        raf_sensitivity(X, W, bound=bound)


@pytest.mark.filterwarnings("ignore:S is NaN")
def test_without_features_there_is_neither():
    result = bounded(0 * X)
    assert result.per_word.isnan().all()
    assert result.upper.isnan().all()


# -- the result ------------------------------------------------------------------------------------


def test_saved_and_read_again(tmp_path):
    result = bounded(positions=[3, (4, 5)])
    assert json.loads(json.dumps(result.info)) == result.info
    result.save(tmp_path / "result.npz")
    again = SensitivityResult.load(tmp_path / "result.npz")
    assert again.info == result.info
    torch.testing.assert_close(again.upper, result.upper, rtol=0, atol=0, equal_nan=True)


def test_numpy_in_and_out():
    result = bounded(X.numpy(), W.numpy())
    assert (result.upper == bounded().upper.numpy()).all()


@pytest.mark.parametrize("rest", [1e-110, 1e-150])
def test_nothing_is_proved_where_scores_leave_the_range(rest):
    """The weights beside the largest are next to nothing: no grid reaches from there to 1."""
    text = torch.tensor([[1.0], [rest]], dtype=torch.float64)
    result = bounded(text, torch.ones(1, 1, dtype=torch.float64), weight_fn="relu")
    assert (result.upper >= result.per_word).all()
    assert result.upper.isinf().any()
