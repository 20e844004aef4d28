"""Several words of a text at once, by the closed form."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor

from wsfast._kinks import root
from wsfast.attention import sites as closed_form
from wsfast.attention.rows import Rows
from wsfast.attention.sites import LeftOut, SiteState, left_out
from wsfast.attention.weight_fn import WeightFn
from wsfast.maps.feature_map import gathered
from wsfast.maps.measure import Norm
from wsfast.perturbation.change import Sites

# Changes of a site that are evaluated together.
_POINTS = 64


class Text(Protocol):
    """One text under a head of attention."""

    n: int
    d: int
    budget: int

    @property
    def rows(self) -> Rows:
        """The rows of attention."""

    def rows_for(self, weight_fn: WeightFn) -> Rows:
        """The rows for another weight function."""

    def site_state(self, rows: Rows, left: LeftOut, at: Tensor) -> SiteState:
        """State of the sites `at` (P, m) in float64."""

    def sites_in_dtype(self, state: SiteState, dtype: torch.dtype) -> SiteState:
        """`state` with its real tensors in `dtype`."""

    def lost(self, norm: Tensor, size: Tensor, dtype: torch.dtype) -> Tensor:
        """Where rounding in `dtype` may spoil a squared norm, a sum of terms of some `size`."""


class AttentionSites:
    """What a text under attention says of sites of several words.

    Parameters
    ----------
    text : Text
    """

    def __init__(self, text: Text) -> None:
        self._text = text
        self._known: dict[tuple[WeightFn, int], tuple[Rows, LeftOut]] = {}

    def state(self, sites: Sites, weight_fn: WeightFn | None = None) -> SiteState:
        """State of the sites in float64, for `weight_fn` in place of the text's own."""
        text, m = self._text, sites.words
        own = text.rows.core.weight_fn
        fn = own if weight_fn is None else weight_fn
        if (fn, m) not in self._known:
            rows = text.rows if fn == own else text.rows_for(fn)
            self._known[fn, m] = rows, left_out(rows, m, text.budget)
        return text.site_state(*self._known[fn, m], sites.at)

    def changes(self, sites: Sites, delta: Tensor | None) -> Tensor:
        """φ(X') - φ(X) (P, s, n, d), float64, for Δ (P, s, m, D); None: the words are hidden."""
        state = self.state(sites)
        if delta is None:
            return closed_form.hidden_deltas(state)[:, None]
        return torch.stack([closed_form.deltas(state, by) for by in delta.unbind(1)], 1)

    def norms(self, sites: Sites, delta: Tensor | None, dtype: torch.dtype, *, own: bool) -> Tensor:
        """Its norm (P, s), float64, computed in `dtype`; `own`: with the rows of the site."""
        points = 1 if delta is None else min(_POINTS, delta.shape[1])

        def of_part(part: Tensor) -> Tensor:
            exact = self.state(Sites(sites.at[part]))
            if delta is None:
                return root(closed_form.hidden_squared_norms(exact, own=own))[:, None]
            state = self._text.sites_in_dtype(exact, dtype)
            each = delta[part].split(points, 1)
            return torch.cat([self._norms_at(exact, state, by, own=own) for by in each], 1)

        return gathered(map(of_part, self.chunks(sites, points)), len(sites))

    def _norms_at(self, exact: SiteState, state: SiteState, delta: Tensor, *, own: bool) -> Tensor:
        text, dtype = self._text, state.word.dtype
        value, size = closed_form.squared_norms(state, delta.to(dtype), own=own)
        norm = root(value.double())
        p, k = text.lost(norm, size.double(), dtype).nonzero(as_tuple=True)
        if len(p) == 0:
            return norm
        m, n, d = exact.at.shape[1], text.n, text.d
        squared = Norm("all" if own else "others")
        direct = [
            squared.of(closed_form.deltas(exact.select(q), delta[q, r].double()), exact.at[q])
            for q, r in zip(
                *(x.split(max(1, text.budget // (6 * 8 * n * d * m))) for x in (p, k)), strict=True
            )
        ]
        return root(value.double().index_put((p, k), torch.cat(direct)))

    def chunks(self, sites: Sites, points: int) -> Iterator[Tensor]:
        """Numbers of sites whose evaluation at `points` Δ each stays within the budget."""
        text, m = self._text, sites.at.shape[1]
        smoothed = 1 if text.rows.core.weight_fn.exponential else 3
        constants = smoothed * 2 * (12 * m + m * m + 10) * text.n
        point = (25 * m + 4 * m * m) * text.n + 6 * m * text.d
        at_once = max(1, text.budget // (8 * (constants + points * point)))
        yield from torch.arange(len(sites), device=sites.at.device).split(at_once)
