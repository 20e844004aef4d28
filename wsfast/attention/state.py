"""What the closed form keeps of each position of a text while one word moves.

The notation is that of docs/design.md, section 2: row j attends, word i is perturbed, ``c_ji = x_i
- m_ji`` with ``m_ji`` the mean of row j without word i.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, TypeVar

import torch
from torch import Tensor

from wsfast._kinks import reciprocal, relu
from wsfast.attention.core import NEVER, HeadCore, numbers
from wsfast.attention.rows import Rows, log_odds
from wsfast.attention.softmax import capped_change
from wsfast.attention.weight_fn import WeightFn

# Below this share of their size, squared distances come from the differences, not from inner
# products.
_CANCELLED = 1e-3

State = TypeVar("State", bound="PositionState")


def reals(state: object, dtype: torch.dtype, *, but: str = "") -> dict[str, Any]:
    """The fields of a state that are real tensors, in `dtype`; one may be left out."""
    return {
        name: value.to(dtype)
        for name, value in vars(state).items()
        if isinstance(value, Tensor) and value.is_floating_point() and name != but
    }


class Moves(NamedTuple):
    """What changes at P positions, s of each, do to the scores and to the values."""

    t: Tensor  # (P, s, n) change of the scores S_ji
    mean: Tensor  # (P, s, n) φ_j · u
    r: Tensor  # (P, s, n) change of the scores of row i
    u: Tensor  # (P, s, d_v) change of the value of word i


@dataclass(frozen=True)
class PositionState(ABC):
    """Everything that one evaluation at P positions needs; tensors (P, n) where not said otherwise.

    The entries of the position's own row (j = i), and of rows that do not see it, are neutral: they
    give no change.
    """

    weight_fn: WeightFn
    index: Tensor  # (P,) int64, the positions
    logit: Tensor  # log-odds of the attention a_ji for softmax, else the score S_ji
    a: Tensor
    b: Tensor  # 1 - a, formed without cancellation
    inv_b: Tensor  # 1/b; 1 for dominated pairs
    rest: Tensor  # sum of the other weights of row j (ReLU)
    c2: Tensor  # ‖c_ji‖²
    reach: Tensor  # ‖x_i‖ + ‖φ_j‖: what c_ji is a difference of, times b
    # Scores of row i (NEVER: unseen words); softmax: less the row's maximum, and that of a sink.
    own_logit: Tensor
    own_a: Tensor
    own_top: Tensor  # (P,) int64
    # Pairs where row j puts more than half of its attention on word i, sorted by position.
    dominated_start: Tensor  # (P + 1,) int64
    dominated_position: Tensor  # (K,) int64, index into the P positions
    dominated_row: Tensor  # (K,) int64
    dominated_mean: Tensor  # (K, d) m_ji
    # The values, of d numbers each.
    word: Tensor  # (P, d) x_i
    words: Tensor  # (n, d)

    # What there is of each position beside the pairs.
    per_position: ClassVar[tuple[str, ...]] = (
        "index", "logit", "a", "b", "inv_b", "rest", "c2", "reach", "own_logit", "own_a",
        "own_top", "word",
    )  # fmt: skip

    @property
    def n(self) -> int:
        return self.words.shape[0]

    @property
    def d(self) -> int:
        return self.words.shape[1]

    @property
    @abstractmethod
    def means(self) -> Tensor:
        """φ (n, d); 0 when unnormalised. For a functional of φ, its Θ."""

    @abstractmethod
    def moves(self, delta: Tensor) -> Moves:
        """What Δ (P, s, D) does."""

    def select(self: State, keep: Tensor) -> State:
        """The state of the positions numbered `keep` (int64; repetition is fine)."""
        counts = self.dominated_start.diff()[keep]
        position = torch.arange(len(keep), device=keep.device).repeat_interleave(counts)
        # Pair number: the start of the position's own pairs, plus the place among them.
        place = (
            torch.arange(len(position), device=keep.device) - _starts(position, len(keep))[position]
        )
        pairs = self.dominated_start[keep][position] + place
        return replace(
            self,
            **{
                name: value[keep]
                for name in self.per_position
                if (value := getattr(self, name)) is not None
            },
            dominated_start=_starts(position, len(keep)),
            dominated_position=position,
            dominated_row=self.dominated_row[pairs],
            dominated_mean=self.dominated_mean[pairs],
        )


@dataclass(frozen=True)
class BilinearState(PositionState):
    """Of words that are their own keys and values: Δ (P, s, d) moves all three."""

    stack: Tensor  # (3n, d): `queries`, `means`, `keys`
    bilinear: Tensor  # (d, d) (W + Wᵀ)/√d

    @property
    def queries(self) -> Tensor:
        """What Δ moves the scores S_ji by, (n, d)."""
        return self.stack[: self.n]

    @property
    def means(self) -> Tensor:
        return self.stack[self.n : 2 * self.n]

    @property
    def keys(self) -> Tensor:
        """What Δ moves the scores of the own row by, (n, d)."""
        return self.stack[2 * self.n :]

    def moves(self, delta: Tensor) -> Moves:
        t, mean, keys_delta = (delta @ self.stack.mT).split(self.n, -1)
        own = 0.5 * (delta * (delta @ self.bilinear)).sum(-1, keepdim=True)
        index = self.index[:, None, None].expand(-1, delta.shape[1], 1)
        r = keys_delta.scatter_add(-1, index, t.gather(-1, index) + own)
        return Moves(t, mean, r, delta)

    def to(self, dtype: torch.dtype, bilinear: Tensor) -> BilinearState:
        """The same state with its real tensors in `dtype`, in which `bilinear` is already."""
        return replace(self, **reals(self, dtype, but="bilinear"), bilinear=bilinear)

    def project(self, basis: Tensor) -> BilinearState:
        """The same problem for Δ in the span of the orthonormal columns of `basis` (d, r)."""
        return replace(
            self,
            dominated_mean=self.dominated_mean @ basis,
            word=self.word @ basis,
            words=self.words @ basis,
            stack=self.stack @ basis,
            bilinear=basis.mT @ (self.bilinear @ basis),
        )


@dataclass(frozen=True)
class HeadState(PositionState):
    """Of a head: Δ (P, s, 2 d_k + d_v) changes the key, the value and the query of a word."""

    queries: Tensor  # (n, d_k)
    keys: Tensor  # (n, d_k)
    outputs: Tensor  # (n, d_v) φ
    cap: float | None
    # Scores before the cap, (P, n) each, where there is one: of word i, and of row i.
    raw: Tensor | None
    own_raw: Tensor | None
    # What kernels make of the matrices, shared with the states of some of the positions.
    made: dict[str, Tensor] = field(default_factory=dict, compare=False, repr=False)

    per_position: ClassVar[tuple[str, ...]] = (*PositionState.per_position, "raw", "own_raw")

    @property
    def means(self) -> Tensor:
        return self.outputs

    @property
    def plain(self) -> bool:
        """Whether there is neither a cap nor a sink."""
        return self.cap is None and self.own_logit.shape[1] == self.n

    def moves(self, delta: Tensor) -> Moves:
        d_k = self.keys.shape[1]
        key, u, query = delta.split([d_k, self.d, d_k], -1)
        t, r = key @ self.queries.mT, query @ self.keys.mT
        index = self.index[:, None, None].expand(-1, delta.shape[1], 1)
        both = t.gather(-1, index) + (key * query).sum(-1, keepdim=True)
        r = r.scatter_add(-1, index, both)
        if self.raw is not None and self.own_raw is not None:
            t = capped_change(self.cap, self.raw[:, None], t)
            r = capped_change(self.cap, self.own_raw[:, None], r)
        return Moves(t, u @ self.outputs.mT, r, u)

    def to(self, dtype: torch.dtype) -> HeadState:
        """The same state with its real tensors in `dtype`."""
        return replace(self, made={}, **reals(self, dtype))


def prepare_positions(rows: Rows, index: Tensor, bilinear: Tensor) -> BilinearState:
    """The state of the positions `index` (P,) int64, in the dtype of `rows`.

    `bilinear` (d, d) is (W + Wᵀ)/√d.
    """
    known = _known(rows, index)
    means = rows.phi if rows.core.weight_fn.normalize else torch.zeros_like(rows.phi)
    stack = torch.cat([rows.core.queries, means, rows.core.keys])
    return BilinearState(**known, stack=stack, bilinear=bilinear)


def prepare_head(rows: Rows, index: Tensor) -> HeadState:
    """The state of the positions `index` of a head."""
    core = rows.core
    assert isinstance(core, HeadCore)
    return HeadState(
        **_known(rows, index),
        queries=core.queries,
        keys=core.keys,
        outputs=rows.phi,
        cap=core.cap,
        raw=None if core.cap is None else core.raw_of(index),
        own_raw=None if core.cap is None else core.raw(index),
    )


def _known(rows: Rows, index: Tensor) -> dict[str, Any]:
    """The fields of `PositionState`."""
    core, fn = rows.core, rows.core.weight_fn
    top, top_score, left = rows.statistics
    score = core.scores_of(index)  # S_ji
    each = numbers(core.values)
    is_top = top == index[:, None]
    if fn.exponential:
        logit = log_odds(score, is_top, rows.statistics)
        a, b = logit.sigmoid(), (-logit).sigmoid()
        rest = torch.zeros_like(a)
    elif fn.normalize:
        weight = fn.value(score)
        total = fn.value(top_score) + left
        inv = reciprocal(total)
        rest = torch.where(is_top, left, relu(total - weight))
        logit, a = score, torch.where(rest > 0, weight * inv, (weight > 0).to(weight.dtype))
        b = torch.where(total > 0, rest * inv, 1.0)
    else:
        logit, a, b, rest = score, fn.value(score), torch.ones_like(score), torch.zeros_like(score)

    own_logit, own_a = own_scores(rows, index)
    word = rows.words[index]
    # Row i itself is no "other row": its entries are neutral, so that it adds exactly 0 to every
    # sum; nor is a row that does not see word i.
    neutral = each == index[:, None]
    sees_word = core.seen(each, index)
    if sees_word is not None:
        neutral = neutral | ~sees_word.mT
    logit = logit.masked_fill(neutral, NEVER)
    a, b, rest = (x.masked_fill(neutral, v) for x, v in ((a, 0.0), (b, 1.0), (rest, 1.0)))
    dominated = is_top & (a > 0.5) if fn.normalize else torch.zeros_like(is_top)
    position, row = dominated.nonzero(as_tuple=True)
    dominated_mean = rows.rest_mean[row]
    means = rows.phi if fn.normalize else torch.zeros_like(rows.phi)  # else c_ji is x_i itself
    if fn.normalize:
        inv_b = torch.where(dominated, 1.0, 1 / torch.where(dominated, 1.0, b))
        distance2 = squared_distances(word, means).index_put(
            (position, row), (word[position] - dominated_mean).square().sum(-1)
        )
        c2 = (distance2 * inv_b.square()).masked_fill(neutral, 0.0)
    else:
        inv_b = torch.ones_like(b)
        c2 = word.square().sum(-1, keepdim=True).expand_as(b).masked_fill(neutral, 0.0)
    return {
        "weight_fn": fn,
        "index": index,
        "logit": logit,
        "a": a,
        "b": b,
        "inv_b": inv_b,
        "rest": rest,
        "c2": c2,
        "reach": (word.norm(dim=-1)[:, None] + means.norm(dim=-1)).masked_fill(neutral, 0.0),
        "own_logit": own_logit,
        "own_a": own_a,
        "own_top": top[index],
        "dominated_start": _starts(position, len(index)),
        "dominated_position": position,
        "dominated_row": row,
        "dominated_mean": dominated_mean,
        "word": word,
        "words": rows.words,
    }


def own_scores(rows: Rows, index: Tensor) -> tuple[Tensor, Tensor]:
    """`own_logit` and `own_a` of `PositionState`, for the words `index` (P,)."""
    core, fn = rows.core, rows.core.weight_fn
    top, top_score, left = rows.statistics
    score = core.scores(index)  # S_il
    if fn.exponential:
        # By these scores alone: one from elsewhere may be rounded otherwise.
        score = score - score.gather(1, top[index, None])
        a = torch.exp(score) * (top_score - left).sigmoid()[index, None]
    else:
        a = fn.value(score)
        if fn.normalize:
            a = a * reciprocal(fn.value(top_score) + left)[index, None]
    seen = core.seen(index, numbers(core.values))
    if seen is not None:
        score, a = score.masked_fill(~seen, NEVER), a.masked_fill(~seen, 0.0)
    if isinstance(core, HeadCore) and core.sink is not None:
        sink = core.sink - top_score[index, None]
        total = torch.logaddexp(top_score, left)[index, None]
        score, a = torch.cat([score, sink], 1), torch.cat([a, (core.sink - total).exp()], 1)
    return score, a


def _starts(position: Tensor, count: int) -> Tensor:
    counts = torch.bincount(position, minlength=count)
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])


def squared_distances(word: Tensor, phi: Tensor) -> Tensor:
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
