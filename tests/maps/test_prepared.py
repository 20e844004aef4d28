"""What a prepared text says of changes, against its base class, which is the definition."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations, product

import pytest
import torch
from attention.problems import engine_of
from definition import random_text
from parameters import ALL_BACKENDS
from torch import Tensor

from wsfast import _inputs, raf_delta_norms
from wsfast.attention.definition import attention_features
from wsfast.attention.weight_fn import WeightFn
from wsfast.maps.attention import Weights
from wsfast.maps.attention_text import AttentionMap
from wsfast.maps.feature_map import FeatureMap, PreparedText
from wsfast.maps.measure import Functional, Measure, Norm
from wsfast.maps.random_features import drf_network, rf_network
from wsfast.maps.random_text import RandomMap
from wsfast.perturbation.change import KINDS, Change, Sites

# Relative to the larger of the norm and 1e-3 ‖φ(X)‖.
ACCURACY = {torch.float64: 1e-11, torch.float32: 1e-4}
BUDGET = 2**26

FUNCTIONS = {
    "softmax": WeightFn("softmax"),
    "relu": WeightFn("relu"),
    "relu-unnormalized": WeightFn("relu", normalize=False),
}
ATTENTION = [*FUNCTIONS, *(f"{name}-causal" for name in FUNCTIONS)]


# -- texts, maps and changes ----------------------------------------------------------------------


def texts(dtype: torch.dtype) -> dict[str, tuple[Tensor, Tensor]]:
    """X and W by what is hard about them."""
    plain, W = random_text(6, 5, 1)
    saturated, equal, alike = plain.clone(), plain.clone(), plain[:3].clone()
    saturated[2] *= 5
    equal[3], equal[4] = equal[1], equal[1]
    alike[:] = alike[0]
    # Scores of a row are x_j2 times positive numbers: ReLU leaves every second row empty.
    empty, one_way = plain.abs() + 0.1, torch.zeros_like(W)
    empty[::2, 1] *= -1
    one_way[1, 0] = 1.0
    near = 100 * plain[:1] + 1e-2 * plain
    found = {
        "plain": (plain, W),
        "one word": (plain[:1], W + torch.eye(5)),
        "two words": (plain[:2], W),
        "saturated": (saturated, W),
        "equal words": (equal, W),
        "the same word": (alike, W),
        "empty rows": (empty, one_way),
        "near one another, far from 0": (near, 1e-4 * W),
        "wide": random_text(3, 24, 2),
    }
    return {name: (X.to(dtype), W.to(dtype)) for name, (X, W) in found.items()}


@dataclass
class Both:
    """A text under a map with some engine, and the same by the definition."""

    text: PreparedText
    defined: PreparedText
    sites: Sites

    @property
    def unit(self) -> float:
        return 1e-3 * float(self.defined.norm)


def feature_map(name: str, X: Tensor, W: Tensor, backend: str) -> FeatureMap:
    if name in ATTENTION:
        fn = FUNCTIONS[name.removesuffix("-causal")]
        return AttentionMap(Weights(W), fn, causal=name.endswith("-causal"), budget=BUDGET)
    inputs = _inputs.texts(X)
    network = rf_network(None, inputs, "relu", 9, None)
    if name == "drf":
        network = drf_network(None, inputs, 2, "tanh", 9, None)
    return RandomMap(network, 0, seed=3, engine=engine_of(backend))


def sites_of(n: int, m: int) -> Sites:
    """Every word of n, or some sites of m words that overlap."""
    found = list(combinations(range(n), m))
    return Sites(torch.tensor(found if m == 1 else found[::2][:6]))


def prepared(
    name: str, X: Tensor, W: Tensor, backend: str, budget: int = BUDGET, m: int = 1
) -> Both:
    map_ = feature_map(name, X, W, backend)
    (text,) = map_.prepare([X], engine_of(backend), budget)
    defined = PreparedText(map_, X, engine_of("reference"), budget)
    return Both(text, defined, sites_of(len(X), m))


def _words_together(key: str, n: int) -> list[int]:
    return sorted({1, min(2, n), *([n] if key in ("plain", "saturated") else [])})


def all_texts(name: str, backend: str, dtype: torch.dtype = torch.float64) -> dict[str, Both]:
    """The texts that have features at all, with sites of one word, of several, and of all."""
    hard = texts(dtype)
    if name not in ATTENTION:  # what is hard for attention is not for them
        hard = {key: hard[key] for key in ("plain", "one word")}
    found = {
        f"{key}, {m} together": prepared(name, *pair, backend, m=m)
        for key, pair in hard.items()
        for m in _words_together(key, len(pair[0]))
    }
    return {key: both for key, both in found.items() if float(both.defined.norm) > 0}


def changes_of(both: Both) -> dict[str, Change]:
    """Changes of every kind that the map takes, one of each place or several."""
    X, at = both.text.X, both.sites.at
    n, d = X.shape
    P, m = at.shape
    generator = torch.Generator().manual_seed(n * d)
    by = torch.randn(P, 3, m, d, generator=generator, dtype=torch.float64).to(X)
    by[:, 1] *= 1e-3
    by[:, 2] = -X[at]
    found = {
        "add": Change(add=by),
        "put": Change(put=by[:, :1]),
        "put several": Change(put=by),
        "put next to nothing": Change(put=1e-18 * by[:, :1]),  # ReLU sees where it points
        "put what is there": Change(put=X[at][:, None]),
        **{name: kind(X, at) for name, kind in KINDS.items()},
    }
    if not both.text.map.hides:
        del found["mask"]
    return found


def case(names: list[str]) -> pytest.MarkDecorator:
    """Every map with every engine, also in the quick tier."""
    values = [
        pytest.param(name, getattr(one, "values", [one])[0], marks=getattr(one, "marks", ()))
        for name, one in product(names, ALL_BACKENDS)
    ]
    return pytest.mark.parametrize(("name", "backend"), values)


every_map = case([*ATTENTION, "rf", "drf"])


# -- claims ---------------------------------------------------------------------------------------


@pytest.mark.deep
@every_map
def test_features_after_a_change(name, backend):
    for key, both in all_texts(name, backend).items():
        torch.testing.assert_close(both.text.phi, both.defined.phi, rtol=1e-11, atol=1e-13)
        torch.testing.assert_close(both.text.norm, both.defined.norm, rtol=1e-12, atol=0)
        for kind, change in changes_of(both).items():
            got, wanted = (one.after(both.sites, change) for one in (both.text, both.defined))
            away = float((got - wanted).abs().max())
            assert away <= 1e-12 * float(wanted.abs().max().clamp(min=1)), (key, kind)


@pytest.mark.deep
@every_map
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
def test_changes_of_features(name, backend, dtype):
    """In float64 whatever the dtype of the text, so that nothing cancels."""
    for key, both in all_texts(name, backend, dtype).items():
        for kind, change in changes_of(both).items():
            got, wanted = (one.changes(both.sites, change) for one in (both.text, both.defined))
            assert got.dtype == torch.float64
            away = (got - wanted).flatten(2).norm(dim=-1)
            size = wanted.flatten(2).norm(dim=-1).clamp(min=both.unit)
            assert float((away / size).max()) <= ACCURACY[torch.float64], (key, kind)


class Largest(Measure):
    """A measure that no map knows."""

    def of(self, change, at):
        return change.flatten(1).abs().amax(-1)


def measures(both: Both) -> list[tuple[Measure, float]]:
    """Measures, and how large they are beside the norm of a change."""
    generator = torch.Generator().manual_seed(7)
    theta = torch.randn(both.defined.phi.numel(), generator=generator, dtype=torch.float64)
    found = [(Norm(), 1.0), (Functional(theta), float(theta.norm())), (Largest(), 1.0)]
    return [*found, (Norm("others"), 1.0)] if isinstance(both.text.map, AttentionMap) else found


def check_measures(both: Both, dtype: torch.dtype, *told: object) -> None:
    for kind, change in changes_of(both).items():
        norms = both.defined.measured(both.sites, change, Norm(), torch.float64)
        for measure, size in measures(both):
            got = both.text.measured(both.sites, change, measure, dtype)
            wanted = both.defined.measured(both.sites, change, measure, torch.float64)
            assert got.dtype == torch.float64
            assert got.shape == wanted.shape == (len(both.sites), change.points)
            error = (got - wanted).abs() / (size * norms.clamp(min=both.unit))
            assert float(error.max()) <= ACCURACY[dtype], (*told, kind, measure)


@pytest.mark.deep
@every_map
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
def test_what_is_measured(name, backend, dtype):
    for key, both in all_texts(name, backend, dtype).items():
        check_measures(both, dtype, key)


@pytest.mark.deep
@every_map
def test_a_small_budget_changes_nothing(name, backend):
    for m in (1, 2):
        both = prepared(name, *texts(torch.float64)["saturated"], backend, budget=1, m=m)
        check_measures(both, torch.float64)


@pytest.mark.deep
@every_map
def test_the_largest_is_verified_by_the_definition(name, backend):
    for key, both in all_texts(name, backend).items():
        for kind, change in changes_of(both).items():
            if change.points > 1:
                continue
            for measure, size in measures(both):
                got = both.text.measured(both.sites, change, measure, torch.float64)[:, 0]
                both.text.settle(got, both.sites, change, measure)
                defined = both.defined.measured(both.sites, change, measure, torch.float64)[:, 0]
                norms = both.defined.measured(both.sites, change, Norm(), torch.float64)[:, 0]
                error = (got - defined).abs() / (size * norms.clamp(min=both.unit))
                assert float(error.max()) <= ACCURACY[torch.float64], (key, kind, measure)
                if isinstance(both.text.map, AttentionMap):
                    # To the last bit, taken alone, as it is defined.
                    best = got.argmax()[None]
                    at, by = Sites(both.sites.at[best]), change.select(best)
                    alone = both.defined.measured(at, by, measure, torch.float64)
                    assert float(got[best]) == pytest.approx(float(alone), rel=1e-14), (key, kind)


def test_the_winner_is_sought_again_where_the_definition_says_less():
    """What claims too much loses its place to another, whose value is then verified."""
    both = prepared("softmax", *texts(torch.float64)["plain"], "torch")
    change = KINDS["zero"](both.text.X, both.sites.at)
    true = both.defined.measured(both.sites, change, Norm(), torch.float64)[:, 0]
    claimed = true * torch.linspace(1.3, 1.1, 6, dtype=torch.float64)
    got = claimed.clone()
    both.text.settle(got, both.sites, change, Norm())
    best = int(got.argmax())
    assert float(got[best]) == pytest.approx(float(true[best]), rel=1e-12)
    assert bool((got[got != true] <= got[best]).all())


@pytest.mark.deep
@every_map
def test_what_a_search_climbs(name, backend):
    """The objective of a measure, and of one that no map knows, and their gradients."""
    for key, both in all_texts(name, backend).items():
        (P, m), d = both.sites.at.shape, both.text.d
        generator = torch.Generator().manual_seed(P)
        delta = 0.7 * torch.randn(P, 2, m * d, generator=generator, dtype=torch.float64)
        for measure, size in measures(both):
            exact = both.text.defined(both.sites, measure, 1.0)
            value, slope = exact.evaluator(2).value_and_gradient(delta)
            given = both.text.objective(both.sites, measure, 1.0)
            assert (given.places, given.width, given.dtype) == (P, m * d, torch.float64)
            got, gradient = given.evaluator(2).value_and_gradient(delta)
            scale = size * both.unit
            error = (got - value).abs() / value.abs().clamp(min=scale)
            assert float(error.max()) <= 1e-9, (key, measure)
            steep = slope.norm(dim=-1).clamp(min=1e-3 * float(slope.norm()) + scale)
            wrong = (gradient - slope).norm(dim=-1) / steep
            assert float(wrong.max()) <= 1e-8, (key, measure)


# -- masks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ALL_BACKENDS)
def test_masked_words_are_no_words(backend):
    """Of a text with a mask, every known change at every word, both choices of rows."""
    X, W = random_text(7, 4, 5)
    keep = torch.tensor([False, True, True, False, True, True, False])
    words = keep.nonzero()[:, 0]
    for (fn, causal), kind, rows in product(
        product(FUNCTIONS.values(), (False, True)), KINDS, ("all", "others")
    ):
        before = attention_features(X, W, fn, keep, causal=causal)
        wanted = torch.full((7,), math.nan, dtype=torch.float64)
        for i in words:
            moved, hidden = X.clone(), torch.zeros(7, dtype=torch.bool)
            if kind == "mask":
                hidden[i] = True
            else:
                moved[i] = X[keep].mean(0) if kind == "mean" else 0.0
            change = attention_features(moved, W, fn, keep, causal=causal, hidden=hidden) - before
            counted = keep.clone()
            counted[i] = rows == "all"
            wanted[i] = change[counted].norm()
        for dtype in (torch.float64, torch.float32):
            got = raf_delta_norms(
                X.to(dtype),
                W.to(dtype),
                perturbation=kind,
                rows=rows,
                weight_fn=fn.name,
                normalize=fn.normalize,
                mask=keep,
                causal=causal,
                backend=backend,
            )
            unit = 1e-3 * float(before.norm())
            assert bool(got[~keep].isnan().all())
            error = (got[words].double() - wanted[words]).abs() / wanted[words].clamp(min=unit)
            assert float(error.max()) <= ACCURACY[dtype], (fn, causal, kind, rows)
