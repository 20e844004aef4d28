"""What the bound knows of each pair of a row j and a word i that changes (docs/design.md, 8)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from wsfast.attention.core import NEVER
from wsfast.attention.state import BilinearState, HeadState, reals
from wsfast.bound.own_row import near, two_points

# What a pair is: any; one whose row gives word i more than half of its attention; one of a ReLU
# row without other words, whose attention is 0 or 1; one that no change moves.
PLAIN, DOMINATED, ALONE, NEUTRAL = range(4)

# What there is of each position.
_OF_POSITIONS = (
    "index", "radius", "kind", "logit", "scale", "a", "inv_b", "c2", "lost", "reach", "reach_p",
    "reach_u", "low", "high", "alpha_low", "alpha_high", "others", "own",
)  # fmt: skip

_ROUNDED = 1 + 1e-12  # norms are

_BEYOND = 1e100  # of scores in units of the other weights


@dataclass(frozen=True)
class Pairs:
    """Pairs of P positions and n rows, for changes Δ of norms up to r, in units that make r ≤ 1.

    Row j changes by q c_j + α u⃗ with |u⃗| ≤ r, where α is its new attention to word i, a the old
    one, and q = α - a. Its score moves by t = y_j·Δ; c_j·u⃗ = (u - p_j) / b_j of u = z_i·Δ and
    p_j = π_j·Δ.

    Attributes
    ----------
    index : Tensor, shape (P,), int64
        The positions.
    relu : bool
        α = g / (1 + g) of g = max((logit + t) / scale, 0); softmax: α = σ(logit + t).
    radius : Tensor, shape (P,)
        r of each position.
    scores, means : Tensor, shape (n, D)
        y_j, and π_j = φ_j less the mean of all φ.
    words : Tensor, shape (n, D)
        z_i: the words less the mean of all φ.
    span : Tensor, shape (D, k), or None
        Vectors whose span has all of these, where that is less than all dimensions.
    kind : Tensor, shape (P, n), uint8
        PLAIN, DOMINATED, ALONE or NEUTRAL, as the own row is.
    logit, scale, a, inv_b, c2 : Tensor, shape (P, n)
        c2 is |c_j|². For other pairs than plain ones inv_b is 1, and c_j·u⃗ = u - p' with
        |p'| ≤ `lost`.
    lost : Tensor, shape (P, n)
    reach, reach_p : Tensor, shape (P, n)
        The largest |t| and |p|.
    reach_u : Tensor, shape (P,)
    low, high : Tensor, shape (P, n)
        (logit ± reach) / scale, between which the attention moves.
    alpha_low, alpha_high : Tensor, shape (P, n)
        The attention there.
    others, own : Tensor, shape (P,)
        The own row is a mean of words: its change is at most the larger of `others` and
        `own` + 2 (u - p_i), squared.
    off : float
        What words and means, differences of long vectors, are rounded by at most.
    unit : float
        Of the lengths of values: a squared norm in these units, times unit², is one of φ.
    """

    index: Tensor
    relu: bool
    radius: Tensor
    scores: Tensor
    means: Tensor
    words: Tensor
    span: Tensor | None
    kind: Tensor
    logit: Tensor
    scale: Tensor
    a: Tensor
    inv_b: Tensor
    c2: Tensor
    lost: Tensor
    reach: Tensor
    reach_p: Tensor
    reach_u: Tensor
    low: Tensor
    high: Tensor
    alpha_low: Tensor
    alpha_high: Tensor
    others: Tensor
    own: Tensor
    off: float
    unit: float

    def select(self, keep: Tensor) -> Pairs:
        """The positions numbered `keep` alone."""
        given: dict[str, Any] = {name: getattr(self, name)[keep] for name in _OF_POSITIONS}
        return replace(self, **given)

    def to(self, dtype: torch.dtype) -> Pairs:
        """The same with its real tensors in `dtype`."""
        return replace(self, **reals(self, dtype))

    def attention(self, t: Tensor) -> Tensor:
        """α (P, n) for changes t (P, n) of the scores."""
        alpha = attention((self.logit + t) / self.scale, relu=self.relu)
        return torch.where(self.kind == ALONE, (self.logit + t > 0).to(t.dtype), alpha)


def attention(g: Tensor, *, relu: bool) -> Tensor:
    """α of the log-odds g or, for ReLU, of the score in units of the other weights."""
    return torch.where(g > 0, g / (1 + g), 0.0) if relu else g.sigmoid()


def pairs_of(
    state: BilinearState | HeadState,
    radii: Tensor,
    largest: float,
    moves: Tensor | None = None,
) -> Pairs:
    """The pairs of a state, in float64, for changes of norms up to `radii` (P,), above 0.

    All positions of a text, whose shape they share, are in units of its `largest` radius.
    `moves` (D, 2 d_k + d_v), of a head, is what makes of Δ the changes of key, value and query.
    """
    index = state.index
    radius = radii / largest
    unit, size, span = largest, 1.0, None
    if moves is None:
        by_key = by_value = None
    else:
        d_k = state.queries.shape[1]
        by_key, by_value = moves[:, :d_k].mT, moves[:, d_k : d_k + state.d].mT
        span = moves[:, : d_k + state.d]
        size = float(torch.linalg.matrix_norm(by_value, 2)) * _ROUNDED
        unit = largest * size if size > 0 else 1.0

    def of_delta(vectors: Tensor, matrix: Tensor | None) -> Tensor:
        """What vectors along a key or a value are along Δ."""
        return vectors if matrix is None else vectors @ matrix

    mean = state.means.mean(0)
    scores = of_delta(state.queries, by_key) * largest
    means, words, lost = (
        of_delta(rows - mean, by_value) * (largest / unit**2)
        for rows in (state.means, state.words, state.dominated_mean)
    )
    if span is None and 2 * len(scores) < scores.shape[1]:
        span = torch.cat([scores, words]).mT

    relu = not state.weight_fn.exponential
    alone = (state.rest <= 0) if relu else torch.zeros_like(state.a, dtype=torch.bool)
    dominated = state.dominated_position, state.dominated_row
    kind = torch.full_like(state.a, PLAIN, dtype=torch.uint8)
    kind = kind.index_put(dominated, kind.new_tensor(DOMINATED)).masked_fill(alone, ALONE)
    kind = kind.masked_fill(state.logit <= NEVER / 2, NEUTRAL)
    longest = float(torch.cat([state.words, state.means]).norm(dim=1).max())
    off = 16 * torch.finfo(words.dtype).eps * longest * size * largest / unit**2
    reach = scores.norm(dim=1) * _ROUNDED
    reach_p, reach_u = (rows.norm(dim=1) * _ROUNDED + off for rows in (means, words[index]))
    reach, reach_p = radius[:, None] * reach, radius[:, None] * reach_p
    far = (lost.norm(dim=1) * _ROUNDED + off) * radius[dominated[0]]
    scale = torch.where(alone, 1.0, state.rest) if relu else torch.ones_like(state.a)
    low, high = (state.logit - reach) / scale, (state.logit + reach) / scale
    # Beyond this no grid is laid: nothing is proved of such a position.
    beyond = ((torch.maximum(low.abs(), high.abs()) > _BEYOND) & (kind < ALONE)).any(1)
    low, high = low.clamp(-_BEYOND, _BEYOND), high.clamp(-_BEYOND, _BEYOND)
    reach_u = radius * reach_u

    others, own = (x / unit**2 for x in two_points(state))
    own = own + radius.square()
    # What is known to stay small needs no word of its own: the second point is below the first.
    # A bound that does not depend on Δ is preferred even where it is a little larger.
    known = 1.01 * torch.maximum(others, own)
    least = near(state, radii, radii * size, known * unit**2, moves) / unit**2
    small = least < known
    others = torch.where(small, least, others).masked_fill(beyond, torch.inf)
    at_own = reach_p.gather(1, index[:, None])[:, 0]
    own = torch.where(small, least - 2 * (reach_u + at_own) - 1, own)
    return Pairs(
        index=index,
        relu=relu,
        radius=radius,
        scores=scores,
        means=means,
        words=words,
        span=span,
        kind=kind,
        logit=state.logit,
        scale=scale,
        a=state.a,
        inv_b=torch.where(kind == PLAIN, state.inv_b, 1.0),
        c2=state.c2 / unit**2,
        lost=reach_p.index_put(dominated, far),
        reach=reach,
        reach_p=reach_p,
        reach_u=reach_u,
        low=low,
        high=high,
        alpha_low=attention(low, relu=relu),
        alpha_high=attention(high, relu=relu),
        others=others,
        own=own,
        off=off,
        unit=unit,
    )
