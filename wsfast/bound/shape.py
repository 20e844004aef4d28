"""The quadratic form that the bounds of all positions share, and its eigenbasis."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from wsfast.attention.state import reals
from wsfast.bound.pairs import Pairs

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
    off_basis, off_form, off_scores, off_means, off_words : float
        How far the basis is from orthonormal, the form from diagonal, and scores, means and words
        from their coordinates: Frobenius norms, as measured.
    """

    weights: Tensor
    theta: float
    basis: Tensor
    eigenvalues: Tensor
    scores: Tensor
    means: Tensor
    words: Tensor
    off_basis: float
    off_form: float
    off_scores: float
    off_means: float
    off_words: float

    def to(self, dtype: torch.dtype) -> Shape:
        """The same with its tensors in `dtype`."""
        return replace(self, **reals(self, dtype))


def shape_of(pairs: Pairs) -> Shape:
    """The shape for all positions, in float64."""
    scores, means, words = pairs.scores, pairs.means, pairs.words
    eye = torch.eye(scores.shape[1], dtype=scores.dtype, device=scores.device)
    within = eye if pairs.span is None else torch.linalg.qr(pairs.span).Q
    weights = _balanced(scores)
    both = weights.sqrt()[:, None] * scores, means
    largest = [float(torch.linalg.eigvalsh(rows @ rows.mT)[-1]) for rows in both]
    theta = _MEANS * largest[0] / largest[1] if largest[1] > 1e-12 * largest[0] else 0.0
    rows = torch.cat([both[0], theta**0.5 * means]) @ within
    eigenvalues, vectors = torch.linalg.eigh(rows.mT @ rows)
    eigenvalues = eigenvalues.clamp(min=0)
    basis = within @ vectors
    inside = [rows @ basis for rows in (scores, means, words)]
    form = (inside[0].mT * weights) @ inside[0] + theta * (inside[1].mT @ inside[1])
    every = pairs.off * len(words) ** 0.5
    return Shape(
        weights=weights,
        theta=theta,
        basis=basis,
        eigenvalues=eigenvalues,
        scores=inside[0],
        means=inside[1],
        words=inside[2],
        off_basis=float((basis.mT @ basis - eye[: basis.shape[1], : basis.shape[1]]).norm()),
        off_form=float((form - torch.diag(eigenvalues)).norm()),
        off_scores=float((scores - inside[0] @ basis.mT).norm()),
        off_means=float((means - inside[1] @ basis.mT).norm()) + every,
        off_words=float((words - inside[2] @ basis.mT).norm()) + every,
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
        factor, failed = torch.linalg.cholesky_ex(eye - root[:, None] * gram * root)
        return factor, failed

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
