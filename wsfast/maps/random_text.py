"""Random features as a feature map, and one text under them: V is made a word at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby

import torch
from torch import Tensor

from wsfast._progress import Progress
from wsfast.engines.engine import Engine, value_and_gradient_of
from wsfast.maps.feature_map import FeatureMap, PreparedText
from wsfast.maps.measure import Functional, Measure, Norm
from wsfast.maps.network import Network
from wsfast.maps.projection import project, project_word
from wsfast.maps.random import RandomFeatures, random_features
from wsfast.maps.singular_value import largest_singular_value
from wsfast.perturbation.change import Change, Sites
from wsfast.search.objective import Objective
from wsfast.search.options import search_dtype
from wsfast.search.search import Search

# Numbers of the V_i of positions that are searched together.
_TOGETHER = 1 << 24

SEARCH_COST = 50
"""What searching a position costs, in units of making its V_i: for bars alone."""


class RandomMap(FeatureMap):
    """Random features ϕ(V flat(X)), or deep ones, of one draw.

    Parameters
    ----------
    network : Network
    draw, seed : int
    engine : Engine
        Makes V; that of the definition holds all of it.
    """

    exact = True

    def __init__(self, network: Network, draw: int, *, seed: int, engine: Engine) -> None:
        self.network = network
        self._draw, self._seed, self._engine = draw, seed, engine
        self._drawn: tuple[tuple[int, int], RandomFeatures] | None = None

    def drawn(self, n: int, d: int, device: torch.device) -> RandomFeatures:
        """The features for texts (n, d); those of the last shape are kept."""
        if self._drawn is None or self._drawn[0] != (n, d):
            made = random_features(
                self.network, n, d, self._draw, seed=self._seed, device=device, engine=self._engine
            )
            self._drawn = (n, d), made
        return self._drawn[1]

    def features(self, X: Tensor, hidden: Tensor | None = None) -> Tensor:
        return self.drawn(X.shape[1], X.shape[2], X.device).features(X)

    def of_texts(self, texts: Tensor, budget: int) -> Tensor:
        return self.features(texts)

    def prepare(
        self, texts: Sequence[Tensor], engine: Engine, budget: int, bar: Progress | None = None
    ) -> Iterator[RandomText]:
        for _, group in groupby(texts, lambda X: X.shape):
            alike = list(group)
            drawn = self.drawn(len(alike[0]), alike[0].shape[1], alike[0].device)
            # All at once: V is made but once for them.
            z = project(drawn.projection, torch.stack(alike).double(), bar)
            if bar is not None:
                bar.update((len(alike) - 1) * drawn.k * alike[0].numel())
            for X, of_text in zip(alike, z, strict=True):
                yield RandomText(self, X, engine, drawn, of_text)


class RandomText(PreparedText):
    """One text under random features. With the engine of the definition, the definition."""

    bounded = True

    def __init__(
        self,
        map: RandomMap,  # noqa: A002
        X: Tensor,
        engine: Engine,
        drawn: RandomFeatures,
        z: Tensor,
    ) -> None:
        super().__init__(map, X, engine, 1)
        self.drawn, self.z = drawn, z
        self._norms: dict[tuple[int, ...], float] = {}

    @cached_property
    def phi(self) -> Tensor:
        return self.drawn.head(self.z)

    @property
    def work_of_place(self) -> int:
        return self.drawn.k * self.d * (1 + SEARCH_COST)

    @property
    def texts_at_once(self) -> int:
        return 8

    def after(self, sites: Sites, change: Change) -> Tensor:
        by = change.add
        if by is None:
            assert change.put is not None
            by = change.put.double() - self.X[sites.at][:, None]
        moved = [
            torch.stack(
                [
                    project_word(self.drawn.projection, i, words.double())
                    for i, words in zip(site, changes.unbind(1), strict=True)
                ]
            ).sum(0)
            for site, changes in zip(sites.at.tolist(), by, strict=True)
        ]
        return self.drawn.head(self.z + torch.stack(moved))

    def measured(
        self, sites: Sites, change: Change, measure: Measure, dtype: torch.dtype
    ) -> Tensor:
        out = []
        for rows in torch.arange(len(sites), device=self.X.device).split(self._together(sites)):
            at, by = Sites(sites.at[rows]), change.select(rows)
            changes = self.changes(at, by).flatten(0, 1)
            values = measure.of(changes, at.at.repeat_interleave(change.points, 0))
            out.append(measure.final(values).unflatten(0, (len(at), -1)))
        return torch.cat(out)

    def _together(self, sites: Sites) -> int:
        return max(1, _TOGETHER // (self.drawn.k * self.d * sites.words))

    def parts(self, sites: Sites, search: Search) -> Iterator[Sites]:
        yield from map(Sites, sites.at.split(self._together(sites)))

    def objective(self, sites: Sites, measure: Measure, radius: float) -> Objective:
        known = measure == Norm() or isinstance(measure, Functional)
        if not self.engine.closed_form or not known:
            return self.defined(sites, measure, radius)
        dtype = self.search_dtype(radius)
        z = self.z.to(dtype)
        V = self._blocks(sites, dtype, measure)
        lead = self._lead(V, measure)
        return RandomObjective(self.engine, self.drawn, V, z, self.drawn.head(z), measure, lead)

    def leads(self, sites: Sites, measure: Measure, radius: float) -> Tensor | None:
        return self._lead(self._blocks(sites, self.X.dtype, measure), measure)

    def _blocks(self, sites: Sites, dtype: torch.dtype, measure: Measure) -> Tensor:
        """The V_i of each site side by side, (P, k, m d); norms are kept, for `upper`."""
        projection = self.drawn.projection
        V = [torch.cat([projection.block(i, dtype) for i in site], 1) for site in sites.at.tolist()]
        for site, block in zip(sites.at.tolist(), V, strict=True):
            if isinstance(measure, Norm) and tuple(site) not in self._norms:
                self._norms[tuple(site)] = largest_singular_value(block)
        return torch.stack(V)

    def _lead(self, V: Tensor, measure: Measure) -> Tensor | None:
        """The directions along which the measure changes most, seen from where the text is."""
        if isinstance(measure, Functional):
            theta = measure.theta
            _, slope = value_and_gradient_of(lambda z: self.drawn.head(z) @ theta, self.z)
            return (slope.to(V.dtype) @ V)[:, None]
        _, slope = value_and_gradient_of(lambda z: self.drawn.head(z).square().sum() / 2, self.z)
        upwards = slope.to(V.dtype) @ V
        return torch.stack([upwards, -upwards], 1)

    def search_dtype(self, radius: float) -> torch.dtype:
        if not self.engine.closed_form:
            return torch.float64
        return search_dtype(self.X, radius, self.dtype)

    def upper(self, sites: Sites, radius: float, balls: int) -> Tensor:
        """‖V_i‖ times a Lipschitz constant of φ by z, times the radius; of balls, their sum."""
        activation, depth = self.drawn.activation, self.drawn.depth
        beyond = activation.lipschitz**depth * math.prod(self.drawn.layer_norms())
        dtype, norms = self.search_dtype(radius), []
        for site in sites.at.tolist():
            parts = [(i,) for i in site] if balls > 1 else [tuple(site)]
            for part in parts:
                if part not in self._norms:
                    self._blocks(Sites(torch.tensor([part], device=self.X.device)), dtype, Norm())
            norms.append(sum(self._norms[part] for part in parts))
        return radius * beyond * torch.tensor(norms, dtype=torch.float64, device=self.X.device)


@dataclass(frozen=True)
class RandomObjective(Objective):
    """At P positions whose V_i are in memory."""

    engine: Engine
    drawn: RandomFeatures
    V: Tensor  # (P, k, d) V_i
    z: Tensor  # (k,) V flat(X)
    base: Tensor  # (k,) φ(X)
    measure: Measure
    lead: Tensor | None

    @property
    def places(self) -> int:
        return len(self.V)

    @property
    def width(self) -> int:
        return self.V.shape[-1]

    @property
    def dtype(self) -> torch.dtype:
        return self.V.dtype

    @property
    def device(self) -> torch.device:
        return self.V.device

    def evaluator(self, starts: int) -> RandomObjective:
        return self

    def select(self, keep: Tensor) -> RandomObjective:
        return replace(self, V=self.V[keep])

    def leads(self) -> Tensor | None:
        return self.lead

    def value_and_gradient(self, delta: Tensor) -> tuple[Tensor, Tensor]:
        # This way round a product with few columns runs at the speed of the memory.
        moved = (self.V @ delta.mT).mT.contiguous()
        values, slope = value_and_gradient_of(self._values, moved)
        return values, slope @ self.V

    def _values(self, moved: Tensor) -> Tensor:
        change = self.drawn.head(self.z + moved) - self.base
        if isinstance(self.measure, Functional):
            return change @ self.measure.theta.to(change.dtype)
        return change.square().sum(-1)
