"""The search over a vocabulary, on CUDA tensors, against every change by definition."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from cuda.waits import no_waits
from parameters import both_ends, dtypes, weight_fns
from studies.substitution.cases import KINDS, hard_text, random_case
from studies.substitution.comparing import ARRAYS, matches, same
from studies.substitution.truth import ACCURACY, changes, error

from wsfast import self_scores, substitution_sensitivity
from wsfast.studies.substitution import search as search_of
from wsfast.studies.substitution.device_screen import DeviceScreen
from wsfast.studies.substitution.screen import self_scores_of
from wsfast.studies.substitution.table import CandidateTable

SIZES = [(1, 1), (1, 4), (2, 3), (4, 8), (5, 17), (9, 6)]


def moved(result, device):
    """The result with its arrays on another device."""
    arrays = {
        name: getattr(result, name).to(device)
        for name in (*ARRAYS, "grid_candidate", "grid_value", "table")
        if getattr(result, name) is not None
    }
    return dataclasses.replace(result, **arrays)


def search(X, E, W, device, dtype, **options):
    """On the device; the result on the CPU."""
    X, E, W = (array.to(device, dtype) for array in (X, E, W))
    result = substitution_sensitivity(X, E, W, backend="native", **options)
    for name in ARRAYS:
        assert getattr(result, name).device == X.device
    return moved(result, "cpu")


@weight_fns
@dtypes
@both_ends
def test_sizes(device, weight_fn, normalize, dtype, largest):
    for n, d in SIZES:
        X, W, E, truth = random_case(n, d, weight_fn, normalize)
        options = {"weight_fn": weight_fn, "normalize": normalize, "largest": largest}
        result = search(X, E, W, device, dtype, top_k=7, **options)
        matches(result, truth, largest)


@weight_fns
@dtypes
@pytest.mark.parametrize("kind", KINDS)
def test_hard_texts(device, weight_fn, normalize, dtype, kind):
    X, W, E, truth = hard_text(kind, weight_fn, normalize)
    options = {"weight_fn": weight_fn, "normalize": normalize}
    matches(search(X, E, W, device, dtype, top_k=5, **options), truth)
    table = search(X, E, W, device, dtype, full=True, **options).table
    assert error(table, truth) <= ACCURACY[dtype]


@weight_fns
@dtypes
def test_several_tiles(device, weight_fn, normalize, dtype):
    """Candidates that do not fill the last block; scores kept from before."""
    X, W, _, _ = random_case(9, 6, weight_fn, normalize)
    E = torch.randn(300, 6, dtype=torch.float64).float().double()
    truth = changes(X, W, E, weight_fn, normalize)
    options = {"weight_fn": weight_fn, "normalize": normalize, "top_k": 9}
    once = search(X, E, W, device, dtype, **options)
    matches(once, truth)
    # So few bytes make many small tiles.
    matches(search(X, E, W, device, dtype, memory_budget=2**15, **options), truth)
    kept = self_scores(E.to(device, dtype), W.to(device, dtype))
    same(search(X, E, W, device, dtype, self_scores=kept, **options), once, rtol=1e-6)


@weight_fns
@dtypes
def test_more_words_than_a_block_holds_at_a_time(device, weight_fn, normalize, dtype):
    X, W, E = torch.randn(70, 5), torch.randn(5, 5) + torch.eye(5), torch.randn(67, 5)
    X[40] *= 4
    truth = changes(X, W, E, weight_fn, normalize)
    options = {"weight_fn": weight_fn, "normalize": normalize}
    matches(search(X, E, W, device, dtype, **options), truth)
    table = search(X, E, W, device, dtype, full=True, **options).table
    assert error(table, truth) <= ACCURACY[dtype]


@dtypes
def test_self_scores(device, dtype):
    E, W = torch.randn(70, 12, dtype=dtype), torch.randn(2, 12, 12, dtype=dtype)
    got = self_scores(E.to(device), W.to(device))
    assert got.device == torch.empty(0, device=device).device
    rows, weights = E.double(), W.double()
    expected = torch.einsum("vd,rde,ve->rv", rows, weights, rows) / 12**0.5
    size = float(expected.abs().max())
    limit = {torch.float32: 1e-5, torch.float64: 1e-13}[dtype]
    assert float((got.cpu().double() - expected).abs().max()) <= limit * size


@pytest.mark.needs("native")
@dtypes
def test_batch_draws_masks_and_choices(device, on_cpu, dtype):
    """As on the CPU: texts, draws, masked words, and candidates of each position."""
    X = torch.randn(2, 6, 5, dtype=dtype)
    E, W = torch.randn(40, 5, dtype=dtype), torch.randn(2, 5, 5, dtype=dtype)
    mask = torch.ones(2, 6, dtype=torch.bool)
    mask[1, 4:] = False
    choice = torch.rand(6, 40) > 0.5
    for options in (
        {"mask": mask, "positions": [0, 3, 5]},
        {"candidates": [1, 2, 39]},
        {"candidates": choice, "top_k": 3},
    ):
        there = {k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in options.items()}
        got = substitution_sensitivity(
            X.to(device), E.to(device), W.to(device), **there, backend="native"
        )
        expected = on_cpu(substitution_sensitivity, X, E, W, **options)
        same(moved(got, "cpu"), expected, rtol=1e-6)


@dtypes
@pytest.mark.parametrize("choice", ["all", "some", "mask", "own"])
def test_no_tile_waits_for_the_device(monkeypatch, device, dtype, choice):
    """Neither what reads the vocabulary nor what looks at it."""
    seen = []

    def without_waits(function):
        def run(*given):
            seen.append(function)
            with no_waits(device):
                return function(*given)

        return run

    def tiles(table, rows):
        of_table = read(table, rows)
        return iter(without_waits(lambda: next(of_table, None)), None)

    read = CandidateTable.tiles
    monkeypatch.setattr(CandidateTable, "tiles", tiles)
    monkeypatch.setattr(DeviceScreen, "see", without_waits(DeviceScreen.see))
    monkeypatch.setattr(search_of, "self_scores_of", without_waits(self_scores_of))
    monkeypatch.setattr(search_of, "_columns", lambda *given: 96)
    X, E = torch.randn(2, 7, 6, dtype=dtype), torch.randn(400, 6, dtype=dtype)
    W = torch.randn(2, 6, 6, dtype=dtype)
    options = {
        "all": {},
        "some": {"candidates": [*range(3, 400, 2)], "top_k": 40},
        "mask": {"candidates": torch.rand(7, 400, device=device) > 0.5},
        "own": {"own": [*range(7)]},
    }[choice]
    X = X[0] if choice == "own" else X
    substitution_sensitivity(X.to(device), E.to(device), W.to(device), backend="native", **options)
    assert len(seen) >= 3 * (1 + 2 + 2)  # tiles, their scores under two W, at least two searches


@pytest.mark.needs("cuda", "native")
def test_a_vocabulary(device, on_cpu):
    """A text of 128 words and thousands of candidates, as on the CPU."""
    X, W, E = torch.randn(128, 384), torch.randn(384, 384) / 384**0.5, torch.randn(5000, 384)
    got = substitution_sensitivity(X.to(device), E.to(device), W.to(device))
    same(moved(got, "cpu"), on_cpu(substitution_sensitivity, X, E, W), rtol=1e-6)
