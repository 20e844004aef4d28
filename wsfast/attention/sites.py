"""The closed form where several words of a text change at once (docs/design.md, section 2).

Row j attends; k and l are words of a site, of which there are m. m_j is the mean of row j without
them, and c_jk = x_k - m_j.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from wsfast._kinks import at_most, reciprocal, relu
from wsfast.attention.closed_form import OwnRows, doubtful, own_attention, own_weights
from wsfast.attention.core import NEVER, numbers
from wsfast.attention.rows import Rows
from wsfast.attention.state import own_scores, reals
from wsfast.attention.weight_fn import WeightFn

# Numbers of the c_jk that are formed together.
_TOGETHER = 1 << 18

# A change of attention is told by the attention before it while scores rise by no more than so
# much, and while so much of the weights is kept.
_FAR = 30.0
_KEPT = 0.5

# A sum of weights, in terms of its scores, whose shares rounding may spoil.
_DOUBT = 3e-2


@dataclass(frozen=True)
class SiteState:
    """Everything that one evaluation at P sites of m words needs.

    Rows of the site, and words that a row does not see, are neutral in what is said of pairs.
    """

    weight_fn: WeightFn
    at: Tensor  # (P, m) int64
    others: Tensor  # (P, n) 1 for the rows that do not change, else 0
    # Pairs of a word of the site and a row, (P, m, n).
    logit: Tensor  # softmax: log-odds against the words outside the site; else the score S_jk
    a: Tensor
    b: Tensor  # share of x_k in the mean that m_j is told by: m_j = (mean - Σ b_k x_k) inv_rest
    # Rows, (P, n).
    share: Tensor  # attention on the words outside, 1 - Σ a_k; 1 where there is no attention
    rest: Tensor  # sum of their weights (ReLU)
    total: Tensor  # of all weights (ReLU)
    inv_rest: Tensor
    mean: Tensor  # int64, which of `means`
    reach: Tensor  # size of what c_jk is a difference of
    gram: Tensor  # (P, m, m, n) c_jk · c_jl
    # The rows of the site, (P, m, n): as of `PositionState`.
    own_logit: Tensor
    own_a: Tensor
    own_top: Tensor  # (P, m) int64
    # What Δ is multiplied with.
    word: Tensor  # (P, m, d) x_k
    words: Tensor  # (n, d)
    stack: Tensor  # (2n + M, d): queries, keys, `means`
    W: Tensor  # (d, d) W/√d

    @property
    def n(self) -> int:
        return self.words.shape[0]

    @property
    def d(self) -> int:
        return self.words.shape[1]

    @property
    def own(self) -> OwnRows:
        """Rows of the sites, one after the other."""
        flat = (self.own_logit.flatten(0, 1), self.own_a.flatten(0, 1), self.own_top.flatten())
        return OwnRows(self.weight_fn, *flat)

    def to(self, dtype: torch.dtype, W: Tensor) -> SiteState:
        """The same state with its real tensors in `dtype`, in which `W` is already."""
        return replace(self, **reals(self, dtype, but="W"), W=W)

    def project(self, basis: Tensor) -> SiteState:
        """The same problem for words that move in the span of the columns of `basis` (d, r)."""
        return replace(
            self,
            word=self.word @ basis,
            words=self.words @ basis,
            stack=self.stack @ basis,
            W=basis.mT @ (self.W @ basis),
        )

    def select(self, keep: Tensor) -> SiteState:
        """The state of the sites numbered `keep`."""
        shared = {"weight_fn", "words", "stack", "W"}
        own = {name: value[keep] for name, value in vars(self).items() if name not in shared}
        return replace(self, **own)


# -- before the change -----------------------------------------------------------------------------


class LeftOut(NamedTuple):
    """Rows without their p largest words, p from 0 to m."""

    top: Tensor  # (n, m) int64, the largest words
    rest: Tensor  # (m + 1, n) softmax: log-sum-exp; else the sum of weights
    mean: Tensor  # (m + 1, n, d)


def prepare_sites(rows: Rows, left: LeftOut, at: Tensor, W: Tensor) -> SiteState:
    """The state of the sites `at` (P, m), in the dtype of `rows`.

    `left` is that of m words, and `W` (d, d) is W/√d.
    """
    core, fn = rows.core, rows.core.weight_fn
    P, m = at.shape
    n, each = len(core.X), numbers(core.X)
    own_rows = torch.zeros(P, n, dtype=torch.bool, device=at.device).scatter(1, at, True)
    score = (core.queries @ core.X[at.flatten()].mT).mT.unflatten(0, (P, m))  # S_jk
    sees = core.seen(each, at.flatten())
    unseen = torch.zeros_like(score, dtype=torch.bool)
    if sees is not None:
        unseen = ~sees.mT.unflatten(0, (P, m))
    score = score.masked_fill(unseen, NEVER)
    level, in_top = _level(left.top, at)
    # Where the site has no more than half of a row, nothing need be left out beforehand.
    little = _share_of(fn, score, left.rest[0]).masked_fill(unseen, 0.0).sum(1) <= 0.5
    level, in_top = level.masked_fill(little, 0), in_top & ~little[:, None]
    rest = left.rest[level, each]  # (P, n)
    b = _share_of(fn, score, rest).masked_fill(in_top | unseen, 0.0)
    outside = relu(1 - b.sum(1))
    if fn.exponential:
        outer = rest + outside.log()
        alone = outer < NEVER / 2  # no word but those of the site
        reference = torch.where(alone, score.amax(1), outer)
        logit = score - reference[:, None]
        other = torch.zeros_like(outer).masked_fill(alone, NEVER)
        shares = torch.cat([logit, other[:, None]], 1).softmax(1)
        a, share, rest = shares[:, :m], shares[:, m], torch.zeros_like(outer)
        total = torch.ones_like(outer)
    else:
        logit, rest = score, rest * outside if fn.normalize else torch.zeros_like(rest)
        weight = fn.value(score)
        total = weight.sum(1) + rest
        a = weight * reciprocal(total)[:, None] if fn.normalize else weight
        share = torch.where(total > 0, rest * reciprocal(total), 1.0)
        share = share if fn.normalize else torch.ones_like(share)
        alone = torch.zeros_like(own_rows)
    inv_rest = torch.where(alone, 1.0, reciprocal(outside))
    used, mean = (level * n + each).unique(return_inverse=True)
    means = left.mean.flatten(0, 1)[used]
    if fn.exponential:
        # A row that is alone is left with nothing: 0, in the coordinates of X.
        means = torch.cat([means, -rows.shift[None]])
        mean = torch.where(alone, len(means) - 1, mean)
        b = b.masked_fill(alone[:, None], 0.0)
    own_logit, own_a = own_scores(rows, at.flatten())
    word = rows.words[at]
    reach = word.norm(dim=-1).amax(1)[:, None] + means.norm(dim=-1)[mean]
    return SiteState(
        weight_fn=fn,
        at=at,
        others=(~own_rows).to(word.dtype),
        logit=logit,
        a=a,
        b=b,
        share=share,
        rest=rest,
        total=total,
        inv_rest=inv_rest,
        mean=mean,
        reach=reach * inv_rest,
        gram=_gram(word, means, mean, b, inv_rest),
        own_logit=own_logit.unflatten(0, (P, m)),
        own_a=own_a.unflatten(0, (P, m)),
        own_top=rows.statistics.top[at],
        word=word,
        words=rows.words,
        stack=torch.cat([core.queries, core.keys, means]),
        W=W,
    )


def _share_of(fn: WeightFn, score: Tensor, rest: Tensor) -> Tensor:
    """Share of the words (P, m, n) in the mean of the words whose weights sum to `rest` (…, n)."""
    if fn.exponential:
        return at_most(score - rest[..., None, :], 0.0).exp()
    if not fn.normalize:
        return torch.zeros_like(score)
    return fn.value(score) * reciprocal(rest)[..., None, :]


def left_out(rows: Rows, m: int, budget: int) -> LeftOut:
    """For sites of m words, within `budget` bytes of temporaries."""
    core, fn = rows.core, rows.core.weight_fn
    if not fn.normalize:  # no mean is taken
        none = torch.zeros_like(rows.phi)
        return LeftOut(none[:, :0].long(), none[None, :, 0], none[None])
    each = numbers(core.X)
    # Scores, those that are left, weights, and what leads to each: some twelve arrays.
    tile = max(1, budget // (12 * 8 * len(each)))
    parts = [_without_top(rows, part, m) for part in each.split(tile)]
    top, rest, mean = zip(*parts, strict=True)
    return LeftOut(torch.cat(top), torch.cat(rest, 1), torch.cat(mean, 1))


def _without_top(rows: Rows, part: Tensor, m: int) -> LeftOut:
    """Of the rows numbered `part` alone."""
    core, fn = rows.core, rows.core.weight_fn
    scores = core.queries[part] @ core.X.mT
    seen = core.seen(part, numbers(core.X))
    if seen is not None:
        scores = scores.masked_fill(~seen, NEVER)
    top = scores.topk(m, dim=-1).indices
    rests, means = [], []
    for p in range(m + 1):
        out = torch.zeros_like(scores, dtype=torch.bool).scatter(-1, top[:, :p], True)
        if fn.exponential:
            left = scores.masked_fill(out, NEVER)
            rests.append(left.logsumexp(-1).masked_fill(out.all(-1), NEVER))
            weights = left.softmax(-1)
        else:
            weights = fn.value(scores).masked_fill(out, 0.0)
            rests.append(weights.sum(-1))
            weights = weights * reciprocal(rests[-1])[:, None]
        means.append(weights @ rows.words)
    return LeftOut(top, torch.stack(rests), torch.stack(means))


def _level(top: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
    """How many of the largest words of a row are left out beforehand, (P, n), and which (P, m, n).

    As many as lie in the site, one after the other: of what remains, the words outside have a
    share of 1/(m + 1 - level) at least.
    """
    same = top[None, :, :, None] == at[:, None, None, :]  # (P, n, m of the largest, m of the site)
    leading = same.any(-1).long().cumprod(-1)
    return leading.sum(-1), (same & (leading > 0)[..., None]).any(2).mT


def _gram(word: Tensor, means: Tensor, mean: Tensor, b: Tensor, inv_rest: Tensor) -> Tensor:
    """c_jk · c_jl (P, m, m, n), of the differences themselves."""
    (P, m, d), n = word.shape, mean.shape[1]
    at_once = max(1, _TOGETHER // (n * d * (m + 1)))
    parts = []
    for some in torch.arange(P, device=word.device).split(at_once):
        c = _c(word[some], means, mean[some], b[some], inv_rest[some])
        parts.append(torch.einsum("pknd,plnd->pkln", c, c))
    return torch.cat(parts)


def _c(word: Tensor, means: Tensor, mean: Tensor, b: Tensor, inv_rest: Tensor) -> Tensor:
    """c_jk (P, m, n, d)."""
    # x_k - m_j of the differences to one mean, which are small where words are alike.
    apart = word[:, :, None] - means[mean][:, None]
    return apart + (b[..., None] * apart).sum(1, keepdim=True) * inv_rest[:, None, :, None]


# -- the change ------------------------------------------------------------------------------------


class _Products(NamedTuple):
    """Products with Δ (P, s, m, d)."""

    t: Tensor  # (P, s, m, n) q_j · Δ_k
    mean: Tensor  # (P, s, m, n) m_j · Δ_k
    word: Tensor  # (P, s, m, m) x_l · Δ_k
    r: Tensor  # (P, s, m, n) change of the scores of row k


def _products(state: SiteState, delta: Tensor) -> _Products:
    n, s, m = state.n, delta.shape[1], delta.shape[2]
    t, keys, means = (delta @ state.stack.mT).tensor_split([n, 2 * n], -1)
    word = delta @ state.word[:, None].mT
    index = state.mean[:, None, None].expand(-1, s, m, -1)
    mean = means.gather(-1, index) - word @ state.b[:, None]
    at = state.at[:, None, None].expand(-1, s, m, -1)
    both = t.gather(-1, at).mT + (delta @ state.W) @ delta.mT
    return _Products(t, mean * state.inv_rest[:, None, None], word, keys.scatter_add(-1, at, both))


def _moved(state: SiteState, t: Tensor) -> tuple[Tensor, Tensor]:
    """New attention of row j on word k and its change, (P, s, m, n), as its scores move by `t`."""
    fn, m = state.weight_fn, t.shape[2]
    logit, a, share = state.logit[:, None], state.a[:, None], state.share[:, None, None]
    if fn.exponential:
        t = t.masked_fill(logit <= NEVER / 2, 0.0)
        other = torch.zeros_like(t[:, :, :1])
        alpha = torch.cat([logit + t, other], 2).softmax(2)[:, :, :m]
        # Of e^(t - T) no difference to e^-T, T the largest t or 0, is taken that cancels.
        highest = relu(t.detach().amax(2, keepdim=True))
        near = torch.where(highest <= _FAR, t, 0.0)
        T = torch.where(highest <= _FAR, highest, 0.0)
        rising = -(near - T).exp() * torch.expm1(-relu(near))
        gain = torch.where(near > 0, rising, (-T).exp() * torch.expm1(at_most(near, 0.0)))
        total = (-T).exp() + (a * gain).sum(2, keepdim=True)
        between = [(a * (g - gain)).sum(2) for _, g in _each(gain)]
        change = a * (share * gain + torch.stack(between, 2)) / total
        close = (highest <= _FAR) & (total >= _KEPT * (-T).exp())
        return alpha, torch.where(close, change, alpha - a)
    weight, gain = fn.value(logit + t), fn.change(logit, t)
    if not fn.normalize:
        return weight, gain
    total = state.rest[:, None, None] + weight.sum(2, keepdim=True)
    inv = reciprocal(total)
    # For k = l exactly 0, where a sum over all l would leave rounding.
    between = [(a * g - a[:, :, k : k + 1] * gain).sum(2) for k, g in _each(gain)]
    change = (share * gain + torch.stack(between, 2)) * inv
    # What is left of weights that were larger is rounding of their differences.
    fell = total < _KEPT * state.total[:, None, None]
    return weight * inv, torch.where(fell, weight * inv - a, change)


def _each(gain: Tensor) -> list[tuple[int, Tensor]]:
    """The words of a site (P, s, m, n), each (P, s, 1, n) with its number."""
    return list(enumerate(gain.split(1, 2)))


def squared_norms(state: SiteState, delta: Tensor, *, own: bool = True) -> tuple[Tensor, Tensor]:
    """‖φ(X') - φ(X)‖² (P, s) for Δ (P, s, m, d), and the size of the terms it is a sum of.

    Of all rows or, without `own`, of those outside the site.
    """
    by = _products(state, delta)
    alpha, q = _moved(state, by.t)
    norm2 = _of_others(state, delta, by, alpha, q)
    reach = (q.abs().sum(2) * state.reach[:, None]).square()
    length = (alpha * delta.norm(dim=-1, keepdim=True)).sum(2).square()
    size = ((reach + length) * state.others[:, None]).sum(-1)
    if not own:
        return norm2, size
    moved, by_delta, doubt = _own_change(state, delta, by.r)
    squared = (moved + by_delta).square().sum((-1, -3))
    own_size = (moved.square() + by_delta.square()).sum((-1, -3))
    return norm2 + squared, (size + own_size).masked_fill(doubt.any(1), torch.inf)


def searched(state: SiteState, delta: Tensor) -> Tensor:
    """The square of the norm alone, as a search asks for it."""
    by = _products(state, delta)
    moved, by_delta, _ = _own_change(state, delta, by.r)
    own = (moved + by_delta).square().sum((-1, -3))
    return _of_others(state, delta, by, *_moved(state, by.t)) + own


def _of_others(state: SiteState, delta: Tensor, by: _Products, alpha: Tensor, q: Tensor) -> Tensor:
    """The square (P, s) of the change of the rows outside the site."""
    crossed = alpha @ alpha.mul(state.others[:, None, None]).mT  # Σ_j α_jk α_jl
    moved = (crossed * (delta @ delta.mT)).sum((-1, -2))
    q_others = q * state.others[:, None, None]
    turned = (alpha @ q_others.mT * by.word).sum((-1, -2))
    turned = turned - (alpha * by.mean * q_others.sum(2, keepdim=True)).sum((-1, -2))
    gram = state.gram[:, None]
    m = delta.shape[2]
    shifted = sum(
        (q_others[:, :, k] * q[:, :, other] * gram[:, :, k, other]).sum(-1)
        * (1 if k == other else 2)
        for k in range(m)
        for other in range(k, m)
    )
    return moved + 2 * turned + shifted


def _own_change(state: SiteState, delta: Tensor, r: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What words and Δ add to the change of row k, (P, m, s, d) each; where rounding may be all."""
    P, s, m, _ = delta.shape
    flat = r.transpose(1, 2).flatten(0, 1)
    weight, change = (x.unflatten(0, (P, m)) for x in own_attention(state.own, flat))
    at = state.at[:, None, None].expand(-1, m, s, -1)
    by_delta = torch.einsum("pksl,psld->pksd", weight.gather(-1, at), delta)
    doubt = doubtful(state.own, flat, _DOUBT).unflatten(0, (P, m))
    return change @ state.words, by_delta, doubt


def deltas(state: SiteState, delta: Tensor) -> Tensor:
    """φ(X') - φ(X) itself, (P, n, d), for one Δ (P, m, d) a site; nothing cancels."""
    P, m, d = delta.shape
    by = _products(state, delta[:, None])
    alpha, q = (x[:, 0] for x in _moved(state, by.t))
    change = alpha.mT @ delta + (q[..., None] * _of_state(state)).sum(1)
    moved, by_delta, doubt = (x[:, :, 0] for x in _own_change(state, delta[:, None], by.r))
    own = moved + by_delta
    if bool(doubt.any()):
        # Weights from the moved words alone.
        after, at = state.word + delta, state.at[:, None].expand(-1, m, -1)
        scores = after @ state.stack[state.n : 2 * state.n].mT
        scores = scores.scatter(-1, at, after @ state.W @ after.mT)
        weights = own_weights(state.own, scores.flatten(0, 1)).unflatten(0, (P, m))
        exact = (weights - state.own_a) @ state.words + weights.gather(-1, at) @ delta
        own = torch.where(doubt[..., None], exact, own)
    return change.scatter(1, state.at[..., None].expand(-1, -1, d), own)


def _of_state(state: SiteState) -> Tensor:
    means = state.stack[2 * state.n :]
    return _c(state.word, means, state.mean, state.b, state.inv_rest)


# -- hidden words: nobody attends to them, their own rows stay as queries --------------------------


def hidden_squared_norms(state: SiteState, *, own: bool) -> Tensor:
    """‖φ without the site - φ‖² (P,), of all rows or, without `own`, of those outside it."""
    shifted = (state.gram * state.a[:, :, None]).sum(1)
    squared = (state.a * shifted).sum(1)
    return (squared if own else squared * state.others).sum(-1)


def hidden_deltas(state: SiteState) -> Tensor:
    """φ without the site - φ itself, (P, n, d)."""
    return -(state.a[..., None] * _of_state(state)).sum(1)
