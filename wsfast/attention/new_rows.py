"""The closed form of trained heads where one word gets new rows of q, k and v.

Row j attends; i is the word that changes. A sink is one word more, whose value is 0 and which never
changes. Nothing looks at values, and no derivative depends on the side of a tie.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from wsfast.attention.core import NEVER
from wsfast.attention.heads import Heads
from wsfast.attention.rows import RowStatistics, left_top_out, log_odds
from wsfast.attention.softmax import capped, capped_change, sigmoid_change, softmax_change
from wsfast.attention.weight_fn import WeightFn


class NewRows(NamedTuple):
    """s changes of one word each, in the terms of `Heads`."""

    at: Tensor  # (s,) int64, the word of each; or (1,), of all
    queries: Tensor  # (H, s, d_k) the new ones
    by_query: Tensor  # (H, s, d_k) new less old
    by_key: Tensor  # (H, s, d_k)
    by_value: Tensor  # (H, s, d_v)


@dataclass(frozen=True)
class HeadRows:
    """Every row of the heads before the change, float64; leading axes as those of `heads`."""

    heads: Heads
    statistics: RowStatistics  # (H, n) each; `top` is n for a sink
    rest_mean: Tensor  # (H, n, d_v) mean of each row without its largest word
    output: Tensor  # (H, n, d_v)


def head_rows(heads: Heads, tile: int) -> HeadRows:
    """One pass over the scores of `heads`, `tile` rows at a time."""
    values = heads.values
    if heads.sinks is not None:
        values = torch.nn.functional.pad(values, (0, 0, 0, 1))
    parts = []
    for some in _numbers(heads).split(tile):
        bias = None if heads.bias is None else heads.bias[..., some, :]
        scores = replace(heads, queries=heads.queries[..., some, :], bias=bias).scores()
        scores = _with_sink(_bounded(scores), heads.sinks)
        statistics, weights = left_top_out(scores, WeightFn("softmax"))
        parts.append((*statistics, weights @ values))
    rows = values.ndim - 2
    top, top_score, rest, rest_mean = (torch.cat(x, rows) for x in zip(*parts, strict=True))
    top_value = values.gather(-2, top[..., None].expand_as(rest_mean))
    a_top = (top_score - rest).sigmoid()[..., None]
    output = rest_mean + a_top * (top_value - rest_mean)
    return HeadRows(heads, RowStatistics(top, top_score, rest), rest_mean, output)


def deltas(rows: HeadRows, new: NewRows) -> Tensor:
    """Changes (H, s, n, d_v) of the output; rows and columns of the bias stay."""
    is_own = _is_own(rows.heads, new)
    others, own = _other_rows(rows, new, is_own), _own_row(rows.heads, new, is_own)
    s, d_v = own.shape[-2:]
    index = new.at.expand(s)[:, None, None].expand(*own.shape[:-1], 1, d_v)
    return others.scatter(-2, index, own[..., None, :])


def squared_norms(rows: HeadRows, new: NewRows) -> Tensor:
    """Of the changes, over rows and columns, (H, s)."""
    is_own = _is_own(rows.heads, new)
    others = _other_rows(rows, new, is_own).flatten(-2)
    own = _own_row(rows.heads, new, is_own)
    squares: Tensor = torch.linalg.vecdot(others, others) + torch.linalg.vecdot(own, own)
    return squares


def _is_own(heads: Heads, new: NewRows) -> Tensor:
    """Which row is that of the word, (s, n) or (1, n)."""
    return new.at[:, None] == _numbers(heads)


def _other_rows(rows: HeadRows, new: NewRows, is_own: Tensor) -> Tensor:
    """Changes (H, s, n, d_v) of the rows of other words; 0 in the row of the word itself."""
    heads, index = rows.heads, new.at
    raw = heads.keys[..., index, :] @ heads.queries.mT
    t = capped_change(heads.cap, raw, new.by_key @ heads.queries.mT)
    score = capped(heads.cap, raw)
    score = _bounded(score if heads.bias is None else score + heads.bias[..., index].mT)
    top, top_score, rest = (x[..., None, :] for x in rows.statistics)
    is_top = top == index[:, None]
    logit = log_odds(score, is_top, RowStatistics(top, top_score, rest))
    # A row that does not see the word does not change.
    logit = logit.masked_fill(is_own | (score <= NEVER / 2), NEVER)
    a, b = logit.sigmoid(), (-logit).sigmoid()
    alpha, q = sigmoid_change(logit, t, a, b)
    means = rows.rest_mean[..., None, :, :], rows.output[..., None, :, :]
    apart = heads.values[..., index, None, :] - torch.where(is_top[..., None], *means)
    q = q / torch.where(is_top, 1.0, b)
    return torch.addcmul(alpha[..., None] * new.by_value[..., None, :], q[..., None], apart)


def _own_row(heads: Heads, new: NewRows, is_own: Tensor) -> Tensor:
    """Change (H, s, d_v) of the output of the word itself."""
    index = new.at
    raw = heads.queries[..., index, :] @ heads.keys.mT
    at_own = (new.queries * new.by_key).sum(-1, keepdim=True)
    by = new.by_query @ heads.keys.mT + torch.where(is_own, at_own, 0.0)
    still = None if heads.sinks is None else torch.zeros_like(heads.sinks)
    r = _with_sink(capped_change(heads.cap, raw, by), still)
    score = capped(heads.cap, raw)
    score = _bounded(score if heads.bias is None else score + heads.bias[..., index, :])
    score = _with_sink(score, heads.sinks)
    unseen = score <= NEVER / 2
    top = score.argmax(-1, keepdim=True)
    logit = (score - score.gather(-1, top)).masked_fill(unseen, NEVER)
    moved = (r - r.gather(-1, top.expand(*r.shape[:-1], 1))).masked_fill(unseen, 0.0)
    weight, change = softmax_change(logit, logit.softmax(-1), moved)
    n = heads.values.shape[-2]
    own_weight = torch.where(is_own & ~unseen[..., :n], weight[..., :n], 0.0).sum(-1, keepdim=True)
    return change[..., :n] @ heads.values + own_weight * new.by_value


def _numbers(heads: Heads) -> Tensor:
    return torch.arange(heads.values.shape[-2], device=heads.values.device)


def _bounded(score: Tensor) -> Tensor:
    """`score` with `NEVER` for all that gives no weight: it is finite, as are all derivatives."""
    return score.masked_fill(score <= NEVER / 2, NEVER)


def _with_sink(x: Tensor, sinks: Tensor | None) -> Tensor:
    """`x` (H, m, n), and where there are `sinks` (H,) a column of them."""
    if sinks is None:
        return x
    return torch.cat([x, sinks[:, None, None].expand(*x.shape[:-1], 1)], -1)
