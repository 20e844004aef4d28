"""The order in which substitutions are reported."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

# Values that differ by at most this share count as tied.
TIE = 1e-9


def ranked(position: Tensor, candidate: Tensor, value: Tensor, *, largest: bool) -> Tensor:
    """Order (Q,) of pairs by `value` (Q,) float64; ties stand by position, then candidate."""
    p, c, v = (x.cpu().numpy() for x in (position, candidate, value))
    order = np.lexsort((c, p, -v if largest else v))
    group = np.zeros(len(v), dtype=np.int64)
    start = 0
    for place in range(1, len(v)):
        first = v[order[start]]
        if abs(v[order[place]] - first) > TIE * abs(first):
            start = place
        group[place] = start
    order = order[np.lexsort((c[order], p[order], group))]
    return torch.from_numpy(order).to(value.device)


def first_of(candidate: Tensor, value: Tensor) -> int:
    """Place of the best of one position's pairs, the best value first; of ties the lowest row."""
    tied = (value - value[0]).abs() <= TIE * value[0].abs()
    return int(candidate.masked_fill(~tied, torch.iinfo(candidate.dtype).max).argmin())
