"""The ascent that never waits for the device: the same points, and no look at a value."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from attention.problems import SEARCHED, objective
from definition import random_text

from wsfast.engines import compiled
from wsfast.engines.cuda import CUDA
from wsfast.perturbation.ball import on_sphere
from wsfast.search.ascent import (
    Limits,
    Point,
    adam_on_sphere,
    along_rays,
    ascend,
    ascend_unattended,
    explore,
)

functions = pytest.mark.parametrize("fn", SEARCHED[:3], ids=str)


@pytest.mark.needs("native")
@functions
@pytest.mark.parametrize("tol", [0.0, 1e-6, 1e-2])
@pytest.mark.parametrize("steps", [1, 5, 40])
def test_ends_where_the_attended_ascent_ends(fn, tol, steps):
    X, W = random_text(9, 6, 4)
    aim, ball = objective(X, W, fn, "native"), Limits(math.sqrt(6), tol)
    delta = on_sphere(torch.randn(9, 6, dtype=torch.float64), ball.radius)
    start = Point(delta, torch.full((9,), -torch.inf, dtype=torch.float64))
    expected, taken = ascend(aim, start, ball, steps)
    point, count = ascend_unattended(aim, start, ball, steps)
    assert count.tolist() == taken.tolist()
    # Products of fewer rows may be summed in another order.
    torch.testing.assert_close(point.value, expected.value, rtol=1e-9, atol=0)
    torch.testing.assert_close(point.delta, expected.delta, rtol=1e-6, atol=1e-6)


class Recorded(compiled.Kernels):
    """Kernels that only note what is launched."""

    def struct(self, name, dtype):
        return lambda **named: name

    def launch(self, name, *arguments, **named):
        self.module.append(name)


STEP = ["ascent_forward", "ascent_backward"]


@functions
def test_no_step_waits_for_the_device(fn, monkeypatch):
    """Tensors that hold no values: a look at one is an error."""
    launched: list[str] = []
    monkeypatch.setattr(compiled, "kernels", lambda device: Recorded(launched, device, gpu=True))
    known = objective(*random_text(5, 4, 1), fn)
    without_values = {
        name: value.to("meta")
        for name, value in vars(known.state).items()
        if isinstance(value, torch.Tensor)
    }
    aim = replace(known, engine=CUDA, state=replace(known.state, **without_values))
    ball = Limits(1.0, 1e-4)
    starts = torch.empty(5, 3, 4, dtype=torch.float64, device="meta")
    delta, value = explore(aim, starts, ball, 3)
    assert launched == [*STEP, "ascent_step"] * 3
    launched.clear()
    point, taken = ascend_unattended(aim, Point(delta[:, 0], value[:, 0]), ball, 7)
    assert launched == [*STEP, "ascent_step"] * 7
    launched.clear()
    point = along_rays(aim, point, (0.5, 0.9))
    adam_on_sphere(aim, point.delta, ball, 4)
    assert launched == [*STEP, "ascent_gradient"] * 5
    with pytest.raises(RuntimeError, match="meta"):
        int(taken.max())
