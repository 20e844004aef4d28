"""The vocabulary in any form, its scores with itself, and what must change nothing."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from parameters import all_backends, backends, both_ends, dtypes, weight_fns
from studies.substitution.cases import problem
from studies.substitution.comparing import ARRAYS, same

import wsfast
from wsfast import self_scores, substitution_sensitivity
from wsfast.studies.substitution import search as searching
from wsfast.studies.substitution.table import CandidateTable

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
    for name in (*ARRAYS, "grid_candidate", "grid_value", "table"):
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


# -- words that are rows themselves ---------------------------------------------------------------


@backends
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("kind", ["all", "rows", "mask", "each"])
def test_own_rows_are_those_that_a_mask_leaves_out(backend, largest, kind):
    _, E, W = problem(dtype=torch.float32)
    own = [3, 8, 3, -1, 11]
    X = E[own].clone()
    chosen = torch.rand(40, generator=torch.Generator().manual_seed(0)) < 0.7
    chosen[3] = True
    allowed = torch.ones_like(chosen) if kind == "all" else chosen
    candidates = {
        "all": None,
        "rows": chosen.nonzero()[:, 0],
        "mask": chosen,
        "each": chosen.expand(5, 40),
    }
    mask = allowed.repeat(5, 1)
    mask[[0, 1, 2, 4], [3, 8, 3, 11]] = False
    options = {"top_k": 12, "largest": largest, "full": not largest, "backend": backend}
    expected = substitution_sensitivity(X, E, W, candidates=mask, **options)
    found = substitution_sensitivity(X, E, W, candidates=candidates[kind], own=own, **options)
    same(found, expected, 0)
    pairs = int(mask.sum())
    with pytest.raises(ValueError, match=f"pairs .* {pairs}, got {pairs + 1}"):
        substitution_sensitivity(X, E, W, candidates=candidates[kind], own=own, top_k=pairs + 1)


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


@pytest.mark.deep
@backends
@weight_fns
@both_ends
@dtypes
def test_memory_budget_changes_nothing(backend, weight_fn, normalize, largest, dtype):
    X, E, W = problem(4, 6, 12, dtype=dtype)
    X[3] = X[1]
    E = torch.cat([E, E[:4], X])
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


@pytest.mark.deep
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
    # Of each of four searches the eight best candidates, to verify and then to show.
    assert sum(reads[tiles:]) <= 4 * 2 * (8 + 2)
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
    fastest = "native" if wsfast.engines.compiled.CPU.module else "torch"
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
