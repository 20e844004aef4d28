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
    lossless: bool = False  # whether the objective depends on nothing else


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
    momentum : bool
        Whether steps go on along the last one, so that a few tell which starts are the better ones.
        With kinks they would lead past what slow steps find.
    """

    engine: Engine
    more_starts = 1
    momentum = False

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


class Scaled(Objective):
    """An objective of Δ in units of a length of its own at each place.

    Parameters
    ----------
    own : Objective
    lengths : Tensor, shape (P,)
    """

    def __init__(self, own: Objective, lengths: Tensor) -> None:
        self._own, self._lengths = own, lengths
        self.engine, self.more_starts = own.engine, own.more_starts
        self.momentum = own.momentum

    @property
    def places(self) -> int:
        return self._own.places

    @property
    def width(self) -> int:
        return self._own.width

    @property
    def dtype(self) -> torch.dtype:
        return self._own.dtype

    @property
    def start_dtype(self) -> torch.dtype:
        return self._own.start_dtype

    @property
    def device(self) -> torch.device:
        return self._own.device

    def evaluator(self, starts: int) -> Evaluator:
        return _Scaled(self._own.evaluator(starts), self._lengths.to(self.dtype)[:, None, None])

    def select(self, keep: Tensor) -> Scaled:
        return Scaled(self._own.select(keep), self._lengths[keep])

    def leads(self) -> Tensor | None:
        return self._own.leads()

    def smoothed(self) -> Sequence[Objective]:
        return [Scaled(one, self._lengths) for one in self._own.smoothed()]

    def small(self) -> Small | None:
        small = self._own.small()
        if small is None:
            return None
        return small._replace(objective=Scaled(small.objective, self._lengths))


class _Scaled:
    def __init__(self, own: Evaluator, lengths: Tensor) -> None:
        self._own, self._lengths = own, lengths

    def value_and_gradient(self, delta: Tensor) -> tuple[Tensor, Tensor]:
        value, gradient = self._own.value_and_gradient(delta * self._lengths)
        return value, gradient * self._lengths
