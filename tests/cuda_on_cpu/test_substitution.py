"""What CUDA's kernels of substitution do beyond tests/native: bounds, thresholds, contenders."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from definition import random_text
from parameters import dtypes, weight_fns
from studies.substitution.kernels import own_scores, state_of

from wsfast.attention.substitution import Squares
from wsfast.engines.substitution_kernels import ContenderList, NativeTiles, Workspace

pytestmark = [
    pytest.mark.deep,
    pytest.mark.needs("cuda_on_cpu"),
    pytest.mark.usefixtures("cuda_on_cpu"),
]

CPU = torch.device("cpu")
BLOCK = 64  # candidates that are kept or left out together
# What the kernels take off their bounds to cover the rounding of the bounds themselves.
MARGIN = {torch.float32: 4e-6, torch.float64: 4e-14}


def text(n, d, weight_fn, normalize, dtype):
    """The state of a text, one word of which draws much attention, and its W."""
    X, W = random_text(n, d, n)
    W = W + torch.eye(d)
    X[n // 2] *= 2
    return state_of(X, W, weight_fn, normalize, dtype), W


def squares(state, E, W):
    """Of a tile alone."""
    E = E.to(state.stack.dtype)
    return NativeTiles(state, len(E), Workspace(CPU)).squares(E, own_scores(E, W.to(E.dtype)))


def products_one_by_one(left, right, out):
    """A matrix product each number of which is rounded alike, wherever it stands."""
    return out.copy_((left[:, None] * right.mT.contiguous()).sum(-1))


def at_some(state, at):
    """The same numbers, at some of all positions."""
    pairs = [(state.dominated_position == p).nonzero()[:, 0] for p in at]
    counts = torch.tensor([0, *map(len, pairs)])
    of_position = ("index", "a", "b", "cross", "removal2", "constant", "removed_norm")
    of_pair = ("dominated_row", "dominated")
    return replace(
        state,
        **{name: getattr(state, name)[at] for name in of_position},
        **{name: getattr(state, name)[torch.cat(pairs)] for name in of_pair},
        dominated_start=counts.cumsum(0),
        mean_rows=torch.cat([state.mean_rows[: state.n], state.mean_rows[state.n + at]]),
    )


@weight_fns
@dtypes
def test_a_pair_does_not_depend_on_others(monkeypatch, weight_fn, normalize, dtype):
    """Not a bit of it on the candidates and positions beside it."""
    monkeypatch.setattr(torch, "mm", products_one_by_one)
    E = random_text(130, 5, 8)[0]
    state, W = text(37, 5, weight_fn, normalize, dtype)
    rows = E.to(dtype)
    tiles = NativeTiles(state, 130, Workspace(CPU))
    whole = [x.clone() for x in tiles.squares(rows, own_scores(rows, W.to(dtype)))]
    moved = torch.randperm(130)
    rows = rows[moved]
    again = tiles.squares(rows, own_scores(rows, W.to(dtype)))
    assert torch.equal(again.value, whole[0][:, moved])
    assert torch.equal(again.size, whole[1][moved])
    at = torch.tensor([36, 5, 18, 0, 17])
    got = squares(at_some(state, at), E, W)
    assert torch.equal(got.value, whole[0][at])


@dtypes
def test_order_of_threads(monkeypatch, dtype):
    E = random_text(130, 5, 8)[0]
    results = []
    for order in ("up", "down", "random", "warp"):
        monkeypatch.setenv("CUDA_ON_CPU_ORDER", order)
        state, W = text(37, 5, "softmax", True, dtype)
        results.append(squares(state, E, W))
    for result in results[1:]:
        assert all(map(torch.equal, result, results[0]))


def bounds(state, found: Squares):
    """Of the norms (P, m), in float64."""
    size, norm_error = found.size.double(), found.norm_error2.double().sqrt()
    slack = 2 * state.product_error * (size + state.constant.double()[:, None])
    value = found.value.double()
    low = (value - slack).clamp(min=0).sqrt() - norm_error
    return low, (value + slack).clamp(min=0).sqrt() + norm_error


def screened(state, E, W, allowed, into, number=None):
    """A tile alone that is screened, in memory of its own."""
    tiles = NativeTiles(state, len(E), Workspace(CPU))
    number = torch.arange(len(E)) if number is None else number
    return tiles.screen(E, own_scores(E, W.to(E.dtype)), number, allowed, into)


@weight_fns
@dtypes
@pytest.mark.parametrize("choice", [False, True])
def test_bounds_of_blocks(weight_fn, normalize, dtype, choice):
    """The largest lower bounds of blocks; of those admitted, where not all are."""
    state, W = text(37, 6, weight_fn, normalize, dtype)
    k, leaders = 3, 2
    into = ContenderList(37, k, leaders, 37 * 200, 1e12, state.full)
    wanted = torch.zeros(37, 0, dtype=torch.float64)
    for count in (1, 64, 130):
        E = random_text(count, 6, count)[0].to(dtype)
        allowed = (torch.rand(37, count) > 0.5).to(torch.uint8) if choice else None
        if choice:
            allowed[3] = 0
        low, high = bounds(state, screened(state, E, W, allowed, into))
        if choice:
            low = low.masked_fill(allowed == 0, 0)
        blocks = [part.amax(1).clamp(min=0) for part in low.split(BLOCK, 1)]
        wanted = torch.cat([wanted, torch.stack(blocks, 1)], 1)
        limit = MARGIN[dtype] * float(high.max())
        of_candidates = wanted.amax(0)
        for got, exact in (
            (into.surest, wanted.amax(1)),
            (into.of_blocks[: len(of_candidates)], of_candidates),
        ):
            assert bool((got.double() <= exact).all())
            assert bool((got.double() >= exact - limit).all())
        assert not bool(into.of_blocks[len(of_candidates) :].any())
        assert not choice or float(into.surest[3]) == 0
        # Each pair of a position and a block is in one slot, and few of them share it.
        sums = into.of_pairs.sort(descending=True).values
        exact = wanted.flatten().sort(descending=True).values
        assert bool((sums[: len(exact)].double() <= exact[: len(sums)]).all())
        assert int((sums > 0).sum()) >= 0.5 * min(len(sums), int((exact > limit).sum()))
        # The thresholds that follow.
        of_all = min(sums[k - 1], into.of_blocks.topk(leaders).values[-1])
        expected = into.surest.clamp(max=of_all) * (1 - 1e-6)
        torch.testing.assert_close(into.threshold, expected, rtol=3e-7, atol=0)
    assert into.blocks == 5


@dtypes
@pytest.mark.parametrize("k", [1, 64, 65, 100, 1000])
def test_the_kth_of_all(dtype, k):
    """However many pairs are wanted: what so many slots reach, 0 where fewer do."""
    state, W = text(37, 6, "softmax", True, dtype)
    into = ContenderList(37, k, 1, 37 * 600, 1e12, state.full)
    slots = len(into.of_pairs)
    assert slots >= max(256, 4 * k)
    for seed in range(2):
        screened(state, random_text(600, 6, seed)[0].to(dtype), W, None, into)
    of_all = min(into.of_pairs.topk(k).values[-1], into.of_blocks.max())
    assert (float(of_all) > 0) == (k < 700)
    expected = into.surest.clamp(max=of_all) * (1 - 1e-6)
    torch.testing.assert_close(into.threshold, expected, rtol=3e-7, atol=0)


@dtypes
def test_sizes_beyond_the_limit_leave_no_room(dtype):
    state, W = text(5, 6, "softmax", True, dtype)
    E = random_text(70, 6, 8)[0].to(dtype)
    for value in (1e9, math.inf, math.nan):
        E[66, 2] = value
        into = ContenderList(5, 1, 1, 5 * 70, 1e12, state.full)
        screened(state, E, W, None, into)
        assert int(into.count) > 5 * 70


@weight_fns
@dtypes
@pytest.mark.parametrize("choice", [False, True])
def test_pairs_that_may_reach_a_threshold(weight_fn, normalize, dtype, choice):
    state, W = text(37, 6, weight_fn, normalize, dtype)
    E = random_text(90, 6, 8)[0].to(dtype)
    low, high = bounds(state, squares(state, E, W))
    allowed = (torch.rand(37, 90) > 0.5).to(torch.uint8) if choice else None
    admitted = torch.ones(37, 90, dtype=torch.bool) if allowed is None else allowed > 0
    number = torch.randperm(1000)[:90]
    place = {int(v): c for c, v in enumerate(number)}
    for room in (0, 7, 37 * 90):
        into = ContenderList(37, 5, 1, room, 1e12, state.full)
        into.position.fill_(-1)
        screened(state, E, W, allowed, into, number)
        # Those that reach it, and those that rounding may bring there: 1e-6 of what was asked for.
        threshold = into.threshold.double()[:, None]
        must = admitted & (high >= threshold)
        may = admitted & (high >= threshold * (1 - 1e-5))
        count = int(into.count)
        assert 0 < int(must.sum()) <= count <= int(may.sum()) < int(admitted.sum())
        held = min(count, room)
        assert bool((into.position[held:] == -1).all())
        p = into.position[:held]
        c = torch.tensor([place[int(v)] for v in into.candidate[:held]], dtype=torch.int64)
        taken = torch.zeros(37, 90, dtype=torch.int64)
        taken.index_put_((p, c), torch.ones(held, dtype=torch.int64), accumulate=True)
        assert int(taken.max()) <= 1
        assert not bool((taken.bool() & ~may).any())
        if held == count:
            assert not bool((must & (taken == 0)).any())
        got_low, got_high = into.low[:held].double(), into.high[:held].double()
        assert bool((got_low <= low[p, c]).all())
        assert bool((got_low >= low[p, c] - MARGIN[dtype] * high[p, c]).all())
        assert bool((got_high >= high[p, c]).all())
        assert bool((got_high <= high[p, c] * (1 + MARGIN[dtype])).all())
        # The next tile goes on where this one ended.
        if room > 2 * count:
            screened(state, E, W, allowed, into, number)
            assert int(into.count) >= count + int(must.sum()) // 2
            assert torch.equal(into.position[:held], p)
