"""X of extreme size: the right finite number where float64 has it, else an error that says so."""

from __future__ import annotations

import pytest
import torch
from definition import WEIGHT_FNS, random_text
from parameters import all_backends

from wsfast import (
    raf_delta_norms,
    raf_features,
    raf_sensitivity,
    rf_sensitivity,
    substitution_sensitivity,
    word_sensitivity,
)
from wsfast.generalization import experiment

X, W = random_text(5, 4)
E = random_text(9, 4, 1)[0]

# With radii of the size of X: 1e-42, 1e-25 and 1e-310.
UNITS = [
    (torch.float32, 2.0**-139),
    pytest.param(torch.float32, 2.0**-83, marks=pytest.mark.deep),
    pytest.param(torch.float64, 2.0**-1030, marks=pytest.mark.deep),
]


@all_backends
@pytest.mark.parametrize(("weight_fn", "normalize"), WEIGHT_FNS)
@pytest.mark.parametrize(("dtype", "unit"), UNITS)
def test_sensitivity_does_not_depend_on_the_unit(weight_fn, normalize, dtype, unit, backend):
    options = {"weight_fn": weight_fn, "normalize": normalize, "backend": backend}
    x, w = (X * unit).to(dtype), W.to(dtype)
    # Scores of so small words are 0, for softmax; ReLU does not see their size.
    exact = x.double() / unit
    same = torch.zeros_like(W) if weight_fn == "softmax" else W
    expected = raf_sensitivity(exact, same, radius=2, max_steps=30, **options)
    got = raf_sensitivity(x, w, radius=2 * unit, max_steps=30, **options)
    assert float(got.value) == pytest.approx(float(expected.value), rel=1e-2)
    assert float(got.delta.double().norm()) <= 2 * unit * (1 + 1e-6)


@pytest.mark.parametrize("size", [1e-30, 1e-42])
def test_changes_of_small_texts(size):
    x, e, w = (X * size).float(), (E * size).float(), W.float()
    norms = raf_delta_norms(x, w, e[:2]).double() / size
    torch.testing.assert_close(norms, raf_delta_norms(X, 0 * W, E[:2]), rtol=1e-2, atol=0)
    got = substitution_sensitivity(x, e, w).top_value.double()
    torch.testing.assert_close(
        got, substitution_sensitivity(X, E, 0 * W).top_value, rtol=1e-2, atol=0
    )


@all_backends
@pytest.mark.parametrize(("weight_fn", "normalize"), WEIGHT_FNS[:2])
def test_features_whose_scores_leave_float32(weight_fn, normalize, backend):
    x, w = (X * 1e25).float(), W.float()
    got = raf_features(x, w, weight_fn=weight_fn, backend=backend)
    expected = raf_features(x.double(), w.double(), weight_fn=weight_fn)
    torch.testing.assert_close(got.double(), expected, rtol=1e-5, atol=1e19)


# The default radius √d is 1e42 times as large as X.
STUDIES = {
    "raf": lambda x: raf_sensitivity(x),
    "relu": lambda x: raf_sensitivity(x, W.to(x.dtype), weight_fn="relu"),
    "rf": lambda x: rf_sensitivity(x, k=7),
    "word": lambda x: word_sensitivity(torch.tanh, x),
    "substitution": lambda x: substitution_sensitivity(x, E.to(x.dtype)),
}


@pytest.mark.parametrize("study", STUDIES.values(), ids=STUDIES)
@pytest.mark.parametrize(("dtype", "size"), [(torch.float32, 1e-42), (torch.float64, 1e-310)])
def test_result_beyond_the_dtype_is_an_error(study, dtype, size):
    with pytest.raises(ValueError, match=r"must (fit into|have a norm|be from 1e-140)"):
        study((X * size).to(dtype))


@pytest.mark.parametrize(
    "call",
    [
        lambda: raf_features(X * 1e160, W),
        lambda: raf_delta_norms(X * 1e160, W, E),
        lambda: raf_sensitivity(X, W, radius=1e-200),
        lambda: experiment(torch.stack([X, X + 1]) * 1e-160, [1, -1], X * 1e-160, 1, radius=1e-160),
    ],
)
def test_what_float64_cannot_hold_is_an_error(call):
    with pytest.raises(ValueError, match=r"must be finite|must be from|must have a norm"):
        call()
