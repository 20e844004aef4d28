"""The theorem of the bound: each of its inequalities against the definition of attention."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from bound.problems import Problem, largest_in_ball, normals, problem, problems
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

import wsfast
from wsfast.bound.ball import smooth_ball
from wsfast.bound.certificate import EPS, _surely_positive, ball_maximum, certified
from wsfast.bound.form import Multipliers, admissible, form_of
from wsfast.bound.pairs import PLAIN, attention
from wsfast.bound.shape import Shape
from wsfast.engines.engine import TORCH
from wsfast.results.sensitivity import SensitivityResult


def check(case: Problem, by, seed, further=None):
    """Rows, ball and sum of a problem, for some multipliers, at many Δ."""
    maxima = TORCH.bound_rows(case.pairs, case.shape, by, case.grid, proof=True)
    assert (maxima.t >= 0).all()
    ball = ball_maximum(case.pairs, case.shape, by)
    total, relaxed = certified(case.pairs, case.shape, by, maxima)
    assert not total.isnan().any()
    extra = relaxed.nan_to_num() if further is None else further
    delta = case.tried(seed, extra)
    f, Q = case.squares(delta), case.forms(by, delta)
    off, also = case.rounding(f), case.rounding_of_forms(by)
    n, d = case.X.shape
    unit = 32 * (n + d) * EPS * (1 + case.pairs.reach.max())
    assert (f - Q <= (maxima.value + unit * maxima.t + also)[:, None] + off).all(), "a row"
    slack = unit * (maxima.t.sum(1) + ball.value.abs()) + also.sum(1)
    assert (Q.sum(-1) <= (ball.value + slack)[:, None]).all(), "the ball"
    assert (f.sum(-1) <= total[:, None] + off.sum(-1)).all(), "the sum"


def check_all(case: Problem, seed: int):
    """Multipliers as the search has them, first or later, and any."""
    start = case.tried(seed)[:, seed % 9]
    near = case.found(start, 1 + seed % 3)
    check(case, near, seed, start)
    check(case, case.random(seed, near if seed % 2 else None), seed + 1)


def cases(quick: int, deep: int):
    """So many cases, and more in the deep tier."""
    return pytest.mark.parametrize("count", [quick, pytest.param(deep, marks=pytest.mark.deep)])


# Of each problem two sets of multipliers, and four inequalities at dozens of changes.
@cases(60, 1_250)
def test_every_inequality_holds_at_every_change(count):
    @settings(max_examples=count, suppress_health_check=[HealthCheck.too_slow])
    @given(case=problems(), seed=st.integers(0, 2**30))
    def holds(case, seed):
        check_all(case, seed)

    holds()


numbers = pytest.mark.parametrize("number", range(8))
relu_or_not = pytest.mark.parametrize("relu", [False, True], ids=["softmax", "relu"])


def some(number: int, relu: bool = False, **options) -> Problem:
    """A problem of a usual size."""
    n, d = [(6, 4), (12, 30), (9, 3), (20, 12), (3, 8), (1, 5), (7, 1), (30, 50)][number]
    return problem(n, d, 100 + number, relu=relu, **options)


# -- rows ------------------------------------------------------------------------------------------


def largest_of_row(case: Problem, by, p: int, j: int) -> float:
    """The largest f_j - Q_j of a row j of another word, over a fine grid of t, u and p."""
    i = int(case.positions[p])
    y, z, pi = (x[k] for x, k in zip(case.vectors, (j, p, j), strict=True))
    a = case.weights(case.X)[j, i]
    t = torch.linspace(-1, 1, 20_001, dtype=torch.float64)[:, None, None] * y.norm()
    score = case.X[j] @ case.W @ case.X.mT / case.X.shape[1] ** 0.5
    if case.causal:
        score[j + 1 :] = -torch.inf
    others = torch.cat([score[:i], score[i + 1 :]])
    if case.relu:
        weight, rest = (score[i] + t).clamp(min=0), others.clamp(min=0).sum()
        alpha = weight / (weight + rest)
    else:
        alpha = (score[i] + t - others.logsumexp(0)).sigmoid()
    q = alpha - a
    c2 = ((case.X[i] - case.phi[j]) / (1 - a) / case.radius).square().sum()
    # Of either, f_j - Q_j is a parabola: largest at an end or at its top.
    mu, omega = (float(x.expand_as(by.beta)[p, j]) for x in case.squared(by))
    beta, gamma, nu, eta, zeta = (
        float(x[p, j]) for x in (by.beta, by.gamma, by.nu, by.eta, by.zeta)
    )
    bend = 2 * q * alpha / (1 - a)

    def parabola(slope, curve, reach):
        ends = torch.linspace(-1, 1, 3, dtype=torch.float64) * reach
        top = (slope / (2 * curve)).clamp(min=-reach, max=reach) if curve > 0 else 0 * slope
        at = torch.cat([ends.expand(*slope.shape[:-1], 3), top], -1)
        return (slope * at - curve * at * at).amax(-1, keepdim=True)

    value = q * q * c2 + alpha * alpha - beta * t - mu * t * t
    value = value + parabola(bend - gamma - eta * t, nu, z.norm())
    return float((value + parabola(-bend - zeta, omega, pi.norm())).max())


@relu_or_not
@numbers
def test_a_row_is_proved_at_every_t_and_closely(number, relu):
    case = some(number, relu, size=[1.0, 3.0][number % 2], radius=[1.0, 0.01][number // 2 % 2])
    start = torch.nn.functional.normalize(normals(*case.vectors[1].shape, seed=number), dim=1)
    near = case.found(start)
    for by in (near, case.random(number, near), case.random(number)):
        maxima = TORCH.bound_rows(case.pairs, case.shape, by, case.grid, proof=True)
        for p, j in (case.pairs.kind == PLAIN).nonzero().tolist():
            least, found = largest_of_row(case, by, p, j), float(maxima.value[p, j])
            size = float(maxima.t[p, j])
            assert found >= least - 1e-12 * size
            assert found <= least + 4e-3 * size


@relu_or_not
@pytest.mark.parametrize("radius", [1.0, 0.1, 0.01])
def test_nodes_go_from_end_to_end_and_over_every_kink(radius, relu):
    case = problem(30, 50, 4, relu=relu, radius=radius, most=30)
    g, alpha = case.grid.of(case.pairs)
    assert torch.equal(g[..., 0], case.pairs.low)
    assert torch.equal(g[..., -1], case.pairs.high)
    assert (g.diff() >= 0).all()
    assert (alpha - attention(g, relu=relu)).abs().max() < 1e-15
    if relu:
        over = (case.pairs.low < 0) & (case.pairs.high > 0)
        assert over.any()
        assert (g == 0).any(-1)[over].all()


@relu_or_not
@numbers
def test_an_own_row_is_proved_at_every_u_and_p_and_closely(number, relu):
    """It is a mean of words: of the others where they are, and of its own where that moves to."""
    case = some(number, relu, size=3.0)
    _, z, pi = case.vectors
    start = torch.nn.functional.normalize(normals(*z.shape, seed=number), dim=1)
    near = case.found(start)
    for by in (near, case.random(number, near), case.random(number)):
        maxima = TORCH.bound_rows(case.pairs, case.shape, by, case.grid, proof=True)
        _, omega = case.squared(by)
        for k, i in enumerate(case.positions.tolist()):
            far = ((case.X - case.phi[i]) / case.radius).square().sum(1)
            own, others = far[i] + 1, torch.cat([far[:i], far[i + 1 :], far.new_zeros(1)]).max()
            if relu:  # or nothing is left of it
                others = torch.maximum(others, (case.phi[i] / case.radius).square().sum())
            u = torch.linspace(-1, 1, 2001, dtype=torch.float64)[:, None] * z[k].norm()
            p = torch.linspace(-1, 1, 2001, dtype=torch.float64) * pi[i].norm()
            f = torch.maximum(others, own + 2 * (u - p))
            gamma, nu, zeta = (x[k, i] for x in (by.gamma, by.nu, by.zeta))
            Q = gamma * u + nu * u * u + zeta * p + omega[k] * p * p
            least, found, size = (f - Q).max(), maxima.value[k, i], maxima.t[k, i]
            assert found <= least + 1e-3 * size
            if float(case.pairs.own[k]) > 1:  # else from how far its scores move
                assert found >= least - 1e-12 * size


def largest_change(case: Problem, delta: Tensor) -> Tensor:
    """The bound of Σ_j f_j (P,), from what a search would have found."""
    by = case.found(delta, 12)
    maxima = TORCH.bound_rows(case.pairs, case.shape, by, case.grid, proof=True)
    return certified(case.pairs, case.shape, by, maxima)[0]


@relu_or_not
def test_an_own_row_that_its_word_takes_over(relu):
    """It then is the word itself, as far away as the ball allows."""
    X = torch.tensor([[0.1, 0.0], [0.0, 1.0]], dtype=torch.float64)
    W = torch.tensor([[80.0, 0.0], [0.0, -80.0]], dtype=torch.float64)
    case = Problem(X, W, 2.0, relu=relu, index=(0,))
    delta = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    assert case.squares(delta[:, None])[0, 0, 0] > 0.999
    check(case, case.found(delta, 12), 0, delta)


def test_rows_that_lose_all_their_weight():
    """By ReLU they become 0: the own row, and one that attends the changing word alone."""
    X = torch.tensor([[2.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    W = torch.tensor([[0.01, -1.0], [0.0, 0.0]], dtype=torch.float64) * 2**0.5
    case = Problem(X, W, 1.0, relu=True, index=(0,))
    assert case.weights(X)[:, 0].tolist() == [1, 1]
    delta = torch.tensor([[0.0, 1.0]], dtype=torch.float64)
    assert case.squares(delta[:, None]).flatten().tolist() == [4, 4]
    check(case, case.found(delta, 12), 0, delta)


def test_an_own_row_far_from_its_word_that_turns_to_a_rare_one():
    """Weights of 1e-97 rise to 1, as the word moves to the other side of 0."""
    X = torch.tensor([[30.0, 0.0], [-0.3, 0.0]], dtype=torch.float64)
    W = torch.tensor([[-50.0, 0.0], [0.0, 0.0]], dtype=torch.float64)
    case = Problem(X, W, 2.0, index=(1,))
    delta = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    assert case.weights(X)[1, 1] < 1e-90
    assert case.squares(delta[:, None])[0, 0, 1] > 100
    check(case, case.found(delta, 12), 0, delta)


def test_an_own_row_whose_rare_word_grows_by_the_most_that_it_may():
    """A factor e^(2 reach), where all scores move by as much as any."""
    X = torch.tensor([[1.0], *[[-1.0]] * 200, [0.0]], dtype=torch.float64)
    for reach in (0.1, 0.5, 1.0, 2.0, 3.0):
        case = Problem(X, torch.tensor([[10 * reach]]).double(), 0.1, index=(201,))
        delta = torch.ones(1, 1, dtype=torch.float64)
        check(case, case.found(delta, 12), 0, delta)


@numbers
def test_without_scores_the_bound_is_exact(number):
    """Every row is the mean of all words, and changes by Δ / n."""
    case = some(number, size=0.0)
    n = len(case.X)
    delta = torch.nn.functional.normalize(case.vectors[1] + 1e-3, dim=1)
    proved = n * largest_change(case, delta)
    assert (proved >= 1).all()
    assert (proved <= 1.02).all()


# -- the ball --------------------------------------------------------------------------------------


@numbers
def test_the_ball_is_proved_wherever_lambda_starts(number):
    """No less than the maximum, and equal to it where λ is right."""
    case = some(number)
    for seed in range(4):
        by = case.random(8 * number + seed)
        M, b = case.quadratic(by)
        expected = largest_in_ball(M, b)
        size = torch.linalg.matrix_norm(M, 2) + b.norm(dim=1)
        for share in (-1.0, 0.0, 1e-3, 0.1, 0.5, 0.9, 1 - 1e-7, 1.0, 1 + 1e-7, 1.5, 10.0):
            at = admissible(case.pairs, by._replace(lam=share * size))
            ball = ball_maximum(case.pairs, case.shape, at)
            assert (ball.value >= expected - 1e-11 * size).all()

    start = torch.nn.functional.normalize(normals(*case.vectors[1].shape, seed=number), dim=1)
    by = case.found(start, 8)
    ball = ball_maximum(case.pairs, case.shape, by)
    assert (ball.value <= 1.05 * largest_in_ball(*case.quadratic(by)) + 1e-9).all()


def test_a_form_below_zero_has_its_maximum_at_zero():
    """With λ < 0 the dual would fall below it."""
    X = torch.tensor([[1.0], [-1.0], [0.5]], dtype=torch.float64)
    case = Problem(X, torch.ones(1, 1, dtype=torch.float64), 1.0)
    y, z, _ = case.vectors
    cross = z * y[:, 0]
    nothing = {name: torch.zeros_like(value) for name, value in case.random(1)._asdict().items()}
    for lam in (-1.0, -0.5, -1e-3):
        given = nothing | {"eta": -9 * cross.sign(), "lam": torch.full((3,), lam).double()}
        given |= {"nu": nothing["nu"] + 1e-2}  # far from where rounding hides all
        by = admissible(case.pairs, Multipliers(**given))
        M, b = case.quadratic(by)
        assert M.max() < 2 * lam
        assert (ball_maximum(case.pairs, case.shape, by).value >= largest_in_ball(M, b)).all()


def test_a_form_of_large_scores_and_a_tiny_multiplier():
    """Nothing that is divided by may be rounded up where that lowers the form."""
    X = torch.tensor([[1.0], [-1.0], [0.5], [0.7]], dtype=torch.float64)
    case = Problem(X, torch.tensor([[1e3]]).double(), 1e3)
    given = {name: torch.zeros_like(value) for name, value in case.random(1)._asdict().items()}
    given["kappa"] = given["kappa"] + 1e-16
    by = admissible(case.pairs, Multipliers(**given))
    expected = largest_in_ball(*case.quadratic(by))
    assert (expected > 1e-5).all()
    assert (ball_maximum(case.pairs, case.shape, by).value >= expected * (1 - 1e-9)).all()


@numbers
def test_positive_definite_is_told_from_what_is_not(number):
    case = some(number)
    told = 0
    for seed in range(12):
        by = case.random(12 * number + seed)
        form = form_of(case.pairs, case.shape, by)
        M, _ = case.quadratic(by)
        largest = torch.linalg.eigvalsh(M)[:, -1]
        size = form.size
        for share in (-1.0, -1e-2, -1e-5, -1e-7):
            lam = largest + share * size
            assert not _surely_positive(form, lam)[lam > 0].any()
        for share in (1e-6, 1e-3, 1e-1, 1.0):
            lam = largest + share * size
            told += int(_surely_positive(form, lam)[lam > 1e-3 * size].sum())
    assert told > 10


@pytest.mark.parametrize("off", [1e-9, 1e-6, 1e-4])
@numbers
def test_a_basis_that_is_off_is_made_up_for(number, off, monkeypatch):
    """Every direction that the maximum may lie in, and it alone: no other term hides the margin."""
    exact = torch.linalg.eigh

    def spoiled(A):
        values, vectors = exact(A)
        return values, vectors + off * normals(*vectors.shape, seed=number)

    case = some(number)
    monkeypatch.setattr(torch.linalg, "eigh", spoiled)
    shape = case.shape
    monkeypatch.undo()
    for seed in range(6):
        by = case.random(6 * number + seed)
        M, b = case.quadratic(by)
        expected = largest_in_ball(M, b)
        size = torch.linalg.matrix_norm(M, 2) + b.norm(dim=1)
        form = form_of(case.pairs, shape, by)
        for smooth in (1e-6, 1e-12):
            lam = smooth_ball(case.positions, shape, form, by.lam, smooth * size, case.shares).lam
            ball = ball_maximum(case.pairs, shape, by._replace(lam=lam))
            assert (ball.value >= expected - 1e-12 * size).all()


def measured(case: Problem, shape: Shape) -> Shape:
    """The shape with what it is off by."""
    y, _, pi = case.vectors
    words = (case.X - case.phi.mean(0)) / case.radius
    inside = (shape.scores, shape.means, shape.words)
    form = (shape.scores.mT * shape.weights) @ shape.scores
    form = form + shape.theta * shape.means.mT @ shape.means
    eye = torch.eye(shape.basis.shape[1], dtype=torch.float64)
    off = [
        float((rows - by @ shape.basis.mT).norm())
        for rows, by in zip((y, pi, words), inside, strict=True)
    ]
    return replace(
        shape,
        off_basis=float((shape.basis.mT @ shape.basis - eye).norm()),
        off_form=float((form - shape.eigenvalues.diag()).norm()),
        off_scores=off[0],
        off_means=off[1],
        off_words=off[2],
    )


@pytest.mark.parametrize("name", ["eigenvalues", "scores", "means", "words", "basis"])
@numbers
def test_each_part_of_a_shape_that_is_off_is_made_up_for(number, name):
    """By multipliers of which one kind alone is large."""
    case = some(number)
    value = getattr(case.shape, name)
    for seed in range(6):
        off = 1e-4 * normals(*value.shape, seed=seed) * value.abs().amax()
        changed = {name: value + off}
        if name == "basis":  # it alone: longer, and all coordinates shorter
            longer = 1 + 1e-4 * (1 + seed)
            changed = {k: getattr(case.shape, k) / longer for k in ("scores", "means", "words")}
            eigenvalues = case.shape.eigenvalues / longer**2
            changed |= {"basis": value * longer, "eigenvalues": eigenvalues}
        shape = measured(case, replace(case.shape, **changed))
        by = case.random(6 * number + seed)
        for large in ("beta", "gamma", "nu", "zeta", "kappa"):
            sizes = {k: v * (1.0 if k == large else 1e-6) for k, v in by._asdict().items()}
            sizes[large] = sizes[large] + (large in ("kappa", "nu"))
            at = admissible(case.pairs, Multipliers(**sizes | {"nu": sizes["nu"] + 1e-6}))
            M, b = case.quadratic(at)
            expected = largest_in_ball(M, b)
            size = torch.linalg.matrix_norm(M, 2) + b.norm(dim=1)
            form = form_of(case.pairs, shape, at)
            lam = smooth_ball(case.positions, shape, form, at.lam, 1e-10 * size, case.shares).lam
            ball = ball_maximum(case.pairs, shape, at._replace(lam=lam.clamp(min=1e-14)))
            assert (ball.value >= expected - 1e-12 * size).all()


# -- the whole -------------------------------------------------------------------------------------


def many_starts(case: Problem, **options) -> SensitivityResult:
    """S_i of a problem."""
    return wsfast.raf_sensitivity(
        case.X,
        case.W,
        radius=case.radius,
        weight_fn="relu" if case.relu else "softmax",
        causal=case.causal,
        positions=case.positions.tolist(),
        **options,
    )


@cases(15, 300)
def test_no_search_finds_more_than_is_proved(count):
    @settings(max_examples=count, suppress_health_check=[HealthCheck.too_slow])
    @given(case=problems())
    def holds(case):
        if not case.phi.any():
            return
        upper = many_starts(case, bound=True).upper
        searched = many_starts(case, starts=64, max_steps=200).per_word
        assert torch.equal(upper.isnan(), searched.isnan())
        assert (upper >= searched * (1 - 1e-12)).masked_fill(upper.isnan(), True).all()

    holds()
