"""How the weights of softmax change as scores move, without cancellation."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from wsfast._kinks import at_most, relu


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


def capped(cap: float | None, raw: Tensor) -> Tensor:
    """cap · tanh(s / cap) of scores, or the scores themselves."""
    return raw if cap is None else cap * torch.tanh(raw / cap)


def capped_change(cap: float | None, raw: Tensor, by: Tensor) -> Tensor:
    """How `capped` scores change as `raw` ones change by `by`."""
    if cap is None:
        return by
    # cap · tanh(s / cap) is 2 cap σ(2s / cap) but for a constant.
    at = raw * (2 / cap)
    return 2 * cap * sigmoid_change(at, by * (2 / cap), at.sigmoid(), (-at).sigmoid()).q
