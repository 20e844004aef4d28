"""Screening in float32: the bounds hold, and the search would be wrong without them."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from attention.problems import attention_text
from definition import exact, exact_features, exact_norm, random_text
from parameters import backends, dtypes, weight_fns
from studies.substitution.cases import KINDS, hard_text, random_case
from studies.substitution.truth import changes, order

from wsfast import substitution_sensitivity
from wsfast.attention.weight_fn import WeightFn
from wsfast.engines.substitution_kernels import Workspace
from wsfast.maps.attention import Weights
from wsfast.maps.attention_text import AttentionText
from wsfast.studies.substitution.contenders import Contenders
from wsfast.studies.substitution.ranking import ranked
from wsfast.studies.substitution.screen import Plan, Screen, self_scores_of
from wsfast.studies.substitution.table import CandidateTable

INF = math.inf


def searcher(X, E, W, weight_fn, normalize, backend, dtype, largest=True):
    """What looks through E, with all positions, and the rows of E in the dtype of the search."""
    fn = WeightFn(weight_fn, normalize)
    text = attention_text(X.to(dtype), W.to(dtype), fn, backend, 2**26)
    index = torch.arange(len(X))
    table = CandidateTable(E.to(dtype), None, dtype, X.device)
    plan = Plan(1, largest, False, len(E))
    return Screen(text, index, None, plan, table, Workspace(X.device)), E.to(dtype)


def bounds(search, rows, W, dtype):
    """Lower and upper bounds (n, V) of ‖φ(X') - φ(X)‖ from one tile."""
    squares = search._tiling(dtype).tiles.squares(rows, self_scores_of(rows, W.to(dtype)))
    count = squares.value.shape[0]
    return [
        torch.stack(one)
        for one in zip(
            *(
                search._bounds(
                    squares.value[p], squares.size, squares.norm_error2, torch.tensor(p), dtype
                )
                for p in range(count)
            ),
            strict=True,
        )
    ]


def norm_of(X, W, *options):
    return float(exact_norm(exact_features(exact(X), exact(W), *options)))


# -- bounds ---------------------------------------------------------------------------------------


@backends
@weight_fns
@dtypes
@pytest.mark.parametrize("kind", KINDS)
def test_bounds_of_hard_texts(backend, weight_fn, normalize, dtype, kind):
    X, W, E, relative = hard_text(kind, weight_fn, normalize)
    expected = relative * norm_of(X, W, weight_fn, normalize)
    search, rows = searcher(X, E, W, weight_fn, normalize, backend, dtype)
    low, high = bounds(search, rows, W, dtype)
    assert bool((low <= expected).all())
    assert bool((high >= expected).all())
    search, rows = searcher(X, E, W, weight_fn, normalize, backend, dtype, largest=False)
    least, most = bounds(search, rows, W, dtype)
    assert bool((least <= -expected).all())
    assert bool((most >= -expected).all())


@backends
@weight_fns
@pytest.mark.parametrize("n", [1, 2, 5, 17])
def test_bounds_of_random_texts(backend, weight_fn, normalize, n):
    for d in (1, 3, 8, 20):
        X, W, E, _ = random_case(n, d, weight_fn, normalize)
        for scale in (1.0, 10.0):
            # Scores ten times as large: rows of nearly no weight among them, for ReLU.
            skewed = (scale * (W - 0.9 * torch.eye(d))).float().double()
            relative = changes(X, skewed, E, weight_fn, normalize)
            norm = norm_of(X, skewed, weight_fn, normalize)
            if norm == 0:
                continue
            search, rows = searcher(X, E, skewed, weight_fn, normalize, backend, torch.float32)
            low, high = bounds(search, rows, skewed, torch.float32)
            expected = relative * norm
            assert bool((low <= expected * (1 + 1e-12)).all()), (d, scale)
            assert bool((high >= expected * (1 - 1e-12)).all()), (d, scale)


def test_bounds_are_those_of_the_rounding_that_is_allowed_for():
    """A share of the size of all terms under the root, the error by scores beside it."""
    X, W, E, _ = random_case(5, 8, "softmax", True)
    search, _ = searcher(X, E, W, "softmax", True, "torch", torch.float64)
    _, constant, share = search._tiling(torch.float64)
    assert float(constant.min()) > 0
    size, norm_error2 = numbers(3.0, 5.0), numbers(0.0, 0.01)
    low, high = search._bounds(numbers(0.0, 4.0), size, norm_error2, at(1, 4), torch.float64)
    slack = 2 * share * (size + constant[[1, 4]])
    assert float(low[0]) == 0
    assert float(high[0]) == pytest.approx(math.sqrt(float(slack[0])), rel=1e-8)
    assert float(low[1]) == pytest.approx(math.sqrt(4 - float(slack[1])) - 0.1, rel=1e-12)
    assert float(high[1]) == pytest.approx(math.sqrt(4 + float(slack[1])) + 0.1, rel=1e-8)
    # A value that is NaN has no bounds.
    low, high = search._bounds(numbers(math.nan), size[:1], norm_error2[:1], at(0), torch.float64)
    assert (float(low), float(high)) == (-INF, INF)


@weight_fns
@pytest.mark.parametrize("d", [1, 3, 40, 300])
def test_errors_of_scores(weight_fn, normalize, d):
    """Scores in float32 are as exact as the bounds take them to be, and not much more so."""
    X, W = random_text(6, d, d)
    X = X + 0.3
    E = random_text(200, d, d + 1)[0] * torch.logspace(-2, 2, 200)[:, None] + 0.3
    X, W, E = (x.float().double() for x in (X, W, E))
    search, rows = searcher(X, E, W, weight_fn, normalize, "torch", torch.float32)
    state = search._text.substitution(torch.arange(6), torch.float32)
    exact_state = search._text.substitution(torch.arange(6), torch.float64)
    queries, keys = slice(0, 6), slice(18, 24)
    rounded, centred = rows - state.shift, E - exact_state.shift
    for got, true, bound in (
        (
            state.stack[queries] @ rounded.T,
            exact_state.stack[queries] @ centred.T,
            state.score_error * centred.norm(dim=1),
        ),
        (
            state.stack[keys] @ rounded.T + state.key_shift[:, None],
            exact_state.stack[keys] @ E.T,
            state.key_error * (centred.norm(dim=1) + state.shift_norm),
        ),
        (
            self_scores_of(rows, W.float()),
            self_scores_of(E, W),
            state.own_error * E.square().sum(1),
        ),
    ):
        wrong = (got.double() - true).abs()
        assert bool((wrong <= bound).all())
        # The worst case of d roundings, of which most take back what others add.
        assert float((wrong / bound).max()) > 1e-4


@pytest.mark.parametrize("d", [1, 2, 9, 60])
def test_bound_of_a_matrix(d):
    """Of its largest singular value, at most twice as large."""
    W = random_text(1, d, d)[1]
    one = torch.zeros(d, d, dtype=torch.float64)
    one[0, -1] = 1e-3
    for matrix in (W, 1e20 * W, W * 1e-20, torch.eye(d).double(), one, W[:1] * W[:, :1]):
        largest = float(torch.linalg.matrix_norm(matrix, 2))
        assert largest <= Weights(matrix).norm_bound <= 2.001 * largest
    assert Weights(torch.zeros(d, d)).norm_bound == 0


@backends
@pytest.mark.parametrize("weight_fn", ["softmax", "relu"])
def test_size_of_the_terms(backend, weight_fn):
    """The inner products that cancel in a row are no larger than rounding is allowed for."""
    for n in (2, 5, 17):
        X, W, E, _ = random_case(n, 8, weight_fn, True)
        search, rows = searcher(X, E, 3 * W, weight_fn, True, backend, torch.float64)
        tiles, constant, _ = search._tiling(torch.float64)
        size = tiles.squares(rows, self_scores_of(rows, 3 * W)).size
        state = search._text.substitution(torch.arange(n), torch.float64)
        centred = rows - state.shift
        score, v = state.stack[:n] @ centred.T, centred.norm(dim=1)
        # Without the row of the candidate itself.
        size = size - (v.clamp(min=state.radius) + state.phi_radius).square()
        odds = score - state.full[:, None]
        odds = odds.exp() if weight_fn == "softmax" else score.relu() / state.full[:, None]
        words = (X - state.shift).norm(dim=1)
        for i in range(n):
            plain = state.a[i] >= 0
            a, b, k = state.a[i, plain, None], state.b[i, plain, None], odds[plain]
            reach = k * (v + state.radius) + a * (words[i] + state.radius)
            terms = (reach / (k + b)).square().sum(0)
            assert bool((terms <= 2 * (size + constant[i]) * (1 + 1e-9)).all())


@backends
@weight_fns
def test_bounds_tell_something(backend, weight_fn, normalize):
    """Most pairs are bounded to a small share of their value."""
    X, W, E, relative = random_case(17, 20, weight_fn, normalize)
    expected = relative * norm_of(X, W, weight_fn, normalize)
    for dtype, share in ((torch.float32, 3e-3), (torch.float64, 1e-11)):
        search, rows = searcher(X, E, W, weight_fn, normalize, backend, dtype)
        low, high = bounds(search, rows, W, dtype)
        assert float(((expected - low) / expected).nanmedian()) < share
        # Beyond it, what ties.
        assert 1e-9 < float(((high - expected) / expected).nanmedian()) < share + 3e-9


@pytest.mark.needs("native")
@weight_fns
@dtypes
def test_what_is_surely_below_the_threshold_stays_below(weight_fn, normalize, dtype):
    """Elsewhere the threshold changes nothing; some blocks are left out."""
    left_out = 0
    for n, d, seed in ((1, 4, 0), (6, 5, 1), (18, 8, 2), (9, 3, 3)):
        X, W = random_text(n, d, seed)
        W = W + torch.eye(d)
        E = random_text(70, d, seed + 9)[0] * torch.linspace(0.3, 3, 70)[:, None]
        X, W, E = (x.float().double() for x in (X, W, E))
        true = changes(X, W, E, weight_fn, normalize) * norm_of(X, W, weight_fn, normalize)
        search, rows = searcher(X, E, W, weight_fn, normalize, "native", dtype)
        own = self_scores_of(rows, W.to(dtype))
        tiles = search._tiling(dtype).tiles
        plain = [x.clone() for x in tiles.squares(rows, own)]
        for share in (0.5, 0.9, 1.0, 1.2):
            threshold = share * true.amax(1)
            value, size, norm_error2 = tiles.squares(rows, own, threshold)
            assert torch.equal(size, plain[1])
            assert torch.equal(norm_error2, plain[2])
            changed = value != plain[0]
            left_out += int(changed.sum())
            assert bool((true < threshold[:, None])[changed].all())
            # The upper bound of what is written is below the threshold as well.
            p, c = changed.nonzero(as_tuple=True)
            _, high = search._bounds(value[p, c], size[c], norm_error2[c], p, dtype)
            assert bool((high < threshold[p]).all())
    assert left_out > 100


def close_candidates(seed):
    """All nearly word 2, and 1e-6 from each other: float32 cannot tell their changes apart."""
    X, W = random_text(5, 8, seed, torch.float32)
    E = X[2] + 3e-3 * random_text(1, 8, seed + 50)[0] + 1e-6 * random_text(400, 8, seed + 90)[0]
    return X, E.float(), W + torch.eye(8)


@pytest.mark.deep
@backends
@weight_fns
@pytest.mark.parametrize("largest", [True, False], ids=["largest", "smallest"])
def test_order_of_candidates_that_float32_cannot_tell(
    backend, weight_fn, normalize, largest, monkeypatch
):
    options = {"weight_fn": weight_fn, "normalize": normalize, "backend": backend}
    options |= {"largest": largest, "top_k": 3, "positions": [2], "memory_budget": 2**16}
    substitution = AttentionText.substitution

    def unbounded(self, index, dtype):
        """What float32 gives, taken for exact."""
        state = substitution(self, index, dtype)
        none = ("score_error", "key_error", "own_error", "score_offset", "product_error")
        return replace(state, **dict.fromkeys(none, 0.0)) if dtype == torch.float32 else state

    def found(X, E, W):
        result = substitution_sensitivity(X, E, W, **options)
        return [*zip(result.top_position.tolist(), result.top_candidate.tolist(), strict=True)]

    wrong = 0
    for seed in range(6):
        X, E, W = close_candidates(seed)
        expected = order(changes(X, W, E, weight_fn, normalize)[[2]], 3, largest=largest)
        expected = [(2, v) for _, v in expected]
        assert found(X, E, W) == expected
        with monkeypatch.context() as patch:
            patch.setattr(AttentionText, "substitution", unbounded)
            wrong += found(X, E, W) != expected
    assert wrong >= 5, "screening alone finds the order: this tests nothing"


# -- contenders -----------------------------------------------------------------------------------


def numbers(*values):
    return torch.tensor(values, dtype=torch.float64)


def at(*values):
    return torch.tensor(values, dtype=torch.int64)


def held(contenders):
    return list(zip(contenders.position.tolist(), contenders.candidate.tolist(), strict=True))


def test_contenders_start_with_nothing():
    contenders = Contenders(3, 2, 1, torch.device("cpu"))
    assert len(contenders) == 0
    assert contenders.threshold.tolist() == [-INF] * 3


def test_a_pair_is_dropped_where_it_is_surely_neither_best_of_its_position_nor_of_the_k():
    contenders = Contenders(2, 2, 1, torch.device("cpu"))
    contenders.add(at(0, 0, 1), at(5, 6, 7), numbers(1, 3, 2), numbers(2, 4, 2.5))
    # Of all, 3 and 2 are the two largest lower bounds; of position 1, 2 is the largest.
    assert contenders.threshold.tolist() == [2, 2]
    assert held(contenders) == [(0, 5), (0, 6), (1, 7)]  # 2 reaches 2: it may be as large
    contenders.add(at(1), at(8), numbers(2.6), numbers(9))
    assert contenders.threshold.tolist() == [2.6, 2.6]
    assert held(contenders) == [(0, 6), (1, 8)]
    # Best of its position, though not among the two.
    contenders = Contenders(2, 1, 1, torch.device("cpu"))
    contenders.add(at(0, 1, 1), at(5, 6, 7), numbers(8, 1, 3), numbers(9, 2, 4))
    assert contenders.threshold.tolist() == [8, 3]
    assert held(contenders) == [(0, 5), (1, 7)]


def test_contenders_of_one_position_are_as_many_as_are_asked_for():
    contenders = Contenders(1, 3, 1, torch.device("cpu"))
    for value in range(10):
        contenders.add(at(0), at(value), numbers(value - 0.25), numbers(value + 0.25))
    assert held(contenders) == [(0, 7), (0, 8), (0, 9)]
    assert contenders.threshold.tolist() == [6.75]
    contenders.add(at(0), at(10), numbers(-INF), numbers(INF))  # what is not a number
    assert held(contenders)[-1] == (0, 10)
    assert contenders.threshold.tolist() == [6.75]


def test_pairs_that_are_expected_raise_the_thresholds():
    contenders = Contenders(2, 2, 1, torch.device("cpu"))
    contenders.add(at(0, 1), at(5, 6), numbers(1, 2), numbers(3, 4))
    contenders.expect(numbers(4, -INF), numbers(4))
    # 4 and 2 are the two largest.
    assert contenders.threshold.tolist() == [2, 2]
    assert held(contenders) == [(0, 5), (1, 6)]
    contenders.add(at(0), at(7), numbers(4), numbers(5))
    assert contenders.threshold.tolist() == [2, 2]
    assert held(contenders) == [(0, 5), (1, 6), (0, 7)]
    contenders.expect(numbers(-INF, 6), numbers(6))
    assert contenders.threshold.tolist() == [4, 4]


def test_tighter_bounds_are_taken_and_looser_ones_are_not():
    contenders = Contenders(1, 1, 1, torch.device("cpu"))
    contenders.add(at(0, 0, 0), at(5, 6, 7), numbers(1, 2, 3), numbers(9, 8, 7))
    contenders.tighten(numbers(0, 4, 6), numbers(5, 10, 6.5))
    # 5 is below 6; 8, of the first bounds, is not.
    assert held(contenders) == [(0, 6), (0, 7)]
    assert contenders.threshold.tolist() == [6]
    contenders.tighten(numbers(4, 6), numbers(4, 6.5))
    assert held(contenders) == [(0, 7)]
    contenders.tighten(numbers(6.2), numbers(6.2))
    assert contenders.threshold.tolist() == [6.2]
    # Looser ones, of either side.
    contenders = Contenders(2, 2, 1, torch.device("cpu"))
    contenders.add(at(0, 1), at(5, 6), numbers(3, 4), numbers(8, 9))
    contenders.tighten(numbers(1, 2), numbers(20, 20))
    contenders.add(at(0), at(7), numbers(8.5), numbers(9))
    assert contenders.threshold.tolist() == [4, 4]
    contenders.add(at(0), at(8), numbers(8.6), numbers(9))
    assert held(contenders) == [(1, 6), (0, 7), (0, 8)]


def test_contenders_of_random_bounds():
    """Whatever the true values, those that are best are held; a simple rule in two loops."""
    for seed in range(30):
        generator = torch.Generator().manual_seed(seed)
        positions, k, leaders = 1 + seed % 4, 1 + seed % 5, 1 + seed % 6
        contenders = Contenders(positions, k, leaders, torch.device("cpu"))
        seen = []
        for _ in range(6):
            true = torch.randn(positions, 5, generator=generator).double()
            error = 0.3 * torch.rand(positions, 5, generator=generator).double()
            middle = true + error * (2 * torch.rand(positions, 5, generator=generator) - 1)
            low, high = middle - error, middle + error
            first = len(seen) // positions
            contenders.expect(low.amax(1), low.amax(0))
            p, c = torch.ones(positions, 5).nonzero(as_tuple=True)
            contenders.add(p, c + first, low[p, c], high[p, c])
            seen += [(float(true[i, v]), i, v + first) for v in range(5) for i in range(positions)]
            if seed % 3 == 0:
                values = {(i, v): value for value, i, v in seen}
                now = torch.tensor([values[pair] for pair in held(contenders)]).double()
                contenders.tighten(now - 1e-3, now + 1e-3)
        best = {(i, v) for _, i, v in sorted(seen, reverse=True)[:k]}
        best |= {max(pair for pair in seen if pair[1] == i)[1:] for i in range(positions)}
        of_candidates = {v: (value, i, v) for value, i, v in sorted(seen)}
        best |= {pair[1:] for pair in sorted(of_candidates.values(), reverse=True)[:leaders]}
        assert best <= set(held(contenders))
        assert len(contenders) < len(seen)


def test_leaders_are_held_though_another_is_better_everywhere():
    contenders = Contenders(2, 1, 3, torch.device("cpu"))
    position, candidate = at(0, 1, 0, 1, 0, 1, 0, 1), at(5, 5, 6, 6, 7, 7, 8, 8)
    low = numbers(9, 8, 2, 4, 3, 1, 2.9, 0)
    contenders.add(position, candidate, low, low + 0.05)
    assert contenders.threshold.tolist() == [3, 3]
    # 6 and 7 where they are best; 8 is not among three.
    assert held(contenders) == [(0, 5), (1, 5), (1, 6), (0, 7)]
    contenders.expect(numbers(-INF, 3.5), numbers(3.5))
    assert contenders.threshold.tolist() == [3.5, 3.5]
    contenders.add(at(1), at(9), numbers(3.5), numbers(3.6))
    assert held(contenders) == [(0, 5), (1, 5), (1, 6), (1, 9)]


# -- ranking --------------------------------------------------------------------------------------


def ranking(pairs, largest=True):
    """Places of (position, candidate, value) in order."""
    position, candidate, value = zip(*pairs, strict=True)
    return ranked(at(*position), at(*candidate), numbers(*value), largest=largest).tolist()


def test_ranking_by_value():
    pairs = [(0, 0, 2.0), (1, 0, 3.0), (0, 1, 1.0)]
    assert ranking(pairs) == [1, 0, 2]
    assert ranking(pairs, largest=False) == [2, 0, 1]
    assert ranking(pairs[:1]) == [0]


def test_ties_rank_by_position_then_candidate():
    pairs = [(1, 3, 2.0), (0, 9, 2.0), (1, 2, 2.0), (0, 1, 5.0), (3, 0, 2.0)]
    assert ranking(pairs) == [3, 1, 2, 0, 4]
    assert ranking(pairs, largest=False) == [1, 2, 0, 4, 3]


def test_values_within_a_billionth_are_tied():
    pairs = [(1, 0, 2.0), (0, 0, 2.0 * (1 - 0.9e-9)), (0, 1, 2.0 * (1 - 1.1e-9))]
    assert ranking(pairs) == [1, 0, 2]
    # Against the first of them, not in a chain.
    chain = [(9 - i, 0, 1.0 - 0.6e-9 * i) for i in range(4)]
    assert ranking(chain) == [1, 0, 3, 2]
    assert ranking(chain, largest=False) == [3, 2, 1, 0]
    # Of themselves: small values are told apart, zeros are tied.
    pairs = [(1, 0, 1e-12), (0, 0, 2e-12), (3, 0, 0.0), (2, 0, 0.0)]
    assert ranking(pairs) == [1, 0, 3, 2]
    assert ranking(pairs, largest=False) == [3, 2, 0, 1]
