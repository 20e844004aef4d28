"""What a search maximises."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from wsfast.engines.engine import Engine, Evaluator


class Small(NamedTuple):
    """An objective in the span of the orthonormal columns of `basis` (D, r)."""

    objective: Objective
    basis: Tensor


def of_each_word(basis: Tensor, m: int) -> Tensor:
    """A basis (m d, m r) of the changes of m words, from one of a word's, (d, r)."""
    return basis if m == 1 else torch.block_diag(*[basis] * m)


class Objective(ABC):
    """A function of Δ (D,) at each of P places.

    Attributes
    ----------
    engine : Engine
        Takes the steps.
    more_starts : int
        So many times the starts that the user asks for, where points cost next to nothing.
    """

    engine: Engine
    more_starts = 1

    @property
    @abstractmethod
    def places(self) -> int:
        """P."""

    @property
    @abstractmethod
    def width(self) -> int:
        """D."""

    @property
    @abstractmethod
    def dtype(self) -> torch.dtype:
        """In which it is evaluated."""

    @property
    def start_dtype(self) -> torch.dtype:
        """To which starts are rounded before, so that all engines start from the same."""
        return self.dtype

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Where Δ lies."""

    @abstractmethod
    def evaluator(self, starts: int) -> Evaluator:
        """Evaluates `starts` points at each place."""

    @abstractmethod
    def select(self, keep: Tensor) -> Objective:
        """The same at the places numbered `keep` (ascending) alone."""

    def leads(self) -> Tensor | None:
        """Directions (1 or P, l, D) to start from, before random ones."""
        return None

    def smoothed(self) -> Sequence[Objective]:
        """Objectives without the kinks of this one, the smoothest first; none for a smooth one.

        They lead to more starts, and Adam ends the search.
        """
        return ()

    def small(self) -> Small | None:
        """The same in fewer dimensions, where that saves work."""
        return None
