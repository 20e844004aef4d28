"""The compiled kernels of the bound at every instruction set, against the same in PyTorch."""

from __future__ import annotations

import pytest
import torch
from bound.problems import Problem, normals, problem

from wsfast.bound.bracket import COARSE, upper_bounds
from wsfast.bound.form import Multipliers, admissible, form_of
from wsfast.bound.grid import nodes
from wsfast.bound.multipliers import Slopes, Step
from wsfast.bound.pairs import ALONE, DOMINATED, NEUTRAL, PLAIN
from wsfast.engines.cpu import CPU
from wsfast.engines.engine import TORCH

pytestmark = pytest.mark.needs("native")

relu_or_not = pytest.mark.parametrize("relu", [False, True], ids=["softmax", "relu"])

# Around the widest vector, 16 float32 lanes, and what is left of it.
SIZES = [(1, 1), (1, 4), (2, 1), (2, 2), (3, 2), (5, 3), (8, 7), (9, 16), (12, 17), (18, 33)]


def some(n: int, d: int, relu: bool) -> Problem:
    """One that has pairs of every kind that there are at this size, among all its positions."""
    kind = ["even", "uneven"][n % 2]
    radius = [1.0, 0.02][d % 2]  # pairs that move by little have nodes of their own
    return problem(
        n, d, n + d, kind=kind, size=4.0, radius=radius, relu=relu, causal=n % 3 == 0, most=n
    )


def start(case: Problem):
    """Random changes on the sphere."""
    return torch.nn.functional.normalize(normals(*case.vectors[1].shape, seed=1), dim=1)


def multipliers(case: Problem):
    """Such as the search has, and any."""
    near = case.found(start(case), 2)
    return near, case.random(2, near), case.random(3)


def test_every_kind_of_pair_is_among_the_problems():
    kinds = {
        relu: {
            k for n, d in SIZES for k in some(n, d, relu).pairs.kind[~some(n, d, relu).own].tolist()
        }
        for relu in (False, True)
    }
    assert kinds == {False: {PLAIN, DOMINATED, NEUTRAL}, True: {PLAIN, DOMINATED, ALONE, NEUTRAL}}


@relu_or_not
def test_rows_of_a_proof(level, relu):
    for n, d in SIZES:
        case = some(n, d, relu)
        for by in multipliers(case):
            native, plain = (
                engine.bound_rows(case.pairs, case.shape, by, case.grid, proof=True)
                for engine in (CPU, TORCH)
            )
            assert ((native.value - plain.value).abs() <= 1e-12 * plain.t).all()
            torch.testing.assert_close(native.t, plain.t, rtol=1e-12, atol=0)
            assert not native.u.any()
            assert not native.p.any()


@relu_or_not
def test_rows_at_nodes(level, relu):
    """The largest values; what is as large at two places may be found at either."""
    limit = 1e-12
    same = []
    for n, d in SIZES:
        case = some(n, d, relu)
        grid = nodes(case.pairs, *COARSE)
        for by in multipliers(case):
            by = by._replace(kappa=by.kappa + 1e-2)
            given = case.pairs, case.shape, by, grid
            native, plain = (engine.bound_rows(*given, proof=False) for engine in (CPU, TORCH))
            size = TORCH.bound_rows(case.pairs, case.shape, by, grid, proof=True).t
            assert ((native.value - plain.value).abs() <= limit * size).all()
            for name, reach in (
                ("t", case.pairs.reach),
                ("u", case.pairs.reach_u[:, None].expand_as(native.t)),
                ("p", torch.maximum(case.pairs.lost, case.pairs.reach_p)),
            ):
                one, other = getattr(native, name), getattr(plain, name)
                assert (one.abs() <= reach * (1 + 10 * limit) + 1e-30).all()
                same.append(((one - other).abs() <= 1e3 * limit * (1 + reach)).flatten())
    assert torch.cat(same).double().mean() > 0.99


def test_ball(level):
    limit = 1e-2
    for n, d in SIZES[2:]:
        case = some(n, d, False)
        by = case.found(start(case), 4)
        form = form_of(case.pairs, case.shape, by)
        smooth = 1e-3 * form.size
        given = (case.positions, case.shape, form, by.lam, smooth, case.shares)
        native, plain = (engine.bound_ball(*given) for engine in (CPU, TORCH))
        finite = plain.value.isfinite() & (form.size > 1e-6)
        assert finite.any()
        # Each seeks its own λ, within 2 · 10⁻³ of where ‖x‖ is 1.
        largest = case.shape.eigenvalues[-1]  # `by_kappa` is a difference of such
        for name, one in native._asdict().items():
            other = getattr(plain, name)
            size = other.abs() if other.dim() == 1 else other.norm(dim=1, keepdim=True)
            size = size + 1e-3 * size.max() + (largest if name == "by_kappa" else 1e-30)
            assert ((one - other).abs() / size)[finite].max() <= 3 * limit, name


@relu_or_not
def test_a_bound_is_the_same_by_either(level, relu):
    """Proved by float64 from the same multipliers, or nearly so."""
    case = problem(20, 40, 3, relu=relu, most=20)
    delta = case.climbed(start(case)[:, None])[:, 0]
    largest = float(case.squares(delta[:, None]).sum(-1).max())
    native, plain = (
        upper_bounds(case.pairs, case.shape, delta, largest, engine).squared.max()
        for engine in (CPU, TORCH)
    )
    assert largest <= native
    assert (native - plain).abs() <= 0.02 * plain


def test_threads_change_nothing(level, threads):
    case = problem(40, 40, 1, most=40)
    by = case.found(start(case), 2)
    pairs, shape, grid = case.pairs, case.shape, case.grid
    form = form_of(pairs, shape, by)
    found = []
    for count in (1, 2, 5):
        with threads(count):
            rows = [CPU.bound_rows(pairs, shape, by, grid, proof=proof) for proof in (True, False)]
            ball = CPU.bound_ball(
                case.positions, shape, form, by.lam, 1e-3 * form.size, case.shares
            )
        found.append([*rows[0], *rows[1], *ball])
    for other in found[1:]:
        assert all(map(torch.equal, found[0], other))


@relu_or_not
def test_a_step_of_the_multipliers(level, relu):
    for n, d in SIZES:
        case = some(n, d, relu)
        P = len(case.positions)
        slopes = Slopes(
            **{
                name: normals(P, seed=k) if name in ("u_mean", "uu") else normals(P, n, seed=k)
                for k, name in enumerate(Slopes._fields)
            }
        )
        paths = []
        for engine in (CPU, TORCH):
            path = case.descent(start(case)).path
            for number in (1, 2, 3):
                engine.bound_step(case.pairs, path, slopes, Step(0.1, number))
            paths.append(path)
        native, plain = paths
        for name in ("at", "first", "second"):
            torch.testing.assert_close(
                getattr(native, name), getattr(plain, name), rtol=1e-10, atol=1e-13
            )
        none = torch.zeros(P, dtype=torch.float64)
        by = Multipliers(*native.at, none, none + 1)
        assert all(map(torch.equal, admissible(case.pairs, by), by))
