"""What a study asks of a layer with weights, and of a text under one draw of them."""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from wsfast import _values
from wsfast._progress import Progress
from wsfast._transforms import transformed
from wsfast.engines.engine import Engine
from wsfast.maps.defined import Defined
from wsfast.maps.measure import Measure
from wsfast.perturbation.change import Change, Sites, edit, resize
from wsfast.search.objective import Objective, Turn
from wsfast.search.search import Search


def gathered(parts: Iterator[Tensor], length: int) -> Tensor:
    """Results of parts, at least one, as one of so many rows.

    In one array from the start: small results kept between large temporaries fragment the heap.
    """
    first = next(parts)
    if len(first) == length:
        return first
    if first.requires_grad or transformed(first):
        return torch.cat([first, *parts])
    out, end = first.new_empty(length, *first.shape[1:]), len(first)
    out[:end] = first
    for part in parts:
        out[end : end + len(part)] = part
        end += len(part)
    return out


class Bracket(NamedTuple):
    """Proofs from above at P places."""

    upper: Tensor  # (P,) bounds of ‖φ(X + Δ) - φ(X)‖ over the ball, float64
    starts: Tensor  # (P, l, d) directions that may lead a search further than its own
    refined: Tensor  # (P,) bool, whether a bound was worth all steps


class FeatureMap(ABC):
    """φ under one draw of its weights.

    A new map writes `features` and nothing else: every study then takes it, by the definition.

    Attributes
    ----------
    exact : bool
        Whether features are computed in float64, whatever the dtype of a text.
    hides : bool
        Whether `features` takes hidden words.
    """

    exact = False
    hides = False

    @abstractmethod
    def features(self, X: Tensor, hidden: Tensor | None = None) -> Tensor:
        """φ (B, …) of texts (B, n, d), each from that text alone, differentiable.

        Words where `hidden` (B, n) is True are attended to by nobody, and stay as queries.
        """

    def smoothed(self) -> Sequence[FeatureMap]:
        """Maps without the kinks of this one, the smoothest first; none for a smooth one."""
        return ()

    def of_texts(self, texts: Tensor, budget: int) -> Tensor:
        """φ (N, D) of texts (N, n, d), within `budget` bytes for copies of texts."""
        at_once = max(1, budget // (4 * texts[0].numel() * texts.element_size()))
        return torch.cat([self.features(part).flatten(1) for part in texts.split(at_once)])

    def prepare(
        self, texts: Sequence[Tensor], engine: Engine, budget: int, bar: Progress | None = None
    ) -> Iterator[PreparedText]:
        """Each of the texts (n, d), about to change.

        Parameters
        ----------
        texts : sequence of Tensor
        engine : Engine
        budget : int
            Bytes that temporaries of a text may take.
        bar : Progress, optional
            Is told of the work that is done here.
        """
        for X in texts:
            yield PreparedText(self, X, engine, budget)

    def ready(self) -> AbstractContextManager[Any]:
        """A context in which the map is asked."""
        return nullcontext()


def winners_by_definition(
    values: list[Tensor], exact: Callable[[list[int], list[int]], list[float]]
) -> None:
    """The largest of each of the `values` (P,), by the definition itself.

    `exact` gives it for some of them, whose numbers it is told, at a place of each.
    """
    left = list(range(len(values)))
    while left:
        best = [int(values[k].argmax()) for k in left]
        lost = []
        for k, place, found in zip(left, best, exact(left, best), strict=True):
            # Where ReLU jumps, that may make another the largest.
            claimed = float(values[k][place])
            if found < claimed - 1e-9 * abs(claimed):
                lost.append(k)
            values[k][place] = found
        left = lost


class PreparedText:
    """One text under one draw of a map: made once, asked many times.

    This class is the definition. A map that knows a faster way to the same numbers overrides what
    it is faster at; `super()` is what it is held against.

    Parameters
    ----------
    map : FeatureMap
    X : Tensor, shape (n, d)
    engine : Engine
    budget : int
        Bytes that temporaries may take.
    """

    @property
    def more_starts(self) -> int:
        """See `Objective`."""
        return 1

    bounded = False  # whether `upper` knows bounds

    @property
    def together(self) -> int:
        """How many texts of this length are best searched together."""
        return 1

    def joined(self, places: int) -> int:
        """At so many places each, how many of these are best evaluated at once."""
        return sys.maxsize

    @property
    def work_of_place(self) -> int:
        """What a search of one place costs, in the units of `Draws.work`."""
        return 1

    def __init__(self, map: FeatureMap, X: Tensor, engine: Engine, budget: int) -> None:  # noqa: A002
        self.map, self.engine, self.budget = map, engine, budget
        self.dtype = X.dtype
        self.X = X.double() if map.exact else X
        self.n, self.d = X.shape

    @cached_property
    def phi(self) -> Tensor:
        """φ(X), in the map's own shape, float64."""
        phi: Tensor = self.map.features(self.X[None])[0].double()
        return phi

    @cached_property
    def norm(self) -> Tensor:
        """‖φ(X)‖, float64."""
        return _values.size_of("φ(X)", self.phi)

    # -- changes that are known --------------------------------------------------------------------

    def after(self, sites: Sites, change: Change) -> Tensor:
        """φ(X') (P, s, …), float64: all else is defined by it."""
        parts = [self._after(*part) for part in self._parts(sites, change)]
        after: Tensor = torch.cat(parts).unflatten(0, (len(sites), change.points))
        return after

    def changes(self, sites: Sites, change: Change) -> Tensor:
        """φ(X') - φ(X) (P, s, …), float64."""
        change_of_phi: Tensor = self.after(sites, change) - self.phi
        return change_of_phi

    def measured(
        self, sites: Sites, change: Change, measure: Measure, dtype: torch.dtype
    ) -> Tensor:
        """The measure of φ(X') - φ(X), (P, s) float64, to the accuracy promised for `dtype`."""
        parts = (self._measure(part, measure) for part in self._parts(sites, change))
        shape = (len(sites), change.points)
        return gathered(parts, math.prod(shape)).view(shape)

    def settle(self, values: Tensor, sites: Sites, change: Change, measure: Measure) -> None:
        """Make the largest of the `values` (P,) that were measured what the definition says.

        Nothing is to be done where `measured` is the definition.
        """

    @staticmethod
    def settle_each(
        texts: Sequence[PreparedText],
        values: list[Tensor],
        sites: Sites,
        changes: Sequence[Change],
        measure: Measure,
    ) -> None:
        """`settle` the values of each of some texts, all of the same class."""
        for text, of_text, change in zip(texts, values, changes, strict=True):
            text.settle(of_text, sites, change, measure)

    def measured_of_changes(self, sites: Sites, change: Change, measure: Measure) -> Tensor:
        """As `measured`, of `changes` that are formed, as many as fit."""
        size = self.phi.numel() * change.points * sites.words
        at_once = max(1, self.budget // (6 * 8 * size))
        parts = []
        for part in torch.arange(len(sites), device=self.X.device).split(at_once):
            at = Sites(sites.at[part])
            by = self.changes(at, change.select(part))
            places = at.at.repeat_interleave(change.points, 0)
            parts.append(measure.final(measure.of(by.flatten(0, 1), places)).view(by.shape[:2]))
        return torch.cat(parts)

    def settle_by_definition(
        self, values: Tensor, sites: Sites, change: Change, measure: Measure
    ) -> None:
        """`settle` where `measured` is not the definition."""

        def exact(_: list[int], best: list[int]) -> list[float]:
            some = torch.tensor(best, device=sites.at.device)
            at, by = Sites(sites.at[some]), change.select(some)
            return [float(PreparedText.measured(self, at, by, measure, torch.float64))]

        winners_by_definition([values], exact)

    def _measure(self, part: tuple[Sites, Change], measure: Measure) -> Tensor:
        change = self._after(*part) - self.phi
        return measure.final(measure.of(change, part[0].at))

    def _after(self, sites: Sites, change: Change) -> Tensor:
        """φ (M, …), float64, for one change of each of M places."""
        edited, hidden = edit(self.X, sites, change)
        after: Tensor = self.map.features(edited, hidden).double()
        return after

    def _parts(self, sites: Sites, change: Change) -> Iterator[tuple[Sites, Change]]:
        """One change of each of M places, as many as fit."""
        at = sites.at.repeat_interleave(change.points, 0)
        for rows in torch.arange(len(at), device=at.device).split(self.texts_at_once):
            some = (None if by is None else by.flatten(0, 1)[rows, None] for by in change)
            yield Sites(at[rows]), Change(*some)

    def rewritten(self, at: Tensor, put: Tensor) -> Tensor:
        """‖φ(X') - φ(X)‖ (C,), float64, of the rows of the words that stay.

        Words `put` (C, m', d) come in place of those at `at` (m,). X' may have another number of
        words, so that this is the definition on X'; of features (n, d), a row for each word.
        """
        norms = []
        for some in put.split(self.texts_at_once):
            texts, before, after = resize(self.X, at, some)
            change = self.map.features(texts).double()[:, after] - self.phi[before]
            norms.append(change.flatten(1).square().sum(-1).sqrt())
        return torch.cat(norms)

    # -- changes that are searched -----------------------------------------------------------------

    @property
    def texts_at_once(self) -> int:
        """Texts that are edited together."""
        return max(1, self.budget // (4 * self.X.numel() * self.X.element_size()))

    def parts(self, sites: Sites, search: Search) -> Iterator[Sites]:
        """`sites` in parts that are searched together; places do not depend on one another."""
        # In parts also for the bar and for Ctrl-C.
        at_once = max(1, self.texts_at_once // (search.starts + sites.words))
        yield from map(Sites, sites.at.split(at_once))

    def objective(self, sites: Sites, measure: Measure, radius: float) -> Objective:
        """`measure` of φ(X + Δ) - φ(X) at `sites`, to be searched over ‖Δ‖ ≤ radius."""
        return self.defined(sites, measure, radius)

    def defined(self, sites: Sites, measure: Measure, radius: float) -> Defined:
        """The same by the definition."""
        return Defined(
            features=self.map.features,
            X=self.X,
            phi=self.phi,
            sites=sites,
            measure=measure,
            engine=self.engine,
            rows_at_once=self.texts_at_once,
            more_starts=self.more_starts,
            momentum=self.smooth(measure),
            rounded=self.search_dtype(radius),
            lead=self.leads(sites, measure, radius),
            smoother=tuple(
                PreparedText(smooth, self.X, self.engine, self.budget)._plainly(sites, measure)
                for smooth in self.map.smoothed()
            ),
            basis=partial(self.basis, measure, radius),
            turning=partial(self.turns, measure, radius),
        )

    def _plainly(self, sites: Sites, measure: Measure) -> Defined:
        return Defined(
            self.map.features, self.X, self.phi, sites, measure, self.engine, self.texts_at_once
        )

    def smooth(self, measure: Measure) -> bool:
        """Whether the measure is known to be smooth, and better searched with momentum."""
        return False

    def turns(
        self, measure: Measure, radius: float, sites: Sites, within: Tensor | None
    ) -> Sequence[Turn]:
        """See `Objective.turns`; of coordinates in a basis (d, r), if there is one."""
        return ()

    def leads(self, sites: Sites, measure: Measure, radius: float) -> Tensor | None:
        """Where to start the search at `sites`, (1 or P, l, D); None: random starts alone."""
        return None

    def basis(self, measure: Measure, radius: float) -> Tensor | None:
        """An orthonormal basis (D, r) that is worth searching in first."""
        return None

    def search_dtype(self, radius: float) -> torch.dtype:
        """In which a search works, or whose starts it takes."""
        return self.dtype

    def upper(self, sites: Sites, radius: float, balls: int) -> Tensor:
        """Upper bounds (P,) of ‖φ(X + Δ) - φ(X)‖ over the ball, float64, where it is `bounded`.

        Or over a product of `balls`, one for each word.
        """
        raise NotImplementedError

    def unbounded(self, sites: Sites) -> str:
        """Why there is no proof from above for `bracket`; "" where there is one."""
        return "bounds of this map are not known"

    def bracket(self, sites: Sites, delta: Tensor, norms: Tensor, radii: Tensor) -> Bracket:
        """Proofs from above, beside Δ (P, 1, d) and the norms (P,) that a search has found.

        Over ‖Δ‖ ≤ `radii` (P,), not all 0.
        """
        raise NotImplementedError

    # -- units -------------------------------------------------------------------------------------

    @property
    def unit(self) -> float:
        """A power of 2 of the size of X, where numbers of that size leave the range; else 1."""
        return 1.0

    def in_units(self, unit: float) -> PreparedText:
        """The same text in units of `unit`: relative changes are the same."""
        raise NotImplementedError
