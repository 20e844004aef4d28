"""The quadratic form that the bounds of all positions share, and its eigenbasis."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from wsfast.bound.pairs import Pairs

if TYPE_CHECKING:
    from wsfast.bound.certificate import Multipliers

# Share of the form that is of the means.
_MEANS = 0.05

# Steps and trials of the weights D.
_STEPS, _TRIALS = 16, 8


@dataclass(frozen=True)
class Shape:
    """Σ_j D_j t_j² + θ Σ_j p_j², in the basis where it is diagonal.

    Attributes
    ----------
    weights : Tensor, shape (n,)
        D.
    theta : float
    basis : Tensor, shape (D, N)
        Orthonormal columns, so that Δ has the coordinates basisᵀ Δ.
    eigenvalues : Tensor, shape (N,)
    scores, means, words : Tensor, shape (n, N)
        Coordinates of those of `Pairs`.
    off : tuple of float
        How far the basis is from orthonormal, the form from diagonal, and each of scores, means and
        words from their coordinates: Frobenius norms, as measured.
    """

    weights: Tensor
    theta: float
    basis: Tensor
    eigenvalues: Tensor
    scores: Tensor
    means: Tensor
    words: Tensor
    off: tuple[float, float, float, float, float]

    def to(self, dtype: torch.dtype) -> Shape:
        """In another dtype, to seek multipliers in."""
        names = ("weights", "basis", "eigenvalues", "scores", "means", "words")
        return replace(self, **{name: getattr(self, name).to(dtype) for name in names})

    def error_of(self, by: Multipliers, b: Tensor, lam: Tensor, index: Tensor) -> Tensor:
        """What the ball's maximum (P,) may be off by because the basis is rounded."""
        off_basis, off_form, off_scores, off_means, off_words = self.off
        y, z = float(self.scores.norm()), self.words[index].norm(dim=1)
        nu, gamma = by.nu.sum(1), by.gamma.sum(1).abs()
        h = by.eta @ self.scores
        linear = (
            off_scores * by.beta.norm(dim=1)
            + off_means * by.zeta.norm(dim=1)
            + off_words * gamma
        )
        own = self.weights[index] * off_scores * self.scores[index].norm(dim=1)
        form = off_form + 2 * float(self.weights.max()) * off_scores * (y + off_scores) + 2 * own
        form = form + 2 * self.theta * off_means * (float(self.means.norm()) + off_means)
        product = off_scores * by.eta.norm(dim=1) * z + off_words * (3 * nu * z + h.norm(dim=1))
        return 2 * (off_basis * (lam + b.norm(dim=1)) + linear + by.kappa * form + product)


def shape_of(pairs: Pairs) -> Shape:
    """The shape for all positions, in float64."""
    scores, means, words = pairs.scores, pairs.means, pairs.words
    n, D = scores.shape
    within = torch.eye(D, dtype=scores.dtype, device=scores.device)
    if 2 * n < D:
        within = torch.linalg.qr(torch.cat([scores, words]).mT).Q
    weights = _balanced(scores)
    inner = scores @ within, means @ within
    of_scores = (inner[0].mT * weights) @ inner[0]
    of_means = inner[1].mT @ inner[1]
    largest = [float(torch.linalg.eigvalsh(form)[-1]) for form in (of_scores, of_means)]
    theta = _MEANS * largest[0] / largest[1] if largest[1] > 1e-12 * largest[0] else 0.0
    eigenvalues, vectors = torch.linalg.eigh(of_scores + theta * of_means)
    eigenvalues = eigenvalues.clamp(min=0)
    basis = within @ vectors
    inside = [rows @ basis for rows in (scores, means, words)]
    form = (inside[0].mT * weights) @ inside[0] + theta * (inside[1].mT @ inside[1])
    eye = torch.eye(basis.shape[1], dtype=basis.dtype, device=basis.device)
    off = [
        basis.mT @ basis - eye,
        form - torch.diag(eigenvalues),
        *(
            rows - coordinates @ basis.mT
            for rows, coordinates in zip((scores, means, words), inside, strict=True)
        ),
    ]
    return Shape(
        weights, theta, basis, eigenvalues, *inside, tuple(float(part.norm()) for part in off)
    )


def _balanced(scores: Tensor) -> Tensor:
    """D > 0, of mean 1, with about the largest Σ log D_j for which YᵀDY has no large eigenvalue."""
    gram = scores @ scores.mT
    n = len(gram)
    size = float(gram.diagonal().max())
    if size == 0:
        return torch.ones_like(gram[0])
    gram = gram / size
    eye = torch.eye(n, dtype=gram.dtype, device=gram.device)
    log = torch.full_like(gram[0], 0.9 / float(torch.linalg.eigvalsh(gram)[-1])).log()

    def inside(log: Tensor) -> tuple[Tensor, Tensor]:
        root = (0.5 * log).exp()
        return torch.linalg.cholesky_ex(eye - root[:, None] * gram * root)

    # Newton's barrier, its weight falling: log det (I - √D G √D) keeps the eigenvalues below 1.
    factor, _ = inside(log)
    barrier = 0.02
    for _ in range(_STEPS):
        pull = torch.cholesky_inverse(factor).diagonal() - 1
        step = 1 - n * barrier * pull
        step = 0.3 * step / step.abs().max()
        barrier = max(0.85 * barrier, 1e-3)
        for _ in range(_TRIALS):
            trial, failed = inside(log + step)
            if int(failed) == 0:
                factor, log = trial, log + step
                break
            step = step / 2
    weights = log.exp()
    return weights / weights.mean()
