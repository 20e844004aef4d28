"""The result of an experiment: files, table, summary, text."""

from __future__ import annotations

import dataclasses
import math
import os

import numpy as np
import pytest
import torch
from results.experiments import AXES, make
from studies.generalization.truth import problem

from wsfast.generalization import GeneralizationResult, experiment
from wsfast.results.generalization import FIGURES
from wsfast.results.intervals import summarize


@pytest.mark.parametrize("axes", AXES)
@pytest.mark.parametrize("kind", ["torch", "numpy"])
def test_round_trip(tmp_path, axes, kind):
    result = make(axes, kind=kind)
    result.save(tmp_path / "r")
    assert os.listdir(tmp_path) == ["r"]
    loaded = GeneralizationResult.load(tmp_path / "r")
    for field in dataclasses.fields(result):
        before, after = getattr(result, field.name), getattr(loaded, field.name)
        assert type(after) is type(before)
        if isinstance(before, (torch.Tensor, np.ndarray)):
            assert after.dtype == before.dtype
            np.testing.assert_array_equal(after, before, strict=True)
        else:
            assert after == before


def test_an_experiment_can_be_saved(tmp_path):
    known = problem(4, 3, 4)
    result = experiment(known.texts, known.labels, known.X, 1, max_steps=2, draws=2)
    result.save(tmp_path / "r")
    loaded = GeneralizationResult.load(tmp_path / "r")
    assert loaded.info == result.info
    assert torch.equal(loaded.delta, result.delta)
    assert repr(loaded) == repr(result)


# -- table ----------------------------------------------------------------------------------------


@pytest.mark.needs("tables")
@pytest.mark.parametrize("axes", AXES)
@pytest.mark.parametrize("kind", ["torch", "numpy"])
def test_to_frame(axes, kind):
    frame = make(axes, kind=kind).to_frame()
    lead = [axis[:-1] for axis in axes]
    named = [*lead, "training", "minimised", "position", *FIGURES, "delta_norm", "condition"]
    assert list(frame.columns) == named
    count = 4 * math.prod(AXES[axes])
    assert len(frame) == count
    # Rows count up as the figures do: the last axis fastest.
    for k, name in enumerate(FIGURES):
        assert frame[name].tolist() == [100 * k + row for row in range(count)]
    assert frame["position"].tolist() == list(range(count))
    assert frame["minimised"].tolist() == ["feature", "error"] * (count // 2)
    assert frame["training"].tolist()[:4] == ["fine_tuning"] * 2 + ["retraining"] * 2
    assert frame["delta_norm"].tolist() == [5.0] * count
    if axes == ("trials", "draws"):
        assert frame["trial"].tolist() == [0] * 8 + [1] * 8 + [2] * 8
        assert frame["draw"].tolist() == ([0] * 4 + [1] * 4) * 3
        assert frame["condition"].tolist() == ([7.0] * 4 + [8.0] * 4) * 3


# -- summary --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["torch", "numpy"])
def test_summary(kind):
    result = make(("trials", "draws"), kind=kind)
    got = result.summary(0.9)
    assert list(got) == list(FIGURES)
    for k, name in enumerate(FIGURES):
        one = got[name]
        # 0, 4, 8, 12, 16, 20 at the first place.
        assert float(one.mean[0, 0]) == 100 * k + 10
        assert float(one.mean[1, 1]) == 100 * k + 13
        assert float(one.std[0, 0]) == pytest.approx(math.sqrt(56))
        half = 2.015048372669157 * math.sqrt(56 / 6)  # SciPy's t for 5 degrees of freedom
        assert float(one.high[0, 1] - one.mean[0, 1]) == pytest.approx(half)
        assert (one.draws, one.confidence) == (6, 0.9)
        assert isinstance(one.mean, torch.Tensor) == (kind == "torch")


def test_summary_over_one_axis():
    result = make(("draws",))
    expected = summarize(result.error, 0, 0.95)
    assert torch.equal(result.summary()["error"].low, expected.low)


def test_summary_needs_several():
    with pytest.raises(ValueError, match="several trials or draws"):
        make().summary()
    with pytest.raises(ValueError, match="confidence"):
        make(("draws",)).summary(1.0)


# -- text -----------------------------------------------------------------------------------------


def test_repr():
    assert repr(make(("trials", "draws"))) == (
        "GeneralizationResult(raf, N = 9, radius 2.5, means over 3 trials and 2 draws\n"
        "  training     minimised   loss  error  alignment  gamma\n"
        "  fine_tuning  feature    410.0  510.0      610.0  710.0\n"
        "  fine_tuning  error      411.0  511.0      611.0  711.0\n"
        "  retraining   feature    412.0  512.0      612.0  712.0\n"
        "  retraining   error      413.0  513.0      613.0  713.0)"
    )
    assert repr(make()).startswith("GeneralizationResult(raf, N = 9, radius 2.5\n")
