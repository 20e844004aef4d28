r"""A proof from above: no change of one word moves attention by more than this.

Theorem
-------
Row j ≠ i of attention changes, as word i moves by Δ with ‖Δ‖ ≤ r (lengths in the units of `Pairs`),
by q c_j + α u⃗, where |u⃗| ≤ r, α is its new attention to word i, a the old one and q = α - a. So

    f_j = |q c_j + α u⃗|²  ≤  q² |c_j|² + α² r² + κ (u - p_j),     κ = 2 q α / b_j,  b_j = 1 - a,

where α depends on t_j = y_j·Δ alone, u = z·Δ is the same for all rows, and p_j = π_j·Δ. The own row
is a mean of the words less φ_i, hence f_i ≤ max(others, own + 2 (u - p_i)). For *any* numbers β, γ,
ζ, η (one of each for every row), ν ≥ 0, κ_i ≥ 0 and the quadratic forms

    Q_j = β_j t_j + γ_j u + ζ_j p_j + μ_j t_j² + ν_j u² + η_j t_j u + ω p_j²,

μ_j = κ_i D_j, μ_i = 0 and ω = κ_i θ, it holds that

    Σ_j f_j  ≤  Σ_j h_j + max_{‖Δ‖ ≤ r} Σ_j Q_j(Δ),     h_j = max_{t, u, p} (f_j - Q_j),

the maxima over |t| ≤ r |y_j|, |u| ≤ r |z|, |p| ≤ r |π_j|: the left side is the right one without
its maxima. How good the numbers are decides how tight the bound is, never whether it holds.

Rows
----
For given t the maxima over u and p are those of parabolas, P_u(B) = max_u (B u - ν u²) with
B = κ - γ - η t, and P_p(C) = max_p (C p - ω p²), C = -(κ + ζ): convex, with slopes of at most the
largest |u| and |p|. Over t there is a grid. On an interval of length h between two of its nodes a
function w exceeds the larger of its values there by at most h²/8 sup(-w'')₊; κ differs from its
chord by at most e = h²/8 sup |κ''|, and P_u, P_p of it by at most their slopes times e. So

    h_j ≤ max over the nodes + h²/8 (sup(-w'')₊ + 2 μ) + (L_u + L_p) e,     w = q² |c_j|² + α² r²,

where the suprema follow from α being monotone: α'' = α' (1 - 2α), α' = α (1 - α) for softmax, and
α' = (1 + g)⁻², α'' = -2 (1 + g)⁻³ for ReLU, in g = (logit + t) / scale.

Ball
----
Σ_j Q_j = ΔᵀMΔ + bᵀΔ, and in coordinates x of Δ in the eigenbasis of the shared shape

    M = κ_i (diag L - D_i y_i y_iᵀ) + ν̄ z zᵀ + ½ (h zᵀ + z hᵀ),    h = Σ η_j y_j,  ν̄ = Σ ν_j.

For any λ ≥ 0 with K = λ I - M ≻ 0 the maximum is at most λ r² + ¼ bᵀK⁻¹b. K = diag - V N Vᵀ with
V = [z h y_i]; it is positive definite where diag and N⁻¹ - Vᵀ diag⁻¹ V have together as many
negative eigenvalues as N⁻¹, which are two (Haynsworth). That is checked for (1 - 10⁻⁸) λ and with
a bound of what rounding does to the 3 × 3 matrix, so K ⪰ 10⁻⁸ λ I, and for any x

    ¼ bᵀK⁻¹b  ≤  bᵀx - xᵀKx + |b - 2Kx|² / (4 · 10⁻⁸ λ):

an error of what solved K x = ½ b costs tightness alone. What the eigenbasis itself is off by is
measured (`Shape`), and added (`_of_basis`).

Rounding
--------
All is computed in float64, and 32 (D + n) ε times the sizes of all terms is added: an analysis of
the first order, not interval arithmetic.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from wsfast.bound.form import Form, Multipliers, form_of
from wsfast.bound.grid import Nodes
from wsfast.bound.pairs import ALONE, NEUTRAL, PLAIN, Pairs
from wsfast.bound.shape import Shape

EPS = torch.finfo(torch.float64).eps
_SURE = 1e-8  # λ is more than large enough by this share of it

_NUMBERS = 1 << 20  # evaluated together

# Shares by which λ grows until K surely is positive definite.
_GROW = (*[5e-7] * 2, *[5e-4] * 20, *[0.2] * 400)


class RowMaxima(NamedTuple):
    """The largest f_j - Q_j of every row, (P, n) each."""

    value: Tensor
    # Where it is attained; of a proof: the size of its terms, and nothing.
    t: Tensor
    u: Tensor
    p: Tensor


def row_maxima(
    pairs: Pairs, shape: Shape, by: Multipliers, grid: Nodes, *, proof: bool
) -> RowMaxima:
    """h_j of all pairs; with `proof` never below the supremum, else at the nodes alone."""
    at_once = max(1, _NUMBERS // (pairs.a.shape[1] * len(grid.at)))
    each = [
        _of_some(pairs.select(keep), shape, by.select(keep), grid, proof=proof)
        for keep in torch.arange(len(pairs.index), device=pairs.index.device).split(at_once)
    ]
    return RowMaxima(*(torch.cat(column) for column in zip(*each, strict=True)))


def _of_some(pairs: Pairs, shape: Shape, by: Multipliers, grid: Nodes, *, proof: bool) -> RowMaxima:
    """Of some positions: arrays (P, n, G)."""
    kind, a, c2, inv_b, lost = pairs.kind, pairs.a, pairs.c2, pairs.inv_b, pairs.lost
    reach_u, kappa_i = pairs.reach_u[:, None], by.kappa[:, None]
    r2 = pairs.radius.square()[:, None]
    mu = kappa_i * shape.weights
    # Of other pairs than plain ones the worst p' is taken.
    omega = torch.where(kind == PLAIN, kappa_i * shape.theta, 0.0)
    alone = (kind == ALONE)[..., None]
    g, alpha = grid.of(pairs)
    # Attention that is 0 or 1, whatever t: at the first node and at all others.
    steps = torch.ones_like(grid.at).index_fill(0, pairs.index.new_zeros(1), 0.0)
    alpha = torch.where(alone, steps, alpha)
    t = torch.where(alone, 0.0, pairs.scale[..., None] * g - pairs.logit[..., None])
    q = alpha - a[..., None]
    kappa = 2 * q * alpha * inv_b[..., None]
    B = kappa - by.gamma[..., None] - by.eta[..., None] * t
    u, by_u = _parabola(B, by.nu[..., None], reach_u[..., None])
    p, by_p = _parabola(-(kappa + by.zeta[..., None]), omega[..., None], lost[..., None])
    value = q * q * c2[..., None] + alpha * alpha * r2[..., None] + by_u + by_p
    value = value - (by.beta[..., None] + mu[..., None] * t) * t
    if proof:
        more = _between(pairs, g, t, alpha, q, B, mu, by.nu).masked_fill(alone, 0.0)
        best = (torch.maximum(value[..., 1:], value[..., :-1]) + more).amax(-1)
        reach = pairs.reach
        size = 2 * c2 + r2 + by.beta.abs() * reach + mu * reach.square()
        size = size + (2 * inv_b + by.gamma.abs() + by.eta.abs() * reach) * reach_u
        size = size + by.nu * reach_u**2 + (2 * inv_b + by.zeta.abs()) * lost
        found = [best, size + omega * lost.square(), 0 * size, 0 * size]
    else:
        best, where = value.max(-1)
        found = [best, *(x.take_along_dim(where[..., None], -1)[..., 0] for x in (t, u, p))]
        found[3] = found[3].masked_fill(kind != PLAIN, 0.0)

    # The own row: two points.
    own = pairs.index[:, None]
    gamma, nu, zeta = (x.gather(1, own) for x in (by.gamma, by.nu, by.zeta))
    reach_p, omega = pairs.reach_p.gather(1, own), kappa_i * shape.theta
    kappa = a.new_tensor([0.0, 2.0])
    u, by_u = _parabola(kappa - gamma, nu, reach_u)
    p, by_p = _parabola(-(kappa + zeta), omega, reach_p)
    value = torch.stack([pairs.others, pairs.own], 1) + by_u + by_p
    best, where = value.max(1, keepdim=True)
    at_own = [best, torch.zeros_like(best), u.gather(1, where), p.gather(1, where)]
    if proof:
        size = (pairs.others + pairs.own.abs())[:, None] + (2 + zeta.abs()) * reach_p
        size = size + (2 + gamma.abs() + nu * reach_u) * reach_u + omega * reach_p.square()
        at_own = [best, size, 0 * size, 0 * size]
    return RowMaxima(
        *(
            x.masked_fill(kind == NEUTRAL, 0.0).scatter(1, own, y)
            for x, y in zip(found, at_own, strict=True)
        )
    )


def _parabola(slope: Tensor, curve: Tensor, reach: Tensor) -> tuple[Tensor, Tensor]:
    """Where s x - c x² is largest over |x| ≤ reach, and how large; c ≥ 0."""
    top = torch.where(curve > 0, slope / (2 * curve), slope.sign() * reach)
    x = torch.minimum(torch.maximum(top, -reach), reach)
    return x, x * (slope - curve * x)


def _between(
    pairs: Pairs, g: Tensor, t: Tensor, alpha: Tensor, q: Tensor, B: Tensor, mu: Tensor, nu: Tensor
) -> Tensor:
    """What f_j - Q_j may exceed the larger of its values at neighbours by, (P, n, G - 1)."""
    (a0, a1), (q0, q1), (B0, B1) = ((x[..., :-1], x[..., 1:]) for x in (alpha, q, B))
    h, h_t = ((x[..., 1:] - x[..., :-1]).square() / 8 for x in (g, t))
    c2, inv_b, mu, nu = (x[..., None] for x in (pairs.c2, pairs.inv_b, mu, nu))
    r2 = pairs.radius.square()[:, None, None]
    if pairs.relu:
        from_0 = 1 / (1 + g[..., :-1].clamp(min=0))
        slope = torch.where(g[..., 1:] > 0, from_0.square(), 0.0)
        rising, falling = torch.zeros_like(slope), 2 * slope * from_0
    else:
        ends = torch.maximum(a0 * (1 - a0), a1 * (1 - a1))
        slope = torch.where((a0 <= 0.5) & (a1 >= 0.5), 0.25, ends) * (1 + 1e-12)
        # The most that α'' is, upwards and downwards.
        rising, falling = slope * (1 - 2 * a0).clamp(min=0), slope * (2 * a1 - 1).clamp(min=0)
    down = falling * (q1 * c2 + a1 * r2).clamp(min=0)
    down = down + rising * (-(q0 * c2 + a0 * r2)).clamp(min=0)
    largest = torch.maximum((a1 + q1).abs(), (a0 + q0).abs())
    e = h * 2 * inv_b * (torch.maximum(rising, falling) * largest + 2 * slope.square())
    steep = (torch.maximum(B1.abs(), B0.abs()) + e) / (2 * nu.clamp(min=1e-300))
    slopes = torch.minimum(steep, pairs.reach_u[:, None, None]) + pairs.lost[..., None]
    return 2 * h * down + 2 * h_t * mu + slopes * e


class Ball(NamedTuple):
    """max ΔᵀMΔ + bᵀΔ, and where a relaxation attains it."""

    value: Tensor  # (P,)
    x: Tensor  # (P, N)


def ball_maximum(pairs: Pairs, shape: Shape, by: Multipliers) -> Ball:
    """The second term of the theorem, by a proof that starts at λ; inf where none is found."""
    form = form_of(pairs, shape, by)
    lam, sure = by.lam, _surely_positive(form, by.lam)
    for share in _GROW:
        if bool(sure.all()):
            break
        lam = torch.where(sure, lam, lam * (1 + share))
        sure = sure | _surely_positive(form, lam)
    x = 0.5 * form.at(lam).solve(form.b)
    Kx = lam[:, None] * x - form.times(x)
    rounding = 4 * x.shape[1] * EPS * (form.b.norm(dim=1) + (lam + form.size) * x.norm(dim=1))
    rest = (form.b - 2 * Kx).norm(dim=1) + rounding
    value = (
        lam * pairs.radius.square()
        + (form.b * x).sum(1)
        - (x * Kx).sum(1)
        + rest.square() / (4 * _SURE * lam)
    )
    value = value + _of_basis(shape, form, by, lam, pairs.index)
    return Ball(torch.where(sure & value.isfinite(), value, torch.inf), x)


def _of_basis(shape: Shape, form: Form, by: Multipliers, lam: Tensor, index: Tensor) -> Tensor:
    """What the maximum (P,) may be off by because the eigenbasis is rounded."""
    y, z = shape.scores.norm(), form.z.norm(dim=1)
    linear = shape.off_scores * by.beta.norm(dim=1) + shape.off_means * by.zeta.norm(dim=1)
    linear = linear + shape.off_words * by.gamma.sum(1).abs()
    own = 2 * shape.weights[index] * shape.off_scores * form.y.norm(dim=1)
    squares = 2 * shape.weights.max() * shape.off_scores * (y + shape.off_scores) + own
    squares = squares + 2 * shape.theta * shape.off_means * (shape.means.norm() + shape.off_means)
    product = shape.off_scores * by.eta.norm(dim=1) * z
    product = product + shape.off_words * (3 * form.nu * z + form.h.norm(dim=1))
    of_norm = shape.off_basis * (lam + form.b.norm(dim=1))
    total: Tensor = of_norm + linear + by.kappa * (shape.off_form + squares) + product
    return 2 * total


def _surely_positive(form: Form, lam: Tensor) -> Tensor:
    """Whether (1 - 10⁻⁸) λ I - M is positive definite, beyond what rounding does."""
    size = lam[:, None] + form.diagonal
    left = (1 - _SURE) * lam[:, None] - form.diagonal
    apart = (left.abs() > 8 * EPS * size).all(1)
    left = torch.where(left == 0, EPS, left)
    small = form.inverse - (form.V / left[:, None]) @ form.V.mT
    share = form.V.shape[2] * EPS + 8 * EPS * size / left.abs()
    V = form.V.abs()
    error = (V * (share / left.abs())[:, None]) @ V.mT + 8 * EPS * form.inverse.abs()
    finite = small.isfinite().flatten(1).all(1)
    values = torch.linalg.eigvalsh(torch.where(finite[:, None, None], small, 0.0))
    off = error.flatten(1).norm(dim=1) + 64 * EPS * small.flatten(1).norm(dim=1)
    count = (left < 0).sum(1) + (values < 0).sum(1)
    sure: Tensor = apart & finite & (count == 2) & (values.abs().amin(1) > off)
    return sure


def certified(
    pairs: Pairs, shape: Shape, by: Multipliers, maxima: RowMaxima
) -> tuple[Tensor, Tensor]:
    """Upper bounds (P,) of Σ_j f_j, and the maximisers Δ (P, D) of the relaxed problem.

    `maxima` are those of a proof.
    """
    ball = ball_maximum(pairs, shape, by)
    size = maxima.t.sum(1) + ball.value.abs()
    numbers = shape.basis.shape[0] + pairs.a.shape[1]
    slack = 32 * numbers * EPS * (1 + pairs.reach.max()) * size
    total = maxima.value.sum(1) + ball.value + slack
    return torch.where(total.isnan(), torch.inf, total), ball.x @ shape.basis.mT
