"""The best pairs seen so far, and all that rounding might still put before them."""

from __future__ import annotations

import torch
from torch import Tensor


class Contenders:
    """Pairs (position, candidate) that may be the best of their position, or among the k best.

    Or the best pair of one of the leaders: so many candidates whose best pairs are best. Values are
    screened with an error bound: a pair is dropped only where its upper bound is below the lower
    bounds of those that beat it. "Best" is largest; the caller negates to look for the smallest.

    Parameters
    ----------
    positions : int
    k : int
    leaders : int
    device
    """

    def __init__(self, positions: int, k: int, leaders: int, device: torch.device) -> None:
        self._k = k
        self._leaders = leaders
        self._surest = torch.full((positions,), -torch.inf, dtype=torch.float64, device=device)
        self._kth = self._last = -torch.inf  # of the k best pairs, of the leaders
        empty = torch.empty(0, dtype=torch.int64, device=device)
        self.position, self.candidate = empty, empty
        self._low = self._high = empty.double()

    def __len__(self) -> int:
        return len(self.position)

    @property
    def threshold(self) -> Tensor:
        """What the upper bound of a pair must reach, at each position (P,)."""
        return self._surest.clamp(max=min(self._kth, self._last))

    def expect(self, low: Tensor, of_candidates: Tensor) -> None:
        """Take note of new pairs with these lower bounds, yet to come.

        Each position (P,) has one with the bound `low`, each of some new candidates (m,) one with
        the bound `of_candidates`.
        """
        self._surest = torch.maximum(self._surest, low)
        self._kth = self._raised(self._kth, torch.cat([self._low, low]), self._k)
        held = self._by_candidate(self.candidate, self._low)[0]
        self._last = self._raised(self._last, torch.cat([held, of_candidates]), self._leaders)

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

    @staticmethod
    def _raised(bound: float, low: Tensor, count: int) -> float:
        """A bound that so many reach; one that was dropped is below what it was then."""
        return max(bound, float(low.topk(count).values[-1])) if len(low) >= count else bound

    @staticmethod
    def _by_candidate(candidate: Tensor, low: Tensor) -> tuple[Tensor, Tensor]:
        """The largest bound of each candidate, and which of them each pair (Q,) has."""
        numbers, which = candidate.unique(return_inverse=True)
        surest = low.new_full((len(numbers),), -torch.inf)
        return surest.scatter_reduce(0, which, low, "amax"), which

    def _set(self, position: Tensor, candidate: Tensor, low: Tensor, high: Tensor) -> None:
        surest, which = self._by_candidate(candidate, low)
        self._kth = self._raised(self._kth, low, self._k)
        self._last = self._raised(self._last, surest, self._leaders)
        keep = high >= self._surest.clamp(max=self._kth)[position]
        keep |= (high >= self._last) & (high >= surest[which])
        self.position, self.candidate = position[keep], candidate[keep]
        self._low, self._high = low[keep], high[keep]
