"""What is refused, by every public function that could be handed it, and in which words."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from wsfast import (
    perturb,
    raf_delta_norms,
    raf_deltas,
    raf_features,
    raf_sensitivity,
    substitution_sensitivity,
    word_sensitivity,
)

X = torch.ones(3, 2)
W = torch.eye(2)
DELTA = torch.ones(1, 2)
MASK = torch.ones(3, dtype=torch.bool)


def spoilt(value: float, *index: int, like: torch.Tensor = X) -> torch.Tensor:
    copy = like.clone()
    copy[index] = value
    return copy


# How each function is called when only one argument is wrong.
CALLS = {
    "raf_features": lambda X=X, W=W, **other: raf_features(X, W, **other),
    "raf_delta_norms": lambda X=X, W=W, delta=DELTA, **other: raf_delta_norms(X, W, delta, **other),
    "raf_deltas": lambda X=X, W=W, position=0, delta=DELTA[0], **other: raf_deltas(
        X, W, position, delta, **other
    ),
    "raf_sensitivity": lambda X=X, W=W, **other: raf_sensitivity(X, W, **other),
    "substitution_sensitivity": lambda X=X, W=W, **other: substitution_sensitivity(
        X, torch.ones(5, 2), W, **other
    ),
    "word_sensitivity": lambda X=X, **other: word_sensitivity(torch.square, X, **other),
    "perturb": lambda X=X, position=0, delta=DELTA[0]: perturb(X, position, delta),
}
DELTAS = ["raf_delta_norms", "raf_deltas"]
DRAWN = ["raf_sensitivity", "substitution_sensitivity"]
RAF = ["raf_features", *DELTAS, *DRAWN]
SEARCHES = ["raf_sensitivity", "word_sensitivity"]
PLACED = [*DRAWN, "word_sensitivity"]
MASKED = [*RAF, "word_sensitivity"]

TABLE = [
    # -- X
    (
        CALLS,
        {"X": [[1.0, 2.0]]},
        TypeError,
        r"X\[0\] must be a torch.Tensor or numpy.ndarray, got list",
    ),
    (CALLS, {"X": "text"}, TypeError, "X must be a torch.Tensor or numpy.ndarray, got str"),
    (CALLS, {"X": None}, TypeError, "X must be a torch.Tensor or numpy.ndarray, got NoneType"),
    (CALLS, {"X": X.int()}, TypeError, "X must hold real floating-point numbers, got torch.int32"),
    (CALLS, {"X": X.bool()}, TypeError, "X must hold real floating-point numbers, got torch.bool"),
    (CALLS, {"X": X + 0j}, TypeError, "X must hold real .* numbers, got torch.complex64"),
    (CALLS, {"X": np.ones((3, 2), "i8")}, TypeError, "X must hold real .* numbers, got int64"),
    (CALLS, {"X": np.ones((3, 2), "O")}, TypeError, "X must hold real .* numbers, got object"),
    (
        CALLS,
        {"X": X.to_sparse()},
        TypeError,
        "X must be a dense tensor, got layout torch.sparse_coo",
    ),
    (
        CALLS,
        {"X": torch.ones(3)},
        ValueError,
        r"X must have shape \(n, d\) or \(B, n, d\).*got \(3,\)",
    ),
    (CALLS, {"X": torch.ones(1, 1, 3, 2)}, ValueError, r"X must have shape.*got \(1, 1, 3, 2\)"),
    (CALLS, {"X": torch.ones(0, 2)}, ValueError, r"X must have.*got.*\(0, 2\)"),
    (CALLS, {"X": torch.ones(3, 0)}, ValueError, r"X must have.*got.*\(3, 0\)"),
    (CALLS, {"X": torch.ones(0, 3, 2)}, ValueError, r"X must.*got.*\(0, 3, 2\)"),
    (CALLS, {"X": []}, ValueError, "X must hold at least one text, got an empty list"),
    (CALLS, {"X": [X, X[0]]}, ValueError, r"X\[1\] must have shape \(n, d\), got \(2,\)"),
    (
        CALLS,
        {"X": [X, X[:0]]},
        ValueError,
        r"X\[1\] must have n >= 1 and d >= 1, got shape \(0, 2\)",
    ),
    (CALLS, {"X": [X, torch.ones(3, 4)]}, ValueError, r"one dimension: X\[0\] has 2, X\[1\] has 4"),
    (CALLS, {"X": [X, X.double()]}, ValueError, r"one dtype: X\[0\] has torch.float32, X\[1\] has"),
    (CALLS, {"X": [X, X.to("meta")]}, ValueError, r"one device: X\[0\] has cpu, X\[1\] has meta"),
    (
        CALLS,
        {"X": spoilt(math.nan, 2, 1)},
        ValueError,
        r"X.* must be finite, got nan at index .*2, 1\)",
    ),
    (
        CALLS,
        {"X": spoilt(-math.inf, 0, 1)},
        ValueError,
        r"X.* must be finite, got -inf at .*0, 1\)",
    ),
    (
        CALLS,
        {"X": [X, spoilt(math.inf, 1, 0)]},
        ValueError,
        r"X.* must be finite, got inf at .*1, 0\)",
    ),
    (
        CALLS,
        {"X": spoilt(math.nan, 1, 1).numpy()},
        ValueError,
        r"X.* must be finite, got nan at .*1, 1\)",
    ),
    # -- W
    (RAF, {"W": "W"}, TypeError, "W must be a torch.Tensor or numpy.ndarray, got str"),
    (RAF, {"W": W.long()}, TypeError, "W must hold real floating-point numbers, got torch.int64"),
    (
        RAF,
        {"W": W.double()},
        TypeError,
        "W must have the dtype of X, torch.float32, got torch.float64",
    ),
    (RAF, {"W": W.to("meta")}, ValueError, "W must be on the device of X, cpu, got meta"),
    (
        RAF,
        {"W": torch.eye(3)},
        ValueError,
        r"W must have shape \(2, 2\) or \(R, 2, 2\).*got \(3, 3\)",
    ),
    (RAF, {"W": torch.ones(2)}, ValueError, r"W must have shape.*got \(2,\)"),
    (RAF, {"W": torch.ones(0, 2, 2)}, ValueError, r"W must have shape.*got \(0, 2, 2\)"),
    (
        RAF,
        {"W": spoilt(math.nan, 0, 1, like=W)},
        ValueError,
        r"W must be finite, got nan at .*0, 1\)",
    ),
    (
        RAF,
        {"W": spoilt(math.inf, 1, 0, like=W)},
        ValueError,
        r"W must be finite, got inf at .*1, 0\)",
    ),
    # -- Δ and its position
    (
        DELTAS,
        {"delta": [1.0, 1.0]},
        TypeError,
        "delta must be a torch.Tensor or numpy.ndarray, got list",
    ),
    (
        DELTAS,
        {"delta": torch.ones(2, dtype=torch.int8)},
        TypeError,
        "delta must hold real .* torch.int8",
    ),
    (["raf_delta_norms"], {"delta": DELTA.double()}, TypeError, "delta must have the dtype of X"),
    (
        ["raf_deltas", "perturb"],
        {"delta": DELTA[0].double()},
        TypeError,
        "delta must have the dtype of X",
    ),
    (
        ["raf_deltas"],
        {"delta": DELTA[0].to("meta")},
        ValueError,
        "delta must be on the device of X, cpu",
    ),
    (
        ["raf_delta_norms"],
        {"delta": torch.ones(1, 3)},
        ValueError,
        r"delta must have shape \(m, 2\) or \(3, m, 2\), m >= 1, got \(1, 3\)",
    ),
    (
        ["raf_delta_norms"],
        {"delta": torch.ones(2)},
        ValueError,
        r"delta must have shape.*got \(2,\)",
    ),
    (
        ["raf_delta_norms"],
        {"delta": torch.ones(0, 2)},
        ValueError,
        r"delta must have.*got \(0, 2\)",
    ),
    (["raf_delta_norms"], {"delta": torch.ones(2, 5, 2)}, ValueError, r"got \(2, 5, 2\)"),
    (["raf_delta_norms"], {"delta": torch.ones(1, 3, 5, 2)}, ValueError, r"got \(1, 3, 5, 2\)"),
    (
        ["raf_delta_norms"],
        {"X": torch.ones(4, 3, 2), "delta": torch.ones(3, 3, 5, 2)},
        ValueError,
        r"\(m, 2\) or \(3, m, 2\) or \(4, 3, m, 2\), m >= 1, got \(3, 3, 5, 2\)",
    ),
    (["raf_deltas", "perturb"], {"delta": torch.ones(3)}, ValueError, r"shape \(2,\), got \(3,\)"),
    (
        ["raf_deltas", "perturb"],
        {"X": torch.ones(4, 3, 2), "delta": torch.ones(3, 2)},
        ValueError,
        r"delta must have shape \(2,\) or \(4, 2\), got \(3, 2\)",
    ),
    (
        ["raf_deltas", "perturb"],
        {"delta": torch.tensor([1.0, math.inf])},
        ValueError,
        r"delta must be finite, got inf at index \(1,\)",
    ),
    (["raf_deltas", "perturb"], {"position": 3}, ValueError, "position must be from 0 to 2, got 3"),
    (
        ["raf_deltas", "perturb"],
        {"position": -1},
        ValueError,
        "position must be from 0 to 2, got -1",
    ),
    (
        ["raf_deltas", "perturb"],
        {"position": 1.0},
        TypeError,
        "position must be an integer, got 1.0",
    ),
    (
        ["raf_deltas", "perturb"],
        {"position": True},
        TypeError,
        "position must be an integer, got True",
    ),
    (
        ["raf_deltas"],
        {"mask": torch.tensor([False, True, True])},
        ValueError,
        "position 0 is masked",
    ),
    # -- masks
    (
        MASKED,
        {"mask": [True, True, True]},
        TypeError,
        r"mask.* must be a bool tensor or array, got",
    ),
    (MASKED, {"mask": MASK.int()}, TypeError, "mask must be bool .*got torch.int32"),
    (MASKED, {"mask": MASK[:2]}, ValueError, r"mask must have shape \(3,\), got \(2,\)"),
    (MASKED, {"mask": MASK[None]}, ValueError, r"mask must have shape \(3,\), got \(1, 3\)"),
    (MASKED, {"mask": ~MASK}, ValueError, "mask.* has no word"),
    (
        MASKED,
        {"mask": MASK.to("meta")},
        ValueError,
        "mask must be on the device of X, cpu, got meta",
    ),
    (
        MASKED,
        {"X": torch.ones(2, 3, 2), "mask": torch.ones(3, 3, dtype=torch.bool)},
        ValueError,
        r"mask must have shape .*\(2, 3\).*got \(3, 3\)",
    ),
    (
        MASKED,
        {"X": torch.ones(2, 3, 2), "mask": torch.tensor([[True] * 3, [False] * 3])},
        ValueError,
        "mask.*no word|has no word in text 1",
    ),
    (
        MASKED,
        {"X": [X, X[:2]], "mask": [MASK]},
        ValueError,
        "mask must hold 2 masks, one a text, got 1",
    ),
    (
        MASKED,
        {"X": [X, X[:2]], "mask": [MASK, MASK]},
        ValueError,
        r"mask\[1\] must have shape \(2,\), got \(3,\)",
    ),
    # -- how attention is computed
    (
        RAF,
        {"weight_fn": "cosine"},
        ValueError,
        "weight_fn must be 'softmax' or 'relu', got 'cosine'",
    ),
    (
        RAF,
        {"weight_fn": "squareplus"},
        ValueError,
        "weight_fn must be 'softmax' or 'relu', got 'squ",
    ),
    (RAF, {"weight_fn": None}, ValueError, "weight_fn must be 'softmax' or 'relu', got None"),
    (RAF, {"normalize": False}, ValueError, "normalize=False is for weight_fn='relu'"),
    (RAF, {"normalize": 1}, TypeError, "normalize must be True or False, got 1"),
    (
        RAF,
        {"backend": "cuda"},
        ValueError,
        "backend must be None or one of .*'native'.*, got 'cuda'",
    ),
    (
        DELTAS[:1] + PLACED,
        {"memory_budget": 0},
        ValueError,
        "memory_budget must be at least 1, got 0",
    ),
    (DELTAS[:1] + PLACED, {"memory_budget": 1e6}, TypeError, "memory_budget must be an integer"),
    # -- the search
    (SEARCHES, {"radius": -1}, ValueError, "radius must be finite and at least 0, got -1.0"),
    (SEARCHES, {"radius": math.nan}, ValueError, "radius must be finite and at least 0, got nan"),
    (SEARCHES, {"radius": math.inf}, ValueError, "radius must be finite and at least 0, got inf"),
    (SEARCHES, {"radius": "1"}, TypeError, "radius must be a number, got '1'"),
    (SEARCHES, {"radius": True}, TypeError, "radius must be a number, got True"),
    (SEARCHES, {"radius": [1.0]}, TypeError, "radius must be a number, got list"),
    (PLACED, {"positions": [0, 3]}, ValueError, r"positions\[1\] must be from 0 to 2, got 3"),
    (PLACED, {"positions": [-1]}, ValueError, r"positions\[0\] must be from 0 to 2, got -1"),
    (
        PLACED,
        {"positions": []},
        ValueError,
        "positions must hold at least one position, got none",
    ),
    (PLACED, {"positions": MASK}, TypeError, r"positions\[0\] must be an integer, got True"),
    (PLACED, {"positions": [0.5]}, TypeError, r"positions\[0\] must be an integer, got 0.5"),
    (PLACED, {"positions": 1}, TypeError, "positions must be a sequence of integers, got int"),
    (PLACED, {"positions": "01"}, TypeError, "positions must be a sequence of integers, got str"),
    (PLACED, {"seed": -1}, ValueError, "seed must be from 0 to 18446744073709551615, got -1"),
    (PLACED, {"seed": 1.5}, TypeError, "seed must be an integer, got 1.5"),
    (SEARCHES, {"starts": 0}, ValueError, "starts must be at least 1, got 0"),
    (SEARCHES, {"max_steps": 0}, ValueError, "max_steps must be at least 1, got 0"),
    (SEARCHES, {"max_steps": None}, TypeError, "max_steps must be an integer, got None"),
    (SEARCHES, {"tol": -1e-9}, ValueError, "tol must be finite and at least 0, got -1e-09"),
    (SEARCHES, {"tol": math.nan}, ValueError, "tol must be finite and at least 0, got nan"),
    (PLACED, {"progress": "yes"}, TypeError, "progress must be True or False, got 'yes'"),
    (DRAWN, {"draws": 3}, ValueError, "W and draws cannot both be given"),
    (DRAWN, {"W": None, "draws": 0}, ValueError, "draws must be at least 1, got 0"),
    (
        DRAWN,
        {"W": None, "draws": True},
        TypeError,
        "draws must be an integer, got True",
    ),
]


def _cases():
    cases = []
    for functions, wrong, error, message in TABLE:
        for name in functions:
            argument, value = list(wrong.items())[-1]
            shown = repr(value).split("(")[0][:24] if not isinstance(value, str) else value
            case = pytest.param(name, wrong, error, message, id=f"{name}-{argument}-{shown}")
            cases.append(case)
    return cases


@pytest.mark.parametrize(("name", "wrong", "error", "message"), _cases())
def test_refused(name, wrong, error, message):
    with pytest.raises(error, match=f"(?s){message}"):
        CALLS[name](**wrong)


@pytest.mark.parametrize("backend", ["reference", "torch", None])
@pytest.mark.parametrize(
    "wrong", [{"X": spoilt(math.nan, 1, 0)}, {"W": spoilt(math.inf, 1, 1, like=W)}]
)
def test_features_look_for_nan_in_every_backend(backend, wrong):
    (name,) = wrong
    with pytest.raises(ValueError, match=f"{name} must be finite"):
        CALLS["raf_features"](**wrong, backend=backend)


def test_large_numbers_are_finite():
    # Their sum is not.
    large = torch.full((3, 2), 3e38)
    assert perturb(large, 0, torch.zeros(2)).isfinite().all()


@pytest.mark.parametrize("name", [*CALLS])
def test_right_arguments_are_taken(name):
    CALLS[name]()


@pytest.mark.parametrize("name", MASKED)
def test_masks_are_taken(name):
    for mask in (MASK, MASK.numpy(), MASK.clone()[::1]):
        CALLS[name](mask=mask)
    CALLS[name](X=torch.ones(2, 3, 2), mask=MASK)
    CALLS[name](X=torch.ones(2, 3, 2), mask=MASK.expand(2, -1))
    CALLS[name](X=[X, X[:2]], mask=[MASK, MASK[:2]])


def test_position_masked_in_one_text():
    mask = torch.tensor([[True] * 3, [True, False, True]])
    with pytest.raises(ValueError, match="position 1 of text 1 is masked"):
        raf_deltas(torch.ones(2, 3, 2), W, 1, DELTA[0], mask=mask)


def test_native_is_for_the_cpu_and_for_cuda():
    with pytest.raises(ValueError, match=r"backend='native' computes on the CPU and .* on meta"):
        raf_features(X.to("meta"), W.to("meta"), backend="native")


def test_integers_of_numpy_are_integers():
    result = raf_sensitivity(
        X, W, seed=np.int64(1), starts=np.int32(2), max_steps=np.uint8(3), radius=np.float32(1)
    )
    assert result.radius == 1.0
    assert result.info["seed"] == 1
