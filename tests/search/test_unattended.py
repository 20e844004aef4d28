"""The ascent that never waits for the device: the same points, and no look at a value."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from attention.problems import SEARCHED, objective
from definition import random_text
from torch.utils._python_dispatch import TorchDispatchMode

from wsfast.engines import compiled
from wsfast.engines.cuda import CUDA
from wsfast.perturbation.ball import on_sphere
from wsfast.search.ascent import (
    Limits,
    Point,
    adam_on_sphere,
    ascend,
    ascend_unattended,
)
from wsfast.search.objective import onto_span
from wsfast.search.options import SearchOptions
from wsfast.search.search import Search

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


class Launches(TorchDispatchMode):
    """Notes PyTorch's operations among them, but for views, which launch nothing."""

    def __init__(self, seen):
        super().__init__()
        self.seen = seen

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if not func.is_view:
            self.seen.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


@functions
def test_a_step_on_a_device_is_three_products_and_three_kernels(fn, monkeypatch):
    """Nothing else is launched, and no value looked at in a search: these tensors hold none."""
    launched: list[str] = []
    monkeypatch.setattr(compiled, "kernels", lambda device: Recorded(launched, device, gpu=True))
    known = replace(objective(*random_text(5, 4, 1), fn), momentum=fn.exponential)  # and turns
    without_values = {
        name: value.to("meta")
        for name, value in vars(known.state).items()
        if isinstance(value, torch.Tensor)
    }
    aim = replace(known, engine=CUDA, state=replace(known.state, **without_values))

    def seen(run):
        launched.clear()
        with Launches(launched):
            return run(), "".join(f"{name} " for name in launched)

    evaluation = "bmm ascent_forward bmm ascent_backward bmm "
    options = SearchOptions([], 1.0, 0, starts=4, max_steps=20, tol=1e-4, memory_budget=2**28)
    (point, taken), names = seen(lambda: Search(options).run(aim))
    step = evaluation + "ascent_step "
    assert step * 8 in names
    assert names.count(step) == 20 + 1  # the last one along rays
    assert names.count("ascent_") == 3 * 21
    _, names = seen(lambda: adam_on_sphere(aim, point.delta, Limits(1.0, 1e-4), 4))
    assert names.count(step) == 4
    with pytest.raises(RuntimeError, match="meta"):
        int(taken.max())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_onto_a_span(dtype):
    """Rows that depend on one another, and zeros, among them; far from any span, in all of it."""
    torch.manual_seed(0)
    rows = torch.randn(5, 12, dtype=torch.float64)
    rows[3], rows[4] = rows[0] + rows[1], 0
    points = torch.randn(2, 3, 12, dtype=torch.float64)
    basis = torch.linalg.svd(rows).Vh[:3]
    got = onto_span(points.to(dtype), rows.to(dtype))
    torch.testing.assert_close(got.double(), points @ basis.mT @ basis, rtol=0, atol=1e-2)
    assert torch.equal(onto_span(points, torch.zeros_like(rows)), points)
