"""The kernels of substitution at every instruction set, against the same in plain PyTorch."""

from __future__ import annotations

import math

import pytest
import torch
from definition import random_text
from parameters import dtypes, weight_fns
from studies.substitution.cases import KINDS, hard_text
from studies.substitution.kernels import agree, own_scores, state_of

from wsfast.engines import substitution_kernels as native
from wsfast.engines.substitution_kernels import NativeTiles, Workspace

pytestmark = pytest.mark.needs("native")

CPU = torch.device("cpu")
LANES = {torch.float32: 16, torch.float64: 8}

# -- every size -----------------------------------------------------------------------------------


@weight_fns
@dtypes
def test_sizes(kernels, weight_fn, normalize, dtype):
    """Words and candidates around the width of a vector or warp, of a group of rows, of a block."""
    lanes, workspace, dominated = LANES[dtype], Workspace(CPU), 0
    few = (1, 2, lanes - 1, lanes, lanes + 1, 2 * lanes + 1, 65)
    many = (*range(1, 2 * lanes + 2), 63, 64, 65, 128, 129)
    for n in (1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 32, 33):
        X, W = random_text(n, 5, n)
        W = W + torch.eye(5)
        X[n // 2] *= 2
        state = state_of(X, W, weight_fn, normalize, dtype)
        dominated += len(state.dominated_row)
        for count in many if n == 3 else few:
            E = random_text(count, 5, 100 + count)[0]
            agree(state, E, own_scores(E, W), workspace)
    assert (dominated > 5) == normalize


@pytest.mark.deep
@weight_fns
@dtypes
def test_larger_texts(kernels, weight_fn, normalize, dtype):
    """More words than CUDA's chunk of rows, at some positions; every width of words."""
    for n, d in [(64, 1), (129, 8), (300, 3), (65, 64), (33, 96), (5, 384), (3, 768), (2, 1024)]:
        index = range(n) if n < 70 else (0, 1, n // 2, n - 2, n - 1)
        X, W = random_text(n, d, n)
        X[n // 2] *= 2
        E = random_text(70, d, 100 + d)[0]
        state = state_of(X, W + torch.eye(d), weight_fn, normalize, dtype, [*index])
        agree(state, E, own_scores(E, W + torch.eye(d)), Workspace(CPU))


@weight_fns
@dtypes
def test_positions(kernels, weight_fn, normalize, dtype):
    """Some positions alone, in any number; memory that an earlier tile has filled."""
    X, W = random_text(65, 5, 3)
    X[4] *= 3
    E = random_text(90, 5, 8)[0]
    workspace = Workspace(CPU)
    for index in ([0], [64], [4], [40, 2, 33], [0, 2, 3, 4, 5, 8], range(3, 36), range(65)):
        state = state_of(X, W, weight_fn, normalize, dtype, [*index])
        for part in E.split(8 if len(index) < 7 else 70):
            agree(state, part, own_scores(part, W), workspace, columns=200)
    # More positions than words that attend to them in a group, and one dimension.
    X, W = random_text(6, 1, 1)
    E = torch.linspace(-2, 2, 9, dtype=torch.float64)[:, None]
    state = state_of(X, W, weight_fn, normalize, dtype)
    agree(state, E, own_scores(E, W), workspace)


@weight_fns
@dtypes
@pytest.mark.parametrize("kind", KINDS)
def test_hard_texts(kernels, weight_fn, normalize, dtype, kind):
    X, W, E, _ = hard_text(kind, weight_fn, normalize)
    E = torch.cat([E, -E, 2 * E, E.flip(0), E, E, E, E])
    agree(
        state_of(X, W, weight_fn, normalize, dtype),
        E,
        own_scores(E, W),
        Workspace(CPU),
    )


@weight_fns
@dtypes
def test_layout_of_candidates(kernels, weight_fn, normalize, dtype):
    X, W = random_text(4, 3, 3, dtype)
    E = random_text(10, 3, 4, dtype)[0]
    state = state_of(X, W, weight_fn, normalize, dtype)
    tiles = NativeTiles(state, 10, Workspace(CPU))
    own = own_scores(E, W)
    expected = [x.clone() for x in tiles.squares(E, own)]
    before = E.clone()
    for rows in (E.t().contiguous().t(), torch.stack([E, -E], 1)[:, 0]):
        got = tiles.squares(rows, own)
        assert all(map(torch.equal, got, expected))
    assert torch.equal(E, before)


# -- threads, thresholds --------------------------------------------------------------------------


@weight_fns
@dtypes
def test_thread_count_changes_no_bit(weight_fn, normalize, dtype, monkeypatch):
    """The kernels split candidates; the products in between keep to one thread here."""
    X, W = random_text(33, 12, 5, dtype)
    E = random_text(700, 12, 6, dtype)[0]
    state = state_of(X, W, weight_fn, normalize, dtype)
    results = []
    for threads in (1, 2, 3, 8):
        monkeypatch.setattr(native.torch, "get_num_threads", lambda threads=threads: threads)
        squares = NativeTiles(state, 700, Workspace(CPU)).squares(E, own_scores(E, W))
        results.append([x.clone() for x in squares])
    monkeypatch.undo()
    for result in results[1:]:
        assert all(map(torch.equal, result, results[0]))


@weight_fns
@dtypes
def test_threshold(kernels, weight_fn, normalize, dtype):
    """What may reach it is computed in full, in whole blocks; the rest stays below it."""
    X, W = random_text(13, 6, 7, dtype)
    E = random_text(300, 6, 8, dtype)[0] * torch.linspace(0.05, 2, 300, dtype=dtype)[:, None]
    state = state_of(X, W, weight_fn, normalize, dtype)
    tiles, own = NativeTiles(state, 300, Workspace(CPU)), own_scores(E, W)
    plain = [x.clone() for x in tiles.squares(E, own)]
    norms = plain[0].clamp(min=0).double().sqrt()
    for lowest in (-torch.inf, 0.0):
        threshold = torch.full((13,), lowest, dtype=torch.float64)
        assert all(map(torch.equal, tiles.squares(E, own, threshold), plain))
    changed, block = 0, 64 if kernels == "cuda" else LANES[dtype]
    for share in (0.3, 0.7, 0.95):
        threshold = share * norms.amax(1)
        value, size, norm_error2 = tiles.squares(E, own, threshold)
        assert torch.equal(size, plain[1])
        assert torch.equal(norm_error2, plain[2])
        other = value != plain[0]
        changed += int(other.sum())
        assert bool((value.double().clamp(min=0).sqrt() < threshold[:, None])[other].all())
        assert bool((norms < threshold[:, None] * (1 + 1e-5))[other].all())
        for part in other.split(block, 1):
            assert bool((part.all(1) | ~part.any(1)).all())
    assert changed > 50
    highest = torch.full((13,), 1e15, dtype=torch.float64)
    assert not bool((tiles.squares(E, own, highest).value > plain[0]).any())


def test_threshold_allows_for_rounding(kernels):
    """Nearly nothing but the row of the candidate itself changes, whose bound is then known."""
    X = torch.tensor([[9.93, 1.0], [10.0, 0.0], [-10.0, 0.0]])
    W = torch.tensor([[10 * math.sqrt(2), 0.0], [0.0, 100.0]])
    E = torch.tensor([[9.93, -1.0]]).expand(16, -1).contiguous()
    state = state_of(X, W, "softmax", True, torch.float32, [0])
    tiles, own = NativeTiles(state, 16, Workspace(CPU)), own_scores(E, W)
    value, size, norm_error2 = (float(x.flatten()[0]) for x in tiles.squares(E, own))
    slack = 2 * state.product_error * (size + float(state.constant))
    high = math.sqrt(value + slack) + math.sqrt(norm_error2)
    # Either part of the error is larger than what the comparison itself is given.
    assert slack > 3e-4 * value
    assert norm_error2 > 1e-6 * value
    left_out = set()
    for factor in torch.linspace(0.99, 1.1, 800).tolist():
        threshold = factor * math.sqrt(value)
        written = tiles.squares(E, own, torch.tensor([threshold], dtype=torch.float64)).value
        if float(written[0, 0]) != value:
            assert high < threshold * (1 + 2e-6)
            left_out.add(threshold)
    assert left_out
    # And no more than needed.
    assert min(left_out) < 1.01 * high
