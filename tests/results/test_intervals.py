"""Statistics over draws, against figures computed with SciPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from wsfast.results.intervals import summarize
from wsfast.results.student_t import t_factor


@pytest.mark.parametrize(
    ("confidence", "dof", "expected"),
    [  # scipy.stats.t.ppf((1 + confidence) / 2, dof)
        (0.5, 1, 1.0),
        (0.5, 2, 0.8164965809277261),
        (0.5, 200, 0.6757184114042201),
        (0.9, 3, 2.3533634348018233),
        (0.9, 4, 2.1318467863266495),
        (0.95, 1, 12.706204736174694),
        (0.95, 2, 4.302652729749462),
        (0.95, 3, 3.1824463052837078),
        (0.95, 4, 2.7764451051977934),
        (0.95, 5, 2.5705818356363146),
        (0.95, 10, 2.228138851986274),
        (0.95, 31, 2.039513446396408),
        (0.95, 9999, 1.960201263621357),
        (0.99, 1, 63.656741162871526),
        (0.99, 10, 3.16927267261695),
        (0.999999, 2, 999.9992499299547),
        (0.999999, 31, 6.071975924669202),
    ],
)
def test_t_factor(confidence, dof, expected):
    assert t_factor(confidence, dof) == pytest.approx(expected, rel=1e-9)


# scipy.stats.t.interval(c, 3, loc=4, scale=std / 2) of 1, 2, 4, 9
SAMPLE, STD = [1.0, 2.0, 4.0, 9.0], 3.559026084010437
INTERVALS = {
    0.95: (-1.663204705733679, 9.66320470573368),
    0.5: (2.6388641258747305, 5.361135874125269),
}


@pytest.mark.parametrize("confidence", INTERVALS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_interval(confidence, dtype):
    got = summarize(torch.tensor(SAMPLE, dtype=dtype), 0, confidence)
    assert (got.draws, got.confidence) == (4, confidence)
    for part, expected in zip(
        (got.mean, got.std, got.low, got.high), (4.0, STD, *INTERVALS[confidence]), strict=True
    ):
        assert isinstance(part, torch.Tensor)
        assert (part.dtype, part.shape) == (dtype, ())
        assert float(part) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("axis", [0, 1])
def test_axis_and_kind(axis, dtype):
    sample = np.array(SAMPLE, dtype=dtype)
    values = np.stack([sample, 10 * sample, np.full_like(sample, np.nan)], axis=1 - axis)
    got = summarize(values, axis, 0.95)
    for part, expected in ((got.mean, 4.0), (got.std, STD), (got.low, INTERVALS[0.95][0])):
        assert isinstance(part, np.ndarray)
        assert part.dtype == dtype
        np.testing.assert_allclose(part, [expected, 10 * expected, math.nan], rtol=1e-6)


def test_equal_draws_have_no_spread():
    got = summarize(torch.full((3,), 0.1), 0, 0.95)
    assert float(got.low) == float(got.high) == float(got.mean)


@pytest.mark.parametrize("draws", [0, 1])
def test_too_few_draws(draws):
    with pytest.raises(ValueError, match=f"at least 2.*got {draws}"):
        summarize(torch.ones(draws), 0, 0.95)
