"""The search over a vocabulary: the true order, whatever is screened in float32."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from parameters import all_backends, backends, both_ends, dtypes, weight_fns
from studies.substitution.cases import problem
from studies.substitution.comparing import ARRAYS, matches, pairs, same
from studies.substitution.truth import changes, error, order

from wsfast import random_weights, substitution_sensitivity
from wsfast.maps.attention_text import AttentionMap
from wsfast.studies.substitution import search as searching
from wsfast.studies.substitution.screen import Screen

# -- the true order -------------------------------------------------------------------------------


@backends
@both_ends
@weight_fns
def test_order_of_random_texts(backend, largest, weight_fn, normalize):
    """Of float32 inputs, against every value in float64; several tiles and one."""
    for seed in range(17):
        n, d, count = 1 + seed % 7, 2 + seed % 5, 20 + 7 * (seed % 11)
        X, E, W = problem(n, d, count, 100 + seed, torch.float32)
        expected = changes(X, W, E, weight_fn, normalize)
        result = substitution_sensitivity(
            X, E, W, weight_fn=weight_fn, normalize=normalize, backend=backend, largest=largest,
            top_k=1 + seed % 13, memory_budget=2**14 if seed % 2 else 2**28,
        )  # fmt: skip
        matches(result, expected, largest)
        assert result.largest is largest


@both_ends
def test_order_of_the_reference(largest):
    for seed in range(5):
        X, E, W = problem(3, 4, 20, seed, torch.float32)
        result = substitution_sensitivity(X, E, W, largest=largest, top_k=7, backend="reference")
        matches(result, changes(X, W, E), largest)


@all_backends
@weight_fns
@both_ends
def test_ties_stand_by_position_then_candidate(backend, weight_fn, normalize, largest):
    """Equal rows of E, in tiles apart, and equal words."""
    X, E, W = problem(5, 4, 8)
    X[3] = X[1]
    E = torch.cat([E, E.flip(0), E])
    options = {"weight_fn": weight_fn, "normalize": normalize, "backend": backend}
    expected = changes(X, W, E, weight_fn, normalize)
    for k in (1, 9, len(X) * len(E)):
        for budget in (2**11, 2**28):
            result = substitution_sensitivity(
                X, E, W, top_k=k, largest=largest, memory_budget=budget, **options
            )
            assert pairs(result) == order(expected, k, largest=largest)
    # The first of equal rows is the best of its position.
    assert int(result.best_candidate.max()) < 8


@all_backends
def test_near_ties_stand_by_position_then_candidate(backend):
    """Values within 1e-9 are tied, also where only some of them are asked for."""
    X, E, W = problem(3, 4, 12)
    best = int(substitution_sensitivity(X, E, W, top_k=1).top_candidate[0])
    E = torch.cat([E[best : best + 1] * (1 - 1e-11), E])
    values = changes(X, W, E).max(0).values
    assert 0 < float(values[1 + best] - values[0]) < 1e-9 * float(values[0])
    for k in (1, 2, 3):
        result = substitution_sensitivity(X, E, W, top_k=k, backend=backend)
        matches(result, changes(X, W, E))


@all_backends
def test_ties_of_a_position_are_its_own(backend):
    """What is best of one position does not depend on what is tied with another's."""
    X, W = torch.tensor([[0.0, 0.0], [0.0, 0.0], [3.0, 1.0]]).double(), torch.zeros(2, 2).double()
    # Without scores the change is ‖v‖, up to a factor.
    sizes = torch.tensor([1 - 0.8e-9, 1, 1 + 0.5e-9], dtype=torch.float64)
    E = sizes[:, None] * torch.tensor([1.0, 2.0], dtype=torch.float64)
    result = substitution_sensitivity(
        X, E, W, candidates=[[0, 1], [2], []], top_k=3, backend=backend
    )
    assert pairs(result) == [(0, 1), (1, 2), (0, 0)]
    assert result.best_candidate.tolist() == [0, 2, -1]


@backends
@both_ends
def test_all_candidates_equal(backend, largest):
    X, E, W = problem(4, 5, 1, dtype=torch.float32)
    E = E.expand(50, -1)
    result = substitution_sensitivity(
        X, E, W, top_k=60, largest=largest, memory_budget=2**13, backend=backend
    )
    matches(result, changes(X, W, E), largest)
    assert result.best_candidate.tolist() == [0] * 4


@backends
@weight_fns
def test_ties_of_candidates_that_nobody_looks_at(backend, weight_fn, normalize):
    """One word of ReLU: candidates without weight all leave nothing."""
    X, E, W = problem(1, 3, 60, 5)
    W = W - 0.8 * torch.eye(3)
    assert float(X @ W @ X.T) > 0
    result = substitution_sensitivity(
        X, E, W, weight_fn=weight_fn, normalize=normalize, top_k=30, backend=backend
    )
    matches(result, changes(X, W, E, weight_fn, normalize))


# -- which pairs ----------------------------------------------------------------------------------


@all_backends
@both_ends
def test_candidates(backend, largest):
    X, E, W = problem()
    options = {"largest": largest, "backend": backend, "full": True}
    chosen = [31, 3, 8, 3, 17]
    table = changes(X, W, E)
    table[:, [v for v in range(40) if v not in chosen]] = math.nan
    flags = torch.zeros(40, dtype=torch.bool)
    flags[chosen] = True
    first = substitution_sensitivity(X, E, W, candidates=chosen, **options)
    matches(first, table, largest)
    assert torch.equal(first.table.isnan(), table.isnan())
    assert error(first.table[:, flags], table[:, flags]) <= 1e-9
    assert first.info["candidates"] == 40
    forms = [
        tuple(sorted(chosen)),
        np.array(chosen, dtype=np.uint8),
        torch.tensor(chosen, dtype=torch.int32),
        [torch.tensor(v) for v in chosen],
        [np.int64(v) for v in chosen],
        flags,
        flags.numpy(),
        flags.tolist(),
        [chosen] * 5,
        [flags] * 5,
        flags.expand(5, -1),
        flags.expand(5, -1).numpy(),
        [flags.numpy(), chosen, tuple(chosen), torch.tensor(chosen), set_of(chosen)],
        torch.tensor(chosen).expand(5, -1),
    ]
    for form in forms:
        again = substitution_sensitivity(X, E, W, candidates=form, **options)
        same(again, first, 1e-12)
    span = substitution_sensitivity(X, E, W, candidates=range(3, 40, 5), **options)
    assert span.table[0].isfinite().nonzero().flatten().tolist() == [*range(3, 40, 5)]


def set_of(values):
    return sorted(set(values))


@all_backends
@both_ends
@dtypes
def test_candidates_of_each_position(backend, largest, dtype):
    X, E, W = problem(dtype=dtype)
    allowed = torch.rand(5, 40) < 0.3
    allowed[2] = False
    allowed[:, :6] = False  # rows that no position may take
    assert bool(allowed[[0, 1, 3, 4]].any(1).all())
    table = changes(X, W, E).masked_fill(~allowed, math.nan)
    for budget in (2**12, 2**28):
        options = {"largest": largest, "backend": backend, "memory_budget": budget}
        result = substitution_sensitivity(X, E, W, candidates=allowed, full=True, **options)
        matches(result, table, largest)
        assert torch.equal(result.table.isnan(), ~allowed)
        assert torch.equal(result.grid_value.isnan(), ~allowed[:, result.grid_candidate])
        plain = substitution_sensitivity(X, E, W, candidates=allowed, **options)
        matches(plain, table, largest)
        listed = [row.nonzero().flatten().tolist() for row in allowed]
        same(substitution_sensitivity(X, E, W, candidates=listed, **options), plain, 1e-12)


@all_backends
@both_ends
def test_positions(backend, largest):
    X, E, W = problem()
    table = changes(X, W, E)
    table[[0, 2, 3]] = math.nan
    for positions in ([4, 1], (1, 4, 1), torch.tensor([1, 4]), np.array([4, 1]), range(1, 5, 3)):
        result = substitution_sensitivity(
            X, E, W, positions=positions, largest=largest, full=True, backend=backend
        )
        matches(result, table, largest)
        assert torch.equal(result.table.isnan(), table.isnan())


@all_backends
def test_mask_positions_and_candidates_together(backend):
    X, E, W = problem(7)
    mask = torch.tensor([True, False, True, True, True, False, True])
    allowed = torch.rand(7, 40) < 0.5
    table = torch.full((7, 40), math.nan, dtype=torch.float64)
    table[mask] = changes(X[mask], W, E)
    table[[1, 2, 5]] = math.nan
    table = table.masked_fill(~allowed, math.nan)
    result = substitution_sensitivity(
        X, E, W, mask=mask, positions=[0, 1, 3, 4, 6], candidates=allowed, backend=backend
    )
    matches(result, table)


@all_backends
@dtypes
def test_one_pair_has_one_number(backend, dtype):
    X, E, W = problem(dtype=dtype)
    result = substitution_sensitivity(X, E, W, top_k=7, backend=backend)
    column = {v: k for k, v in enumerate(result.grid_candidate.tolist())}
    columns = [column[v] for v in result.top_candidate.tolist()]
    assert torch.equal(result.grid_value[result.top_position, columns], result.top_value)
    columns = [column[v] for v in result.best_candidate.tolist()]
    assert torch.equal(result.grid_value[torch.arange(5), columns], result.best_value)


@all_backends
@both_ends
@dtypes
def test_eight_candidates_where_one_is_the_best_everywhere(backend, largest, dtype, monkeypatch):
    """The next best are exactly the next best, tile by tile, whatever else is dropped."""
    monkeypatch.setattr(searching, "_COLUMNS", 16)
    X, E, W = problem(9, 5, 90, dtype=dtype)
    E = E * torch.linspace(0.5, 1, 90, dtype=dtype)[:, None]
    if largest:
        E[33] = 40 * E[34]
    else:  # close to every word, as words go
        X = X[:1] + 1e-3 * X
        E[33] = X[0]
    table = changes(X, W, E)
    for k, budget in ((1, 2**28), (3, 2**12)):
        result = substitution_sensitivity(
            X, E, W, top_k=k, largest=largest, backend=backend, memory_budget=budget
        )
        assert result.best_candidate.tolist() == [33] * 9
        matches(result, table, largest)
        assert result.grid_value.shape == (9, 8)


def test_no_more_candidates_than_a_picture_has_room_for():
    X, E, W = problem(70, 4, 90)
    E = torch.cat([X, E])  # every position has a smallest change of its own
    for k, most in ((3, 60), (65, 65)):
        result = substitution_sensitivity(X, E, W, top_k=k, largest=False)
        assert len(set(result.best_candidate.tolist())) == 70
        assert result.grid_candidate.tolist() == list(range(most))


@all_backends
@both_ends
@weight_fns
def test_all_values_tile_by_tile(backend, largest, weight_fn, normalize, monkeypatch):
    """Small changes, after the first tile has shown large ones; and the search without them."""
    monkeypatch.setattr(searching, "_COLUMNS", 32)
    X, E, W = problem(6, 5, 100, dtype=torch.float32)
    E = E * torch.linspace(2, 0.1, 100)[:, None]
    expected = changes(X, W, E, weight_fn, normalize)
    options = {"weight_fn": weight_fn, "normalize": normalize, "backend": backend}
    result = substitution_sensitivity(X, E, W, largest=largest, full=True, **options)
    assert error(result.table, expected) <= 1e-4
    matches(result, expected, largest)
    matches(substitution_sensitivity(X, E, W, largest=largest, **options), expected, largest)


@all_backends
def test_as_many_as_there_are(backend):
    X, E, W = problem(2, 3, 4)
    result = substitution_sensitivity(X, E, W, top_k=8, backend=backend)
    matches(result, changes(X, W, E))
    assert len(set(pairs(result))) == 8
    one = substitution_sensitivity(X[:1], E[:1], W, top_k=1, full=True, backend=backend)
    assert pairs(one) == [(0, 0)]
    assert one.table.shape == one.grid_value.shape == (1, 1)


# -- axes -----------------------------------------------------------------------------------------


@pytest.mark.deep
@all_backends
@weight_fns
@pytest.mark.parametrize("kind", ["batch", "list"])
def test_texts_and_draws_are_single_runs(backend, weight_fn, normalize, kind):
    texts = [problem(n, 4, 30, 7 + n)[0] for n in (3, 6, 1)]
    E = problem(1, 4, 30, 3)[1]
    W = random_weights(4, draws=2, seed=5, dtype=torch.float64) + 2 * torch.eye(4)
    allowed = torch.rand(6, 30) < 0.6
    options = {"weight_fn": weight_fn, "normalize": normalize, "backend": backend, "top_k": 4}
    options["full"] = True
    for candidates in (None, range(0, 30, 2), allowed):
        if kind == "list":
            result = substitution_sensitivity(texts, E, W, candidates=candidates, **options)
            mask = None
        else:
            padded = torch.full((3, 6, 4), 7.0, dtype=torch.float64)
            mask = torch.zeros(3, 6, dtype=torch.bool)
            for b, text in enumerate(texts):
                padded[b, : len(text)], mask[b, : len(text)] = text, True
            result = substitution_sensitivity(
                padded, E, W, mask=mask, candidates=candidates, **options
            )
        assert result.axes == ("texts", "draws")
        shapes = {name: tuple(getattr(result, name).shape) for name in (*ARRAYS, "table")}
        assert shapes == {
            "value": (3, 2),
            "best_candidate": (3, 2, 6),
            "best_value": (3, 2, 6),
            "top_position": (3, 2, 4),
            "top_candidate": (3, 2, 4),
            "top_value": (3, 2, 4),
            "table": (3, 2, 6, 30),
        }
        width = result.grid_candidate.shape[-1]
        assert 8 <= width <= 6 + 4
        assert result.grid_value.shape == (3, 2, 6, width)
        for b, text in enumerate(texts):
            n = len(text)
            own = allowed[:n] if candidates is allowed else candidates
            for r in range(2):
                one = substitution_sensitivity(text, E, W[r], candidates=own, **options)
                assert one.axes == ()
                for name in ARRAYS[3:]:
                    torch.testing.assert_close(getattr(result, name)[b, r], getattr(one, name))
                c = len(one.grid_candidate)
                assert torch.equal(result.grid_candidate[b, r, :c], one.grid_candidate)
                assert bool((result.grid_candidate[b, r, c:] == -1).all())
                grid = result.grid_value[b, r]
                torch.testing.assert_close(grid[:n, :c], one.grid_value, equal_nan=True)
                assert bool(grid[n:].isnan().all() and grid[:, c:].isnan().all())
                for name in ("best_candidate", "best_value", "table"):
                    got = getattr(result, name)[b, r]
                    expected = getattr(one, name)
                    torch.testing.assert_close(
                        got[:n], expected, rtol=1e-9, atol=1e-12, equal_nan=True
                    )
                    padding = got[n:]
                    assert bool((padding == -1).all() if got.dtype == torch.int64 else True)
                    assert bool(padding.isnan().all() if got.dtype != torch.int64 else True)


def test_axes_that_were_asked_for():
    X, E, W = problem()
    assert substitution_sensitivity(X[None], E, W).value.shape == (1,)
    assert substitution_sensitivity([X], E, W).axes == ("texts",)
    drawn = substitution_sensitivity(X, E, draws=1)
    assert (drawn.axes, drawn.value.shape) == (("draws",), (1,))
    assert substitution_sensitivity(X, E, W[None]).axes == ("draws",)


@backends
def test_draws_by_seed(backend, untouched):
    X, E, _ = problem(dtype=torch.float32)
    with untouched():
        drawn = substitution_sensitivity(X, E, draws=3, seed=4, backend=backend, full=True)
    W = random_weights(6, draws=3, seed=4)
    same(drawn, substitution_sensitivity(X, E, W, backend=backend, full=True))
    one = substitution_sensitivity(X, E, seed=4, backend=backend, full=True)
    same(one, substitution_sensitivity(X, E, W[0], backend=backend, full=True))
    other = substitution_sensitivity(X, E, seed=5, backend=backend, full=True)
    assert not torch.equal(other.table, one.table)
    assert one.info["seed"] == 4


@all_backends
def test_zero_features(backend):
    X, E, W = problem(3)
    texts = torch.stack([torch.zeros_like(X), X])
    with pytest.warns(RuntimeWarning, match="values are NaN for text 0:"):
        result = substitution_sensitivity(texts, E, W, full=True, backend=backend)
    assert result.value.isnan().tolist() == [True, False]
    for name in ("best_candidate", "top_position", "top_candidate"):
        assert bool((getattr(result, name)[0] == -1).all())
    for name in ("best_value", "top_value", "grid_value", "table"):
        assert bool(getattr(result, name)[0].isnan().all())
    alone = substitution_sensitivity(X, E, W, full=True, backend=backend)
    torch.testing.assert_close(result.table[1], alone.table)
    # Under every draw; texts are counted, not runs.
    with pytest.warns(RuntimeWarning, match="values are NaN for text 1:"):
        result = substitution_sensitivity(texts.flip(0), E, torch.stack([W, W, W]), backend=backend)
    assert result.value.isnan().tolist() == [[False] * 3, [True] * 3]


@all_backends
def test_no_searched_position_is_a_word_of_a_text(backend):
    texts = [problem(n, 4, 9, n)[0] for n in (2, 4)]
    _, E, W = problem(1, 4, 9)
    with pytest.warns(RuntimeWarning, match="values are NaN for text 0: .* none of the positions"):
        result = substitution_sensitivity(
            texts, E, W, positions=[3], top_k=9, full=True, backend=backend
        )
    assert result.value.isnan().tolist() == [True, False]
    assert result.table[0].isnan().all()
    assert result.top_position[0].tolist() == [-1] * 9
    assert result.top_position[1].tolist() == [3] * 9


def test_a_text_is_prepared_behind_the_first_tile_of_those_before(monkeypatch):
    """What does not depend on it is under way by then."""
    events = []

    def noted(name, function):
        def run(*given, **options):
            events.append(name)
            return function(*given, **options)

        return run

    monkeypatch.setattr(AttentionMap, "prepare", noted("prepare", AttentionMap.prepare))
    monkeypatch.setattr(Screen, "see", noted("see", Screen.see))
    monkeypatch.setattr(searching, "self_scores_of", noted("scores", searching.self_scores_of))
    monkeypatch.setattr(searching, "_COLUMNS", 20)
    X, E, W = torch.randn(2, 3, 4), torch.randn(40, 4), torch.randn(4, 4)
    substitution_sensitivity(X, E, W, backend="torch")
    assert events == ["scores", "prepare", "see", "prepare", "see", "scores", "see", "see"]
