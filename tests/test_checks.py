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
FIRST = torch.tensor([True, False, False])


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
BUDGETED = ["raf_delta_norms", *PLACED]
AT = ["raf_deltas", "perturb"]


def type_error(value, message, **others):
    return value, TypeError, message, others


def value_error(value, message, **others):
    return value, ValueError, message, others


TWO = torch.ones(2, 3, 2)
FOUR = torch.ones(4, 3, 2)
NUMBERS = "must be a torch.Tensor or numpy.ndarray, got"
REAL = "must hold real floating-point numbers, got"

# Argument, who takes it, and what it may not be.
TABLE = [
    ("X", CALLS, [
        type_error([[1.0, 2.0]], rf"X\[0\] {NUMBERS} list"),
        type_error("text", f"X {NUMBERS} str"),
        type_error(None, f"X {NUMBERS} NoneType"),
        type_error(X.int(), f"X {REAL} torch.int32"),
        type_error(X.bool(), f"X {REAL} torch.bool"),
        type_error(X + 0j, f"X {REAL} torch.complex64"),
        type_error(np.ones((3, 2), "i8"), f"X {REAL} int64"),
        type_error(np.ones((3, 2), "O"), f"X {REAL} object"),
        type_error(X.to_sparse(), "X must be a dense tensor, got layout torch.sparse_coo"),
        value_error(X[0], r"X must have shape \(n, d\) or \(B, n, d\).*, got \(2,\)"),
        value_error(X[None, None], r"X must have shape.*, got \(1, 1, 3, 2\)"),
        value_error(X[:0], r"X must have shape.* no axis empty.*, got \(0, 2\)"),
        value_error(X[:, :0], r"X must have shape.* no axis empty.*, got \(3, 0\)"),
        value_error(X[None][:0], r"X must have shape.* no axis empty.*, got \(0, 3, 2\)"),
        value_error([], "X must hold at least one text, got an empty list"),
        value_error([X, X[0]], r"X\[1\] must have shape \(n, d\).*, got \(2,\)"),
        value_error([X, X[:0]], r"X\[1\] must have shape .*n >= 1, d >= 1, got \(0, 2\)"),
        value_error([X, torch.ones(3, 4)], r"texts of one dimension, got 2 in X\[0\], 4 in X\[1\]"),
        value_error([X, X.double()], r"one dtype, got torch.float32 in X\[0\], torch.float64 in"),
        value_error([X, X.to("meta")], r"one device, got cpu in X\[0\], meta in X\[1\]"),
        value_error([X, X.numpy()], r"one kind of array, got torch in X\[0\], NumPy in X\[1\]"),
        value_error(spoilt(math.nan, 2, 1), r"X.* must be finite, got nan at index .*2, 1\)"),
        value_error(spoilt(-math.inf, 0, 1), r"X.* must be finite, got -inf at .*0, 1\)"),
        value_error([X, spoilt(math.inf, 1, 0)], r"X.* must be finite, got inf at .*1, 0\)"),
        value_error(spoilt(math.nan, 1, 1).numpy(), r"X.* must be finite, got nan at .*1, 1\)"),
    ]),
    ("W", RAF, [
        type_error("W", f"W {NUMBERS} str"),
        type_error(W.long(), f"W {REAL} torch.int64"),
        type_error(W.double(), "W must have the dtype of X, torch.float32, got torch.float64"),
        value_error(W.to("meta"), "W must be on the device of X, cpu, got meta"),
        value_error(torch.eye(3), r"W must have shape \(2, 2\) or \(R, 2, 2\).*got \(3, 3\)"),
        value_error(torch.ones(2), r"W must have shape.*got \(2,\)"),
        value_error(torch.ones(0, 2, 2), r"W must have shape.*got \(0, 2, 2\)"),
        value_error(spoilt(math.nan, 0, 1, like=W), r"W must be finite, got nan at .*0, 1\)"),
        value_error(spoilt(math.inf, 1, 0, like=W), r"W must be finite, got inf at .*1, 0\)"),
    ]),
    ("delta", DELTAS, [
        type_error([1.0, 1.0], f"delta {NUMBERS} list"),
        type_error(torch.ones(2, dtype=torch.int8), f"delta {REAL} torch.int8"),
    ]),
    ("delta", ["raf_delta_norms"], [
        type_error(DELTA.double(), "delta must have the dtype of X"),
        value_error(
            torch.ones(1, 3), r"delta must have shape \(s, 2\) or \(3, s, 2\), s >= 1, got \(1, 3\)"
        ),
        value_error(torch.ones(2), r"delta must have shape.*got \(2,\)"),
        value_error(torch.ones(0, 2), r"delta must have.*got \(0, 2\)"),
        value_error(torch.ones(2, 5, 2), r"got \(2, 5, 2\)"),
        value_error(torch.ones(1, 3, 5, 2), r"got \(1, 3, 5, 2\)"),
        value_error(torch.ones(3, 3, 5, 2), r"or \(4, 3, s, 2\), .* got \(3, 3, 5, 2\)", X=FOUR),
    ]),
    ("delta", AT, [
        type_error(DELTA[0].double(), "delta must have the dtype of X"),
        value_error(DELTA[0].to("meta"), "delta must be on the device of X, cpu"),
        value_error(torch.ones(3), r"shape \(2,\), got \(3,\)"),
        value_error(torch.ones(3, 2), r"must have shape \(2,\) or \(4, 2\), got \(3, 2\)", X=FOUR),
        value_error(torch.tensor([1.0, math.inf]), r"delta must be finite, got inf at .*1,\)"),
    ]),
    ("position", AT, [
        value_error(3, "position must be from 0 to 2, got 3"),
        value_error(-1, "position must be from 0 to 2, got -1"),
        type_error(1.0, "position must be an integer, got 1.0"),
        type_error(True, "position must be an integer, got True"),
    ]),
    ("position", ["raf_deltas"], [
        value_error(0, "position must be that of a word, got 0, masked", mask=MASK ^ FIRST),
        value_error(0, "got 0, masked in text 1", X=TWO, mask=torch.stack([MASK, MASK ^ FIRST])),
    ]),
    ("mask", MASKED, [
        type_error([True, True, True], r"mask.* must be a bool tensor or array, got"),
        type_error(MASK.int(), "mask must be bool .*got torch.int32"),
        value_error(MASK[:2], r"mask must have shape \(3,\), got \(2,\)"),
        value_error(MASK[None], r"mask must have shape \(3,\), got \(1, 3\)"),
        value_error(~MASK, "mask must be True for at least one word, got none"),
        value_error(MASK.to("meta"), "mask must be on the device of X, cpu, got meta"),
        value_error(MASK.expand(3, 3), r"must have shape .*\(2, 3\).*got \(3, 3\)", X=TWO),
        value_error(torch.stack([MASK, ~MASK]), "mask.* must be True for at least one word", X=TWO),
        value_error([MASK], "mask must hold 2 masks, one a text, got 1", X=[X, X[:2]]),
        value_error([MASK, MASK], r"mask\[1\] must have shape \(2,\), got \(3,\)", X=[X, X[:2]]),
    ]),
    ("weight_fn", RAF, [
        value_error(wrong, f"weight_fn must be 'softmax' or 'relu', got {wrong!r}")
        for wrong in ("cosine", "squareplus", None)
    ]),
    ("normalize", RAF, [
        value_error(False, "normalize must be True for weight_fn='softmax', got False"),
        type_error(1, "normalize must be True or False, got 1"),
    ]),
    ("backend", RAF, [value_error("cuda", "backend must be .*'native'.*, got 'cuda'")]),
    ("memory_budget", BUDGETED, [
        value_error(0, "memory_budget must be at least 1, got 0"),
        type_error(1e6, "memory_budget must be an integer"),
    ]),
    ("radius", SEARCHES, [
        value_error(-1, "radius must be finite and at least 0, got -1.0"),
        value_error(math.nan, "radius must be finite and at least 0, got nan"),
        value_error(math.inf, "radius must be finite and at least 0, got inf"),
        type_error("1", "radius must be a number, got '1'"),
        type_error(True, "radius must be a number, got True"),
        type_error([1.0], "radius must be a number, got list"),
    ]),
    ("positions", PLACED, [
        value_error([0, 3], r"positions\[1\] must be from 0 to 2, got 3"),
        value_error([-1], r"positions\[0\] must be from 0 to 2, got -1"),
        value_error([], "positions must hold at least one position, got none"),
        type_error(MASK, r"positions\[0\] must be an integer, got True"),
        type_error([0.5], r"positions\[0\] must be an integer, got 0.5"),
        type_error(1, "positions must be a sequence of integers, got int"),
        type_error("01", "positions must be a sequence of integers, got str"),
    ]),
    ("seed", PLACED, [
        value_error(-1, "seed must be from 0 to 18446744073709551615, got -1"),
        type_error(1.5, "seed must be an integer, got 1.5"),
    ]),
    ("starts", SEARCHES, [value_error(0, "starts must be at least 1, got 0")]),
    ("max_steps", SEARCHES, [
        value_error(0, "max_steps must be at least 1, got 0"),
        type_error(None, "max_steps must be an integer, got None"),
    ]),
    ("tol", SEARCHES, [
        value_error(-1e-9, "tol must be finite and at least 0, got -1e-09"),
        value_error(math.nan, "tol must be finite and at least 0, got nan"),
    ]),
    ("progress", PLACED, [type_error("yes", "progress must be True or False, got 'yes'")]),
    ("draws", DRAWN, [
        value_error(3, "W and draws cannot both be given"),
        value_error(0, "draws must be at least 1, got 0", W=None),
        type_error(True, "draws must be an integer, got True", W=None),
    ]),
]  # fmt: skip


def _cases():
    for argument, functions, wrong in TABLE:
        for number, (value, error, message, others) in enumerate(wrong):
            for name in functions:
                given = {argument: value, **others}
                yield pytest.param(name, given, error, message, id=f"{name}-{argument}-{number}")


@pytest.mark.parametrize(("name", "wrong", "error", "message"), [*_cases()])
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


def test_native_is_for_the_cpu_and_for_cuda():
    with pytest.raises(ValueError, match=r"backend='native' computes on the CPU and .* on meta"):
        raf_features(X.to("meta"), W.to("meta"), backend="native")


def test_integers_of_numpy_are_integers():
    result = raf_sensitivity(
        X, W, seed=np.int64(1), starts=np.int32(2), max_steps=np.uint8(3), radius=np.float32(1)
    )
    assert result.radius == 1.0
    assert result.info["seed"] == 1
