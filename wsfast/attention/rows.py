"""Statistics of every row of attention, so that any word can leave it without cancellation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from wsfast._kinks import at_most, reciprocal
from wsfast.attention.core import NEVER, Core, numbers
from wsfast.attention.weight_fn import WeightFn


class RowStatistics(NamedTuple):
    """What is kept of the weights of each row."""

    top: Tensor  # (n,) int64, the row's largest word
    top_score: Tensor  # (n,)
    # (n,) sum of the other weights; softmax: the logarithm of the sum of the exponentials of the
    # other scores, -inf where there is no other word.
    rest: Tensor


class Attended(NamedTuple):
    """What one pass over the words gives for every row."""

    phi: Tensor  # (n, d)
    rest_mean: Tensor  # (n, d) mean of the row without its largest word
    statistics: RowStatistics


LeaveTopOut = Callable[[Tensor, WeightFn], tuple[RowStatistics, Tensor]]
"""From scores (m, n) to their statistics, and the weights of each row without its largest word."""


@dataclass(frozen=True)
class Rows:
    """Every row of attention of a text.

    Where the weights of softmax sum to 1, values are centred: every change of φ is a difference of
    means, so a common shift drops out of it, and with the shift its rounding error.
    """

    core: Core
    shift: Tensor  # (d_v,) the mean value, or 0; float32 holds it exactly
    words: Tensor  # (n, d_v) the values less the shift
    phi: Tensor  # (n, d_v) in the coordinates of `words`
    rest_mean: Tensor  # (n, d_v) mean of each row without its largest word, likewise
    statistics: RowStatistics


def rows_of(core: Core, attend: Callable[[Tensor, Tensor], Attended]) -> Rows:
    """The rows of a text; `attend` is given the values less a shift, of which its means are."""
    shift = _shift(core.values) if core.centred else torch.zeros_like(core.values[0])
    words = core.values - shift
    return Rows(core, shift, words, *attend(words, shift))


def attend_by_tiles(core: Core, words: Tensor, tile: int, leave_top_out: LeaveTopOut) -> Attended:
    """One pass over the scores, `tile` rows at a time; the means are of `words` (n, d).

    Scores are of the words as given: they are to be rounded as all others of the text are.
    """
    fn, means, parts = core.weight_fn, [], []
    each = numbers(words)
    for some in each.split(tile):
        scores = core.scores(some)
        seen = core.seen(some, each)
        if seen is not None:
            scores = scores.masked_fill(~seen, NEVER)
        part, weights = leave_top_out(scores, fn)
        mean = weights @ words
        if seen is not None:
            part, mean = _without_unseen(fn, part, mean, seen.sum(-1))
        means.append(mean)
        parts.append(part)
    statistics = RowStatistics(*(torch.cat(column) for column in zip(*parts, strict=True)))
    rest, rest_mean = core.with_sink(statistics.rest, torch.cat(means))
    statistics = statistics._replace(rest=rest)
    return Attended(_phi(fn, words, rest_mean, statistics), rest_mean, statistics)


def _without_unseen(
    fn: WeightFn, part: RowStatistics, mean: Tensor, count: Tensor
) -> tuple[RowStatistics, Tensor]:
    """Rows that see one word alone have no other, whatever is left of the scores of the others."""
    alone = count <= 1
    rest = part.rest.masked_fill(alone, -torch.inf if fn.exponential else 0.0)
    return part._replace(rest=rest), mean.masked_fill(alone[:, None], 0.0)


def _phi(fn: WeightFn, words: Tensor, rest_mean: Tensor, statistics: RowStatistics) -> Tensor:
    top, top_score, rest = statistics
    top_word = words[top]
    if fn.exponential:
        a_top = (top_score - rest).sigmoid()
        return rest_mean + a_top[:, None] * (top_word - rest_mean)
    w_top = fn.value(top_score)
    if fn.normalize:
        inv = reciprocal(w_top + rest)
        w_top, rest = w_top * inv, rest * inv
    else:
        rest = torch.ones_like(rest)
    return rest[:, None] * rest_mean + w_top[:, None] * top_word


def _shift(X: Tensor) -> Tensor:
    """The mean word, rounded so that float32 holds it; any other common shift would do as well."""
    mean = X.mean(0)
    rounded = mean.float().double()
    return torch.where(rounded.isfinite(), rounded, mean)


def left_top_out(scores: Tensor, weight_fn: WeightFn) -> tuple[RowStatistics, Tensor]:
    """By PyTorch operations, for scores (…, m, n): see `LeaveTopOut`."""
    top = scores.argmax(-1)
    top_score = scores.gather(-1, top[..., None])[..., 0]
    at_top = torch.zeros_like(scores, dtype=torch.bool).scatter(-1, top[..., None], True)
    if weight_fn.exponential:
        others = scores.masked_fill(at_top, -torch.inf)
        if scores.shape[-1] == 1:
            return RowStatistics(top, top_score, others[..., 0]), torch.zeros_like(scores)
        return RowStatistics(top, top_score, others.logsumexp(-1)), others.softmax(-1)
    weights = weight_fn.value(scores).masked_fill(at_top, 0.0)
    rest = weights.sum(-1)
    if weight_fn.normalize:
        weights = weights / torch.where(rest > 0, rest, 1.0)[..., None]
    return RowStatistics(top, top_score, rest), weights


def log_odds(score: Tensor, is_top: Tensor, statistics: RowStatistics) -> Tensor:
    """Of the softmax weight of words with these scores; `is_top` says which lead their row."""
    _, top_score, rest = statistics
    # The largest word takes its exact log-odds; any other has at most half of the attention.
    log_a = score - top_score - torch.log1p((rest - top_score).exp())
    log_a = torch.where(is_top, -torch.inf, at_most(log_a, -0.5))
    return torch.where(is_top, top_score - rest, log_a - torch.log1p(-log_a.exp()))
