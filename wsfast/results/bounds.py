"""What upper bounds of every S_i say of S."""

from __future__ import annotations

import torch

from wsfast.results.arrays import Array, like


def of_value(upper: Array | None, per_word: Array, value: Array) -> Array | None:
    """The largest of the bounds (…, n) of the searched positions; see `upper_value` of results."""
    if upper is None:
        return None
    unsearched = torch.as_tensor(per_word).isnan()
    largest = torch.as_tensor(upper).masked_fill(unsearched, -torch.inf).amax(-1)
    return like(value, largest.masked_fill(unsearched.all(-1), torch.nan))


def ratio(upper_value: Array | None, value: Array) -> Array | None:
    """How many times larger than `value` S can be at most; 1 where both are the same."""
    if upper_value is None:
        return None
    upper, found = torch.as_tensor(upper_value), torch.as_tensor(value)
    return like(value, (upper / found).masked_fill(upper == found, 1.0))
