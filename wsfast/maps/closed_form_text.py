"""One text by the closed form of attention: what random attention and trained heads share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from functools import cached_property

import torch
from torch import Tensor

from wsfast._interrupt import rows_at_once
from wsfast._kinks import root
from wsfast._transforms import values_of
from wsfast.attention import closed_form
from wsfast.attention.core import numbers
from wsfast.attention.rows import Rows
from wsfast.attention.sites import LeftOut, SiteState
from wsfast.attention.state import PositionState
from wsfast.attention.weight_fn import WeightFn
from wsfast.bound.bracket import BYTES_OF_PAIR, upper_bounds
from wsfast.bound.pairs import Pairs
from wsfast.bound.shape import shape_of
from wsfast.maps.attention_sites import AttentionSites
from wsfast.maps.feature_map import Bracket, PreparedText, gathered
from wsfast.maps.measure import Measure, Norm
from wsfast.perturbation.change import Change, Sites
from wsfast.search.options import ordinary
from wsfast.search.search import Search

# Rounding of a squared norm, in units of the size of its terms, that is let through: beyond it the
# change itself is formed. A small share of the accuracy promised (1e-4 and 1e-10 of the norm).
ROUNDING = {torch.float32: 3e-5, torch.float64: 3e-11}

# What the terms of a score may be in float32: it is promised for scores up to 1e3, and a sum of
# terms of 2e3 is off by less than its accuracy.
LARGEST_TERMS = 2e3

# Texts of so many numbers or fewer get so many times the starts: there they cost next to nothing.
_SHORT = 1 << 12
_MORE_STARTS = 4

# How far a start turns towards an own row that its word alone attends, in units of the radius.
OWN_TURN = 0.25

# A word that must not move, beside others that may, is bounded as if it might by this share.
_LEAST_RADIUS = 1e-9

# Points evaluated together at each position: enough for the products to run at full speed.
_POINTS = 256


class ClosedFormText(PreparedText):
    """One text under one head of attention. With an engine that has no closed form, the definition.

    What is between Δ and what the closed form is given, the map says: `moved`.
    """

    @property
    @abstractmethod
    def weight_fn(self) -> WeightFn:
        """Of the map."""

    @abstractmethod
    def rows_for(self, weight_fn: WeightFn) -> Rows:
        """The rows of attention for a weight function."""

    @abstractmethod
    def position_state(self, rows: Rows, index: Tensor) -> PositionState:
        """State of the positions `index` in float64."""

    @abstractmethod
    def site_state(self, rows: Rows, left: LeftOut, at: Tensor) -> SiteState:
        """State of the sites `at` (P, m) in float64."""

    @abstractmethod
    def in_dtype(self, state: PositionState, dtype: torch.dtype) -> PositionState:
        """`state` with its real tensors in `dtype`."""

    @abstractmethod
    def sites_in_dtype(self, state: SiteState, dtype: torch.dtype) -> SiteState:
        """The same of sites."""

    def moved(self, sites: Sites, delta: Tensor) -> Tensor:
        """What Δ (P, s, m, d) is to the closed form, (P, s, m, D): here Δ itself."""
        return delta

    @cached_property
    def phi(self) -> Tensor:
        if not self.engine.closed_form:
            return super().phi
        return self.rows.phi + self.rows.shift

    @cached_property
    def rows(self) -> Rows:
        """Statistics of the rows of attention."""
        return self.rows_for(self.weight_fn)

    @cached_property
    def sites(self) -> AttentionSites:
        """What is known of several words at once."""
        return AttentionSites(self)

    def state(self, index: Tensor, weight_fn: WeightFn | None = None) -> PositionState:
        """State of the positions `index` in float64, for `weight_fn` in place of the own one."""
        if weight_fn is not None and weight_fn != self.weight_fn:
            return self.position_state(self.rows_for(weight_fn), index)
        if torch.equal(index, numbers(self.X)):  # asked for by every change and every search
            return self._state_everywhere
        if "_state_everywhere" in vars(self):
            return self._state_everywhere.select(index)
        return self.position_state(self.rows, index)

    @cached_property
    def _state_everywhere(self) -> PositionState:
        return self.position_state(self.rows, numbers(self.X))

    # -- changes that are known --------------------------------------------------------------------

    def changes(self, sites: Sites, change: Change) -> Tensor:
        if not self.engine.closed_form:
            return super().changes(sites, change)
        hidden = change.add is None and change.put is None
        delta = None if hidden else self.moved(sites, self.delta_of(sites, change))
        if sites.words > 1:
            changes = self.sites.changes(sites, delta)
        elif delta is None:
            return closed_form.hidden_deltas(self.rows, self.state(sites.index))[:, None]
        else:
            state = self.state(sites.index)
            each = [closed_form.deltas(state, by) for by in delta[:, :, 0].unbind(1)]
            changes = torch.stack(each, 1)
        lost = self.lost_direction(sites, change)
        if lost is not None and bool(lost.any()):
            p, k = lost.nonzero(as_tuple=True)
            at, by = Sites(sites.at[p]), Change(put=put_of(change)[p, k, None])
            changes = changes.index_put((p, k), super().changes(at, by)[:, 0])
        return changes

    def measured(
        self, sites: Sites, change: Change, measure: Measure, dtype: torch.dtype
    ) -> Tensor:
        if not self.engine.closed_form:
            return super().measured(sites, change, measure, dtype)
        if isinstance(measure, Norm):
            own = measure.rows == "all"
            if sites.words > 1:
                return self._norms_of_sites(sites, change, dtype, own=own)
            if change.add is None and change.put is None:
                return self._hidden_norms(sites, own=own)
            if change.add is not None:
                return self._norms(sites, change.add, dtype, own=own)
            words = put_of(change)[:, :, 0]
            each = sites.index.repeat_interleave(change.points)
            return self.put_norms(each, words.flatten(0, 1), measure).view(words.shape[:2])
        return self.measured_of_changes(sites, change, measure)

    def settle(self, values: Tensor, sites: Sites, change: Change, measure: Measure) -> None:
        self.settle_by_definition(values, sites, change, measure)

    def delta_of(self, sites: Sites, change: Change) -> Tensor:
        """Δ (P, s, m, d), float64."""
        if change.add is not None:
            return change.add.double()
        return put_of(change).double() - self.X[sites.at][:, None]

    def lost_direction(self, sites: Sites, change: Change) -> Tensor | None:
        """Where x + Δ has lost a direction that φ depends on, (P, s): Δ does not tell it there."""
        return None

    def _norms_of_sites(
        self, sites: Sites, change: Change, dtype: torch.dtype, *, own: bool
    ) -> Tensor:
        """The norm (P, s), float64, of changes of sites of several words."""
        if change.add is None and change.put is None:
            return self.sites.norms(sites, None, dtype, own=own)
        by = change.add if change.add is not None else self.delta_of(sites, change)
        dtype = torch.float64 if change.put is not None else self._accurate(dtype, by)
        norms = self.sites.norms(sites, self.moved(sites, by), dtype, own=own)
        lost = self.lost_direction(sites, change)
        if lost is not None and bool(lost.any()):
            p, k = lost.nonzero(as_tuple=True)
            at, put = Sites(sites.at[p]), Change(put=put_of(change)[p, k, None])
            measure = Norm("all" if own else "others")
            exact = super().measured(at, put, measure, torch.float64)
            norms = norms.index_put((p, k), exact[:, 0])
        return norms

    def _accurate(self, dtype: torch.dtype, delta: Tensor) -> torch.dtype:
        """`dtype`, or float64 where the closed form loses its accuracy in float32."""
        double = dtype == torch.float64 or not self._float32_serves(delta)
        return torch.float64 if double else dtype

    def _float32_serves(self, delta: Tensor) -> bool:
        """Whether the closed form keeps its accuracy in float32.

        X and Δ must be of a size that float32 is for, and scores not sums of much larger terms.
        Without normalisation a weight is a score, with the rounding of all of its terms, though the
        score itself be 0.
        """
        if not self.weight_fn.normalize:
            return False
        each = delta[:1] if delta.stride(0) == 0 else delta  # shared ones are looked at once
        if not all(ordinary(float(values_of(x).abs().max())) for x in (self.X, each)):
            return False
        return self.terms_are_small(float(values_of(each).norm(dim=-1).max()))

    def terms_are_small(self, longest: float) -> bool:
        """Whether a Δ no longer than this changes no score by terms beyond LARGEST_TERMS."""
        return True

    def _hidden_norms(self, sites: Sites, *, own: bool) -> Tensor:
        """‖φ without the word - φ‖ (P, 1), float64."""
        squared = (
            closed_form.hidden_squared_norms(self.rows, part, own=own)
            for part in self.chunks(sites.index, 1)
        )
        return root(gathered(squared, len(sites)))[:, None]

    def put_norms(self, index: Tensor, words: Tensor, measure: Norm) -> Tensor:
        """The norm (Q,), float64, with `words` (Q, d) at the positions `index` (Q,)."""
        own = measure.rows == "all"
        words = words.double()

        def of_part(part: Tensor) -> Tensor:
            positions, which = index[part].unique(return_inverse=True)
            state = self.state(positions).select(which)
            delta = (words[part] - self.X[index[part]])[:, None]
            by = self.moved(Sites.of_words(index[part]), delta[:, :, None])[:, :, 0]
            return self._norms_at(state, by, torch.float64, own=own)[:, 0]

        parts = self.chunks(torch.arange(len(index), device=index.device), 1)
        norms = gathered(map(of_part, parts), len(index))
        at, put = Sites.of_words(index), Change(put=words[:, None, None])
        lost = self.lost_direction(at, put)
        if lost is not None and bool(lost.any()):
            some = lost[:, 0].nonzero()[:, 0]
            exact = super().measured(Sites(at.at[some]), put.select(some), measure, torch.float64)
            norms = norms.index_put((some,), exact[:, 0])
        return norms

    def _norms(self, sites: Sites, add: Tensor, dtype: torch.dtype, *, own: bool) -> Tensor:
        """‖φ(X^i(Δ)) - φ(X)‖ (P, s), float64, computed in `dtype`, for Δ (P, s, 1, d)."""
        dtype = self._accurate(dtype, add)
        index, delta = sites.index, self.moved(sites, add)[:, :, 0]
        at_once = min(_POINTS, delta.shape[1])

        def of_part(part: Tensor) -> Tensor:
            exact = self.state(index[part])
            points = (delta if len(part) == len(index) else delta[part]).split(at_once, 1)
            return torch.cat([self._norms_at(exact, at, dtype, own=own) for at in points], 1)

        parts = self.chunks(torch.arange(len(index), device=index.device), at_once)
        return gathered(map(of_part, parts), len(index))

    def _norms_at(
        self, exact: PositionState, delta: Tensor, dtype: torch.dtype, *, own: bool
    ) -> Tensor:
        state = self.in_dtype(exact, dtype)
        value, size = self.engine.squared_norms(state, delta.to(dtype), own=own)
        value, size = value.double(), size.double()
        # Inner products lose small changes: there the change itself is formed, in float64.
        p, k = self.lost(root(value), size, dtype).nonzero(as_tuple=True)
        if len(p) == 0:
            return root(value)
        at_once = max(1, self.budget // (6 * 8 * self.n * self.d))
        squared = Norm("all" if own else "others")
        direct = [
            squared.of(
                closed_form.deltas(exact.select(q), delta[q, m].double()), exact.index[q, None]
            )
            for q, m in zip(p.split(at_once), k.split(at_once), strict=True)
        ]
        return root(value.index_put((p, k), torch.cat(direct)))

    def lost(self, norm: Tensor, size: Tensor, dtype: torch.dtype) -> Tensor:
        """Where rounding in `dtype` may spoil a squared norm, a sum of terms of some `size`."""
        unit = self.error_unit2(norm, dtype)
        return ~(torch.finfo(dtype).eps * size <= ROUNDING[dtype] * unit)

    def error_unit2(self, norm: Tensor, dtype: torch.dtype) -> Tensor:
        """What the error of a squared norm is measured by: it keeps `norm` to the share promised.

        The share, ROUNDING, is of the larger of `norm` and 1e-3 ‖φ(X)‖; an error e of the square
        is e / norm of the norm, or √e where that is less.
        """
        floor = 1e-3 * self.norm
        return torch.maximum(norm, floor) * torch.maximum(norm, ROUNDING[dtype] * floor)

    # -- proofs from above -------------------------------------------------------------------------

    def unbounded(self, sites: Sites) -> str:
        fn = self.weight_fn
        if sites.words > 1:
            return "bounds are of single words"
        return "" if fn.normalize else "bounds are of normalised attention"

    @abstractmethod
    def pairs(self, index: Tensor, radii: Tensor, largest: float) -> Pairs:
        """What the bound knows of the positions `index` (P,): see `pairs_of`."""

    def bracket(self, sites: Sites, delta: Tensor, norms: Tensor, radii: Tensor) -> Bracket:
        index, shape, parts = sites.index, None, []
        longest = float(radii.max())
        radii = radii.clamp(min=_LEAST_RADIUS * longest)
        at_once = max(1, self.budget // (BYTES_OF_PAIR * self.n))
        for part in numbers(index).split(at_once):
            pairs = self.pairs(index[part], radii[part], longest)
            shape = shape_of(pairs) if shape is None else shape
            largest = (float(norms.max()) / pairs.unit) ** 2
            found = upper_bounds(pairs, shape, delta[part, 0] / longest, largest, self.engine)
            parts.append((root(found.squared) * pairs.unit, found.relaxed, found.refined))
        upper, relaxed, refined = (torch.cat(column) for column in zip(*parts, strict=True))
        return Bracket(upper, self.rounded(sites, relaxed), refined)

    def rounded(self, sites: Sites, relaxed: Tensor) -> Tensor:
        """Directions (P, l, d) that maximisers (P, d) of a relaxed problem lead to."""
        return torch.nn.functional.normalize(relaxed, dim=-1)[:, None]

    # -- changes that are searched -----------------------------------------------------------------

    @property
    def texts_at_once(self) -> int:
        # X, the products, the scores, the weights and their gradients, for each.
        fitting = self.budget // (6 * 8 * self.n * (self.d + self.n))
        quick = rows_at_once(self.n * self.d * (self.d + 2 * self.n))
        return max(1, min(fitting, quick))

    def parts(self, sites: Sites, search: Search) -> Iterator[Sites]:
        smoothed = not self.weight_fn.exponential
        width = sites.words * self.d
        points = search.points_at_once(width, self.more_starts, smoothed=smoothed)
        if sites.words == 1:
            yield from map(Sites.of_words, self.chunks(sites.index, points))
        else:
            for part in self.sites.chunks(sites, points + sites.words):
                yield Sites(sites.at[part])

    def chunks(self, index: Tensor, points: int) -> Iterator[Tensor]:
        """`index` in parts whose evaluation at `points` Δ each stays within the budget."""
        smoothed = not self.weight_fn.exponential
        point = self.engine.bytes_of_point(self.n, self.d, smoothed=smoothed)
        yield from index.split(max(1, self.budget // (self.constants + points * point)))

    @property
    def constants(self) -> int:
        """Bytes that a position takes, whatever the points at which it is evaluated."""
        # Arrays (n,): its state in float64 with what that is made from, its cast, and the copy that
        # drops positions which are done; ReLU has two smooth states more.
        return (60 if self.weight_fn.exponential else 120) * 8 * self.n


def starts_of(numbers: int) -> int:
    """How many times the starts that the user asks for a text of so many numbers gets."""
    return _MORE_STARTS if numbers <= _SHORT else 1


def put_of(change: Change) -> Tensor:
    """The words that are put in place."""
    assert change.put is not None
    return change.put
