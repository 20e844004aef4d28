"""What a search over a vocabulary refuses, and in which words."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from wsfast import self_scores, substitution_sensitivity

X = torch.ones(3, 2)
E = torch.arange(10.0).reshape(5, 2) - 4
W = torch.eye(2)


def call(X=X, E=E, W=W, **other):
    return substitution_sensitivity(X, E, W, **other)


def spoilt(value: float, *rows: int, dtype=torch.float32) -> torch.Tensor:
    copy = E.to(dtype, copy=True)
    copy[list(rows), 1] = value
    return copy


TABLE = [
    # -- E
    ({"E": [[1.0, 2.0]]}, TypeError, "E must be a torch.Tensor or numpy.ndarray, got list"),
    ({"E": None}, TypeError, "E must be a torch.Tensor or numpy.ndarray, got NoneType"),
    ({"E": E.int()}, TypeError, "E must hold real floating-point numbers, got torch.int32"),
    ({"E": E > 0}, TypeError, "E must hold real floating-point numbers, got torch.bool"),
    ({"E": E + 0j}, TypeError, "E must hold real floating-point numbers, got torch.complex64"),
    ({"E": np.ones((5, 2), "i8")}, TypeError, "E must hold real .* got an array of int64"),
    ({"E": np.ones((5, 2), "O")}, TypeError, "E must hold real .* got an array of object"),
    ({"E": np.ones((5, 2), np.longdouble)}, TypeError, "E must hold real .* float128"),
    (
        {"E": np.ma.masked_equal(E.numpy(), 0)},
        TypeError,
        "E must hold real floating-point numbers, got a masked array of float32",
    ),
    ({"E": E.to_sparse()}, TypeError, "E must be a dense tensor, got layout torch.sparse_coo"),
    (
        {"E": torch.ones(5, 3)},
        ValueError,
        r"E must have shape \(V, 2\), V >= 1, for X with d = 2, got \(5, 3\)",
    ),
    ({"E": E[0]}, ValueError, r"E must have shape \(V, 2\).*got \(2,\)"),
    ({"E": E[None]}, ValueError, r"E must have shape \(V, 2\).*got \(1, 5, 2\)"),
    ({"E": E.numpy()[0]}, ValueError, r"E must have shape \(V, 2\).*got \(2,\)"),
    ({"E": E[:0]}, ValueError, r"E must have shape \(V, 2\), V >= 1.*got \(0, 2\)"),
    ({"E": E.numpy()[:0]}, ValueError, r"E must have shape \(V, 2\), V >= 1.*got \(0, 2\)"),
    (
        {"E": E.double()},
        TypeError,
        "E must have the dtype of X, torch.float32, got torch.float64",
    ),
    ({"E": E.numpy().astype("f8")}, TypeError, "E must have the dtype of X, .* got torch.float64"),
    (
        {"X": X.double(), "W": W.double(), "E": E.half()},
        TypeError,
        "E must have the dtype of X, torch.float64, got torch.float16",
    ),
    ({"E": E.to("meta")}, ValueError, "E must be on the device of X, cpu, got meta"),
    (
        {"E": spoilt(math.nan, 3)},
        ValueError,
        "E must be finite, got NaN or infinity in row 3$",
    ),
    ({"E": spoilt(-math.inf, 1, 4)}, ValueError, "E must be finite.* in row 1, 4$"),
    ({"E": spoilt(math.inf, 2).numpy()}, ValueError, "E must be finite.* in row 2$"),
    ({"E": spoilt(math.inf, 2).half()}, ValueError, "E must be finite.* in row 2$"),
    (
        {"E": torch.full((9, 2), math.nan)},
        ValueError,
        "E must be finite.* in row 0, 1, 2, 3, 4, 5, 6, 7 and 1 more$",
    ),
    (
        {"X": X.double(), "W": W.double(), "E": spoilt(1e200, 1, dtype=torch.float64)},
        ValueError,
        "E must have rows whose squared norm a double holds, got",
    ),
    # -- candidates
    ({"candidates": []}, ValueError, "candidates must hold at least one row of E, got none"),
    (
        {"candidates": np.zeros(5, bool)},
        ValueError,
        "candidates must hold at least one row of E, got none",
    ),
    ({"candidates": [[], [], []]}, ValueError, "candidates must hold at least one row of E"),
    ({"candidates": [0, 5]}, ValueError, "candidates must be from 0 to 4, got 5"),
    ({"candidates": torch.tensor([-1])}, ValueError, "candidates must be from 0 to 4, got -1"),
    (
        {"candidates": [[0], [1], [2, 9]]},
        ValueError,
        r"candidates\[2\] must be from 0 to 4, got 9",
    ),
    ({"candidates": 3}, TypeError, "candidates must be indices of rows of E .* got int"),
    ({"candidates": "01"}, TypeError, "candidates must be indices of rows of E .* got str"),
    ({"candidates": {0, 1}}, TypeError, "candidates must be indices of rows of E .* got set"),
    (
        {"candidates": [0.5, 1.0]},
        TypeError,
        r"candidates must be a sequence of integers or bool, got float64 of shape \(2,\)",
    ),
    ({"candidates": ["a"]}, TypeError, "candidates must be a sequence of integers or bool"),
    (
        {"candidates": torch.ones(1, 3, 5, dtype=torch.bool)},
        TypeError,
        r"candidates must be a sequence .* got bool of shape \(1, 3, 5\)",
    ),
    (
        {"candidates": torch.ones(4, dtype=torch.bool)},
        ValueError,
        "candidates must have length 5, one bool a row of E, got 4",
    ),
    (
        {"candidates": torch.ones(2, 5, dtype=torch.bool)},
        ValueError,
        "candidates must hold one choice for each of 3 positions, got 2",
    ),
    (
        {"candidates": [[0], [1]]},
        ValueError,
        "candidates must hold one choice for each of 3 positions, got 2",
    ),
    (
        {"candidates": torch.ones(3, 4, dtype=torch.bool)},
        ValueError,
        r"candidates\[0\] must have length 5, one bool a row of E, got 4",
    ),
    (
        {"candidates": [[0], 1, [2]]},
        TypeError,
        r"candidates\[1\] must be indices of rows of E or a bool mask over them, got int",
    ),
    # -- own
    ({"own": [0, 1]}, ValueError, "own must have length 3, one a position, got 2"),
    ({"own": [0, 1, 5]}, ValueError, "own must be from -1 to 4, got 5"),
    ({"own": [0, 1, -2]}, ValueError, "own must be from -1 to 4, got -2"),
    ({"own": [0, 1, 2.0]}, TypeError, r"own must be a sequence of integers, got float64 .*\(3,\)"),
    ({"own": 1}, TypeError, r"own must be a sequence of integers, got int64 of shape \(\)"),
    ({"X": [X, X], "own": [0, 1, 2]}, ValueError, "own must be left out for several texts, got 2"),
    # -- how many
    ({"top_k": 0}, ValueError, "top_k must be at least 1, got 0"),
    ({"top_k": True}, TypeError, "top_k must be an integer, got True"),
    ({"top_k": 2.0}, TypeError, "top_k must be an integer, got 2.0"),
    ({"top_k": 16}, ValueError, "top_k must be at most the number of pairs .* 15, got 16"),
    ({"candidates": [0, 0, 1], "top_k": 7}, ValueError, "top_k must be at most .* 6, got 7"),
    ({"positions": [1], "top_k": 6}, ValueError, "top_k must be at most .* 5, got 6"),
    (
        {"candidates": [[0], [], [1, 2]], "top_k": 4},
        ValueError,
        "top_k must be at most .* 3, got 4",
    ),
    (
        {"mask": torch.tensor([True, False, False]), "top_k": 6},
        ValueError,
        "top_k must be at most .* 5, got 6",
    ),
    ({"X": [X, X[:1]], "top_k": 6}, ValueError, "top_k must be at most .* 5, got 6"),
    # -- self_scores
    ({"self_scores": [1.0] * 5}, TypeError, "self_scores must be a torch.Tensor or numpy.ndarray"),
    (
        {"self_scores": torch.ones(4)},
        ValueError,
        r"self_scores must have shape \(5,\), got \(4,\)",
    ),
    (
        {"self_scores": torch.ones(1, 5)},
        ValueError,
        r"self_scores must have shape \(5,\), got \(1, 5\)",
    ),
    (
        {"W": W[None], "self_scores": torch.ones(5)},
        ValueError,
        r"self_scores must have shape \(1, 5\), got \(5,\)",
    ),
    (
        {"W": None, "draws": 2, "self_scores": torch.ones(3, 5)},
        ValueError,
        r"self_scores must have shape \(2, 5\), got \(3, 5\)",
    ),
    (
        {"self_scores": torch.ones(5).double()},
        TypeError,
        "self_scores must have the dtype of X, torch.float32, got torch.float64",
    ),
    ({"self_scores": torch.ones(5).long()}, TypeError, "self_scores must hold real .*int64"),
    (
        {"self_scores": torch.ones(5).to("meta")},
        ValueError,
        "self_scores must be on the device of X, cpu, got meta",
    ),
    (
        {"self_scores": torch.tensor([0.0, 0.0, math.nan, 0.0, 0.0])},
        ValueError,
        r"self_scores must be finite, got nan at index \(2,\)",
    ),
    # -- the rest
    ({"draws": 2}, ValueError, "W and draws cannot both be given"),
    ({"backend": "cuda"}, ValueError, "backend must be None or one of .*'native'.*, got 'cuda'"),
    ({"largest": 1}, TypeError, "largest must be True or False, got 1"),
    ({"largest": None}, TypeError, "largest must be True or False, got None"),
    ({"full": "yes"}, TypeError, "full must be True or False, got 'yes'"),
    ({"memory_budget": 0}, ValueError, "memory_budget must be at least 1, got 0"),
    (
        {"X": X.double() * 1e160, "W": W.double(), "E": E.double(), "backend": "torch"},
        ValueError,
        r"φ\(X\) must be finite",
    ),
]


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [pytest.param(*case, id=f"{k}-{'-'.join(map(str, case[0]))}") for k, case in enumerate(TABLE)],
)
def test_refused(wrong, error, message):
    with pytest.raises(error, match=f"(?s){message}"):
        call(**{"top_k": 1, **wrong})


@pytest.mark.parametrize("backend", ["reference", "torch", None])
def test_rows_that_are_not_finite_are_named_in_every_backend(backend):
    """Also where they are in a later tile, and where numbers of E are not those of candidates."""
    rows = torch.zeros(3000, 2)
    rows[[1500, 2999]] = math.nan
    with pytest.raises(ValueError, match=r"in row 1500$"):
        call(E=rows, backend=backend)
    rows[1500] = 0
    with pytest.raises(ValueError, match=r"in row 2999$"):
        call(E=rows, candidates=range(1, 3000, 2), backend=backend)
    # A row that is no candidate may hold anything.
    assert call(E=rows, candidates=range(2999), backend=backend).value.isfinite()


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ({"W": "W"}, TypeError, "W must be a torch.Tensor or numpy.ndarray, got str"),
        ({"W": W.long()}, TypeError, "W must hold real floating-point numbers, got torch.int64"),
        ({"W": W[0]}, ValueError, r"W must have shape \(d, d\) or \(R, d, d\), got \(2,\)"),
        ({"W": torch.ones(2, 3)}, ValueError, r"W must have shape.*got \(2, 3\)"),
        ({"W": torch.ones(0, 2, 2)}, ValueError, r"W must have shape.*got \(0, 2, 2\)"),
        ({"W": W * math.inf}, ValueError, "W must be finite"),
        ({"E": E.int()}, TypeError, "E must hold real floating-point numbers, got torch.int32"),
        ({"E": torch.ones(5, 3)}, ValueError, r"E must have shape \(V, 2\).*got \(5, 3\)"),
        ({"E": E.double()}, TypeError, "E must have the dtype of .*got torch.float64"),
        ({"E": spoilt(math.nan, 3)}, ValueError, "E must be finite.* in row 3$"),
        ({"memory_budget": 0}, ValueError, "memory_budget must be at least 1, got 0"),
        ({"memory_budget": 1.5}, TypeError, "memory_budget must be an integer, got 1.5"),
    ],
)
def test_refused_by_self_scores(wrong, error, message):
    arguments = {"E": E, "W": W, **wrong}
    with pytest.raises(error, match=message):
        self_scores(**arguments)


def test_right_arguments_are_taken():
    call()
    call(top_k=15, largest=np.bool_(False), full=np.bool_(True), memory_budget=np.int64(10**6))
    call(candidates=np.array([0, 4], dtype=np.uint16), top_k=np.int32(6))
    call(candidates=[0, 1, 2], top_k=1)  # as many as positions: still shared by them
    call(self_scores=self_scores(E, W))
