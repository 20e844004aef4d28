"""What of a change of features is measured."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from wsfast._kinks import root

ROWS = ("all", "others")


class Measure(ABC):
    """A number for each change of features; where a search looks for the largest.

    A new one writes `of` and nothing else: it is then evaluated by the definition.
    """

    @abstractmethod
    def of(self, change: Tensor, at: Tensor) -> Tensor:
        """For changes (M, …) of features, at places (M, m): (M,), differentiable."""

    def final(self, value: Tensor) -> Tensor:
        """What is told of the value that is searched."""
        return value


@dataclass(frozen=True)
class Norm(Measure):
    """‖φ(X') - φ(X)‖, of which the square is searched.

    Parameters
    ----------
    rows : {"all", "others"}
        Of features (n, d), one row a word: all rows, or those of the words that did not change.
    """

    rows: str = "all"

    def of(self, change: Tensor, at: Tensor) -> Tensor:
        if self.rows == "others":
            own = torch.zeros(change.shape[:2], dtype=torch.bool, device=change.device)
            change = change.masked_fill(own.scatter(1, at, True)[..., None], 0.0)
        return change.flatten(1).square().sum(-1)

    def final(self, value: Tensor) -> Tensor:
        return root(value)


@dataclass(frozen=True, eq=False)
class Functional(Measure):
    """⟨φ(X') - φ(X), Θ⟩."""

    theta: Tensor  # (D,) float64

    def of(self, change: Tensor, at: Tensor) -> Tensor:
        return change.flatten(1) @ self.theta.to(change.dtype)
