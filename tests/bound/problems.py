"""Texts, weights, changes and multipliers, and what the theorem speaks of by its definition."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from hypothesis import strategies as st
from torch import Tensor

from wsfast.attention.weight_fn import WeightFn
from wsfast.bound.bracket import COARSE, FINE
from wsfast.bound.certificate import EPS
from wsfast.bound.form import Multipliers, admissible, form_of
from wsfast.bound.grid import Nodes, nodes
from wsfast.bound.multipliers import Descent
from wsfast.bound.pairs import Pairs, pairs_of
from wsfast.bound.shape import Shape, shape_of
from wsfast.engines.engine import TORCH, Engine
from wsfast.maps.attention import Weights
from wsfast.maps.attention_text import AttentionMap, AttentionText


def normals(*shape: int, seed: int) -> Tensor:
    """Standard normals in float64."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


@dataclass(frozen=True)
class Problem:
    """One text under one W, some of whose words change by radius Δ, ‖Δ‖ ≤ 1."""

    X: Tensor  # (n, d)
    W: Tensor  # (d, d)
    radius: float
    relu: bool = False
    causal: bool = False
    index: tuple[int, ...] | None = None  # the positions; None: all
    unequal: bool = False  # whether each position has a radius of its own

    @cached_property
    def positions(self) -> Tensor:
        """(P,)."""
        every = range(len(self.X)) if self.index is None else self.index
        return torch.tensor([*every])

    @property
    def shares(self) -> Tensor:
        """Of the radius at each position, (P,)."""
        least = 0.2 if self.unequal else 1.0
        return torch.linspace(1.0, least, len(self.positions), dtype=torch.float64)

    def text(self, engine: Engine = TORCH) -> AttentionText:
        """As the package prepares it."""
        fn = WeightFn("relu" if self.relu else "softmax")
        map_ = AttentionMap(Weights(self.W), fn, causal=self.causal)
        return AttentionText(map_, self.X, engine, 2**28)

    @cached_property
    def pairs(self) -> Pairs:
        return pairs_of(self.text().state(self.positions), self.radius * self.shares, self.radius)

    @cached_property
    def shape(self) -> Shape:
        return shape_of(self.pairs)

    @cached_property
    def grid(self) -> Nodes:
        return nodes(self.pairs, *FINE)

    # -- by the definition of attention ------------------------------------------------------------

    def weights(self, X: Tensor) -> Tensor:
        """Attention (..., n, n) of texts (..., n, d)."""
        n, d = X.shape[-2:]
        scores = X @ self.W @ X.mT / d**0.5
        seen = torch.ones(n, n, dtype=torch.bool)
        seen = seen.tril() if self.causal else seen
        if not self.relu:
            return scores.masked_fill(~seen, -torch.inf).softmax(-1)
        weights = scores.clamp(min=0) * seen
        total = weights.sum(-1, keepdim=True)
        return weights / torch.where(total > 0, total, 1.0)

    def features(self, X: Tensor) -> Tensor:
        """φ (..., n, d)."""
        return self.weights(X) @ X

    @cached_property
    def phi(self) -> Tensor:
        return self.features(self.X)

    def moved(self, delta: Tensor) -> Tensor:
        """The texts (P, m, n, d) that Δ (P, m, d) make."""
        where = torch.eye(len(self.X), dtype=torch.float64)[self.positions]  # (P, n)
        return self.X + self.radius * where[:, None, :, None] * delta[:, :, None]

    def squares(self, delta: Tensor) -> Tensor:
        """f_j (P, m, n) for Δ (P, m, d): the squared change of every row, in units of radius²."""
        change = self.features(self.moved(delta)) - self.phi
        return (change / self.radius).square().sum(-1)

    @property
    def longest(self) -> float:
        """No word is longer, wherever it moves to."""
        return float(self.X.norm(dim=-1).max()) + self.radius

    def rounding_of_forms(self, by: Multipliers) -> Tensor:
        """What Q_j (P, n) may be off by: u and p are differences of words."""
        off = 16 * EPS * self.longest / self.radius
        slope = by.gamma.abs() + by.zeta.abs() + by.eta.abs() * self.pairs.reach
        curve = by.nu * (off + self.pairs.reach_u[:, None])
        return off * (slope + 2 * curve + 2 * self.pairs.inv_b)

    def rounding(self, squares: Tensor) -> Tensor:
        """What `squares` may be off by: the definition is computed in float64 too."""
        longest = self.longest
        largest = float(torch.linalg.matrix_norm(self.W, 2)) * longest**2 / self.X.shape[1] ** 0.5
        off = 16 * EPS * (1 + largest) * longest / self.radius
        return off * (2 * squares.sqrt() + off)

    @cached_property
    def vectors(self) -> tuple[Tensor, Tensor, Tensor]:
        """y_j (n, d), z (P, d) and π_j (n, d), from the text itself."""
        mean = self.phi.mean(0)
        scores = self.X @ self.W * (self.radius / self.X.shape[1] ** 0.5)
        return (
            scores,
            (self.X[self.positions] - mean) / self.radius,
            (self.phi - mean) / self.radius,
        )

    @cached_property
    def own(self) -> Tensor:
        """Which row is the own one, (P, n)."""
        return torch.eye(len(self.X), dtype=torch.bool)[self.positions]

    def squared(self, by: Multipliers) -> tuple[Tensor, Tensor]:
        """μ (P, n) and ω (P, 1)."""
        mu = (by.kappa[:, None] * self.shape.weights).masked_fill(self.own, 0.0)
        return mu, by.kappa[:, None] * self.shape.theta

    def forms(self, by: Multipliers, delta: Tensor) -> Tensor:
        """Q_j (P, m, n) at Δ (P, m, d)."""
        scores, words, means = self.vectors
        t, p, u = delta @ scores.mT, delta @ means.mT, delta @ words[:, :, None]
        beta, gamma, nu, eta, zeta, mu, omega = (
            x[:, None] for x in (by.beta, by.gamma, by.nu, by.eta, by.zeta, *self.squared(by))
        )
        linear = beta * t + gamma * u + zeta * p
        return linear + mu * t * t + nu * u * u + eta * t * u + omega * p * p

    def quadratic(self, by: Multipliers) -> tuple[Tensor, Tensor]:
        """M (P, d, d) and b (P, d), for which ΔᵀMΔ + b·Δ is the sum of all forms."""
        y, z, pi = self.vectors
        mu, omega = self.squared(by)
        M = torch.einsum("pj,jk,jl->pkl", mu, y, y) + omega[:, :, None] * (pi.mT @ pi)
        M = M + by.nu.sum(1)[:, None, None] * (z[:, :, None] * z[:, None])
        h = by.eta @ y
        cross = h[:, :, None] * z[:, None]
        b = by.beta @ y + by.gamma.sum(1, keepdim=True) * z + by.zeta @ pi
        return M + 0.5 * (cross + cross.mT), b

    # -- changes -----------------------------------------------------------------------------------

    def tried(self, seed: int, further: Tensor | None = None) -> Tensor:
        """Δ (P, m, d) of the ball: random, along scores, onto 0, climbed, `further`, and inside."""
        P, (n, d) = len(self.positions), self.X.shape
        along = (self.X @ self.W)[normals(P, n, seed=seed).argmax(1)]
        to_zero = -self.X[self.positions]
        own = (self.X @ (self.W + self.W.mT))[self.positions]
        some = [normals(P, 3, d, seed=seed + 1), torch.stack([along, -along, to_zero, own], 1)]
        some += [] if further is None else [further[:, None]]
        delta = torch.nn.functional.normalize(torch.cat(some, 1), dim=-1)
        size = (to_zero.norm(dim=-1) / self.radius).clamp(max=1)
        delta[:, 5] *= size[:, None]  # exactly onto 0 where that is within the radius
        delta = torch.cat([delta, self.climbed(delta[:, -2:])], 1)
        inside = torch.linspace(0.05, 0.95, delta.shape[1], dtype=torch.float64)
        return self.shares[:, None, None] * torch.cat([delta, inside[:, None] * delta], 1)

    def climbed(self, delta: Tensor, steps: int = 6, *, own: bool = False) -> Tensor:
        """Where the sum of all rows, or the `own` one, rises to from Δ (P, m, d), on the sphere."""
        rows = self.own[:, None] if own else torch.ones((), dtype=torch.bool)
        for _ in range(steps):
            with torch.enable_grad():
                at = delta.detach().requires_grad_()
                (up,) = torch.autograd.grad((self.squares(at) * rows).sum(), at)
            up = torch.nn.functional.normalize(up.nan_to_num(), dim=-1)
            delta = torch.nn.functional.normalize(delta + 0.7 * up, dim=-1)
        return delta

    # -- multipliers -------------------------------------------------------------------------------

    def descent(self, delta: Tensor, engine: Engine = TORCH) -> Descent:
        """What seeks multipliers from Δ (P, d)."""
        grid = nodes(self.pairs, *COARSE)
        return Descent(self.pairs, self.shape, delta, grid, 16, engine)

    def found(self, delta: Tensor, steps: int = 1) -> Multipliers:
        """Multipliers that so many steps lead to: the first to the tangents at Δ (P, d)."""
        descent = self.descent(delta)
        descent.go_on(steps)
        return admissible(self.pairs, descent.best)

    def random(self, seed: int, near: Multipliers | None = None) -> Multipliers:
        """Any multipliers, of any sign; or those that are `near`, changed a little."""
        P, n = len(self.positions), len(self.X)
        sizes = 10 ** normals(7, seed=seed)
        values = [size * normals(P, n, seed=seed + k) for k, size in enumerate(sizes[:5])]
        each = [size * normals(P, seed=seed + 5 + k) for k, size in enumerate(sizes[5:])]
        by = Multipliers(*values, *each)
        if near is not None:
            changed = [old * (1 + 0.1 * new.tanh()) for old, new in zip(near, by, strict=True)]
            by = Multipliers(*changed)
        by = admissible(self.pairs, by)
        if near is None and seed % 8:  # else λ has a long way to go
            lam = form_of(self.pairs, self.shape, by).size * (1 + normals(P, seed=seed).abs())
            by = by._replace(lam=lam.clamp(min=by.lam))
        return by


KINDS = ("even", "even", "uneven", "equal", "zero", "common", "small")
SIZES_OF_W = (1.0, 1.0, 1.0, 0.0, 1e-3, 5.0, 30.0)
RADII = (1.0, 1.0, 1.0, 1e-3, 0.1, 10.0, 100.0)


def problem(
    n: int,
    d: int,
    seed: int,
    *,
    kind: str = "even",
    size: float = 1.0,
    radius: float = 1.0,
    identity: bool = False,
    most: int = 3,
    **options: bool,
) -> Problem:
    """A text of words of norm √d or, by `kind`, of others; at most so many of its words change."""
    X = torch.nn.functional.normalize(normals(n, d, seed=seed), dim=1) * d**0.5
    if kind == "uneven":
        X = X * 10 ** normals(n, 1, seed=seed + 1)
    elif kind == "equal":
        X[n // 2 :] = X[0].clone()
    elif kind == "zero":
        X[n // 2] = 0
    elif kind == "common":
        X = torch.nn.functional.normalize(X + 4 * X[:1], dim=1) * d**0.5
    elif kind == "small":
        X = 0.05 * X
    W = torch.eye(d, dtype=torch.float64) if identity else normals(d, d, seed=seed + 2) / d**0.5
    first = seed % n
    index = tuple(sorted({(first + k * max(1, n // most)) % n for k in range(min(n, most))}))
    return Problem(X, size * W, radius * d**0.5, index=index, **options)


@st.composite
def problems(draw: st.DrawFn, largest: int = 40) -> Problem:
    """Of all sizes and kinds."""
    small = st.integers(1, 6)
    size = st.one_of(small, st.integers(1, largest))
    return problem(
        draw(size),
        draw(size),
        draw(st.integers(0, 2**30)),
        kind=draw(st.sampled_from(KINDS)),
        size=draw(st.sampled_from(SIZES_OF_W)),
        radius=draw(st.sampled_from(RADII)),
        identity=draw(st.sampled_from([False, False, False, True])),
        relu=draw(st.booleans()),
        causal=draw(st.sampled_from([False, False, True])),
    )


def largest_in_ball(M: Tensor, b: Tensor) -> Tensor:
    """The maximum (P,) of xᵀMx + b·x over ‖x‖ ≤ 1, by its dual, which has no gap."""
    eigenvalues, vectors = torch.linalg.eigh(M)
    along = (vectors.mT @ b[:, :, None])[:, :, 0].square() / 4
    least = eigenvalues[:, -1].clamp(min=0)
    size = eigenvalues.abs().amax(1) + b.norm(dim=1) + 1e-300
    low, high = (size * share for share in (1e-18, 2.0))

    def dual(above: Tensor) -> Tensor:
        lam = least + above
        return lam + (along / (lam[:, None] - eigenvalues).clamp(min=1e-300)).sum(1)

    for _ in range(300):  # the logarithm of λ - least by thirds: the dual is convex in λ
        first, second = ((low.log() + share * (high / low).log()).exp() for share in (1 / 3, 2 / 3))
        down = dual(first) > dual(second)
        low, high = torch.where(down, first, low), torch.where(down, high, second)
    return dual(high)
