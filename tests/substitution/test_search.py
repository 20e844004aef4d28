"""The search over a vocabulary: the true order, whatever is screened in float32."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from definition import WEIGHT_FNS, random_text
from substitution.truth import ACCURACY, changes, error, order

import wsfast
from wsfast import random_weights, self_scores, substitution_sensitivity
from wsfast.substitution import search as searching
from wsfast.substitution.result import SubstitutionResult
from wsfast.substitution.table import CandidateTable

BACKENDS = ["torch", pytest.param("native", marks=pytest.mark.needs("native"))]
ALL_BACKENDS = ["reference", *BACKENDS]
ARRAYS = ("value", "best_candidate", "best_value", "top_position", "top_candidate", "top_value")

weight_fns = pytest.mark.parametrize(("weight_fn", "normalize"), WEIGHT_FNS)
dtypes = pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64], ids=["float32", "float64"]
)
backends = pytest.mark.parametrize("backend", BACKENDS)
all_backends = pytest.mark.parametrize("backend", ALL_BACKENDS)
both_ends = pytest.mark.parametrize("largest", [True, False], ids=["largest", "smallest"])


def problem(n=5, d=6, count=40, seed=0, dtype=torch.float64):
    """X, E, W of which no row is without weight."""
    X, W = random_text(n, d, seed)
    E = random_text(count, d, seed + 1)[0]
    return X.to(dtype), E.to(dtype), (W + torch.eye(d)).to(dtype)


def pairs(result, *at):
    """The top pairs, in order."""
    positions, candidates = result.top_position[at], result.top_candidate[at]
    return list(zip(positions.tolist(), candidates.tolist(), strict=True))


def same(one: SubstitutionResult, two: SubstitutionResult, rtol=0.0):
    """Whether two results tell the same, their values up to `rtol`."""
    for name in (*ARRAYS, "top_at_positions", "table"):
        a, b = getattr(one, name), getattr(two, name)
        if a is None or b is None:
            assert a is b
            continue
        a, b = torch.as_tensor(a), torch.as_tensor(b)
        loose = 1e-4 if a.dtype == torch.float32 else 1e-9
        rtol_here = (rtol and loose) if name in ("top_at_positions", "table") else rtol
        torch.testing.assert_close(a, b, rtol=rtol_here, atol=1e-3 * rtol_here, equal_nan=True)


def matches(result, table, largest=True):
    """Whether a result is what its table (n, V) of true changes says; NaN was not searched."""
    table = torch.as_tensor(table)
    expected = order(table, result.top_value.shape[-1], largest=largest)
    assert pairs(result) == expected
    values = torch.stack([table[pair] for pair in expected])
    limit = 2e-7 if result.top_value.dtype == torch.float32 else 1e-9
    assert error(result.top_value, values) <= limit
    assert float(result.value) == float(result.top_value[0])
    firsts = {}
    for i, row in enumerate(table):
        for _, v in order(row[None], 1, largest=largest):
            firsts[i] = v
    assert result.best_candidate.tolist() == [firsts.get(i, -1) for i in range(len(table))]
    for i, v in firsts.items():
        assert error(result.best_value[i], table[i, v]) <= limit
    assert result.best_value.isnan().tolist() == [i not in firsts for i in range(len(table))]


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
        assert torch.equal(result.top_at_positions.isnan(), ~allowed[:, result.top_candidate])
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
        assert torch.equal(result.top_at_positions.isnan(), table[:, :10].isnan())


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
def test_top_candidates_at_every_position(backend, dtype):
    X, E, W = problem(dtype=dtype)
    result = substitution_sensitivity(X, E, W, top_k=7, backend=backend)
    assert result.top_at_positions.shape == (5, 7)
    expected = changes(X, W, E)[:, result.top_candidate]
    assert error(result.top_at_positions, expected) <= ACCURACY[dtype]
    # One pair, one number.
    here = result.top_at_positions[result.top_position, torch.arange(7)]
    assert torch.equal(here, result.top_value)


@all_backends
def test_as_many_as_there_are(backend):
    X, E, W = problem(2, 3, 4)
    result = substitution_sensitivity(X, E, W, top_k=8, backend=backend)
    matches(result, changes(X, W, E))
    assert len(set(pairs(result))) == 8
    one = substitution_sensitivity(X[:1], E[:1], W, top_k=1, full=True, backend=backend)
    assert pairs(one) == [(0, 0)]
    assert one.table.shape == one.top_at_positions.shape == (1, 1)


# -- axes -----------------------------------------------------------------------------------------


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
        assert result.top_at_positions.shape == (3, 2, 6, 4)
        for b, text in enumerate(texts):
            n = len(text)
            own = allowed[:n] if candidates is allowed else candidates
            for r in range(2):
                one = substitution_sensitivity(text, E, W[r], candidates=own, **options)
                assert one.axes == ()
                for name in ARRAYS[3:]:
                    torch.testing.assert_close(getattr(result, name)[b, r], getattr(one, name))
                for name in ("best_candidate", "best_value", "top_at_positions", "table"):
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
    for name in ("best_value", "top_value", "top_at_positions", "table"):
        assert bool(getattr(result, name)[0].isnan().all())
    alone = substitution_sensitivity(X, E, W, full=True, backend=backend)
    torch.testing.assert_close(result.table[1], alone.table)


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


# -- the vocabulary in any form -------------------------------------------------------------------


@backends
@dtypes
def test_forms_of_a_vocabulary(backend, dtype):
    X, E, W = problem(dtype=dtype)
    expected = substitution_sensitivity(X, E, W, full=True, backend=backend)
    wide = torch.full((80, 12), math.nan, dtype=dtype)
    wide[::2, ::2] = E
    forms = [
        E.t().contiguous().t(),
        wide[::2, ::2],
        E.clone().requires_grad_(),
        torch.nn.Parameter(E),
        E.flip(0).flip(0),
        E.numpy(),
        E.numpy().astype(E.numpy().dtype.newbyteorder(">")),
        np.asfortranarray(E.numpy()),
        E.flip(0).numpy()[::-1],
        E.numpy().view(Rows),
    ]
    read_only = E.numpy().copy()
    read_only.flags.writeable = False
    for form in [*forms, read_only]:
        before = form.detach().clone() if isinstance(form, torch.Tensor) else form.copy()
        result = substitution_sensitivity(X, form, W, full=True, backend=backend)
        assert isinstance(result.value, torch.Tensor)
        assert not result.value.requires_grad
        same(result, expected, 1e-5 if dtype == torch.float32 else 1e-12)
        assert bool((form == before).all())
        # A choice of rows is read another way.
        some = substitution_sensitivity(X, form, W, candidates=range(40), full=True)
        same(some, expected, 1e-5 if dtype == torch.float32 else 1e-12)


class Rows(np.ndarray):
    """A view of another class, as a reader of files may give."""


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", ">f4"])
def test_vocabulary_mapped_from_a_file(tmp_path, dtype):
    X, E, W = problem(dtype=torch.float64 if dtype == "float64" else torch.float32)
    path = tmp_path / "rows"
    E.numpy().astype(dtype).tofile(path)
    held = path.read_bytes()
    expected = substitution_sensitivity(
        X, torch.from_numpy(E.numpy().astype(dtype).astype(E.numpy().dtype)), W
    )
    for mode in ("r", "c", "r+"):
        rows = np.memmap(path, dtype=dtype, mode=mode, shape=(40, 6))
        same(substitution_sensitivity(X, rows, W), expected, 1e-6)
        same(substitution_sensitivity(X, rows, W, candidates=range(40)), expected, 1e-6)
        scores = self_scores(rows, W)
        assert isinstance(scores, np.ndarray)
        same(substitution_sensitivity(X, rows, W, self_scores=scores), expected, 1e-6)
    assert path.read_bytes() == held


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
def test_half_precision(dtype):
    X, E, W = (x.to(dtype) for x in problem())
    expected = substitution_sensitivity(X.float(), E.float(), W.float(), full=True)
    assert expected.table.dtype == torch.float32
    for texts, rows in ((X, E), (X.float(), E), (X, E.float())):
        same(substitution_sensitivity(texts, rows, W, full=True), expected)
    assert torch.equal(self_scores(E, W), self_scores(E.float(), W.float()))


def test_numpy_in_numpy_out():
    X, E, W = problem()
    expected = substitution_sensitivity(X, E, W, full=True)
    result = substitution_sensitivity(X.numpy(), E.numpy(), W.numpy(), full=True)
    for name in (*ARRAYS, "top_at_positions", "table"):
        assert isinstance(getattr(result, name), np.ndarray), name
    same(result, expected, 1e-12)
    mixed = substitution_sensitivity(X.numpy(), E, W)
    assert isinstance(mixed.value, np.ndarray)


@all_backends
@weight_fns
def test_inputs_are_not_changed(backend, weight_fn, normalize, untouched):
    X, E, W = problem(dtype=torch.float32)
    allowed, mask = torch.rand(5, 40) < 0.5, torch.ones(5, dtype=torch.bool)
    scores = self_scores(E, W)
    before = [x.clone() for x in (X, E, W, allowed, mask, scores)]
    options = {"weight_fn": weight_fn, "normalize": normalize, "backend": backend}
    with untouched():
        substitution_sensitivity(
            X, E, W, mask=mask, candidates=allowed, self_scores=scores, full=True, **options
        )
    assert all(map(torch.equal, (X, E, W, allowed, mask, scores), before))


def test_inputs_that_require_gradients():
    X, E, W = (x.requires_grad_() for x in problem())
    result = substitution_sensitivity(X, E, W, self_scores=self_scores(E, W))
    assert not result.value.requires_grad
    assert X.grad is None
    assert not self_scores(E, W).requires_grad


@backends
def test_inference_mode(backend):
    expected = substitution_sensitivity(*problem(), backend=backend)
    with torch.inference_mode():
        X, E, W = problem()
        same(substitution_sensitivity(X, E, W, backend=backend), expected)
    same(substitution_sensitivity(X, E, W, backend=backend), expected)


# -- scores of candidates with themselves ---------------------------------------------------------


@dtypes
def test_self_scores(dtype):
    _, E, W = problem(count=1500, dtype=dtype)
    scores = self_scores(E, W)
    exact = (E.double() @ W.double() @ E.double().T).diagonal() / math.sqrt(6)
    assert scores.dtype == dtype
    limit = 1e-5 if dtype == torch.float32 else 1e-13
    assert float((scores - exact).abs().max() / exact.abs().max()) < limit
    stack = torch.stack([W, 2 * W])
    both = self_scores(E, stack, memory_budget=1000)
    assert both.shape == (2, 1500)
    torch.testing.assert_close(both[0], scores, rtol=limit, atol=limit * float(exact.abs().max()))
    torch.testing.assert_close(both[1], 2 * both[0])
    assert isinstance(self_scores(E.numpy(), W), np.ndarray)
    assert self_scores(E, W[None]).shape == (1, 1500)


@all_backends
@weight_fns
@dtypes
def test_self_scores_given_change_nothing(backend, weight_fn, normalize, dtype):
    X, E, W = problem(dtype=dtype)
    options = {"weight_fn": weight_fn, "normalize": normalize, "backend": backend, "full": True}
    expected = substitution_sensitivity(X, E, W, **options)
    scores = self_scores(E, W)
    rtol = 1e-6 if dtype == torch.float32 else 1e-12
    same(substitution_sensitivity(X, E, W, self_scores=scores, **options), expected, rtol)
    given = scores.numpy()
    same(substitution_sensitivity(X, E, W, self_scores=given, **options), expected, rtol)
    some = {"candidates": [30, 2, 9], "top_k": 5}
    same(
        substitution_sensitivity(X, E, W, self_scores=scores, **options, **some),
        substitution_sensitivity(X, E, W, **options, **some),
        rtol,
    )
    stack = torch.stack([W, W.T + 0.1])
    same(
        substitution_sensitivity([X], E, stack, self_scores=self_scores(E, stack), **options),
        substitution_sensitivity([X], E, stack, **options),
        rtol,
    )


# -- what must change nothing ---------------------------------------------------------------------


@backends
@weight_fns
@dtypes
def test_same_bits_again(backend, weight_fn, normalize, dtype):
    X, E, W = problem(9, 8, 300, dtype=dtype)
    options = {"weight_fn": weight_fn, "normalize": normalize, "backend": backend, "full": True}
    first = substitution_sensitivity(X, E, W, **options)
    torch.rand(5)
    same(substitution_sensitivity(X, E, W, **options), first)


@backends
@weight_fns
@both_ends
@dtypes
def test_memory_budget_changes_nothing(backend, weight_fn, normalize, largest, dtype):
    X, E, W = problem(4, 6, 20, dtype=dtype)
    X[3] = X[1]
    E = torch.cat([E, E[:5], X])
    options = {"weight_fn": weight_fn, "normalize": normalize, "backend": backend}
    options |= {"largest": largest, "top_k": 17}
    rtol = 2e-7 if dtype == torch.float32 else 1e-12
    texts = [X, X[:3]]
    first = substitution_sensitivity(texts, E, W, **options)
    for budget in (1 if weight_fn == "softmax" else 1000, 5000):
        same(substitution_sensitivity(texts, E, W, memory_budget=budget, **options), first, rtol)
    # `full` asks for more, and finds the same.
    other = substitution_sensitivity(texts, E, W, full=True, memory_budget=5000, **options)
    for name in ARRAYS:
        got, expected = getattr(other, name), getattr(first, name)
        torch.testing.assert_close(got, expected, rtol=rtol, atol=1e-3 * rtol, equal_nan=True)


@pytest.mark.needs("native")
@weight_fns
@dtypes
def test_thread_count_changes_nothing(weight_fn, normalize, dtype, threads):
    # Large enough that the kernels split their rows.
    X, E, W = problem(40, 30, 700, 4, dtype)
    options = {"weight_fn": weight_fn, "normalize": normalize, "top_k": 50}
    results = []
    for count in (1, 2, 3):
        with threads(count):
            results.append(substitution_sensitivity(X, E, W, **options))
    for other in results[1:]:
        same(other, results[0], 2e-7 if dtype == torch.float32 else 1e-12)
    alone = substitution_sensitivity(X, E, W, backend="torch", **options)
    same(alone, results[0], 2e-7 if dtype == torch.float32 else 1e-11)


@all_backends
@weight_fns
def test_permuting_rows_of_the_vocabulary(backend, weight_fn, normalize):
    X, E, W = problem(seed=3)
    shuffled = torch.randperm(40)
    options = {"weight_fn": weight_fn, "normalize": normalize, "backend": backend}
    one = substitution_sensitivity(X, E, W, **options)
    two = substitution_sensitivity(X, E[shuffled], W, **options)
    assert torch.equal(shuffled[two.top_candidate], one.top_candidate)
    torch.testing.assert_close(two.top_value, one.top_value, rtol=1e-12, atol=0)


@pytest.mark.parametrize("chosen", [None, range(0, 500, 3)])
def test_vocabulary_is_read_once(monkeypatch, chosen):
    """For all texts and draws that are held together; then a few rows to verify."""
    reads = []
    read = CandidateTable._tensor

    def counted(self, part):
        reads.append(len(part))
        return read(self, part)

    monkeypatch.setattr(CandidateTable, "_tensor", counted)
    monkeypatch.setattr(searching, "_COLUMNS", 64)
    texts = [problem(n, 6, 500)[0] for n in (3, 5)]
    _, E, W = problem(count=500)
    size = 500 if chosen is None else len(chosen)
    substitution_sensitivity(texts, E, torch.stack([W, W.T]), candidates=chosen, top_k=1)
    tiles = -(-size // 64)
    assert sum(reads[:tiles]) == size
    assert sum(reads[tiles:]) < 0.2 * size
    # Where they are held one by one, it is read for each.
    reads.clear()
    substitution_sensitivity(texts, E, W, candidates=chosen, top_k=1, memory_budget=1)
    assert sum(reads) >= 2 * size


# -- the rest -------------------------------------------------------------------------------------


@all_backends
def test_info(backend):
    X, E, W = problem(dtype=torch.float32)
    result = substitution_sensitivity(
        X, E, weight_fn="relu", normalize=False, seed=9, backend=backend, candidates=[1, 2]
    )
    info = json.loads(json.dumps(result.info))
    expected = {
        "map": "raf",
        "weight_fn": "relu",
        "normalize": False,
        "weights": "random",
        "backend": backend,
        "candidates": 40,
        "dtype": "float32",
        "seed": 9,
    }
    assert {key: info[key] for key in expected} == expected
    assert info["versions"]["wsfast"] == wsfast.__version__
    assert substitution_sensitivity(X, E, W).info["weights"] == "given"


def test_default_backend():
    X, E, W = problem()
    fastest = "native" if wsfast._native.cpu_module() else "torch"
    assert substitution_sensitivity(X, E, W).info["backend"] == fastest


def test_progress(capfd):
    X, E, _ = problem(dtype=torch.float32)
    substitution_sensitivity(X, E)
    assert capfd.readouterr().err == ""
    substitution_sensitivity([X, X], E, draws=2, progress=True)
    captured = capfd.readouterr()
    assert "160/160" in captured.err
    assert "candidate" in captured.err
    assert captured.out == ""
