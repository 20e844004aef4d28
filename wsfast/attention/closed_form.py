"""The closed form (docs/design.md, section 2) in PyTorch: runs anywhere, differentiable."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from wsfast._kinks import at_most, reciprocal, relu
from wsfast.attention.core import NEVER
from wsfast.attention.rows import Rows
from wsfast.attention.state import PositionState
from wsfast.attention.weight_fn import WeightFn


class OwnRows(NamedTuple):
    """Rows of words that change, as of `PositionState`, (P, n) each."""

    weight_fn: WeightFn
    own_logit: Tensor
    own_a: Tensor
    own_top: Tensor  # (P,)


class PairChange(NamedTuple):
    """New attention `alpha` of row j on word i, its change `q`, both (P, s, n)."""

    alpha: Tensor
    q: Tensor


def sigmoid_change(logit: Tensor, t: Tensor, a: Tensor, b: Tensor) -> PairChange:
    """σ(logit + t) and its change from a = σ(logit), where b = 1 - a."""
    alpha, left = (logit + t).sigmoid(), (-logit - t).sigmoid()
    # expm1 of a negative number on either side: no cancellation for small t, no overflow for large.
    rising = -alpha * b * torch.expm1(-relu(t))
    falling = a * left * torch.expm1(at_most(t, 0.0))
    return PairChange(alpha, torch.where(t > 0, rising, falling))


def softmax_change(logit: Tensor, a: Tensor, moved: Tensor) -> tuple[Tensor, Tensor]:
    """softmax(logit + moved) and its change from a; `moved` is 0 for the row's largest."""
    weight = (logit + moved).softmax(-1)
    small = moved.abs().amax(-1, keepdim=True) <= 1
    em = torch.expm1(torch.where(small, moved, 0.0))
    mean = (a * em).sum(-1, keepdim=True)
    return weight, torch.where(small, a * (em - mean) / (1 + mean), weight - a)


def pair_change(state: PositionState, t: Tensor) -> PairChange:
    """What a change `t` (P, s, n) of the scores S_ji does to the attention on word i."""
    a, b, logit, rest = (x[:, None] for x in (state.a, state.b, state.logit, state.rest))
    fn = state.weight_fn
    if fn.exponential:
        return sigmoid_change(logit, t, a, b)
    weight, change = fn.value(logit + t), fn.change(logit, t)
    if not fn.normalize:
        return PairChange(weight, change)
    total = rest + weight
    inv = reciprocal(total)
    # With no other weight in the row the attention is 1 or 0, and no quotient gives its change.
    alpha = torch.where(rest > 0, weight * inv, (weight > 0).to(weight.dtype))
    return PairChange(alpha, torch.where(rest > 0, b * change * inv, alpha - a))


def own_attention(state: PositionState | OwnRows, r: Tensor) -> tuple[Tensor, Tensor]:
    """New attention of row i and its change, (P, s, n), when its scores change by `r`."""
    logit, a = state.own_logit[:, None], state.own_a[:, None]
    fn = state.weight_fn
    if fn.exponential:
        top = state.own_top[:, None, None].expand(-1, r.shape[1], 1)
        moved = (r - r.gather(-1, top)).masked_fill(logit <= NEVER / 2, 0.0)
        return softmax_change(logit, a, moved)
    weight, change = fn.value(logit + r), fn.change(logit, r)
    if not fn.normalize:
        return weight, change
    total = weight.sum(-1, keepdim=True)
    filled = total > 0
    inv = reciprocal(total)
    change = torch.where(filled, (change - a * change.sum(-1, keepdim=True)) * inv, -a)
    return weight * inv, change


# As kDoubt of csrc/formulas.h: a sum of weights, in terms of its scores, that rounding spoils.
_DOUBT = {torch.float32: 3e-2, torch.float64: 6e-5}


def doubtful(state: PositionState | OwnRows, r: Tensor, share: float | None = None) -> Tensor:
    """Where rounding of the scores may be all there is of the new weights of row i, (P, s)."""
    fn, logit = state.weight_fn, state.own_logit[:, None]
    if fn.exponential or not fn.normalize:
        return torch.zeros(r.shape[:2], dtype=torch.bool, device=r.device)
    total = fn.value(logit + r).sum(-1)
    terms = (logit.abs() + r.abs()).masked_fill(logit <= NEVER / 2, 0.0)  # not of unseen words
    return total < (_DOUBT[r.dtype] if share is None else share) * terms.sum(-1)


class Scores(NamedTuple):
    """Products with Δ at P positions and s points, (P, s, n) each."""

    t: Tensor  # y_j · Δ
    phi_delta: Tensor  # φ_j · Δ
    r: Tensor  # change of the scores of row i


def scores(state: PositionState, delta: Tensor) -> Scores:
    """What Δ (P, s, d) does to scores, and φ_j · Δ, (P, s, n) each."""
    n = state.n
    t, phi_delta, keys_delta = (delta @ state.stack.mT).split(n, -1)
    own = 0.5 * (delta * (delta @ state.bilinear)).sum(-1, keepdim=True)
    index = state.index[:, None, None].expand(-1, delta.shape[1], 1)
    r = keys_delta.scatter_add(-1, index, t.gather(-1, index) + own)
    return Scores(t, phi_delta, r)


def squared_norms(
    state: PositionState, delta: Tensor, *, own: bool = True
) -> tuple[Tensor, Tensor]:
    """‖φ(X^i(Δ)) - φ(X)‖² (P, s) for Δ (P, s, d), and the size of the terms it is a sum of.

    Of all rows or, without `own`, of the rows j ≠ i.
    """
    t, phi_delta, r = scores(state, delta)
    index = state.index[:, None, None].expand(-1, delta.shape[1], 1)
    k, j = state.dominated_position, state.dominated_row
    mean_delta = (delta[k] @ state.dominated_mean[:, :, None]).squeeze(-1)
    phi_delta = phi_delta.mT.index_put((k, j), mean_delta).mT
    word_delta = (delta * state.word[:, None]).sum(-1, keepdim=True)
    c_delta = (word_delta - phi_delta) * state.inv_b[:, None]
    alpha, q = pair_change(state, t)
    delta2 = delta.square().sum(-1, keepdim=True)
    c2 = state.c2[:, None]
    norm2 = q.square() * c2 + 2 * q * alpha * c_delta + alpha.square() * delta2
    reach2 = torch.maximum(c2, (state.reach[:, None] * state.inv_b[:, None]).square())
    size = (q.square() * reach2 + alpha.square() * delta2).sum(-1)
    if not own:
        return norm2.sum(-1), size

    weight, change = own_attention(state, r)
    moved = change @ state.words
    alpha_delta = weight.gather(-1, index) * delta
    own_norm2 = (moved + alpha_delta).square().sum(-1)
    own_size = moved.square().sum(-1) + alpha_delta.square().sum(-1)
    size = (size + own_size).masked_fill(doubtful(state, r), torch.inf)
    return norm2.sum(-1) + own_norm2, size


def deltas(state: PositionState, delta: Tensor) -> Tensor:
    """φ(X^i(Δ)) - φ(X) itself, (P, n, d), for one Δ (P, d) per position; nothing cancels."""
    at = delta[:, None]
    t, _, r = scores(state, at)
    alpha, q = (x[:, 0, :, None] for x in pair_change(state, t))
    change = q * _c(state) + alpha * at
    weight, own_change = (x[:, 0] for x in own_attention(state, r))
    doubt = doubtful(state, r)
    if bool(doubt.any()):
        moved = state.word + delta
        own = 0.5 * (moved * (moved @ state.bilinear)).sum(-1, keepdim=True)
        exact = own_weights(state, (moved @ state.keys.mT).scatter(-1, state.index[:, None], own))
        weight = torch.where(doubt, exact, weight)
        own_change = torch.where(doubt, exact - state.own_a, own_change)
    own = own_change @ state.words + weight.gather(-1, state.index[:, None]) * delta
    rows = torch.arange(len(state.index), device=delta.device)
    return change.index_put((rows, state.index), own)


def own_weights(state: PositionState | OwnRows, scores: Tensor) -> Tensor:
    """Normalised weights (P, n) of row i for its new scores (P, n)."""
    weights = state.weight_fn.value(scores.masked_fill(state.own_logit <= NEVER / 2, NEVER))
    total = weights.sum(-1, keepdim=True)
    return weights / torch.where(total > 0, total, 1.0)


# -- a hidden word: nobody attends to it, its own row stays as a query ----------------------------


def _own_without(rows: Rows, state: PositionState) -> tuple[Tensor, Tensor]:
    """Attention a_ii (P, 1) of row i on its own word, and c_ii (P, d) = x_i - mean without it.

    The mean of no word is 0 in the coordinates of X, where a hidden word leaves a row empty.
    """
    fn, i = rows.core.weight_fn, state.index
    a = state.own_a.gather(1, i[:, None])
    if not fn.normalize:
        return a, state.word
    top, _, rest = (column[i] for column in rows.statistics)
    dominated = (top == i) & (a[:, 0] > 0.5)
    c = (state.word - rows.phi[i]) / (1 - torch.where(dominated[:, None], 0.0, a))
    some = dominated.nonzero()[:, 0]
    alone = rest.isneginf() if fn.exponential else rest == 0
    mean = torch.where(alone[some, None], -rows.shift, rows.rest_mean[i[some]])
    return a, c.index_put_((some,), state.word[some] - mean)


def hidden_squared_norms(rows: Rows, state: PositionState, *, own: bool) -> Tensor:
    """‖φ without word i - φ‖² (P,), of all rows or, without `own`, of the rows j ≠ i."""
    squared = (state.a.square() * state.c2).sum(-1)
    if own:
        a, c = _own_without(rows, state)
        squared = squared + (a[:, 0] * c.norm(dim=-1)).square()
    return squared


def hidden_deltas(rows: Rows, state: PositionState) -> Tensor:
    """φ without word i - φ itself, (P, n, d)."""
    a, c = _own_without(rows, state)
    each = torch.arange(len(state.index), device=state.index.device)
    return (-state.a[:, :, None] * _c(state)).index_put((each, state.index), -a * c)


def _c(state: PositionState) -> Tensor:
    """c_ji (P, n, d); any number in neutral rows."""
    c = (state.word[:, None] - state.means) * state.inv_b[:, :, None]
    k, j = state.dominated_position, state.dominated_row
    return c.index_put((k, j), state.word[k] - state.dominated_mean)
