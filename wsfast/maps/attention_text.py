"""Random attention as a feature map, and one text under it, by the closed form."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property, partial

import torch
from torch import Tensor

from wsfast._kinks import root
from wsfast._progress import Progress
from wsfast._transforms import values_of
from wsfast.attention.core import Core, core_of, numbers
from wsfast.attention.definition import attend, attention_features
from wsfast.attention.functional import FunctionalState, functional_at
from wsfast.attention.rows import Rows
from wsfast.attention.sites import BilinearSiteState, LeftOut, SiteState, prepare_sites
from wsfast.attention.state import BilinearState, PositionState, prepare_positions
from wsfast.attention.substitution import SubstitutionState
from wsfast.attention.substitution import prepare as prepare_substitution
from wsfast.attention.turns import towards_own
from wsfast.attention.weight_fn import WeightFn
from wsfast.bound.pairs import Pairs, pairs_of
from wsfast.engines.engine import Engine, Tiles
from wsfast.engines.substitution_kernels import Workspace
from wsfast.maps.attention import Weights
from wsfast.maps.attention_objective import AttentionObjective, turns_of
from wsfast.maps.closed_form_text import (
    LARGEST_TERMS,
    OWN_TURN,
    ROUNDING,
    ClosedFormText,
    starts_of,
)
from wsfast.maps.feature_map import FeatureMap
from wsfast.maps.measure import Functional, Measure, Norm
from wsfast.perturbation.change import Change, Sites
from wsfast.search.objective import Objective, Turn
from wsfast.search.options import DEFAULT_BUDGET, ordinary, search_dtype

# Curves of the smooth ReLU, strongest first: the height at 0 of softplus(κ s)/κ for κ = 2 and 10.
_CURVES = (0.48, 0.0192)

# Steps of a start to where the score of a word in its own row is largest.
_OWN_STEPS = 2

# How far starts go the way of their word, in units of the rest of them.
_AWAY = 0.5

TOGETHER = 16
"""So many texts are searched together, where their states fit."""

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


class AttentionText(ClosedFormText):
    """One text under random attention."""

    map: AttentionMap

    @property
    def weight_fn(self) -> WeightFn:
        return self.map.weight_fn

    @property
    def weights(self) -> Weights:
        """W of the map."""
        return self.map.weights

    def rows_for(self, weight_fn: WeightFn) -> Rows:
        return self.engine.rows(self.map.core(self.X, weight_fn), self.budget)

    def position_state(self, rows: Rows, index: Tensor) -> BilinearState:
        return prepare_positions(rows, index, self.weights.bilinear(torch.float64))

    def site_state(self, rows: Rows, left: LeftOut, at: Tensor) -> BilinearSiteState:
        return prepare_sites(rows, left, at, self.weights.scaled(torch.float64))

    def in_dtype(self, state: PositionState, dtype: torch.dtype) -> BilinearState:
        assert isinstance(state, BilinearState)
        return state.to(dtype, self.weights.bilinear(dtype))

    def sites_in_dtype(self, state: SiteState, dtype: torch.dtype) -> BilinearSiteState:
        assert isinstance(state, BilinearSiteState)
        return state.to(dtype, self.weights.scaled(dtype))

    def pairs(self, index: Tensor, radii: Tensor, largest: float) -> Pairs:
        state = self.state(index)
        assert isinstance(state, BilinearState)
        return pairs_of(state, radii, largest)

    def substitution(self, index: Tensor, dtype: torch.dtype) -> SubstitutionState:
        """What candidates are met with at the positions `index`."""
        # Made here and dropped: many texts are met with candidates at the same time.
        states = (self.position_state(self.rows, part) for part in self.chunks(index, 1))
        return prepare_substitution(self.rows, states, self.weights.norm_bound, dtype)

    @property
    def unit(self) -> float:
        size = float(self.X.detach().abs().max())
        return 1.0 if size == 0 or ordinary(size) else 2.0 ** math.frexp(size)[1]

    def in_units(self, unit: float) -> AttentionText:
        return AttentionText(self.map.in_units(unit), self.X / unit, self.engine, self.budget)

    # -- changes that are known --------------------------------------------------------------------

    def measured(
        self, sites: Sites, change: Change, measure: Measure, dtype: torch.dtype
    ) -> Tensor:
        word = self._one_everywhere(sites, change) if measure == Norm() else None
        if word is not None and self.engine.closed_form:
            return self._norms_of_one(word.double())[:, None]
        return super().measured(sites, change, measure, dtype)

    def terms_are_small(self, longest: float) -> bool:
        if not self.weight_fn.exponential:
            return True  # attention by ReLU knows no size of the scores
        core, W = self.rows.core, self.weights
        largest = max(float(values_of(x).norm(dim=-1).max()) for x in (core.queries, core.keys))
        linear, quadratic = longest * largest, longest * longest / math.sqrt(self.d)
        if linear + quadratic * W.frobenius_norm <= LARGEST_TERMS:
            return True  # without the other norm, which costs more
        return linear + quadratic * W.norm_bound <= LARGEST_TERMS

    def lost_direction(self, sites: Sites, change: Change) -> Tensor | None:
        # ReLU's normalised weights depend on the direction of a word, however small it is.
        fn = self.map.weight_fn
        if change.put is None or fn.exponential or not fn.normalize:
            return None
        size = self.X[sites.at].norm(dim=-1)[:, None]
        small: Tensor = (change.put.norm(dim=-1) < 1e-3 * size).any(-1)
        return small

    def _one_everywhere(self, sites: Sites, change: Change) -> Tensor | None:
        """The word (d,) that is put in place of each, if it is one and its pairs may be kept."""
        if change.put is None or change.points > 1 or sites.words > 1:
            return None
        words = change.put[:, 0, 0]
        shared = words.stride(0) == 0 and torch.equal(sites.index, numbers(self.X))
        plain = not (self.map.causal or self.X.requires_grad or words.requires_grad)
        fitting = _PAIR_BYTES * self.n**2 <= self.budget
        return words[0] if shared and plain and fitting else None

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
        return norms.index_put((some,), self.put_norms(some, word.expand(len(some), -1), Norm()))

    @cached_property
    def _one_candidate(self) -> tuple[Tensor, Tiles]:
        """The size of the terms that no candidate changes, and tiles of one candidate."""
        state = self.substitution(numbers(self.X), torch.float64)
        tiles = self.engine.tiles(state, 1, self.budget // 4, Workspace(self.X.device))
        return state.constant, tiles

    # -- changes that are searched -----------------------------------------------------------------

    @property
    def more_starts(self) -> int:
        return starts_of(self.n * self.d)

    @property
    def together(self) -> int:
        fitting = self.budget // (self.constants * self.n)
        return max(1, min(TOGETHER, fitting, self.joined(self.n)))

    def joined(self, places: int) -> int:
        return max(1, self.engine.joins // (places * self.n))

    def objective(self, sites: Sites, measure: Measure, radius: float) -> Objective:
        known = measure == Norm() or (isinstance(measure, Functional) and sites.words == 1)
        if not self.engine.closed_form or not known:
            return self.defined(sites, measure, radius)
        dtype = self.search_dtype(radius)

        def state(weight_fn: WeightFn) -> BilinearState | FunctionalState | BilinearSiteState:
            if sites.words > 1:
                return self.sites_in_dtype(self.sites.state(sites, weight_fn), dtype)
            exact = self.state(sites.index, weight_fn)
            cast = self.in_dtype(exact, dtype)
            if not isinstance(measure, Functional):
                return cast
            assert isinstance(exact, BilinearState)
            return functional_at(exact, cast, measure.theta.view(self.n, self.d))

        return AttentionObjective(
            engine=self.engine,
            state=state(self.map.weight_fn),
            more_starts=self.more_starts,
            momentum=self.smooth(measure),
            lead=self.leads(sites, measure, radius),
            smoother=tuple(
                AttentionObjective(self.engine, state(fn)) for fn in self.map.smooth_fns
            ),
            # On a device a basis takes longer than it saves.
            basis=partial(self.basis, measure, radius) if self.engine.waits else None,
            rows=None if self.engine.waits else partial(self.spanning, measure),
        )

    def rounded(self, sites: Sites, relaxed: Tensor) -> Tensor:
        # As they are, and turned towards an own row that its word alone attends.
        B = self.weights.bilinear(relaxed.dtype)
        straight = torch.nn.functional.normalize(relaxed, dim=-1)
        slope = self.X[sites.index].to(relaxed.dtype) @ B
        turned = torch.nn.functional.normalize(towards_own(straight, slope, B, OWN_TURN), dim=-1)
        return torch.stack([straight, turned], 1)

    def smooth(self, measure: Measure) -> bool:
        return self.weight_fn.exponential and not isinstance(measure, Functional)

    def turns(
        self, measure: Measure, radius: float, sites: Sites, within: Tensor | None
    ) -> Sequence[Turn]:
        if sites.words > 1 or not self.smooth(measure):
            return ()
        state = self.in_dtype(self.state(sites.index), self.search_dtype(radius))
        if within is not None:
            state = state.project(within.to(state.word.dtype))
        return turns_of(state, self.engine)

    def leads(self, sites: Sites, measure: Measure, radius: float) -> Tensor:
        if sites.words > 1 or not self.weight_fn.exponential:
            return self._lead.repeat(1, 1, sites.words)
        # A row whose own word takes all of its attention is seldom met by chance. The score S_ii
        # moves by slope·Δ + ½ Δ·BΔ: one start turns its way, one goes where it is largest.
        dtype = self.search_dtype(radius)
        B = self.weights.bilinear(dtype)
        slope = (self.X[sites.index].to(dtype) @ B)[:, None]
        lead = torch.nn.functional.normalize(self._lead, dim=-1).to(dtype)
        rising = torch.nn.functional.normalize(slope + radius * lead @ B, dim=-1)
        largest = rising
        for _ in range(_OWN_STEPS):
            largest = torch.nn.functional.normalize(slope + radius * largest @ B, dim=-1)
        starts = torch.cat([lead.expand_as(rising), lead + OWN_TURN * rising, largest], 1)
        # A row that the word takes over moves by Δ + x_i less its mean.
        away = torch.nn.functional.normalize(self.X[sites.index] - self.X.mean(0), dim=-1)
        return torch.nn.functional.normalize(starts, dim=-1) + _AWAY * away[:, None].to(dtype)

    @cached_property
    def _lead(self) -> Tensor:
        """The direction that raises all scores at once, (1, 1, d)."""
        return (self.X.sum(0) @ self.weights.W)[None, None]

    def search_dtype(self, radius: float) -> torch.dtype:
        return search_dtype(self.X, radius, self.dtype)

    def basis(self, measure: Measure, radius: float) -> Tensor | None:
        """Of the rows of X, XW and XWᵀ, and of Θ, where searching in it saves work."""
        if not self._narrow(measure):
            return None
        theta = self._theta(measure)
        basis = self._basis_of_norm if theta is None else self._basis_with(theta)
        return basis.to(self.search_dtype(radius))

    def spanning(self, measure: Measure) -> Tensor | None:
        """The rows themselves, likewise."""
        if not self._narrow(measure):
            return None
        theta = self._theta(measure)
        return self._seen if theta is None else torch.cat([self._seen, _of_one_size(theta)])

    def _theta(self, measure: Measure) -> Tensor | None:
        """(n, d)."""
        return measure.theta.view(self.n, self.d) if isinstance(measure, Functional) else None

    def _narrow(self, measure: Measure) -> bool:
        """Whether what Δ is multiplied with spans few enough dimensions."""
        n, d = self.n, self.d
        # Rows, and how many of their products a step takes.
        r, products = (4 * n, 6 * n) if isinstance(measure, Functional) else (3 * n, 8 * n)
        return r < d and products * r + r * r <= _WORTHWHILE * (products * d + d * d)

    @cached_property
    def _basis_of_norm(self) -> Tensor:
        basis: Tensor = torch.linalg.qr(self._seen.to(self.dtype).mT).Q
        return basis

    def _basis_with(self, theta: Tensor) -> Tensor:
        basis: Tensor = torch.linalg.qr(self._seen.mT).Q
        # What is left of rows that the others span is rounding: it would tell directions.
        left = theta - theta @ basis @ basis.mT
        beyond = left.norm(dim=1) > _SPANNED * theta.norm(dim=1)
        if not bool(beyond.any()):
            return basis
        wider: Tensor = torch.linalg.qr(torch.cat([basis, (left / left.norm())[beyond].mT], 1)).Q
        return wider

    @property
    def _seen(self) -> Tensor:
        """What Δ is multiplied with, (3n, d)."""
        closed = self.engine.closed_form
        core = self.rows.core if closed else self.map.core(self.X, self.map.weight_fn)
        # A span is sought, whatever the lengths.
        return torch.cat([_of_one_size(x) for x in (core.values, core.queries, core.keys)])


def _of_one_size(matrix: Tensor) -> Tensor:
    size = matrix.norm()
    return matrix / torch.where(size > 0, size, 1.0)
