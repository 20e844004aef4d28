"""The closed form (docs/design.md, section 2) in PyTorch: runs anywhere, differentiable."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from wsfast._kinks import reciprocal
from wsfast.attention.core import NEVER, numbers
from wsfast.attention.rows import Rows
from wsfast.attention.softmax import PairChange, sigmoid_change, softmax_change
from wsfast.attention.state import BilinearState, Moves, PositionState, squared_distances
from wsfast.attention.weight_fn import WeightFn


class OwnRows(NamedTuple):
    """Rows of words that change, as of `PositionState`, (P, n) each."""

    weight_fn: WeightFn
    own_logit: Tensor
    own_a: Tensor
    own_top: Tensor  # (P,)


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
    fn, n = state.weight_fn, r.shape[-1]
    if fn.exponential:
        # A sink's score stays.
        r = torch.nn.functional.pad(r, (0, logit.shape[-1] - n))
        top = state.own_top[:, None, None].expand(-1, r.shape[1], 1)
        moved = (r - r.gather(-1, top)).masked_fill(logit <= NEVER / 2, 0.0)
        weight, change = softmax_change(logit, a, moved)
        return weight[..., :n], change[..., :n]
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


def squared_norms(
    state: PositionState, delta: Tensor, *, own: bool = True
) -> tuple[Tensor, Tensor]:
    """‖φ(X^i(Δ)) - φ(X)‖² (P, s) for Δ (P, s, D), and the size of the terms it is a sum of.

    Of all rows or, without `own`, of the rows j ≠ i.
    """
    by = state.moves(delta)
    c_u = _along(state, by.u, by.mean)
    alpha, q = pair_change(state, by.t)
    u2 = by.u.square().sum(-1, keepdim=True)
    c2 = state.c2[:, None]
    norm2 = q.square() * c2 + 2 * q * alpha * c_u + alpha.square() * u2
    reach2 = torch.maximum(c2, (state.reach[:, None] * state.inv_b[:, None]).square())
    size = (q.square() * reach2 + alpha.square() * u2).sum(-1)
    if not own:
        return norm2.sum(-1), size

    moved, alpha_u = _own_change(state, by)
    own_norm2 = (moved + alpha_u).square().sum(-1)
    own_size = moved.square().sum(-1) + alpha_u.square().sum(-1)
    size = (size + own_size).masked_fill(doubtful(state, by.r), torch.inf)
    return norm2.sum(-1) + own_norm2, size


def _along(state: PositionState, u: Tensor, mean_u: Tensor) -> Tensor:
    """c_ji · u (P, s, n) of u (P, s, d), whose products with the means are known."""
    k, j = state.dominated_position, state.dominated_row
    dominated_u = (u[k] @ state.dominated_mean[:, :, None]).squeeze(-1)
    mean_u = mean_u.mT.index_put((k, j), dominated_u).mT
    word_u = (u * state.word[:, None]).sum(-1, keepdim=True)
    return (word_u - mean_u) * state.inv_b[:, None]


def along_differences(state: PositionState, u: Tensor) -> Tensor:
    """c_ji · u (P, s, …, n) of vectors u (P, s, …, d)."""
    flat = u.flatten(1, -2)
    along: Tensor = _along(state, flat, flat @ state.means.mT).unflatten(1, u.shape[1:-1])
    return along


def own_row(state: PositionState, by: Moves) -> Tensor:
    """The change of row i (P, s, d)."""
    moved, alpha_u = _own_change(state, by)
    return moved + alpha_u


def _own_change(state: PositionState, by: Moves) -> tuple[Tensor, Tensor]:
    """What the words and u add to the change of row i, (P, s, d) each."""
    weight, change = own_attention(state, by.r)
    index = state.index[:, None, None].expand(-1, by.u.shape[1], 1)
    return change @ state.words, weight.gather(-1, index) * by.u


def deltas(state: PositionState, delta: Tensor) -> Tensor:
    """φ(X^i(Δ)) - φ(X) itself, (P, n, d), for one Δ (P, D) per position; nothing cancels."""
    t, _, r, u = state.moves(delta[:, None])
    alpha, q = (x[:, 0, :, None] for x in pair_change(state, t))
    change = q * differences(state) + alpha * u
    weight, own_change = (x[:, 0] for x in own_attention(state, r))
    doubt = doubtful(state, r)
    if bool(doubt.any()):
        assert isinstance(state, BilinearState)  # softmax is never in doubt
        moved = state.word + delta
        own = 0.5 * (moved * (moved @ state.bilinear)).sum(-1, keepdim=True)
        exact = own_weights(state, (moved @ state.keys.mT).scatter(-1, state.index[:, None], own))
        weight = torch.where(doubt, exact, weight)
        own_change = torch.where(doubt, exact - state.own_a, own_change)
    own = own_change @ state.words + weight.gather(-1, state.index[:, None]) * u[:, 0]
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


def hidden_squared_norms(rows: Rows, index: Tensor, *, own: bool) -> Tensor:
    """‖φ without word i - φ‖² (P,), of all rows or, without `own`, of the rows j ≠ i.

    From the rows alone: what moves needs a state, what leaves does not.
    """
    core, fn = rows.core, rows.core.weight_fn
    top, top_score, rest = rows.statistics
    score, word, each = core.scores_of(index), rows.words[index], numbers(core.values)
    unseen = each == index[:, None] if not own else None
    if (seen := core.seen(each, index)) is not None:
        unseen = ~seen.mT if unseen is None else unseen | ~seen.mT
    if fn.exponential:
        a = (score - torch.logaddexp(top_score, rest)).exp()
        a_top, alone = (top_score - rest).sigmoid(), rest.isneginf()
    else:
        a, a_top, alone = fn.value(score), fn.value(top_score), rest == 0
    if fn.normalize and not fn.exponential:
        inv = reciprocal(a_top + rest)
        a, a_top = a * inv, a_top * inv
    if fn.normalize:
        # The largest word of a row leaves the mean of the others; any other has at most half of it.
        leads = top == index[:, None]
        mean = torch.where(alone[:, None], -rows.shift, rows.rest_mean)
        by_top = (a_top * (rows.words[top] - mean).norm(dim=-1)).square()
        odds = a / (1 - a.masked_fill(leads, 0.0))
        squared = torch.where(leads, by_top, odds.square() * squared_distances(word, rows.phi))
    else:
        squared = a.square() * word.square().sum(-1, keepdim=True)
    if unseen is not None:
        squared = squared.masked_fill(unseen, 0.0)
    return squared.sum(-1)


def hidden_deltas(rows: Rows, state: PositionState) -> Tensor:
    """φ without word i - φ itself, (P, n, d)."""
    a, c = _own_without(rows, state)
    each = torch.arange(len(state.index), device=state.index.device)
    return (-state.a[:, :, None] * differences(state)).index_put((each, state.index), -a * c)


def differences(state: PositionState) -> Tensor:
    """c_ji (P, n, d); any number in neutral rows."""
    c = (state.word[:, None] - state.means) * state.inv_b[:, :, None]
    k, j = state.dominated_position, state.dominated_row
    return c.index_put((k, j), state.word[k] - state.dominated_mean)
