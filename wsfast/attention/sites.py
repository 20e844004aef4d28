"""The closed form where several words of a text change at once (docs/design.md, section 2).

Row j attends; k and l are words of a site, of which there are m. m_j is the mean of row j without
them, and c_jk = x_k - m_j.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, TypeVar

import torch
from torch import Tensor

from wsfast._kinks import at_most, reciprocal, relu
from wsfast.attention.closed_form import OwnRows, doubtful, own_attention, own_weights
from wsfast.attention.core import NEVER, HeadCore, numbers
from wsfast.attention.rows import Rows
from wsfast.attention.softmax import capped_change
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

State = TypeVar("State", bound="SiteState")


class SiteMoves(NamedTuple):
    """What changes at P sites, s of each, do to the scores and to the values."""

    t: Tensor  # (P, s, m, n) change of the scores S_jk
    mean: Tensor  # (P, s, m, n) m_j · u_k
    word: Tensor  # (P, s, m, m) x_l · u_k
    r: Tensor  # (P, s, m, n) change of the scores of row k
    u: Tensor  # (P, s, m, d_v) change of the value of word k


@dataclass(frozen=True)
class SiteState(ABC):
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
    # The values, of d numbers each.
    word: Tensor  # (P, m, d) x_k
    words: Tensor  # (n, d)

    # What all sites share, beside what Δ is multiplied with.
    _shared: ClassVar[frozenset[str]] = frozenset({"weight_fn", "words"})

    @property
    def n(self) -> int:
        return self.words.shape[0]

    @property
    @abstractmethod
    def means(self) -> Tensor:
        """(M, d) of which `mean` says the row's."""

    @abstractmethod
    def moves(self, delta: Tensor) -> SiteMoves:
        """What Δ (P, s, m, D) does."""

    def _along(self, u: Tensor, means_u: Tensor) -> tuple[Tensor, Tensor]:
        """m_j · u_k and x_l · u_k, of u (P, s, m, d) and its products with `means`."""
        s, m = u.shape[1:3]
        word = u @ self.word[:, None].mT
        index = self.mean[:, None, None].expand(-1, s, m, -1)
        mean = means_u.gather(-1, index) - word @ self.b[:, None]
        return mean * self.inv_rest[:, None, None], word

    def _own(self, t: Tensor, r: Tensor, both: Tensor) -> Tensor:
        """Changes of the scores of row k: `r` of its query, `t` of keys, `both` (P, s, m, m)."""
        at = self.at[:, None, None].expand(-1, t.shape[1], t.shape[2], -1)
        return r.scatter_add(-1, at, t.gather(-1, at).mT + both)

    @property
    def own(self) -> OwnRows:
        """Rows of the sites, one after the other."""
        flat = (self.own_logit.flatten(0, 1), self.own_a.flatten(0, 1), self.own_top.flatten())
        return OwnRows(self.weight_fn, *flat)

    def select(self: State, keep: Tensor) -> State:
        """The state of the sites numbered `keep`."""
        own = {
            name: value[keep]
            for name, value in vars(self).items()
            if name not in self._shared and value is not None
        }
        return replace(self, **own)


@dataclass(frozen=True)
class BilinearSiteState(SiteState):
    """Of words that are their own keys and values: Δ (P, s, m, d) moves all three."""

    stack: Tensor  # (2n + M, d): queries, keys, `means`
    W: Tensor  # (d, d) W/√d

    _shared: ClassVar[frozenset[str]] = SiteState._shared | {"stack", "W"}

    @property
    def means(self) -> Tensor:
        return self.stack[2 * self.n :]

    def moves(self, delta: Tensor) -> SiteMoves:
        n = self.n
        t, r, means_delta = (delta @ self.stack.mT).tensor_split([n, 2 * n], -1)
        mean, word = self._along(delta, means_delta)
        return SiteMoves(t, mean, word, self._own(t, r, (delta @ self.W) @ delta.mT), delta)

    def to(self, dtype: torch.dtype, W: Tensor) -> BilinearSiteState:
        """The same state with its real tensors in `dtype`, in which `W` is already."""
        return replace(self, **reals(self, dtype, but="W"), W=W)

    def project(self, basis: Tensor) -> BilinearSiteState:
        """The same problem for words that move in the span of the columns of `basis` (d, r)."""
        return replace(
            self,
            word=self.word @ basis,
            words=self.words @ basis,
            stack=self.stack @ basis,
            W=basis.mT @ (self.W @ basis),
        )


@dataclass(frozen=True)
class HeadSiteState(SiteState):
    """Of a head: Δ (P, s, m, 2 d_k + d_v) changes keys, values and queries of the words."""

    queries: Tensor  # (n, d_k)
    keys: Tensor  # (n, d_k)
    outer: Tensor  # (M, d) `means`
    cap: float | None
    # Scores before the cap, (P, m, n) each, where there is one: of the words, and of their rows.
    raw: Tensor | None
    own_raw: Tensor | None

    _shared: ClassVar[frozenset[str]] = SiteState._shared | {"queries", "keys", "outer", "cap"}

    @property
    def means(self) -> Tensor:
        return self.outer

    def moves(self, delta: Tensor) -> SiteMoves:
        d_k = self.keys.shape[1]
        key, u, query = delta.split([d_k, self.words.shape[1], d_k], -1)
        t = key @ self.queries.mT
        r = self._own(t, query @ self.keys.mT, query @ key.mT)
        if self.raw is not None and self.own_raw is not None:
            t = capped_change(self.cap, self.raw[:, None], t)
            r = capped_change(self.cap, self.own_raw[:, None], r)
        return SiteMoves(t, *self._along(u, u @ self.outer.mT), r, u)

    def to(self, dtype: torch.dtype) -> HeadSiteState:
        """The same state with its real tensors in `dtype`."""
        return replace(self, **reals(self, dtype))


# -- before the change -----------------------------------------------------------------------------


class LeftOut(NamedTuple):
    """Rows without their p largest words, p from 0 to m."""

    top: Tensor  # (n, m) int64, the largest words
    rest: Tensor  # (m + 1, n) softmax: log-sum-exp; else the sum of weights
    mean: Tensor  # (m + 1, n, d)


def prepare_sites(rows: Rows, left: LeftOut, at: Tensor, W: Tensor) -> BilinearSiteState:
    """The state of the sites `at` (P, m), in the dtype of `rows`.

    `left` is that of m words, and `W` (d, d) is W/√d.
    """
    known, means = _known(rows, left, at)
    stack = torch.cat([rows.core.queries, rows.core.keys, means])
    return BilinearSiteState(**known, stack=stack, W=W)


def prepare_head_sites(rows: Rows, left: LeftOut, at: Tensor) -> HeadSiteState:
    """The state of the sites `at` (P, m) of a head."""
    core = rows.core
    assert isinstance(core, HeadCore)
    known, means = _known(rows, left, at)
    raw = own_raw = None
    if core.cap is not None:
        raw, own_raw = (
            scores.unflatten(0, at.shape)
            for scores in (core.raw_of(at.flatten()), core.raw(at.flatten()))
        )
    return HeadSiteState(
        **known,
        queries=core.queries,
        keys=core.keys,
        outer=means,
        cap=core.cap,
        raw=raw,
        own_raw=own_raw,
    )


def _known(rows: Rows, left: LeftOut, at: Tensor) -> tuple[dict[str, Any], Tensor]:
    """The fields of `SiteState`, and its `means`."""
    core, fn = rows.core, rows.core.weight_fn
    P, m = at.shape
    n, each = core.n, numbers(core.values)
    own_rows = torch.zeros(P, n, dtype=torch.bool, device=at.device).scatter(1, at, True)
    score = core.scores_of(at.flatten()).unflatten(0, (P, m))  # S_jk
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
    known = {
        "weight_fn": fn,
        "at": at,
        "others": (~own_rows).to(word.dtype),
        "logit": logit,
        "a": a,
        "b": b,
        "share": share,
        "rest": rest,
        "total": total,
        "inv_rest": inv_rest,
        "mean": mean,
        "reach": reach * inv_rest,
        "gram": _gram(word, means, mean, b, inv_rest),
        "own_logit": own_logit.unflatten(0, (P, m)),
        "own_a": own_a.unflatten(0, (P, m)),
        "own_top": rows.statistics.top[at],
        "word": word,
        "words": rows.words,
    }
    return known, means


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
    each = numbers(core.values)
    # Scores, those that are left, weights, and what leads to each: some twelve arrays.
    tile = max(1, budget // (12 * 8 * len(each)))
    parts = [_without_top(rows, part, m) for part in each.split(tile)]
    top, rest, mean = zip(*parts, strict=True)
    return LeftOut(torch.cat(top), torch.cat(rest, 1), torch.cat(mean, 1))


def _without_top(rows: Rows, part: Tensor, m: int) -> LeftOut:
    """Of the rows numbered `part` alone."""
    core, fn = rows.core, rows.core.weight_fn
    scores = core.scores(part)
    seen = core.seen(part, numbers(core.values))
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
        rests[-1], mean = core.with_sink(rests[-1], weights @ rows.words)
        means.append(mean)
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
    """‖φ(X') - φ(X)‖² (P, s) for Δ (P, s, m, D), and the size of the terms it is a sum of.

    Of all rows or, without `own`, of those outside the site.
    """
    by = state.moves(delta)
    alpha, q = _moved(state, by.t)
    norm2 = _of_others(state, by, alpha, q)
    reach = (q.abs().sum(2) * state.reach[:, None]).square()
    length = (alpha * by.u.norm(dim=-1, keepdim=True)).sum(2).square()
    size = ((reach + length) * state.others[:, None]).sum(-1)
    if not own:
        return norm2, size
    moved, by_u, doubt = _own_change(state, by)
    squared = (moved + by_u).square().sum((-1, -3))
    own_size = (moved.square() + by_u.square()).sum((-1, -3))
    return norm2 + squared, (size + own_size).masked_fill(doubt.any(1), torch.inf)


def searched(state: SiteState, delta: Tensor) -> Tensor:
    """The square of the norm alone, as a search asks for it."""
    by = state.moves(delta)
    moved, by_u, _ = _own_change(state, by)
    own = (moved + by_u).square().sum((-1, -3))
    return _of_others(state, by, *_moved(state, by.t)) + own


def _of_others(state: SiteState, by: SiteMoves, alpha: Tensor, q: Tensor) -> Tensor:
    """The square (P, s) of the change of the rows outside the site."""
    crossed = alpha @ alpha.mul(state.others[:, None, None]).mT  # Σ_j α_jk α_jl
    moved = (crossed * (by.u @ by.u.mT)).sum((-1, -2))
    q_others = q * state.others[:, None, None]
    turned = (alpha @ q_others.mT * by.word).sum((-1, -2))
    turned = turned - (alpha * by.mean * q_others.sum(2, keepdim=True)).sum((-1, -2))
    gram = state.gram[:, None]
    m = alpha.shape[2]
    shifted = sum(
        (q_others[:, :, k] * q[:, :, other] * gram[:, :, k, other]).sum(-1)
        * (1 if k == other else 2)
        for k in range(m)
        for other in range(k, m)
    )
    return moved + 2 * turned + shifted


def _own_change(state: SiteState, by: SiteMoves) -> tuple[Tensor, Tensor, Tensor]:
    """What words and u add to the change of row k, (P, m, s, d) each; where rounding may be all."""
    P, s, m, _ = by.u.shape
    flat = by.r.transpose(1, 2).flatten(0, 1)
    weight, change = (x.unflatten(0, (P, m)) for x in own_attention(state.own, flat))
    at = state.at[:, None, None].expand(-1, m, s, -1)
    by_u = torch.einsum("pksl,psld->pksd", weight.gather(-1, at), by.u)
    doubt = doubtful(state.own, flat, _DOUBT).unflatten(0, (P, m))
    return change @ state.words, by_u, doubt


def deltas(state: SiteState, delta: Tensor) -> Tensor:
    """φ(X') - φ(X) itself, (P, n, d), for one Δ (P, m, D) a site; nothing cancels."""
    P, m, _ = delta.shape
    by = state.moves(delta[:, None])
    alpha, q = (x[:, 0] for x in _moved(state, by.t))
    change = alpha.mT @ by.u[:, 0] + (q[..., None] * _of_state(state)).sum(1)
    moved, by_u, doubt = (x[:, :, 0] for x in _own_change(state, by))
    own = moved + by_u
    if bool(doubt.any()):
        assert isinstance(state, BilinearSiteState)  # softmax is never in doubt
        # Weights from the moved words alone.
        after, at = state.word + delta, state.at[:, None].expand(-1, m, -1)
        scores = after @ state.stack[state.n : 2 * state.n].mT
        scores = scores.scatter(-1, at, after @ state.W @ after.mT)
        weights = own_weights(state.own, scores.flatten(0, 1)).unflatten(0, (P, m))
        exact = (weights - state.own_a) @ state.words + weights.gather(-1, at) @ delta
        own = torch.where(doubt[..., None], exact, own)
    return change.scatter(1, state.at[..., None].expand(-1, -1, own.shape[-1]), own)


def _of_state(state: SiteState) -> Tensor:
    return _c(state.word, state.means, state.mean, state.b, state.inv_rest)


# -- hidden words: nobody attends to them, their own rows stay as queries --------------------------


def hidden_squared_norms(state: SiteState, *, own: bool) -> Tensor:
    """‖φ without the site - φ‖² (P,), of all rows or, without `own`, of those outside it."""
    shifted = (state.gram * state.a[:, :, None]).sum(1)
    squared = (state.a * shifted).sum(1)
    return (squared if own else squared * state.others).sum(-1)


def hidden_deltas(state: SiteState) -> Tensor:
    """φ without the site - φ itself, (P, n, d)."""
    return -(state.a[..., None] * _of_state(state)).sum(1)
