"""The best pairs seen so far, and all that rounding might still put before them."""

from __future__ import annotations

import torch
from torch import Tensor


class Contenders:
    """Pairs (position, candidate) that may be the best of their position, or among the k best.

    Values are screened with an error bound: a pair is dropped only where its upper bound is below
    the lower bounds of those that beat it. "Best" is largest; the caller negates to look for the
    smallest.

    Parameters
    ----------
    positions : int
    k : int
    device
    """

    def __init__(self, positions: int, k: int, device: torch.device) -> None:
        self._k = k
        self._surest = torch.full((positions,), -torch.inf, dtype=torch.float64, device=device)
        self._kth = -torch.inf
        empty = torch.empty(0, dtype=torch.int64, device=device)
        self.position, self.candidate = empty, empty
        self._low = self._high = empty.double()

    def __len__(self) -> int:
        return len(self.position)

    @property
    def threshold(self) -> Tensor:
        """What the upper bound of a pair must reach, at each position (P,)."""
        return self._surest.clamp(max=self._kth)

    def expect(self, low: Tensor) -> None:
        """Take note that each position (P,) has a new pair with this lower bound, yet to come."""
        self._surest = torch.maximum(self._surest, low)
        self._raise_kth(torch.cat([self._low, low]))

    def add(self, position: Tensor, candidate: Tensor, low: Tensor, high: Tensor) -> None:
        """Take in new pairs (Q,) with their bounds, float64."""
        self._surest = self._surest.scatter_reduce(0, position, low, "amax")
        position, candidate = (
            torch.cat([self.position, position]),
            torch.cat([self.candidate, candidate]),
        )
        self._set(position, candidate, torch.cat([self._low, low]), torch.cat([self._high, high]))

    def tighten(self, low: Tensor, high: Tensor) -> None:
        """Better bounds (len(self),) of the pairs held, as far as they are better."""
        low, high = torch.maximum(self._low, low), torch.minimum(self._high, high)
        self._surest = self._surest.scatter_reduce(0, self.position, low, "amax")
        self._set(self.position, self.candidate, low, high)

    def _raise_kth(self, low: Tensor) -> None:
        # A pair that was dropped is below what `kth` was then, and so below what it becomes.
        if len(low) >= self._k:
            self._kth = max(self._kth, float(low.topk(self._k).values[-1]))

    def _set(self, position: Tensor, candidate: Tensor, low: Tensor, high: Tensor) -> None:
        self._raise_kth(low)
        keep = high >= self.threshold[position]
        self.position, self.candidate = position[keep], candidate[keep]
        self._low, self._high = low[keep], high[keep]
