"""The search on objectives whose worst case is known."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from wsfast import _inputs
from wsfast.engines.engine import TORCH, Climb, value_and_gradient_of
from wsfast.search.objective import Objective, Small
from wsfast.search.options import search_options
from wsfast.search.search import Search


def search(d, radius=2.0, **options):
    """A search of one position by plain PyTorch steps."""
    asked = {"positions": None, "seed": 0, "starts": 4, "max_steps": 60, "tol": 1e-6}
    inputs = _inputs.texts(torch.zeros(1, d, dtype=torch.float64))
    checked = search_options(inputs, radius=radius, memory_budget=2**20, **{**asked, **options})
    return Search(checked)


class Of(Objective):
    """A function of Δ (1, s, d) at one place."""

    engine = TORCH
    width, places, dtype, device = 0, 1, torch.float64, torch.device("cpu")

    def __init__(self, d, function):
        self.width, self.function = d, function

    def evaluator(self, starts):
        return self

    def select(self, keep):
        return self

    def value_and_gradient(self, delta):
        return value_and_gradient_of(self.function, delta)


@pytest.mark.parametrize("d", [1, 2, 3, 20])
def test_linear(d):
    slope = torch.linspace(1, 2, d, dtype=torch.float64)
    point, _ = search(d).run(Of(d, lambda delta: delta @ slope))
    assert float(point.value) == pytest.approx(2 * float(slope.norm()), rel=1e-6)


@pytest.mark.parametrize("d", [2, 3, 20])
def test_quadratic(d):
    scale = torch.linspace(1, 3, d, dtype=torch.float64)
    point, _ = search(d, max_steps=300).run(Of(d, lambda delta: (scale * delta * delta).sum(-1)))
    assert float(point.value) == pytest.approx(12, rel=1e-3)
    assert abs(float(point.delta[0, -1])) == pytest.approx(2, rel=1e-2)


@pytest.mark.parametrize("d", [1, 2, 3, 20])
def test_best_point_inside_the_ball(d):
    """Along every ray the value rises up to ‖Δ‖ = 1, then falls."""

    def hill(delta):
        return 1 - (delta.square().sum(-1) - 1).square()

    point, _ = search(d).run(Of(d, hill))
    assert float(point.value) >= 0.99


@pytest.mark.parametrize("d", [1, 2, 3])
def test_best_point_inside_that_no_slope_leads_to(d):
    """Flat but for a shell: the search along the ray, or the grid, has to meet it."""

    def shell(delta):
        radius = delta.square().sum(-1).sqrt()
        return 0.5 + ((radius > 0.45) & (radius < 0.55)).to(delta.dtype) + 0 * radius

    point, _ = search(d).run(Of(d, shell))
    assert float(point.value) == 1.5


def test_many_peaks_on_a_circle():
    """In two dimensions a grid finds the narrow best of many peaks."""

    def peaks(delta):
        angle = torch.atan2(delta[..., 1], delta[..., 0])
        return delta.square().sum(-1) * (
            1.5 + torch.cos(7 * angle) * torch.exp(torch.cos(angle - 1.8))
        )

    angle = torch.linspace(0, 2 * torch.pi, 100001, dtype=torch.float64)
    best = float(peaks(2 * torch.stack([angle.cos(), angle.sin()], -1)).max())
    point, _ = search(2).run(Of(2, peaks))
    assert float(point.value) >= 0.99 * best


def test_steps_are_bounded_and_counted():
    calls = []

    def linear(delta):
        calls.append(delta.shape)
        return delta[..., 0] + 0.1 * delta[..., 1].square()

    _, steps = search(3, max_steps=10, tol=0.0).run(Of(3, linear))
    # And one more evaluation, along the ray.
    assert steps <= 10
    assert len(calls) == steps + 1


@pytest.mark.parametrize("turned", [False, True])
def test_turns_lead_to_what_steps_do_not_find(turned):
    """Two hills: all starts are on the lower one, and a turn goes over to the other."""
    high, low = torch.eye(3, dtype=torch.float64)[:2]

    def hills(delta):
        return 3 * (delta @ high - 1.6).relu() + 0.2 * delta @ low

    class Hills(Of):
        def leads(self):
            return torch.stack([low, low - 0.1 * high])[None]

        def turns(self):
            return [lambda delta: high.expand_as(delta)] if turned else []

    point, steps = search(3, starts=2).run(Hills(3, hills))
    top = torch.nn.functional.normalize(point.delta[0], dim=0) @ (high if turned else low)
    assert float(top) > 0.8
    assert steps <= 60


class Turned(Objective):
    """Places whose turns lead to values that are written down, (P, t); no step leads anywhere."""

    width, dtype, device, momentum = 3, torch.float64, torch.device("cpu"), True

    def __init__(self, values, made, at, engine=TORCH):
        self.values, self.made, self.at, self.engine = values, made, at, engine

    places = property(lambda self: len(self.at))

    def evaluator(self, starts):
        return self

    def select(self, keep):
        return Turned(self.values, self.made, self.at[keep], self.engine)

    def turns(self):
        return [partial(self.turn, number) for number in range(self.values.shape[1])]

    def turn(self, number, delta):
        for place, value in zip(self.at.tolist(), delta[:, 0].tolist(), strict=True):
            self.made[place].append(value)
        x = self.values[self.at, number] / 2
        return torch.stack([x, (1 - x * x).sqrt(), 0 * x], 1)

    def value_and_gradient(self, delta):
        return delta[..., 0].clone(), torch.zeros_like(delta)


@pytest.mark.parametrize("waits", [True, False])
def test_turns_end_where_two_in_a_row_raise_nothing(waits):
    """At each place by itself, whatever becomes of the others."""
    values = [
        [1.1, 1.2, 1.3, 1.4, 1.5],
        [0.5, 0.5, 1.9, 1.9, 1.9],  # the third is not made
        [0.5, 1.1, 0.5, 0.5, 1.9],  # the fifth is not
        [1.1, 0.5, 1.2, 0.5, 1.3],
        [0.5, 1.001, 1.9, 1.9, 1.9],  # a thousandth is nothing
    ]
    engine = type("Engine", (type(TORCH),), {"waits": waits})()
    made = [[] for _ in values]
    every = Turned(torch.tensor(values, dtype=torch.float64), made, torch.arange(5), engine)
    start = torch.tensor([1.0, 3**0.5, 0.0], dtype=torch.float64).expand(5, 1, 3)
    climb = Climb.start(start)
    climb.value[:] = 1.0
    assert search(3)._turn(every, climb, every.turns()).tolist() == [5, 2, 4, 5, 2]
    assert climb.value[:, 0].tolist() == pytest.approx([1.5, 1.0, 1.1, 1.3, 1.001])
    torch.testing.assert_close(climb.delta[..., 0], climb.value)
    if waits:  # else all are carried along
        assert [len(values) for values in made] == [5, 2, 4, 5, 2]


def test_parts_meet_their_own_bases_as_if_alone():
    """To the last bit, wherever the rows of a part lie among those of others."""
    generator = torch.Generator().manual_seed(0)
    counts = (3, 2, 5)
    for r in range(1, 33):
        bases = tuple(torch.randn(48, r, generator=generator) for _ in counts)
        together = Small(Of(48, torch.sum), bases, parts=counts)
        for rows, of in ((r, Small.lifted), (48, Small.inside)):
            points = torch.randn(10, rows, generator=generator)
            points = points[:, None] if rows == 48 else points
            alone = [
                of(Small(Of(48, torch.sum), (basis,)), part.clone())
                for basis, part in zip(bases, points.split(counts), strict=True)
            ]
            assert torch.equal(of(together, points), torch.cat(alone)), (r, of)
