"""What the bound knows of each pair of a row j and a word i that changes (docs/design.md, 8)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from wsfast.attention.core import NEVER, numbers
from wsfast.attention.state import (
    BilinearState,
    HeadState,
    PositionState,
    squared_distances,
)

# What a pair is: any; one whose row gives word i more than half of its attention; one of a ReLU
# row without other words, whose attention is 0 or 1; one that no change moves.
PLAIN, DOMINATED, ALONE, NEUTRAL = range(4)

# Log of the largest factor of weights that is formed.
_MOST = 100.0


@dataclass(frozen=True)
class Pairs:
    """Pairs of P positions and n rows, for a change of norm 1: all lengths are in its units.

    Row j changes by q c_j + α u⃗ with |u⃗| ≤ 1, where α is its new attention to word i, a the old one,
    and q = α - a. Its score moves by t = y_j·Δ; c_j·u⃗ = (u - p_j) / b_j of u = z_i·Δ, p_j = π_j·Δ.

    Attributes
    ----------
    index : Tensor, shape (P,), int64
        The positions.
    relu : bool
        α = g / (1 + g) of g = max((logit + t) / scale, 0); softmax: α = σ(logit + t).
    scores, means : Tensor, shape (n, D)
        y_j, and π_j = φ_j less the mean of all φ.
    words : Tensor, shape (n, D)
        z_i: the words less the mean of all φ.
    kind : Tensor, shape (P, n), uint8
        PLAIN, DOMINATED, ALONE or NEUTRAL, as the own row is.
    logit, scale, a, inv_b, c2 : Tensor, shape (P, n)
        c2 is |c_j|². For other pairs than plain ones inv_b is 1, and c_j·u⃗ = u - p' with
        |p'| ≤ `lost`.
    lost : Tensor, shape (P, n)
    reach : Tensor, shape (n,)
        The largest |t|.
    reach_u : Tensor, shape (P,)
    reach_p : Tensor, shape (n,)
    low, high : Tensor, shape (P, n)
        (logit ± reach) / scale, between which the attention moves.
    alpha_low, alpha_high : Tensor, shape (P, n)
        The attention there.
    others, own : Tensor, shape (P,)
        The own row is a mean of words: its change is at most the larger of `others` and
        `own` + 2 (u - p_i), squared.
    unit : float
        Of the lengths of values: a squared norm in these units, times unit², is one of φ.
    """

    index: Tensor
    relu: bool
    scores: Tensor
    means: Tensor
    words: Tensor
    kind: Tensor
    logit: Tensor
    scale: Tensor
    a: Tensor
    inv_b: Tensor
    c2: Tensor
    lost: Tensor
    reach: Tensor
    reach_u: Tensor
    reach_p: Tensor
    low: Tensor
    high: Tensor
    alpha_low: Tensor
    alpha_high: Tensor
    others: Tensor
    own: Tensor
    unit: float

    def select(self, keep: Tensor) -> Pairs:
        """The positions numbered `keep` alone."""
        names = (
            "index", "kind", "logit", "scale", "a", "inv_b", "c2", "lost", "reach_u",
            "low", "high", "alpha_low", "alpha_high", "others", "own",
        )  # fmt: skip
        return replace(self, **{name: getattr(self, name)[keep] for name in names})

    def to(self, dtype: torch.dtype) -> Pairs:
        """In another dtype; attention and logits below its range are cut."""
        real = {
            name: value.to(dtype)
            for name, value in vars(self).items()
            if isinstance(value, Tensor) and value.is_floating_point()
        }
        return replace(self, **real)

    def attention(self, t: Tensor) -> Tensor:
        """α (P, n) for changes t (P, n) of the scores."""
        alpha = attention((self.logit + t) / self.scale, relu=self.relu)
        return torch.where(self.kind == ALONE, (self.logit + t > 0).to(t.dtype), alpha)


def attention(g: Tensor, *, relu: bool) -> Tensor:
    """α of the log-odds g or, for ReLU, of the score in units of the other weights."""
    return torch.where(g > 0, g / (1 + g), 0.0) if relu else g.sigmoid()


def pairs_of(state: PositionState, radius: float, moves: Tensor | None = None) -> Pairs:
    """The pairs of a state, in float64, for changes of norms up to `radius`.

    `moves` (D, 2 d_k + d_v), of a head, is what makes of Δ the changes of key, value and query.
    """
    # Changes of norm 1 move keys by `keys` Δ and values by `values` Δ, where that is not Δ itself.
    keys = values = None
    queries, size = getattr(state, "queries"), 1.0
    if moves is not None:
        d_k = queries.shape[1]
        keys, values = moves[:, :d_k], moves[:, d_k : d_k + state.d]
        size = float(torch.linalg.matrix_norm(values, 2)) * (1 + 1e-12)
    unit = radius * size if size > 0 else 1.0

    def by_value(vectors: Tensor) -> Tensor:
        by = vectors if values is None else vectors @ values.mT
        return by * (radius / unit**2)

    mean = state.means.mean(0)
    scores = (queries if keys is None else queries @ keys.mT) * radius
    means, words = by_value(state.means - mean), by_value(state.words - mean)
    relu = not state.weight_fn.exponential
    alone = (state.rest <= 0) if relu else torch.zeros_like(state.a, dtype=torch.bool)
    kind = torch.full_like(state.a, PLAIN, dtype=torch.uint8)
    kind[state.dominated_position, state.dominated_row] = DOMINATED
    kind[alone] = ALONE
    kind[state.logit <= NEVER / 2] = NEUTRAL
    reach_p = means.norm(dim=1)
    lost = reach_p.expand_as(state.a).clone()
    lost[state.dominated_position, state.dominated_row] = by_value(
        state.dominated_mean - mean
    ).norm(dim=1)
    some = 1 + 1e-12  # norms are rounded
    reach = scores.norm(dim=1) * some
    plain = kind == PLAIN
    scale = torch.where(alone, 1.0, state.rest) if relu else torch.ones_like(state.a)
    low, high = (state.logit - reach) / scale, (state.logit + reach) / scale
    others, own = _own_row(state)
    others, own = others / unit**2, own / unit**2
    # What is known to stay small needs no word of its own.
    near = _near(state, _own_reach(state, radius, moves), radius * size) / unit**2
    small = near < torch.maximum(others, own + 1)
    others = torch.where(small, near, others)
    below = others - 2 * (words[state.index].norm(dim=1) + reach_p[state.index]) - 1
    own = torch.where(small, below, own + 1)
    return Pairs(
        index=state.index,
        relu=relu,
        scores=scores,
        means=means,
        words=words,
        kind=kind,
        logit=state.logit,
        scale=scale,
        a=state.a,
        inv_b=torch.where(plain, state.inv_b, 1.0),
        c2=state.c2 / unit**2,
        lost=lost * some,
        reach=reach,
        reach_u=words[state.index].norm(dim=1) * some,
        reach_p=reach_p * some,
        low=low,
        high=high,
        alpha_low=attention(low, relu=relu),
        alpha_high=attention(high, relu=relu),
        others=others,
        own=own,
        unit=unit,
    )


def _own_row(state: PositionState) -> tuple[Tensor, Tensor]:
    """The largest ‖x_l - φ_i‖², l ≠ i, and ‖x_i - φ_i‖², (P,) each."""
    phi = state.means[state.index]
    far = squared_distances(phi, state.words)
    far = far.masked_fill(state.own_logit[:, : state.n] <= NEVER / 2, 0.0)
    others = far.scatter(1, state.index[:, None], 0.0).amax(1)
    if not state.weight_fn.exponential or state.own_logit.shape[1] > state.n:
        # All weights may vanish, or a sink take them: then nothing is left of the row.
        others = torch.maximum(others, phi.square().sum(-1))
    return others, (state.word - phi).square().sum(-1)


def _own_reach(state: PositionState, radius: float, moves: Tensor | None) -> Tensor:
    """The most that a score of the own row moves, (P,)."""
    if isinstance(state, BilinearState):
        queries, keys, product = state.queries, state.keys, 0.5 * state.bilinear.norm()
    else:
        assert isinstance(state, HeadState)
        assert moves is not None
        d_k = state.keys.shape[1]
        by_key, by_query = moves[:, :d_k], moves[:, -d_k:]
        queries, keys = state.queries @ by_key.mT, state.keys @ by_query.mT
        product = (by_key @ by_query.mT).norm()
    own = (queries[state.index].norm(dim=1) + keys[state.index].norm(dim=1)) * radius
    return torch.maximum(keys.norm(dim=1).max() * radius, own + product * radius**2)


def _near(state: PositionState, reach: Tensor, size: float) -> Tensor:
    """A bound (P,) of the squared change of the own row, good where its scores hardly move.

    No weight of softmax changes by more than a factor e^(2 reach); the value moves by `size`.
    """
    if not state.weight_fn.exponential:
        return torch.full_like(reach, torch.inf)
    phi = state.means[state.index]
    factor = (2 * reach).clamp(max=_MOST).exp()
    far = squared_distances(phi, state.words).clamp(min=0).sqrt()
    moved = (state.own_a[:, : state.n] * far).sum(1)
    if state.own_a.shape[1] > state.n:
        moved = moved + state.own_a[:, state.n] * phi.norm(dim=1)
    own = state.own_a.gather(1, state.index[:, None])[:, 0]
    near = ((factor - 1) * moved + (factor * own).clamp(max=1) * size).square() * (1 + 1e-9)
    return torch.where(2 * reach < _MOST, near, torch.inf)
