"""Generalisation: the experiment beside the D×D route, and a step of the search of a functional."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from wsfast.attention.functional import functional_at
from wsfast.engines.cpu import CPU
from wsfast.engines.engine import TORCH
from wsfast.generalization import experiment
from wsfast.maps.attention_objective import AttentionObjective
from wsfast.search.ascent import Limits, explore
from wsfast.studies.generalization.training import MinNorm

from . import baselines
from .inputs import directions, prepared, text_and_weights
from .measure import Baseline

TIMED = 40  # steps of a descent
STARTS = 4
STEPS = 8  # of wsfast in one call


class DirectRoute:
    """All of the experiment with D×D matrices and text by text, in float64; at position 0 alone."""

    def __init__(self, texts: Tensor, labels: Tensor, X: Tensor, y: float, W: Tensor) -> None:
        self.texts, self.labels, self.X, self.y, self.W = texts, labels, X, y, W
        self.start = directions(X.shape[1], dtype=X.dtype)

    def phi(self, X: Tensor) -> Tensor:
        return baselines.layer(X, self.W).flatten()

    def learn(self) -> None:
        """θ*, the projector away from Φ, and θ by either training."""
        rows = torch.stack([self.phi(text) for text in self.texts])
        one = self.phi(self.X)
        inverse = torch.linalg.pinv(rows)
        self.before = inverse @ self.labels
        self.projector = torch.eye(rows.shape[1], dtype=rows.dtype) - inverse @ rows
        shift = (self.y - one @ self.before) / (one @ one)
        all_labels = torch.cat([self.labels, self.labels.new_tensor([self.y])])
        again = torch.linalg.pinv(torch.cat([rows, one[None]])) @ all_labels
        self.after = {"fine_tuning": self.before + shift * one, "retraining": again}

    def losses(self) -> list[tuple[Tensor, float]]:
        """Θ and target of the four losses, in the order of `found`."""
        one = self.phi(self.X)
        away = self.projector @ one
        errors = [(theta, -self.y) for theta in self.after.values()]
        return [(one / (one @ one), -1.0), (away / (away @ away), -1.0), *errors]

    def descend(self, steps: int) -> list[float]:
        """Gradient descent on the Δ of each loss; where each ends."""
        found = []
        radius = self.X.shape[1] ** 0.5
        for theta, target in self.losses():
            delta, best = self.start, float("inf")
            for _ in range(steps):
                delta = delta.detach().requires_grad_()
                moved = torch.cat([(self.X[0] + delta)[None], self.X[1:]])
                loss = (self.phi(moved) @ theta - target).square()
                (gradient,) = torch.autograd.grad(loss, delta)
                best = min(best, loss.item())
                with torch.no_grad():
                    delta = delta - 0.1 * radius * gradient / gradient.norm()
                    delta = delta * (radius / delta.norm()).clamp(max=1)
            found.append(best)
        return found


def problem(N: int, n: int, d: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Texts (N, n, d), their labels, one more text, and W, in float64."""
    rows, W = text_and_weights((N + 1) * n, d, torch.float64)
    texts = rows.view(N + 1, n, d)
    labels = texts[:N].sum((1, 2)).sign()
    return texts[:N], labels, texts[N], W


@pytest.mark.cases(
    "N, n, d", smoke=[(8, 4, 12)], quick=[(200, 12, 96)], full=[(200, 16, 128), (400, 16, 96)]
)
def test_experiment(compare, N, n, d):
    texts, labels, X, W = problem(N, n, d)
    direct = DirectRoute(texts, labels, X, 1.0, W)
    direct.learn()
    ends = direct.descend(TIMED)
    result = experiment(texts, labels, X, 1, weights=W)
    at_0 = experiment(texts, labels, X, 1, weights=W, positions=[0])
    outputs = torch.stack([direct.phi(X) @ theta for theta in direct.after.values()])
    torch.testing.assert_close(result.output_after[:, 0], outputs, rtol=0, atol=1e-7)
    assert float(result.output_before[0, 0]) == pytest.approx(
        float(direct.phi(X) @ direct.before), abs=1e-7
    )
    ours = [*at_0.loss[0].tolist(), float(at_0.loss[1, 2])]
    for mine, theirs in zip(ours, ends, strict=True):
        assert mine <= theirs * (1 + 1e-6) + 1e-9
    both = "{:.3f}, {:.3f}, {:.1e}, {:.1e}".format
    compare(
        "generalisation experiment, all positions",
        f"N={N}, n={n}, d={d}, D={n * d}",
        lambda: experiment(texts, labels, X, 1, weights=W),
        [
            Baseline(
                "D×D route: both trainings and the projector",
                direct.learn,
                turns=3,
            ),
            Baseline(
                "D×D route: four descents at ONE position",
                lambda: direct.descend(TIMED),
                share=TIMED / (50 * n),
                turns=3,
                note=f"extrapolated from {TIMED} of {50 * n} steps; losses at position 0 "
                f"{both(*ours)}, after {TIMED} steps {both(*ends)}",
            ),
        ],
    )


@pytest.mark.cases(
    "N, n, d", smoke=[(8, 4, 12)], quick=[(200, 12, 96)], full=[(200, 16, 128), (400, 16, 96)]
)
def test_learning(compare, N, n, d):
    """What is learnt of the features alone, without any search."""
    texts, labels, X, W = problem(N, n, d)
    direct = DirectRoute(texts, labels, X, 1.0, W)
    direct.learn()
    rows, one = baselines.layer(texts, W).flatten(1), direct.phi(X)[None]

    def learn() -> tuple[Tensor, Tensor]:
        solution = MinNorm(rows, labels, 2**28)
        return solution.theta, solution.away(one)[0]

    theta, away = learn()
    torch.testing.assert_close(theta, direct.before, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(away, direct.projector @ one[0], rtol=1e-6, atol=1e-8)
    compare(
        "min-norm solution and P⊥φ(X)",
        f"N={N}, n={n}, d={d}, D={n * d}",
        learn,
        [Baseline("D×D route, features included", direct.learn, turns=5)],
    )


class FunctionalProducts:
    """The matrix products of one step of a functional and nothing else."""

    def __init__(self, n: int, d: int, starts: int) -> None:
        m = n * starts
        self.delta = torch.randn(m, d)
        self.rows = torch.randn(3 * n, d)  # queries, Θ and keys
        self.bilinear = torch.randn(d, d)
        self.by_rows, self.by_bilinear = torch.empty(m, 3 * n + d).split((3 * n, d), 1)
        self.gradient = torch.empty(m, d)

    def run(self) -> None:
        torch.mm(self.delta, self.rows.mT, out=self.by_rows)
        torch.mm(self.delta, self.bilinear, out=self.by_bilinear)
        torch.mm(self.by_rows, self.rows, out=self.gradient)


@pytest.mark.cases(
    "n, d",
    smoke=[(8, 48)],
    quick=[(16, 768), (64, 768)],
    full=[(128, 768), (256, 768), (64, 384)],
)
@pytest.mark.usefixtures("native")
def test_functional_step(compare, threads, n, d):
    X, W = text_and_weights(n, d)
    text = prepared(X, W, CPU)
    exact = text.state(torch.arange(n))
    theta = -text.phi / text.phi.square().sum()
    state = functional_at(exact, text.in_dtype(exact, torch.float32), theta)
    objective = AttentionObjective(CPU, state)
    start = directions(n, STARTS, d)
    limits = Limits(radius=d**0.5, tol=1e-4)
    products = FunctionalProducts(n, d, STARTS)
    plain = TORCH.functional(state, STARTS)
    values, gradients = objective.evaluator(STARTS).value_and_gradient(start)
    expected = plain.value_and_gradient(start)
    torch.testing.assert_close(values, expected[0], rtol=1e-3, atol=1e-5)
    size = expected[1].norm(dim=-1, keepdim=True)
    assert ((gradients - expected[1]).norm(dim=-1, keepdim=True) <= 2e-3 * size).all()
    compare(
        "ascent step of a functional",
        f"n={n}, d={d}, {STARTS} starts",
        lambda: explore(objective, start, limits, STEPS),
        [
            Baseline(
                "its matrix products",
                products.run,
                share=1 / STEPS,
                at_most=1.3 if threads == 1 and (n, d) == (64, 768) else None,
            ),
            Baseline(
                "closed form, PyTorch autograd, without the move",
                lambda: plain.value_and_gradient(start),
                share=1 / STEPS,
            ),
        ],
    )
