"""The min-norm least-squares solution on features Φ (N, D), by the N×N matrix K = ΦΦᵀ alone."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

# Rounding of Φ, in units of its precision, that a part of φ(X) away from its rows may be all of.
_ROUNDING = 1e2


class MinNorm:
    """θ* = Φᵀ K⁻¹ Y and the projection P⊥ away from the rows of Φ; never a D×D matrix.

    Parameters
    ----------
    features : Tensor, shape (N, D)
        Φ, in float32 or float64; all that is computed from it is float64.
    labels : Tensor, shape (N,)
        Y, float64.
    memory_budget : int
        Bytes that temporaries of N·D numbers may take.

    Attributes
    ----------
    condition : float
        Condition number of K, the square of that of Φ.
    theta : Tensor, shape (D,)
        θ*, float64.

    Raises
    ------
    ValueError
        If K is singular in float64: where features are dependent no solution fits every label.
    """

    def __init__(self, features: Tensor, labels: Tensor, memory_budget: int) -> None:
        self._features = features
        N, D = features.shape
        if N > D:
            raise ValueError(
                f"texts must be at most as many as there are features, got N = {N} texts of "
                f"D = {D} features: their features are dependent"
            )
        self._columns = max(1, memory_budget // (3 * 8 * N))
        gram = torch.zeros(N, N, dtype=torch.float64, device=features.device)
        for part, _ in self._parts():
            gram.addmm_(part, part.mT)
        none = gram.diagonal() == 0
        if bool(none.any()):
            raise ValueError(
                f"texts must have features, but φ = 0 for text {int(none.nonzero()[0])}"
            )
        values = torch.linalg.eigvalsh(gram)
        smallest, largest = float(values[0]), float(values[-1])
        if not smallest > N * torch.finfo(torch.float64).eps * largest:
            raise ValueError(
                f"texts must have independent features, but ΦΦᵀ of the N = {N} texts is singular: "
                "the features of two of them, or of more together, are (nearly) dependent. Leave "
                "out repeated texts, take fewer texts, or a map of more features"
            )
        self.condition = largest / smallest
        self._factor = torch.linalg.cholesky(gram)
        self.theta = self._combine(self._solve(labels[None]))[0]

    def away(self, phi: Tensor) -> Tensor:
        """P⊥φ = φ - Φᵀ K⁻¹ Φ φ of each row of `phi` (T, D), float64.

        Raises
        ------
        ValueError
            If nothing but rounding is left of a row.
        """
        left = phi
        # Twice: the first pass leaves a share of the rounding of K⁻¹ in the span of Φ.
        for _ in range(2):
            left = left - self._combine(self._solve(self._products(left)))
        rounding = _ROUNDING * torch.finfo(self._features.dtype).eps
        lost = left.norm(dim=1) <= rounding * phi.norm(dim=1)
        if bool(lost.any()):
            N, D = self._features.shape
            raise ValueError(
                f"X must have features that are no combination of those of the texts, but "
                f"P⊥φ(X) = 0 for text {int(lost.nonzero()[0])} of X, with N = {N} texts and D = {D}"
                " features: leave X out of the texts, or take fewer texts than features"
            )
        return left

    def _parts(self) -> Iterator[tuple[Tensor, slice]]:
        """Φ in float64, some columns at a time, and which columns they are."""
        D = self._features.shape[1]
        for first in range(0, D, self._columns):
            columns = slice(first, min(first + self._columns, D))
            yield self._features[:, columns].double(), columns

    def _products(self, rows: Tensor) -> Tensor:
        """Φ v (T, N) for the rows v of `rows` (T, D)."""
        out = rows.new_zeros(len(rows), len(self._features))
        for part, columns in self._parts():
            out.addmm_(rows[:, columns], part.mT)
        return out

    def _combine(self, coefficients: Tensor) -> Tensor:
        """Φᵀ c (T, D) for the rows c of `coefficients` (T, N)."""
        out = coefficients.new_empty(len(coefficients), self._features.shape[1])
        for part, columns in self._parts():
            out[:, columns] = coefficients @ part
        return out

    def _solve(self, rows: Tensor) -> Tensor:
        """K⁻¹ c for the rows c of `rows` (T, N)."""
        return torch.cholesky_solve(rows.mT, self._factor).mT
