"""Heads of a trained attention layer as a feature map, and one text under them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import torch
from torch import Tensor

from wsfast._kinks import root
from wsfast._progress import Progress
from wsfast.attention.core import HeadCore
from wsfast.attention.heads import Heads
from wsfast.attention.rows import Rows
from wsfast.attention.sites import HeadSiteState, LeftOut, SiteState, prepare_head_sites
from wsfast.attention.state import HeadState, PositionState, prepare_head
from wsfast.attention.weight_fn import WeightFn
from wsfast.bound.pairs import Pairs, pairs_of
from wsfast.engines.engine import Engine
from wsfast.maps.closed_form_text import OWN_TURN, ClosedFormText, starts_of
from wsfast.maps.feature_map import FeatureMap, PreparedText, winners_by_definition
from wsfast.maps.heads_objective import HeadsObjective, HeadStates, Projected, SideBySide
from wsfast.maps.layer_input import LayerInput
from wsfast.maps.measure import Measure, Norm
from wsfast.perturbation.change import Change, Sites, edit
from wsfast.search.objective import Objective
from wsfast.search.options import search_dtype
from wsfast.search.search import Search

SOFTMAX = WeightFn("softmax")

# Arrays (n,) in the state of a position.
_STATE = 16


class HeadsMap(FeatureMap):
    """Heads of a layer side by side, (B, n, h d_v), or what W_O makes of them, (B, n, d).

    By the model's own code up to queries, keys and values.

    Parameters
    ----------
    given : LayerInput
    heads : sequence of int
        Numbers of the heads.
    projected : bool
        Whether W_O follows.
    """

    exact = True
    hides = True

    def __init__(self, given: LayerInput, heads: Sequence[int], *, projected: bool = False) -> None:
        self.given, self.heads = given, list(heads)
        d_v = given.layer.heads.values.shape[-1]
        rows = torch.arange(len(given.layer.W_O), device=given.X.device).unflatten(0, (-1, d_v))
        self.W_O = given.layer.W_O[rows[self.heads].flatten()] if projected else None

    def features(self, X: Tensor, hidden: Tensor | None = None) -> Tensor:
        return self.output(self.given.layer.heads.with_rows(*self.given.rows(X)), hidden)

    def output(self, heads: Heads, hidden: Tensor | None = None) -> Tensor:
        """The features that `heads`, all of the layer, make of their rows; `hidden` (B, n)."""
        some = heads.only(self.heads).output(hidden)
        side_by_side = some.transpose(-3, -2).flatten(-2)
        return side_by_side if self.W_O is None else side_by_side @ self.W_O

    def moves(self, at: Tensor, delta: Tensor) -> Tensor:
        """Changes (P, s, m, h, D) of the rows of the heads: see `LayerInput.moves`."""
        if self.given.linear:
            return torch.einsum("...d,dhe->...he", delta, self.matrix)
        return self.given.moves(at, delta)[..., self.heads, :]

    @cached_property
    def matrix(self) -> Tensor:
        """`LayerInput.matrix` of the heads, (d, h, D)."""
        return self.given.matrix[:, self.heads]

    @cached_property
    def _factors(self) -> tuple[Tensor, Tensor] | None:
        """An orthonormal basis (d, r) of what the heads see, and `matrix` in it, (r, h, D).

        None where they see all d dimensions.
        """
        if not self.given.linear or self.matrix[0].numel() >= len(self.matrix):
            return None
        basis, inside = torch.linalg.qr(self.matrix.flatten(1))
        return basis, inside.unflatten(1, self.matrix.shape[1:])

    def objective(self, heads: HeadStates, sites: Sites, engine: Engine) -> HeadsObjective:
        """What is searched at the places, of the `heads` of this map."""
        linear = self.given.linear
        return HeadsObjective(
            engine=engine,
            at=sites.at,
            heads=heads,
            moves=self.matrix.to(heads.dtype) if linear else self.moves,
            d=self.given.X.shape[1],
            lead=self.leads(sites),
            factors=self._factors,
            more_starts=self.more_starts,
        )

    @property
    def more_starts(self) -> int:
        """As of `Objective`: texts are short where the dimensions that heads see are few."""
        seen = self._factors[0] if self._factors is not None else self.given.X
        return starts_of(len(self.given.X) * seen.shape[1])

    def leads(self, sites: Sites) -> Tensor | None:
        """Directions (1 or P, l, m d): all scores raised at once, and lowered.

        Of single words also the first of them turned to where the score of the word in its own row
        rises.
        """
        if not self.given.linear:
            return None
        heads = self.given.layer.heads.only(self.heads)
        d_k = heads.keys.shape[-1]
        of_key, of_query = self.matrix[..., :d_k], self.matrix[..., -d_k:]
        lead = torch.einsum("dhe,he->d", of_key, heads.queries.sum(1))
        lead = torch.nn.functional.normalize(lead, dim=0)
        both = torch.stack([lead, -lead])[None]
        if sites.words > 1:
            return both.repeat(1, 1, sites.words)
        own = torch.einsum("dhe,hpe->pd", of_key, heads.queries[:, sites.index])
        own += torch.einsum("dhe,hpe->pd", of_query, heads.keys[:, sites.index])
        turned = lead + OWN_TURN * torch.nn.functional.normalize(own, dim=1)
        return torch.cat([both.expand(len(sites), -1, -1), turned[:, None]], 1)

    def search_dtype(self, radius: float) -> torch.dtype:
        """The model's own code works in float64."""
        X = self.given.X
        return search_dtype(X, radius, torch.float32) if self.given.linear else X.dtype

    def prepare(
        self, texts: Sequence[Tensor], engine: Engine, budget: int, bar: Progress | None = None
    ) -> Iterator[PreparedText]:
        for X in texts:
            if len(self.heads) == 1 and self.W_O is None:
                yield HeadText(self, X, engine, budget)
            else:
                yield HeadsText(self, X, engine, budget)


class _OfLayer(PreparedText):
    """The text that a layer was captured on."""

    map: HeadsMap

    @property
    def more_starts(self) -> int:
        return self.map.more_starts

    def leads(self, sites: Sites, measure: Measure, radius: float) -> Tensor | None:
        return self.map.leads(sites)

    def _after(self, sites: Sites, change: Change) -> Tensor:
        if change.add is not None or change.put is not None:
            return super()._after(sites, change)
        # The words stay, and with them the rows that the model's own code has made.
        _, hidden = edit(self.X, sites, change)
        return self.map.output(self.map.given.layer.heads, hidden)

    def search_dtype(self, radius: float) -> torch.dtype:
        return self.map.search_dtype(radius)


class HeadText(_OfLayer, ClosedFormText):
    """The text that a layer was captured on, under one of its heads."""

    _last: PositionState | None = None  # the state asked for last, where it is small

    @property
    def weight_fn(self) -> WeightFn:
        return SOFTMAX

    @cached_property
    def core(self) -> HeadCore:
        """What the closed form sees of the head."""
        heads = self.map.given.layer.heads.only(self.map.heads)
        return HeadCore(
            weight_fn=SOFTMAX,
            values=heads.values[0],
            queries=heads.queries[0],
            keys=heads.keys[0],
            bias=None if heads.bias is None else heads.bias[0],
            cap=heads.cap,
            sink=None if heads.sinks is None else heads.sinks[0].double(),
        )

    def rows_for(self, weight_fn: WeightFn) -> Rows:
        return self.engine.rows(self.core, self.budget)

    def state(self, index: Tensor, weight_fn: WeightFn | None = None) -> PositionState:
        # Special tokens are not moved: a search and its verification ask for some positions, twice.
        if self._last is None or not torch.equal(index, self._last.index):
            self._last = None
            state = super().state(index, weight_fn)
            if 4 * _STATE * 8 * self.n * len(index) > self.budget:
                return state
            self._last = state
        return self._last

    def position_state(self, rows: Rows, index: Tensor) -> HeadState:
        return prepare_head(rows, index)

    def site_state(self, rows: Rows, left: LeftOut, at: Tensor) -> HeadSiteState:
        return prepare_head_sites(rows, left, at)

    def in_dtype(self, state: PositionState, dtype: torch.dtype) -> HeadState:
        assert isinstance(state, HeadState)
        return state.to(dtype)

    def sites_in_dtype(self, state: SiteState, dtype: torch.dtype) -> HeadSiteState:
        assert isinstance(state, HeadSiteState)
        return state.to(dtype)

    def moved(self, sites: Sites, delta: Tensor) -> Tensor:
        return self.map.moves(sites.at, delta.double())[..., 0, :]

    @staticmethod
    def settle_each(
        texts: Sequence[PreparedText],
        values: list[Tensor],
        sites: Sites,
        changes: Sequence[Change],
        measure: Measure,
    ) -> None:
        # All heads at once.
        heads = [text for text in texts if isinstance(text, HeadText)]

        def exact(which: list[int], best: list[int]) -> list[float]:
            at = sites.at[best]
            moved = None
            if changes[0].add is not None or changes[0].put is not None:
                each = zip(which, at.new_tensor(best)[:, None], at[:, None], strict=True)
                by = [heads[k].delta_of(Sites(w), changes[k].select(p)) for k, p, w in each]
                # The model's own code makes the rows of all heads at once.
                moved = heads[0].map.given.moves(at, torch.cat(by))[:, 0]
            found = [
                heads[k].change_of_rows(where, None if moved is None else moved[q])
                for q, (k, where) in enumerate(zip(which, at, strict=True))
            ]
            norms = measure.final(measure.of(torch.stack(found), at))
            return [float(norm) for norm in norms]

        winners_by_definition(values, exact)

    def change_of_rows(self, at: Tensor, moved: Tensor | None) -> Tensor:
        """φ(X') - φ(X) where the rows of the words `at` (m,) change by `moved` (m, H, D).

        None: the words are hidden, and their rows stay.
        """
        if moved is None:
            return self._after(Sites(at[None]), Change())[0] - self.phi
        (head,) = self.map.heads
        heads = self.map.given.layer.heads.only([head])
        split = [one.shape[-1] for one in (heads.keys, heads.values, heads.queries)]
        key, value, query = (by.to(heads.keys) for by in moved[:, head].split(split, -1))
        after = heads.with_rows(
            heads.queries.index_add(1, at, query[None]),
            heads.keys.index_add(1, at, key[None]),
            heads.values.index_add(1, at, value[None]),
        )
        return after.output()[0].double() - self.phi

    def unbounded(self, sites: Sites) -> str:
        if not self.map.given.linear:
            return "bounds are of layers whose queries, keys and values are linear in the word"
        if self.core.cap is not None:
            return "bounds are of scores without a soft cap"
        return super().unbounded(sites)

    def pairs(self, index: Tensor, radii: Tensor, largest: float) -> Pairs:
        state = self.state(index)
        assert isinstance(state, HeadState)
        return pairs_of(state, radii, largest, self.map.matrix[:, 0].double())

    def searched(self, sites: Sites, dtype: torch.dtype) -> HeadState | HeadSiteState:
        """The state of the places in `dtype`."""
        if sites.words > 1:
            return self.sites_in_dtype(self.sites.state(sites), dtype)
        return self.in_dtype(self.state(sites.index), dtype)

    def objective(self, sites: Sites, measure: Measure, radius: float) -> Objective:
        if not self.engine.closed_form or measure != Norm():
            return self.defined(sites, measure, radius)
        dtype = self.search_dtype(radius)
        heads = SideBySide((self.searched(sites, dtype),))
        return self.map.objective(heads, sites, self.engine)


class HeadsText(_OfLayer):
    """The text that a layer was captured on, under several of its heads at once."""

    @cached_property
    def phi(self) -> Tensor:
        return self.map.output(self.map.given.layer.heads)

    @cached_property
    def of_heads(self) -> list[HeadText]:
        """The same under each of the heads."""
        given = self.map.given
        return [
            HeadText(HeadsMap(given, [head]), self.X, self.engine, self.budget)
            for head in self.map.heads
        ]

    def changes(self, sites: Sites, change: Change) -> Tensor:
        if not self.engine.closed_form:
            return super().changes(sites, change)
        changes = torch.cat([one.changes(sites, change) for one in self.of_heads], -1)
        return changes if self.map.W_O is None else changes @ self.map.W_O

    def measured(
        self, sites: Sites, change: Change, measure: Measure, dtype: torch.dtype
    ) -> Tensor:
        if not self.engine.closed_form:
            return super().measured(sites, change, measure, dtype)
        if self.map.W_O is None and isinstance(measure, Norm):
            norms = [one.measured(sites, change, measure, dtype) for one in self.of_heads]
            return root(torch.stack(norms).square().sum(0))
        return self.measured_of_changes(sites, change, measure)

    def settle(self, values: Tensor, sites: Sites, change: Change, measure: Measure) -> None:
        self.settle_by_definition(values, sites, change, measure)

    def parts(self, sites: Sites, search: Search) -> Iterator[Sites]:
        for part in self.of_heads[0].parts(sites, search):
            at_once = max(1, len(part) // len(self.of_heads))
            yield from map(Sites, part.at.split(at_once))

    def objective(self, sites: Sites, measure: Measure, radius: float) -> Objective:
        projected = self.map.W_O is not None
        if not self.engine.closed_form or measure != Norm() or (projected and sites.words > 1):
            return self.defined(sites, measure, radius)
        dtype = self.search_dtype(radius)
        states = tuple(one.searched(sites, dtype) for one in self.of_heads)
        heads: HeadStates = SideBySide(states)
        if self.map.W_O is not None:
            single = tuple(one for one in states if isinstance(one, HeadState))
            # What the heads make of the differences of a place, before and after W_O.
            wide = self.n * (len(self.map.heads) * self.d + len(self.map.W_O))
            at_once = max(1, self.budget // (4 * 8 * wide))
            heads = Projected.of(single, self.map.W_O.to(dtype), at_once)
        return self.map.objective(heads, sites, self.engine)
