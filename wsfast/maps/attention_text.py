"""Random attention as a feature map, and one text under it, by the closed form."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property, partial

import torch
from torch import Tensor

from wsfast._interrupt import rows_at_once
from wsfast._kinks import root
from wsfast._progress import Progress
from wsfast._transforms import values_of
from wsfast.attention import closed_form
from wsfast.attention.core import Core, core_of
from wsfast.attention.definition import attend, attention_features
from wsfast.attention.functional import FunctionalState, functional_at
from wsfast.attention.rows import Rows
from wsfast.attention.sites import SiteState
from wsfast.attention.state import PositionState, prepare_positions
from wsfast.attention.substitution import SubstitutionState
from wsfast.attention.substitution import prepare as prepare_substitution
from wsfast.attention.weight_fn import WeightFn
from wsfast.engines.engine import Engine, Tiles
from wsfast.engines.substitution_kernels import Workspace
from wsfast.maps.attention import Weights
from wsfast.maps.attention_objective import AttentionObjective
from wsfast.maps.attention_sites import AttentionSites
from wsfast.maps.feature_map import FeatureMap, PreparedText, gathered
from wsfast.maps.measure import Functional, Measure, Norm
from wsfast.perturbation.change import Change, Sites
from wsfast.search.objective import Objective
from wsfast.search.options import DEFAULT_BUDGET, ordinary, search_dtype
from wsfast.search.search import Search

# Rounding of a squared norm, in units of the size of its terms, that is let through: beyond it the
# change itself is formed. A small share of the accuracy promised (1e-4 and 1e-10 of the norm).
ROUNDING = {torch.float32: 3e-5, torch.float64: 3e-11}

# Points evaluated together at each position: enough for the products to run at full speed.
_POINTS = 256

# Curves of the smooth ReLU, strongest first: the height at 0 of softplus(κ s)/κ for κ = 2 and 10.
_CURVES = (0.48, 0.0192)

# Texts of so many numbers or fewer get so many times the starts: there they cost next to nothing.
_SHORT = 1 << 12
_MORE_STARTS = 4

# Bytes that the pairs of a text are kept in, as candidates are met with them.
_PAIR_BYTES = 12 * 8

# Rows of which less than this share lies outside of a basis are in it.
_SPANNED = 1e-9

# The small basis is used where a step in it costs at most this share of one in full d.
_WORTHWHILE = 0.6


class AttentionMap(FeatureMap):
    """φ(X) = g(X W Xᵀ/√d) X with the weights W (d, d) of one draw.

    Parameters
    ----------
    weights : Weights
    weight_fn : WeightFn
    causal : bool
        Whether row j attends to the words up to j alone.
    budget : int
        Bytes that the scores of texts may take.
    """

    exact = True
    hides = True

    def __init__(
        self,
        weights: Weights,
        weight_fn: WeightFn,
        *,
        causal: bool = False,
        budget: int = DEFAULT_BUDGET,
    ) -> None:
        self.weights, self.weight_fn, self.causal = weights, weight_fn, causal
        self._budget = budget

    def features(self, X: Tensor, hidden: Tensor | None = None) -> Tensor:
        # Scores, weights and what the plain softmax needs of either: about four arrays at a time.
        tile = max(1, self._budget // (4 * 8 * X.shape[:-1].numel()))
        return attention_features(
            X, self.weights.W, self.weight_fn, causal=self.causal, hidden=hidden, tile=tile
        )

    def attend(self, X: Tensor) -> Tensor:
        """The weights (n, n) of every row of a text (n, d), float64."""
        core = self.core(X, self.weight_fn)
        each = torch.arange(len(X), device=X.device)
        return attend(core.queries @ X.mT, self.weight_fn, core.seen(each, each))

    def smoothed(self) -> Sequence[AttentionMap]:
        return [
            AttentionMap(self.weights, fn, causal=self.causal, budget=self._budget)
            for fn in self.smooth_fns
        ]

    @property
    def smooth_fns(self) -> list[WeightFn]:
        """Weight functions without the kinks of this one, the smoothest first."""
        curves = () if self.weight_fn.exponential else _CURVES
        return [WeightFn("squareplus", self.weight_fn.normalize, curve) for curve in curves]

    def of_texts(self, texts: Tensor, budget: int) -> Tensor:
        # In float64 whatever their dtype: X, XW, scores, weights and the features, for each text.
        n, d = texts.shape[1:]
        at_once = max(1, budget // (8 * (3 * n * d + 2 * n * n)))
        out = texts.new_empty(len(texts), n * d)
        for part, into in zip(texts.split(at_once), out.split(at_once), strict=True):
            into.copy_(self.features(part.double()).flatten(1))
        return out

    def prepare(
        self, texts: Sequence[Tensor], engine: Engine, budget: int, bar: Progress | None = None
    ) -> Iterator[AttentionText]:
        for X in texts:
            yield AttentionText(self, X, engine, budget)

    def core(self, X: Tensor, weight_fn: WeightFn) -> Core:
        """What the closed form sees of a text (n, d), float64."""
        return core_of(X, self.weights.W, weight_fn, causal=self.causal)

    def in_units(self, unit: float) -> AttentionMap:
        """The map whose scores are the same for texts that are `unit` times smaller.

        ReLU's features do not depend on the size of the scores but for a factor.
        """
        weights = self.weights
        if self.weight_fn.exponential:
            weights = Weights(weights.W * unit * unit)
        return AttentionMap(weights, self.weight_fn, causal=self.causal, budget=self._budget)


class AttentionText(PreparedText):
    """One text under random attention. With an engine that has no closed form, the definition."""

    map: AttentionMap

    @cached_property
    def phi(self) -> Tensor:
        if not self.engine.closed_form:
            return self.map.features(self.X)
        return self.rows.phi + self.rows.shift

    @cached_property
    def rows(self) -> Rows:
        """Statistics of the rows of attention."""
        return self.rows_for(self.map.weight_fn)

    @property
    def weights(self) -> Weights:
        """W of the map."""
        return self.map.weights

    @cached_property
    def sites(self) -> AttentionSites:
        """What is known of several words at once."""
        return AttentionSites(self)

    def rows_for(self, weight_fn: WeightFn) -> Rows:
        """The rows for another weight function."""
        return self.engine.rows(self.map.core(self.X, weight_fn), self.budget)

    def state(self, index: Tensor, weight_fn: WeightFn | None = None) -> PositionState:
        """State of the positions `index` in float64, for `weight_fn` in place of the own one."""
        if weight_fn is not None and weight_fn != self.map.weight_fn:
            return self._state_of(self.rows_for(weight_fn), index)
        if torch.equal(index, self._everywhere):  # asked for by every change and every search
            return self._state_everywhere
        return self._state_of(self.rows, index)

    def _state_of(self, rows: Rows, index: Tensor) -> PositionState:
        return prepare_positions(rows, index, self.weights.bilinear(torch.float64))

    @cached_property
    def _everywhere(self) -> Tensor:
        return torch.arange(self.n, device=self.X.device)

    @cached_property
    def _state_everywhere(self) -> PositionState:
        return self._state_of(self.rows, self._everywhere)

    def in_dtype(self, state: PositionState, dtype: torch.dtype) -> PositionState:
        """`state` with its real tensors in `dtype`."""
        return state.to(dtype, self.weights.bilinear(dtype))

    def substitution(self, index: Tensor, dtype: torch.dtype) -> SubstitutionState:
        """What candidates are met with at the positions `index`."""
        # Made here and dropped: many texts are met with candidates at the same time.
        states = (self._state_of(self.rows, part) for part in self._chunks(index, 1))
        return prepare_substitution(self.rows, states, self.weights.norm_bound, dtype)

    @property
    def unit(self) -> float:
        size = float(self.X.detach().abs().max())
        return 1.0 if size == 0 or ordinary(size) else 2.0 ** math.frexp(size)[1]

    def in_units(self, unit: float) -> AttentionText:
        return AttentionText(self.map.in_units(unit), self.X / unit, self.engine, self.budget)

    # -- changes that are known --------------------------------------------------------------------

    def changes(self, sites: Sites, change: Change) -> Tensor:
        if not self.engine.closed_form:
            return super().changes(sites, change)
        hidden = change.add is None and change.put is None
        delta = None if hidden else self._delta(sites, change)
        if sites.words > 1:
            changes = self.sites.changes(sites, delta)
        elif delta is None:
            return closed_form.hidden_deltas(self.rows, self.state(sites.index))[:, None]
        else:
            state = self.state(sites.index)
            each = [closed_form.deltas(state, by) for by in delta[:, :, 0].unbind(1)]
            changes = torch.stack(each, 1)
        tiny = self._too_small(sites, change)
        if tiny is not None and bool(tiny.any()):
            p, k = tiny.nonzero(as_tuple=True)
            at, by = Sites(sites.at[p]), Change(put=_put(change)[p, k, None])
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
                return self._norms(sites.index, change.add[:, :, 0], dtype, own=own)
            words, index = _put(change)[:, :, 0], sites.index
            if change.points == 1 and own and self._is_one_everywhere(index, words[:, 0]):
                return self._norms_of_one(words[0, 0].double())[:, None]
            each = index.repeat_interleave(change.points)
            return self._put_norms(each, words.flatten(0, 1), measure).view(words.shape[:2])
        size = self.n * self.d * change.points * sites.words
        at_once = max(1, self.budget // (6 * 8 * size))
        parts = []
        for part in torch.arange(len(sites), device=self.X.device).split(at_once):
            at = Sites(sites.at[part])
            by = self.changes(at, change.select(part))
            places = at.at.repeat_interleave(change.points, 0)
            parts.append(measure.final(measure.of(by.flatten(0, 1), places)).view(by.shape[:2]))
        return torch.cat(parts)

    def verified(self, sites: Sites, change: Change, measure: Measure) -> Tensor:
        values = super().verified(sites, change, measure)
        # The winner from the definition itself. Where ReLU jumps, that may make another the winner.
        lost = True
        while lost:
            best = values.argmax()[None]
            claimed = float(values[best])
            at, by = Sites(sites.at[best]), change.select(best)
            values[best] = PreparedText.measured(self, at, by, measure, torch.float64)[:, 0]
            lost = float(values[best]) < claimed - 1e-9 * abs(claimed)
        return values

    def _delta(self, sites: Sites, change: Change) -> Tensor:
        """Δ (P, s, m, d), float64."""
        if change.add is not None:
            return change.add.double()
        return _put(change).double() - self.X[sites.at][:, None]

    def _too_small(self, sites: Sites, change: Change) -> Tensor | None:
        """Where a word put in place is so small that x + Δ has lost its direction, (P, s).

        ReLU's normalised weights depend on it; None for other changes and weight functions.
        """
        fn = self.map.weight_fn
        if change.put is None or fn.exponential or not fn.normalize:
            return None
        size = self.X[sites.at].norm(dim=-1)[:, None]
        small: Tensor = (change.put.norm(dim=-1) < 1e-3 * size).any(-1)
        return small

    def _norms_of_sites(
        self, sites: Sites, change: Change, dtype: torch.dtype, *, own: bool
    ) -> Tensor:
        """The norm (P, s), float64, of changes of sites of several words."""
        if change.add is None and change.put is None:
            return self.sites.norms(sites, None, dtype, own=own)
        by = change.add if change.add is not None else self._delta(sites, change)
        if change.put is not None or not self._is_ordinary(by):
            dtype = torch.float64
        norms = self.sites.norms(sites, by, dtype, own=own)
        tiny = self._too_small(sites, change)
        if tiny is not None and bool(tiny.any()):
            p, k = tiny.nonzero(as_tuple=True)
            at, put = Sites(sites.at[p]), Change(put=_put(change)[p, k, None])
            measure = Norm("all" if own else "others")
            exact = super().measured(at, put, measure, torch.float64)
            norms = norms.index_put((p, k), exact[:, 0])
        return norms

    def _is_ordinary(self, delta: Tensor) -> bool:
        """Whether X and Δ are of a size that float32 is for."""
        each = delta[:1] if delta.stride(0) == 0 else delta  # shared ones are looked at once
        return all(ordinary(float(values_of(x).abs().max())) for x in (self.X, each))

    def _hidden_norms(self, sites: Sites, *, own: bool) -> Tensor:
        """‖φ without the word - φ‖ (P, 1), float64."""
        squared = (
            closed_form.hidden_squared_norms(self.rows, self.state(part), own=own)
            for part in self._chunks(sites.index, 1)
        )
        return root(gathered(squared, len(sites)))[:, None]

    def _put_norms(self, index: Tensor, words: Tensor, measure: Norm) -> Tensor:
        """The norm (Q,), float64, with `words` (Q, d) at the positions `index` (Q,)."""
        own = measure.rows == "all"
        words = words.double()

        def of_part(part: Tensor) -> Tensor:
            positions, which = index[part].unique(return_inverse=True)
            state = self.state(positions).select(which)
            delta = words[part] - self.X[index[part]]
            return self._norms_at(state, delta[:, None], torch.float64, own=own)[:, 0]

        parts = self._chunks(torch.arange(len(index), device=index.device), 1)
        norms = gathered(map(of_part, parts), len(index))
        at, put = Sites.of_words(index), Change(put=words[:, None, None])
        tiny = self._too_small(at, put)
        if tiny is not None and bool(tiny.any()):
            some = tiny[:, 0].nonzero()[:, 0]
            exact = super().measured(Sites(at.at[some]), put.select(some), measure, torch.float64)
            norms = norms.index_put((some,), exact[:, 0])
        return norms

    def _is_one_everywhere(self, index: Tensor, words: Tensor) -> bool:
        """Whether `words` (n, d) are one word, put in place of each, and its pairs may be kept."""
        shared = words.stride(0) == 0 and torch.equal(index, self._everywhere)
        plain = not (self.map.causal or self.X.requires_grad or words.requires_grad)
        return shared and plain and _PAIR_BYTES * self.n**2 <= self.budget

    def _norms_of_one(self, word: Tensor) -> Tensor:
        """The norm (n,), float64, with `word` (d,) in place of each: a candidate of every place."""
        constant, tiles = self._one_candidate
        score = 0.5 * word @ self.weights.bilinear(torch.float64) @ word
        square, size, norm_error2 = tiles.squares(word[None], score[None])
        norms = root(square[:, 0])
        rounding = torch.finfo(torch.float64).eps * (constant + size) + norm_error2
        lost = ~(rounding <= ROUNDING[torch.float64] * self.error_unit2(norms, torch.float64))
        some = lost.nonzero()[:, 0]
        if len(some) == 0:
            return norms
        return norms.index_put((some,), self._put_norms(some, word.expand(len(some), -1), Norm()))

    @cached_property
    def _one_candidate(self) -> tuple[Tensor, Tiles]:
        """The size of the terms that no candidate changes, and tiles of one candidate."""
        state = self.substitution(self._everywhere, torch.float64)
        tiles = self.engine.tiles(state, 1, self.budget // 4, Workspace(self.X.device))
        return state.constant, tiles

    def _norms(self, index: Tensor, delta: Tensor, dtype: torch.dtype, *, own: bool) -> Tensor:
        """‖φ(X^i(Δ)) - φ(X)‖ (P, s), float64, computed in `dtype`, for Δ (P, s, d)."""
        if not self._is_ordinary(delta):
            dtype = torch.float64
        at_once = min(_POINTS, delta.shape[1])

        def of_part(part: Tensor) -> Tensor:
            exact = self.state(index[part])
            points = (delta if len(part) == len(index) else delta[part]).split(at_once, 1)
            return torch.cat([self._norms_at(exact, at, dtype, own=own) for at in points], 1)

        parts = self._chunks(torch.arange(len(index), device=index.device), at_once)
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

    # -- changes that are searched -----------------------------------------------------------------

    @property
    def texts_at_once(self) -> int:
        # X, the products, the scores, the weights and their gradients, for each.
        fitting = self.budget // (6 * 8 * self.n * (self.d + self.n))
        quick = rows_at_once(self.n * self.d * (self.d + 2 * self.n))
        return max(1, min(fitting, quick))

    @property
    def more_starts(self) -> int:
        return _MORE_STARTS if self.n * self.d <= _SHORT else 1

    def parts(self, sites: Sites, search: Search) -> Iterator[Sites]:
        smoothed = not self.map.weight_fn.exponential
        width = sites.words * self.d
        points = search.points_at_once(width, self.more_starts, smoothed=smoothed)
        if sites.words == 1:
            yield from map(Sites.of_words, self._chunks(sites.index, points))
        else:
            for part in self.sites.chunks(sites, points + sites.words):
                yield Sites(sites.at[part])

    def _chunks(self, index: Tensor, points: int) -> Iterator[Tensor]:
        """`index` in parts whose evaluation at `points` Δ each stays within the budget."""
        # Arrays (n,) for a position: its state in float64 with what that is made from, its cast,
        # and the copy that drops positions which are done; ReLU has two smooth states more.
        smoothed = not self.map.weight_fn.exponential
        constants = (120 if smoothed else 60) * 8 * self.n
        point = self.engine.bytes_of_point(self.n, self.d, smoothed=smoothed)
        yield from index.split(max(1, self.budget // (constants + points * point)))

    def objective(self, sites: Sites, measure: Measure, radius: float) -> Objective:
        known = measure == Norm() or (isinstance(measure, Functional) and sites.words == 1)
        if not self.engine.closed_form or not known:
            return self.defined(sites, measure, radius)
        dtype = self.search_dtype(radius)

        def state(weight_fn: WeightFn) -> PositionState | FunctionalState | SiteState:
            if sites.words > 1:
                return self.sites.in_dtype(self.sites.state(sites, weight_fn), dtype)
            exact = self.state(sites.index, weight_fn)
            cast = self.in_dtype(exact, dtype)
            if not isinstance(measure, Functional):
                return cast
            return functional_at(exact, cast, measure.theta.view(self.n, self.d))

        return AttentionObjective(
            engine=self.engine,
            state=state(self.map.weight_fn),
            more_starts=self.more_starts,
            lead=self.leads(sites, measure),
            smoother=tuple(
                AttentionObjective(self.engine, state(fn)) for fn in self.map.smooth_fns
            ),
            basis=partial(self.basis, measure, radius),
        )

    def leads(self, sites: Sites, measure: Measure) -> Tensor:
        return self._lead.repeat(1, 1, sites.words)

    @cached_property
    def _lead(self) -> Tensor:
        """The direction that raises all scores at once, (1, 1, d)."""
        return (self.X @ self.weights.W).sum(0)[None, None]

    def search_dtype(self, radius: float) -> torch.dtype:
        return search_dtype(self.X, radius, self.dtype)

    def basis(self, measure: Measure, radius: float) -> Tensor | None:
        """Of the rows of X, XW and XWᵀ, and of Θ, where searching in it saves work."""
        n, d = self.n, self.d
        theta = measure.theta.view(n, d) if isinstance(measure, Functional) else None
        # What Δ is multiplied with, and how many of its products a step takes.
        r, products = (3 * n, 8 * n) if theta is None else (4 * n, 6 * n)
        if r >= d or products * r + r * r > _WORTHWHILE * (products * d + d * d):
            return None
        basis = self._basis_of_norm if theta is None else self._basis_with(theta)
        return basis.to(self.search_dtype(radius))

    @cached_property
    def _basis_of_norm(self) -> Tensor:
        return self._basis_with()

    def _basis_with(self, *more: Tensor) -> Tensor:
        closed = self.engine.closed_form
        core = self.rows.core if closed else self.map.core(self.X, self.map.weight_fn)
        # Of one size each: a basis is sought, whatever the lengths.
        matrices = [
            part / part.norm() if float(part.norm()) > 0 else part
            for part in (core.X, core.queries, core.keys)
        ]
        basis: Tensor = torch.linalg.qr(torch.cat(matrices).mT).Q
        for rows in more:
            # What is left of rows that the others span is rounding: it would tell directions.
            left = rows - rows @ basis @ basis.mT
            beyond = left.norm(dim=1) > _SPANNED * rows.norm(dim=1)
            if bool(beyond.any()):
                wide = torch.cat([basis, (left / left.norm())[beyond].mT], 1)
                basis = torch.linalg.qr(wide).Q
        return basis


def _put(change: Change) -> Tensor:
    assert change.put is not None
    return change.put
