"""The bound of an own row: above whatever a climb of that row alone finds, and not far above."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from bound.problems import Problem, normals, problem
from torch import Tensor

from wsfast.bound import own_row
from wsfast.bound.pairs import pairs_of


def proved(case: Problem) -> Tensor:
    """Of the squared change of the own row, (P,)."""
    pairs = case.pairs
    at_own = pairs.reach_p[case.own]
    return torch.maximum(pairs.others, pairs.own + 2 * (pairs.reach_u + at_own))


def climbed(case: Problem, starts: int = 8) -> Tensor:
    """The largest squared change of the own row that is found, (P,)."""
    delta = normals(len(case.positions), starts, case.X.shape[1], seed=1)
    delta = case.climbed(torch.nn.functional.normalize(delta, dim=-1), 60, own=True)
    return (case.squares(delta) * case.own[:, None]).sum(-1).amax(1)


SIZES = [(6, 4), (12, 30), (9, 3), (20, 12), (2, 8), (1, 5), (7, 1), (30, 50)]

# By relative radius: how far above what is found it may be.
CLOSE = {1e-6: 1.8, 1e-3: 1.8, 1e-2: 2.0, 0.1: 5.0, 0.3: 12.0, 1.0: 40.0}


@pytest.mark.parametrize("kind", ["even", "uneven", "zero", "common"])
@pytest.mark.parametrize("radius", CLOSE)
def test_it_holds_and_is_close(radius, kind):
    for number, (n, d) in enumerate(SIZES):
        case = problem(n, d, 100 + number, kind=kind, radius=radius, causal=number % 3 == 2)
        bound, found = proved(case), climbed(case)
        assert (bound >= found * (1 - 1e-9) - case.rounding(found)).all()
        if kind == "even":
            assert (bound <= CLOSE[radius] * found + case.rounding(found)).all()


@pytest.mark.parametrize("radius", [1e-3, 0.03, 0.1])
def test_long_rows_have_a_cheaper_bound(radius, monkeypatch):
    """It holds, and is above the dearer one."""
    for number, (n, d) in enumerate(SIZES):
        case = problem(n, d, 100 + number, radius=radius)
        dear = proved(case)
        monkeypatch.setattr(own_row, "_DEAR", 0)
        cheap = proved(replace(case))
        monkeypatch.undo()
        found = climbed(case)
        assert (cheap >= found * (1 - 1e-9) - case.rounding(found)).all()
        assert (cheap >= dear * (1 - 1e-9)).all()
        assert (cheap <= 30 * dear).all()


@pytest.mark.parametrize("attention", [1e-300, 1e-12, 0.5, 1 - 1e-12, 1.0])
def test_rows_that_attend_their_word_by_little_or_wholly(attention):
    """By scores along one axis; the word moves along all."""
    odds = torch.tensor(attention, dtype=torch.float64).logit().clamp(-700, 700)
    X = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 2.0]], dtype=torch.float64)
    W = torch.zeros(3, 3, dtype=torch.float64)
    W[0, 0] = (odds + torch.tensor(2.0).log()) * 3**0.5
    W[0, 1:] = torch.tensor([0.3, -0.2])
    W[1:, 0] = torch.tensor([-0.7, 0.4])
    for radius in (1e-6, 1e-3, 1e-2, 0.1, 1.0):
        case = Problem(X, W, radius, index=(0,))
        bound, found = proved(case), climbed(case)
        assert (bound >= found * (1 - 1e-9) - case.rounding(found)).all()


def test_a_word_that_loses_as_the_others_part():
    """Its own score stays, and so does their mean; the sum of their exponentials grows."""
    for share in (0.01, 0.1, 1.0):
        X = torch.tensor([[10.0, 0.0], [-10.0, 0.0], [0.0, 1e4]], dtype=torch.float64)
        W = torch.tensor([[2**0.5 * share, 0.0], [0.0, 0.0]], dtype=torch.float64)
        case = Problem(X, W, 0.1, index=(2,))
        bound, found = proved(case), climbed(case)
        assert (bound >= found * (1 - 1e-9) - case.rounding(found)).all()


def test_only_rows_that_it_helps_are_worked_on(monkeypatch):
    """At the usual radius no norm of a matrix is formed."""
    case = problem(20, 192, 1)
    state, radii = case.text().state(case.positions), case.radius * case.shares
    monkeypatch.setattr(own_row, "largest", lambda *_: pytest.fail("a norm was asked for"))
    assert pairs_of(state, radii, case.radius).others.isfinite().all()


def test_largest_eigenvalues():
    for k, seed in ((1, 0), (2, 1), (5, 2), (40, 3)):
        rows = normals(3, k, k, seed=seed) * torch.logspace(0, -3, k, dtype=torch.float64)
        gram = torch.cat([rows.mT @ rows, torch.eye(k, dtype=torch.float64)[None]])
        exact = torch.linalg.eigvalsh(gram)[:, -1]
        found = own_row.largest(gram)
        assert (found >= exact).all()
        assert (found <= exact * k ** (1 / 16) * (1 + 1e-8)).all()
    assert float(own_row.largest(torch.zeros(3, 3, dtype=torch.float64))) == 0
