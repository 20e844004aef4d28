"""The maximum of a form over the ball, smoothed: what the multipliers descend by."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from wsfast.bound.form import Form
from wsfast.bound.shape import Shape

# Steps that seek λ, and how near to 1 ‖x‖² then is.
_SEEK, _NEAR = 40, 2e-3


class SmoothBall(NamedTuple):
    """The minimum over λ of λ + ¼ bᵀK⁻¹b - τ log det K, without the last term, and its slopes.

    x̄ = ½ K⁻¹b and X̄ = x̄x̄ᵀ + τK⁻¹ are the relaxed maximiser and its second moments.
    """

    lam: Tensor  # (P,)
    value: Tensor  # (P,)
    x: Tensor  # (P, N) x̄
    by_z: Tensor  # (P, N) K⁻¹z
    zz: Tensor  # (P,) zᵀK⁻¹z
    by_kappa: Tensor  # (P,) of Σ L_k X̄_kk - D_i y_iᵀX̄y_i


def smooth_ball(index: Tensor, shape: Shape, form: Form, lam: Tensor, smooth: Tensor) -> SmoothBall:
    """The smoothed maximum of a form of the positions `index`; λ is sought from `lam` (P,)."""
    ends = form.diagonal[:, -3:] if form.diagonal.shape[1] > 2 else 0 * form.diagonal[:, :1]
    # Below the third largest of the diagonal, K has a negative eigenvalue.
    low = ends[:, 0].clamp(min=0)
    high = form.size + form.b.norm(dim=1) + 2 * smooth * form.b.shape[1]
    lam = torch.where((lam > low) & (lam < high), lam, 0.5 * (low + high))
    for seek in range(_SEEK + 1):
        at = form.at(lam)
        x, inverse = 0.5 * at.solve(form.b), at.diagonal_of_inverse()
        size = x.square().sum(1) + smooth * inverse.sum(1)
        enough = at.positive & (size <= 1)
        high = torch.where(enough, lam, high)
        low = torch.where(enough, low, torch.maximum(low, lam))
        near = at.positive & ((size - 1).abs() < _NEAR)
        if seek == _SEEK or bool(near.all()):
            break
        # Newton for 1/‖x‖, which is almost linear in λ; a step out of bounds halves them.
        slope = (x * at.solve(x)).sum(1) + 0.5 * smooth * inverse.square().sum(1)
        newton = lam + (size.sqrt() - 1) * size / slope
        inside = at.positive & (newton > low) & (newton < high)
        following = torch.where(inside, newton, 0.5 * (low + high))
        lam = torch.where(near, lam, high if seek == _SEEK - 1 else following)
    z, y = form.z, form.y
    by_z, by_y = at.solve(z), at.solve(y)
    moments = x.square() + smooth[:, None] * inverse
    along = (y * x).sum(1).square() + smooth * (y * by_y).sum(1)
    return SmoothBall(
        lam=lam,
        value=torch.where(at.positive, lam + 0.5 * (form.b * x).sum(1), torch.inf),
        x=x,
        by_z=by_z,
        zz=(z * by_z).sum(1),
        by_kappa=moments @ shape.eigenvalues - shape.weights[index] * along,
    )
