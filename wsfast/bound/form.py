"""The multipliers, and the quadratic form that they are of Δ: diagonal but for three vectors."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from wsfast.bound.pairs import ALONE, NEUTRAL, PLAIN, Pairs
from wsfast.bound.shape import Shape

LEAST = 1e-14
"""Of what is divided by."""


class Multipliers(NamedTuple):
    """The numbers of the theorem of `certificate`.

    Attributes
    ----------
    beta, gamma, nu, eta, zeta : Tensor, shape (P, n)
    kappa, lam : Tensor, shape (P,)
        κ, and where the ball's λ is sought.
    """

    beta: Tensor
    gamma: Tensor
    nu: Tensor
    eta: Tensor
    zeta: Tensor
    kappa: Tensor
    lam: Tensor

    def to(self, dtype: torch.dtype) -> Multipliers:
        """The same in `dtype`."""
        return Multipliers(*(value.to(dtype) for value in self))

    def select(self, keep: Tensor) -> Multipliers:
        """Those of the positions numbered `keep`."""
        return Multipliers(*(value[keep] for value in self))


def admissible(pairs: Pairs, by: Multipliers) -> Multipliers:
    """The nearest multipliers that the theorem is of: signs, and none of what a row lacks."""
    own = torch.zeros_like(pairs.kind, dtype=torch.bool).scatter(1, pairs.index[:, None], True)
    nothing = (pairs.kind == NEUTRAL) & ~own
    still = (pairs.kind >= ALONE) | own  # t does not move such rows
    no_p = (pairs.kind != PLAIN) & ~own
    return by._replace(
        beta=by.beta.masked_fill(still, 0.0),
        gamma=by.gamma.masked_fill(nothing, 0.0),
        nu=by.nu.clamp(min=LEAST).masked_fill(nothing, 0.0),
        eta=by.eta.masked_fill(still, 0.0),
        zeta=by.zeta.masked_fill(no_p, 0.0),
        kappa=by.kappa.clamp(min=0.0),
        lam=by.lam.clamp(min=LEAST),
    )


@dataclass(frozen=True)
class Form:
    """Σ_j Q_j = xᵀMx + bᵀx, M = κ diag L + ν̄ z zᵀ + ½ (h zᵀ + z hᵀ) - κ D_i y_i y_iᵀ.

    That is a diagonal + V N Vᵀ with V = [√ν̄ z, h/√ν̄, √(κ D_i) y_i].
    """

    eigenvalues: Tensor  # (N,) L
    kappa: Tensor  # (P,)
    z: Tensor  # (P, N)
    h: Tensor  # (P, N)
    y: Tensor  # (P, N)
    b: Tensor  # (P, N)
    nu: Tensor  # (P,) ν̄
    weight: Tensor  # (P,) κ D_i

    @cached_property
    def diagonal(self) -> Tensor:
        """κ L, (P, N)."""
        found: Tensor = self.kappa[:, None] * self.eigenvalues
        return found

    @cached_property
    def V(self) -> Tensor:  # noqa: N802
        """V (P, 3, N)."""
        root = self.nu.sqrt()[:, None]
        return torch.stack([root * self.z, self.h / root, self.weight.sqrt()[:, None] * self.y], 1)

    @property
    def inverse(self) -> Tensor:
        """N⁻¹ (3, 3), two of whose eigenvalues are negative."""
        return self.b.new_tensor([[0.0, 2.0, 0.0], [2.0, -4.0, 0.0], [0.0, 0.0, -1.0]])

    def times(self, x: Tensor) -> Tensor:
        """M x for x (P, N)."""
        z, h, y = (self.V @ x[:, :, None])[:, :, 0].unbind(1)
        by = torch.stack([z + 0.5 * h, 0.5 * z, -y], 1)
        found: Tensor = self.diagonal * x + (by[:, None] @ self.V)[:, 0]
        return found

    @property
    def size(self) -> Tensor:
        """No less than the norm of M, (P,)."""
        z, h, y = self.V.norm(dim=2).unbind(1)
        found: Tensor = self.diagonal.amax(1) + z * z + z * h + y * y
        return found

    def at(self, lam: Tensor) -> Shifted:
        """K = λ I - M for λ (P,)."""
        left = lam[:, None] - self.diagonal
        left = torch.where(left == 0, torch.finfo(left.dtype).tiny ** 0.5, left)
        over = self.V / left[:, None]
        r0, r1, r2 = (self.inverse - over @ self.V.mT).unbind(1)
        cross = [torch.linalg.cross(r1, r2), torch.linalg.cross(r2, r0), torch.linalg.cross(r0, r1)]
        determinant = (r0 * cross[0]).sum(1)
        small = torch.stack(cross, 2) / determinant[:, None, None]
        # Signs of the pivots, from the last corner up.
        corner, last = cross[0][:, 0], r2[:, 2]
        negative = (last < 0).int() + (corner * last < 0).int() + (determinant * corner < 0).int()
        positive = (left < 0).sum(1) + negative == 2
        return Shifted(self, left, over, small, positive)


@dataclass(frozen=True)
class Shifted:
    """K = λ I - M, by Woodbury's identity."""

    form: Form
    left: Tensor  # (P, N) λ - κ L
    over: Tensor  # (P, 3, N) V / left
    small: Tensor  # (P, 3, 3) (N⁻¹ - Vᵀ left⁻¹ V)⁻¹
    positive: Tensor  # (P,) whether K seems to be positive definite

    def solve(self, v: Tensor) -> Tensor:
        """K⁻¹v for v (P, N)."""
        c = self.small @ (self.over @ v[:, :, None])
        found: Tensor = v / self.left + (c.mT @ self.over)[:, 0]
        return found

    def diagonal_of_inverse(self) -> Tensor:
        """Of K⁻¹, (P, N)."""
        found: Tensor = 1 / self.left + ((self.small @ self.over) * self.over).sum(1)
        return found


def form_of(pairs: Pairs, shape: Shape, by: Multipliers) -> Form:
    """The form of admissible multipliers."""
    here = pairs.index
    z, y = shape.words[here], shape.scores[here]
    b, h = torch.cat([by.beta, by.eta]).matmul(shape.scores).split(len(here))
    b = b + by.gamma.sum(1, keepdim=True) * z + by.zeta @ shape.means
    return Form(
        eigenvalues=shape.eigenvalues,
        kappa=by.kappa,
        z=z,
        h=h,
        y=y,
        b=b,
        nu=by.nu.sum(1).clamp(min=LEAST),
        weight=by.kappa * shape.weights[here],
    )
