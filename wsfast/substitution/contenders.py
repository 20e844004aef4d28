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

    def see(self, rows: Tensor, numbers: Tensor, low: Tensor, high: Tensor) -> None:
        """Take in bounds (r, m) of the positions `rows` (r,) and the candidates `numbers` (m,)."""
        low, high = low.double(), high.double()
        self._surest[rows] = torch.maximum(self._surest[rows], low.amax(1))
        self._raise_kth(low.flatten())
        row, column = (high >= self.threshold[rows, None]).nonzero(as_tuple=True)
        self._set(
            torch.cat([self.position, rows[row]]),
            torch.cat([self.candidate, numbers[column]]),
            torch.cat([self._low, low[row, column]]),
            torch.cat([self._high, high[row, column]]),
        )

    def tighten(self, low: Tensor, high: Tensor) -> None:
        """Better bounds (len(self),) of the pairs held, as far as they are better."""
        low, high = torch.maximum(self._low, low), torch.minimum(self._high, high)
        self._surest = self._surest.scatter_reduce(0, self.position, low, "amax")
        self._kth = max(self._kth, _kth_largest(low, self._k))
        self._set(self.position, self.candidate, low, high)

    def _raise_kth(self, low: Tensor) -> None:
        # A pair that was dropped is below what `kth` was then, and so below what it becomes.
        low = low[low > self._kth]
        if len(low):
            self._kth = max(self._kth, _kth_largest(torch.cat([self._low, low]), self._k))

    def _set(self, position: Tensor, candidate: Tensor, low: Tensor, high: Tensor) -> None:
        keep = high >= self.threshold[position]
        self.position, self.candidate = position[keep], candidate[keep]
        self._low, self._high = low[keep], high[keep]


def _kth_largest(values: Tensor, k: int) -> float:
    return float(values.topk(k).values[-1]) if len(values) >= k else -torch.inf
