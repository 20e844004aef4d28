"""What the closed form keeps of a text, and of each position in it, while one word moves.

The notation is that of docs/design.md, section 2: row j attends, word i is perturbed, ``c_ji = x_i
- m_ji`` with ``m_ji`` the mean of row j without word i.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from wsfast._kinks import at_most, reciprocal, relu
from wsfast.attention.weight_fn import WeightFn
from wsfast.engines import compiled
from wsfast.engines.feature_kernels import (
    RowStatistics,
    TextFeatures,
    attention_statistics_,
    fused_text,
)

# Below this share of their size, squared distances come from the differences, not from inner
# products.
_CANCELLED = 1e-3

# A score that gives no weight under any Δ, and that float32 holds.
_NEVER = -1e30


@dataclass(frozen=True)
class TextState:
    """The rows that Δ is multiplied with, and the statistics of every row of attention.

    For normalised softmax the words are centred: every change of φ is a difference of means, so a
    common shift of the words drops out of it, and with the shift its rounding error.
    """

    weight_fn: WeightFn
    X: Tensor  # (n, d) as given
    shift: Tensor  # (d,) the mean of X for softmax, else 0; float32 holds it exactly
    words: Tensor  # (n, d) X - shift
    queries: Tensor  # (n, d) y_j = Wᵀ x_j / √d
    keys: Tensor  # (n, d) k_l = W x_l / √d
    phi: Tensor  # (n, d) in the coordinates of `words`
    others_mean: Tensor  # (n, d) mean of each row without its largest word, likewise
    statistics: RowStatistics


@dataclass(frozen=True)
class PositionState:
    """Everything that one evaluation at P positions needs; tensors (P, n) where not said otherwise.

    The entries of the position's own row (j = i) are neutral: they give no change.
    """

    weight_fn: WeightFn
    index: Tensor  # (P,) int64, the positions
    logit: Tensor  # log-odds of the attention a_ji for softmax, else the score S_ji
    a: Tensor
    b: Tensor  # 1 - a, formed without cancellation
    inv_b: Tensor  # 1/b; 1 for dominated pairs
    others: Tensor  # sum of the other weights of row j (ReLU)
    c2: Tensor  # ‖c_ji‖²
    reach: Tensor  # ‖x_i‖ + ‖φ_j‖: what c_ji is a difference of, times b
    own_logit: Tensor  # scores of row i; softmax: less the row's maximum
    own_a: Tensor
    own_top: Tensor  # (P,) int64
    # Pairs where row j puts more than half of its attention on word i, sorted by position.
    dominated_start: Tensor  # (P + 1,) int64
    dominated_position: Tensor  # (K,) int64, index into the P positions
    dominated_row: Tensor  # (K,) int64
    dominated_mean: Tensor  # (K, d) m_ji
    # What Δ is multiplied with.
    word: Tensor  # (P, d) x_i
    words: Tensor  # (n, d)
    rows: Tensor  # (3n, d): queries, φ (0 when unnormalised), keys
    bilinear: Tensor  # (d, d) (W + Wᵀ)/√d

    @property
    def n(self) -> int:
        return self.words.shape[0]

    @property
    def d(self) -> int:
        return self.words.shape[1]

    def to(self, dtype: torch.dtype, bilinear: Tensor) -> PositionState:
        """The same state with its real tensors in `dtype`, in which `bilinear` is already."""
        cast: dict[str, Any] = {
            name: value.to(dtype)
            for name, value in vars(self).items()
            if isinstance(value, Tensor) and value.is_floating_point() and name != "bilinear"
        }
        return replace(self, **cast, bilinear=bilinear)

    def project(self, basis: Tensor) -> PositionState:
        """The same problem for Δ in the span of the orthonormal columns of `basis` (d, r)."""
        return replace(
            self,
            dominated_mean=self.dominated_mean @ basis,
            word=self.word @ basis,
            words=self.words @ basis,
            rows=self.rows @ basis,
            bilinear=basis.mT @ (self.bilinear @ basis),
        )

    def select(self, keep: Tensor) -> PositionState:
        """The state of the positions numbered `keep` (int64; repetition is fine)."""
        counts = self.dominated_start.diff()[keep]
        position = torch.arange(len(keep), device=keep.device).repeat_interleave(counts)
        # Pair number: the start of the position's own pairs, plus the place among them.
        place = (
            torch.arange(len(position), device=keep.device) - _starts(position, len(keep))[position]
        )
        pairs = self.dominated_start[keep][position] + place
        per_position = (
            "index", "logit", "a", "b", "inv_b", "others", "c2", "reach", "own_logit", "own_a",
            "own_top", "word",
        )  # fmt: skip
        return replace(
            self,
            **{name: getattr(self, name)[keep] for name in per_position},
            dominated_start=_starts(position, len(keep)),
            dominated_position=position,
            dominated_row=self.dominated_row[pairs],
            dominated_mean=self.dominated_mean[pairs],
        )


def prepare_text(
    X: Tensor, W: Tensor, weight_fn: WeightFn, *, native: bool, tile: int
) -> TextState:
    """Two products with W, then one pass over the scores, `tile` rows at a time.

    `X` (n, d) and `W` (d, d) are float64: scores are exponentiated, so their rounding is not
    relative to the result, and the search that follows costs many times this.
    """
    scale = X.shape[1] ** -0.5
    queries = X @ W * scale
    keys = X @ W.mT * scale
    shift = _shift(X) if weight_fn.exponential else torch.zeros_like(X[0])
    words = X - shift
    if native and compiled.kernels(X.device).gpu:
        # Not of centred words: scores are to be rounded as all others of the text are.
        rows = fused_text(X, queries, weight_fn)
        if weight_fn.exponential:
            alone = rows.statistics.others.isneginf()[:, None]
            others_mean = (rows.others_mean - shift).masked_fill(alone, 0.0)
            rows = rows._replace(phi=rows.phi - shift, others_mean=others_mean)
    else:
        rows = _attend(X, words, queries, weight_fn, native=native, tile=tile)
    return TextState(
        weight_fn=weight_fn,
        X=X,
        shift=shift,
        words=words,
        queries=queries,
        keys=keys,
        phi=rows.phi,
        others_mean=rows.others_mean,
        statistics=rows.statistics,
    )


def _attend(
    X: Tensor, words: Tensor, queries: Tensor, weight_fn: WeightFn, *, native: bool, tile: int
) -> TextFeatures:
    means, parts = [], []
    for rows in queries.split(tile):
        scores = rows @ X.mT
        if native:
            part, weights = attention_statistics_(scores, weight_fn), scores
        else:
            part, weights = _attention_statistics(scores, weight_fn)
        means.append(weights @ words)
        parts.append(part)
    statistics = RowStatistics(*(torch.cat(column) for column in zip(*parts, strict=True)))
    others_mean = torch.cat(means)
    top_word = words[statistics.top]
    if weight_fn.exponential:
        a_top = (statistics.top_score - statistics.others).sigmoid()
        phi = others_mean + a_top[:, None] * (top_word - others_mean)
    else:
        w_top = weight_fn.value(statistics.top_score)
        rest = statistics.others
        if weight_fn.normalize:
            total = w_top + rest
            inv = reciprocal(total)
            w_top, rest = w_top * inv, rest * inv
        else:
            rest = torch.ones_like(rest)
        phi = rest[:, None] * others_mean + w_top[:, None] * top_word
    return TextFeatures(phi, others_mean, statistics)


def _shift(X: Tensor) -> Tensor:
    """The mean word, rounded so that float32 holds it; any other common shift would do as well."""
    mean = X.mean(0)
    rounded = mean.float().double()
    return torch.where(rounded.isfinite(), rounded, mean)


def _attention_statistics(scores: Tensor, weight_fn: WeightFn) -> tuple[RowStatistics, Tensor]:
    top = scores.argmax(-1)
    top_score = scores.gather(-1, top[:, None])[:, 0]
    at_top = torch.zeros_like(scores, dtype=torch.bool).scatter(-1, top[:, None], True)
    if weight_fn.exponential:
        rest = scores.masked_fill(at_top, -torch.inf)
        if scores.shape[-1] == 1:
            return RowStatistics(top, top_score, rest[:, 0]), torch.zeros_like(scores)
        return RowStatistics(top, top_score, rest.logsumexp(-1)), rest.softmax(-1)
    weights = weight_fn.value(scores).masked_fill(at_top, 0.0)
    others = weights.sum(-1)
    if weight_fn.normalize:
        weights = weights / torch.where(others > 0, others, 1.0)[:, None]
    return RowStatistics(top, top_score, others), weights


def prepare_positions(text: TextState, index: Tensor, bilinear: Tensor) -> PositionState:
    """The state of the positions `index` (P,) int64, in the dtype of `text`.

    `bilinear` (d, d) is (W + Wᵀ)/√d.
    """
    fn = text.weight_fn
    top, top_score, others = text.statistics
    score = text.X[index] @ text.queries.mT  # S_ji
    own_score = text.queries[index] @ text.X.mT  # S_il
    is_top = top == index[:, None]
    if fn.exponential:
        full = torch.logaddexp(top_score, others)
        # The largest word takes its exact log-odds; any other has at most half of the attention.
        log_a = torch.where(is_top, -torch.inf, at_most(score - full, -0.5))
        logit = torch.where(is_top, top_score - others, log_a - torch.log1p(-log_a.exp()))
        a, b = logit.sigmoid(), (-logit).sigmoid()
        rest = torch.zeros_like(a)
        # By these scores alone: one from elsewhere may be rounded otherwise.
        own_logit = own_score - own_score.gather(1, top[index, None])
        own_a = torch.exp(own_logit) * (top_score - others).sigmoid()[index, None]
    elif fn.normalize:
        weight = fn.value(score)
        total = fn.value(top_score) + others
        inv = reciprocal(total)
        rest = torch.where(is_top, others, relu(total - weight))
        logit, a = score, torch.where(rest > 0, weight * inv, (weight > 0).to(weight.dtype))
        b = torch.where(total > 0, rest * inv, 1.0)
        own_logit, own_a = own_score, fn.value(own_score) * inv[index, None]
    else:
        logit, a, b, rest = score, fn.value(score), torch.ones_like(score), torch.zeros_like(score)
        own_logit, own_a = own_score, fn.value(own_score)

    word = text.words[index]
    # Row i itself is no "other row": its entries are neutral, so that it adds exactly 0 to every
    # sum.
    own_row = torch.arange(len(top), device=index.device) == index[:, None]
    logit = logit.masked_fill(own_row, _NEVER)
    a, b, rest = (x.masked_fill(own_row, v) for x, v in ((a, 0.0), (b, 1.0), (rest, 1.0)))
    dominated = is_top & (a > 0.5) if fn.normalize else torch.zeros_like(is_top)
    position, row = dominated.nonzero(as_tuple=True)
    dominated_mean = text.others_mean[row]
    if fn.normalize:
        phi = text.phi
        inv_b = torch.where(dominated, 1.0, 1 / torch.where(dominated, 1.0, b))
        distance2 = _squared_distances(word, phi).index_put(
            (position, row), (word[position] - dominated_mean).square().sum(-1)
        )
        c2 = (distance2 * inv_b.square()).masked_fill(own_row, 0.0)
    else:
        phi = torch.zeros_like(text.phi)  # c_ji is x_i itself
        inv_b = torch.ones_like(b)
        c2 = word.square().sum(-1, keepdim=True).expand_as(b).masked_fill(own_row, 0.0)
    return PositionState(
        weight_fn=fn,
        index=index,
        logit=logit,
        a=a,
        b=b,
        inv_b=inv_b,
        others=rest,
        c2=c2,
        reach=(word.norm(dim=-1)[:, None] + phi.norm(dim=-1)).masked_fill(own_row, 0.0),
        own_logit=own_logit,
        own_a=own_a,
        own_top=top[index],
        dominated_start=_starts(position, len(index)),
        dominated_position=position,
        dominated_row=row,
        dominated_mean=dominated_mean,
        word=word,
        words=text.words,
        rows=torch.cat([text.queries, phi, text.keys]),
        bilinear=bilinear,
    )


def _starts(position: Tensor, count: int) -> Tensor:
    counts = torch.bincount(position, minlength=count)
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])


def _squared_distances(word: Tensor, phi: Tensor) -> Tensor:
    """‖x_i - φ_j‖² (P, n), right also where the two nearly coincide."""
    size = word.square().sum(-1)[:, None] + phi.square().sum(-1)
    distance2 = size - 2 * (word @ phi.mT)
    close_position, close_row = (distance2 < _CANCELLED * size).nonzero(as_tuple=True)
    if len(close_row) == 0:
        return distance2
    pairs_at_once = max(1, word.numel() // word.shape[1])
    exact = [
        (word[i] - phi[j]).square().sum(-1)
        for i, j in zip(
            close_position.split(pairs_at_once), close_row.split(pairs_at_once), strict=True
        )
    ]
    return distance2.index_put((close_position, close_row), torch.cat(exact))
