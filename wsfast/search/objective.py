"""What a search maximises."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import torch
from torch import Tensor

from wsfast.engines.engine import Engine, Evaluator, InTurn

Turn = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Small:
    """An objective in the span of the orthonormal columns of a basis (D, r).

    Attributes
    ----------
    objective : Objective
    bases : tuple of Tensor
        One for all places, or one for each of the `parts`.
    lossless : bool
        Whether the objective depends on nothing else.
    parts : tuple of int
        Numbers of places that follow one another.
    """

    objective: Objective
    bases: tuple[Tensor, ...]
    lossless: bool = False
    parts: tuple[int, ...] = ()

    def inside(self, points: Tensor) -> Tensor:
        """What of the points (1 or P, s, D) lies in the span, (1 or P, s, r)."""
        if len(self.bases) == 1:
            return points @ self.bases[0]
        shared = len(points) == 1
        each = [points] * len(self.parts) if shared else apart(points, self.parts)
        inside = [own @ basis for own, basis in zip(each, self.bases, strict=True)]
        counts = self.parts if shared else [-1] * len(self.parts)
        return torch.cat(
            [own.expand(count, -1, -1) for own, count in zip(inside, counts, strict=True)]
        )

    def lifted(self, delta: Tensor) -> Tensor:
        """Points (P, r) of the span in all dimensions, (P, D)."""
        if len(self.bases) == 1:
            return delta @ self.bases[0].mT
        each = zip(apart(delta, self.parts), self.bases, strict=True)
        return torch.cat([own @ basis.mT for own, basis in each])


def apart(rows: Tensor, counts: Sequence[int]) -> list[Tensor]:
    """Rows of each part, in memory of their own: products round as they do for it alone."""
    return [part.clone() for part in rows.split(list(counts))]


def onto_span(points: Tensor, rows: Tensor) -> Tensor:
    """About what of the points (..., D) lies in the span of the rows (r, D).

    A factor of the Gram matrix is found sooner than a basis, and without waiting for a device.
    """
    gram = rows @ rows.mT
    size = gram.diagonal()
    gram = gram + torch.diag(torch.finfo(rows.dtype).eps ** 0.5 * size.mean().expand_as(size))
    factor = torch.linalg.cholesky_ex(gram).L
    given = points.reshape(-1, points.shape[-1])
    inside = (torch.cholesky_solve(rows @ given.mT, factor).mT @ rows).view_as(points)
    return torch.where(inside.isfinite().all(), inside, points)


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

    @property
    def parts(self) -> Tensor | None:
        """Number of the part (P,) that each place is of; None: they are one.

        What is done about places that are through, no other part notices.
        """
        return None

    @abstractmethod
    def evaluator(self, starts: int) -> Evaluator:
        """Evaluates `starts` points at each place."""

    def evaluator_with(self, others: Sequence[Objective], starts: int) -> Evaluator:
        """The same at the places of this one and of others alike, which follow one another."""
        parts = [self, *others]
        return InTurn([part.evaluator(starts) for part in parts], [one.places for one in parts])

    @abstractmethod
    def select(self, keep: Tensor) -> Objective:
        """The same at the places numbered `keep` (ascending) alone."""

    def leads(self) -> Tensor | None:
        """Directions (1 or P, l, D) to start from, before random ones."""
        return None

    def towards(self, directions: Tensor) -> Tensor:
        """What of the directions (1 or P, s, D) it is worth to start towards."""
        return directions

    def turns(self) -> Sequence[Turn]:
        """What makes of points (P, D) directions (P, D) to go on from, one after the other.

        They lead to what steps do not find.
        """
        return ()

    def smoothed(self) -> Sequence[Objective]:
        """Objectives without the kinks of this one, the smoothest first; none for a smooth one.

        They lead to more starts, and Adam ends the search.
        """
        return ()

    def small(self) -> Small | None:
        """The same in fewer dimensions, where that saves work."""
        return None


class _Like(Objective):
    """What is searched in the same way, and in as many dimensions, as another objective."""

    def __init__(self, own: Objective) -> None:
        self._own = own
        self.engine, self.more_starts = own.engine, own.more_starts
        self.momentum = own.momentum

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


class Together(_Like):
    """Objectives of as many dimensions, alike but for the number of their places, as one.

    Parameters
    ----------
    parts : sequence of Objective
        Their places follow one another.
    """

    def __init__(self, parts: Sequence[Objective]) -> None:
        super().__init__(parts[0])
        self._parts = parts
        self._counts = [part.places for part in parts]

    @property
    def places(self) -> int:
        return sum(self._counts)

    @cached_property
    def parts(self) -> Tensor:
        numbers = torch.arange(len(self._counts), device=self.device)
        return numbers.repeat_interleave(numbers.new_tensor(self._counts))

    def evaluator(self, starts: int) -> Evaluator:
        return self._parts[0].evaluator_with(self._parts[1:], starts)

    def select(self, keep: Tensor) -> Together:
        kept, first = [], 0
        for part, count in zip(self._parts, self._counts, strict=True):
            own = keep[(keep >= first) & (keep < first + count)] - first
            if len(own) > 0:
                kept.append(part.select(own))
            first += count
        return Together(kept)

    def leads(self) -> Tensor | None:
        each = [part.leads() for part in self._parts]
        known = [one for one in each if one is not None]
        if len(known) < len(each):
            return None
        return torch.cat(
            [one.expand(count, -1, -1) for one, count in zip(known, self._counts, strict=True)]
        )

    def towards(self, directions: Tensor) -> Tensor:
        shared = len(directions) == 1
        own = [directions] * len(self._parts) if shared else directions.split(self._counts)
        each = zip(self._parts, own, self._counts, strict=True)
        return torch.cat([part.towards(of).expand(count, -1, -1) for part, of, count in each])

    def turns(self) -> Sequence[Turn]:
        each = zip(*[part.turns() for part in self._parts], strict=True)
        return [partial(self._turned, turns) for turns in each]

    def _turned(self, turns: Sequence[Turn], delta: Tensor) -> Tensor:
        own = zip(turns, apart(delta, self._counts), strict=True)
        return torch.cat([turn(points) for turn, points in own])

    def smoothed(self) -> Sequence[Objective]:
        each = [part.smoothed() for part in self._parts]
        return [Together(alike) for alike in zip(*each, strict=True)]

    def small(self) -> Small | None:
        each = [part.small() for part in self._parts]
        known = [one for one in each if one is not None]
        if len(known) < len(each):
            return None
        return Small(
            Together([one.objective for one in known]),
            tuple(basis for one in known for basis in one.bases),
            all(one.lossless for one in known),
            tuple(self._counts),
        )


class Scaled(_Like):
    """An objective of Δ in units of a length of its own at each place.

    Parameters
    ----------
    own : Objective
    lengths : Tensor, shape (P,)
    """

    def __init__(self, own: Objective, lengths: Tensor) -> None:
        super().__init__(own)
        self._lengths = lengths

    @property
    def places(self) -> int:
        return self._own.places

    def evaluator(self, starts: int) -> Evaluator:
        return _Scaled(self._own.evaluator(starts), self._lengths.to(self.dtype)[:, None, None])

    def select(self, keep: Tensor) -> Scaled:
        return Scaled(self._own.select(keep), self._lengths[keep])

    def leads(self) -> Tensor | None:
        return self._own.leads()

    def towards(self, directions: Tensor) -> Tensor:
        return self._own.towards(directions)

    def turns(self) -> Sequence[Turn]:
        return [partial(self._turned, turn) for turn in self._own.turns()]

    def _turned(self, turn: Turn, delta: Tensor) -> Tensor:
        return turn(delta * self._lengths.to(self.dtype)[:, None])

    def smoothed(self) -> Sequence[Objective]:
        return [Scaled(one, self._lengths) for one in self._own.smoothed()]

    def small(self) -> Small | None:
        small = self._own.small()
        if small is None:
            return None
        return replace(small, objective=Scaled(small.objective, self._lengths))


class _Scaled:
    def __init__(self, own: Evaluator, lengths: Tensor) -> None:
        self._own, self._lengths = own, lengths

    def value_and_gradient(self, delta: Tensor) -> tuple[Tensor, Tensor]:
        value, gradient = self._own.value_and_gradient(delta * self._lengths)
        return value, gradient * self._lengths
