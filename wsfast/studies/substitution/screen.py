"""One text and one W: screen tiles of candidates, then verify what may be best."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from wsfast.maps.attention_text import AttentionText
from wsfast.maps.candidates import (
    PAIR_ARRAYS,
    Squares,
    Tiling,
    Workspace,
    replaced_norms,
    tiling_of,
)
from wsfast.maps.closed_form_text import ROUNDING
from wsfast.results.substitution import LEADERS
from wsfast.studies.substitution.contenders import Contenders
from wsfast.studies.substitution.options import candidate_rows
from wsfast.studies.substitution.ranking import TIE
from wsfast.studies.substitution.table import CandidateTable, Tile

# More pairs than this for each position and place of the ranking are evaluated again, in float64,
# before the search goes on.
_MANY = 8

# Sizes beyond this leave float32 in products of four.
LARGE = 1e12


class Pairs(NamedTuple):
    """Verified pairs; positions count the words of the text."""

    position: Tensor  # (Q,) int64
    candidate: Tensor  # (Q,) int64, rows of E
    value: Tensor  # (Q,) float64, ‖φ(X') - φ(X)‖


class Plan(NamedTuple):
    """How a search goes, the same for all texts."""

    k: int
    largest: bool
    full: bool
    columns: int  # candidates at a time


def self_scores_of(rows: Tensor, W: Tensor) -> Tensor:
    """v·Wv/√d (m,) of the rows v (m, d)."""
    scores: Tensor = ((rows @ W) * rows).sum(-1) * rows.shape[-1] ** -0.5
    return scores


class Screen:
    """The candidates seen so far at the positions `index` of one text.

    Parameters
    ----------
    text : AttentionText
    index : Tensor, shape (P,)
        Positions, counted among the words of the text.
    allowed : callable, optional
        Takes rows of E (m,), and the same on the CPU, and says which of them each position may
        take, (P, m) bool.
    plan : Plan
    table : CandidateTable
    workspace : Workspace
    """

    def __init__(
        self,
        text: AttentionText,
        index: Tensor,
        allowed: Callable[[Tensor, Tensor], Tensor] | None,
        plan: Plan,
        table: CandidateTable,
        workspace: Workspace,
    ) -> None:
        self._text = text
        self._index = index
        self._allowed = allowed
        self._plan = plan
        self._table = table
        self._workspace = workspace
        self._contenders = Contenders(len(index), plan.k, LEADERS, index.device)
        self._needed = len(index) + plan.k + LEADERS  # pairs, were there no rounding
        self._tilings: dict[torch.dtype, Tiling] = {}
        sizes = torch.stack([text.X.norm().double(), text.norm]).tolist()
        ordinary = all(1e-8 < size < LARGE**0.5 for size in sizes)
        self.live = len(index) > 0 and sizes[1] > 0  # whether there is anything to find
        exact = not text.engine.closed_form or not ordinary
        self.dtype = torch.float64 if exact else text.dtype
        self.table: Tensor | None = None  # (P, C) relative changes
        if plan.full:
            self.table = index.new_full((len(index), len(table)), torch.nan, dtype=text.dtype)

    @property
    def norm(self) -> Tensor:
        """‖φ(X)‖, float64."""
        return self._text.norm

    def release(self) -> None:
        """Drop what screening needs; it is made again where it is asked for."""
        self._tilings.clear()

    @staticmethod
    def memory(n: int, positions: int, itemsize: int) -> int:
        """Bytes that one text is held in."""
        return (PAIR_ARRAYS * positions + n + positions) * n * itemsize

    def see(self, tile: Tile, self_scores: Tensor) -> None:
        """Take in the next candidates, whose v·Wv/√d is `self_scores` (m,)."""
        rows, squares, dtype = self._screen(tile, self_scores)
        allowed = None if self._allowed is None else self._allowed(tile.number, tile.on_host)
        if self.table is not None:
            norms = self._certain(rows, squares, dtype)
            if allowed is not None:
                norms = norms.masked_fill(~allowed, torch.nan)
            self.table[:, tile.place] = (norms / self._text.norm).to(self.table)
            squares = Squares(norms.square(), squares.size.double(), squares.norm_error2.double())
        self._compete(tile, squares, dtype, allowed)
        if len(self._contenders) > _MANY * self._needed:
            self._tighten()

    def _screen(self, tile: Tile, self_scores: Tensor) -> tuple[Tensor, Squares, torch.dtype]:
        # Values that are asked for, and small ones, are needed whatever they are.
        screened = self._plan.largest and not self._plan.full
        threshold = self._contenders.threshold if screened else None
        if self.dtype == tile.rows.dtype and self._text.engine.closed_form:
            squares = self._tiling(self.dtype).tiles.squares(tile.rows, self_scores, threshold)
            # The size is at least ‖v‖²: it tells rows that leave float32, and what is not a number.
            if float(squares.size.max()) < LARGE:
                return tile.rows, squares, self.dtype
        rows = tile.rows.double()
        candidate_rows(tile.number, rows)
        return rows, self._squares(rows, threshold), torch.float64

    def _squares(self, rows: Tensor, threshold: Tensor | None = None) -> Squares:
        """Of candidates (m, d) whose scores with themselves are not at hand, in their dtype."""
        self_scores = self_scores_of(rows, self._text.map.weights.W.to(rows.dtype))
        return self._tiling(rows.dtype).tiles.squares(rows, self_scores, threshold)

    def _tiling(self, dtype: torch.dtype) -> Tiling:
        if dtype not in self._tilings:
            self._tilings[dtype] = tiling_of(
                self._text, self._index, self._plan.columns, self._workspace, dtype
            )
        return self._tilings[dtype]

    def _compete(
        self, tile: Tile, squares: Squares, dtype: torch.dtype, allowed: Tensor | None
    ) -> None:
        """Take in the pairs of a tile that may be best: most are told by one comparison."""
        value, size, norm_error2 = squares
        largest = self._plan.largest
        if allowed is not None:
            value = value.masked_fill(~allowed, -torch.inf if largest else torch.inf)
        best = value.amax(1) if largest else value.amin(1)
        most = float(size.max()), float(norm_error2.max())
        threshold = self._contenders.threshold
        low, high = self._bounds(best, *most, slice(None), dtype)
        # A bound that is NaN says nothing, and its pair stays: `high >= threshold` would drop it.
        if not bool((~(high < threshold)).any()):
            return
        of_candidates = value.amax(0) if largest else value.amin(0)
        worst = self._tiling(dtype).constant.argmax()[None]  # the position of the loosest bound
        lows, _ = self._bounds(of_candidates, size, norm_error2, worst, dtype)
        self._contenders.expect(
            low.masked_fill(best.isinf(), -torch.inf),
            lows.masked_fill(of_candidates.isinf(), -torch.inf),
        )
        cut = self._cut(self._contenders.threshold, *most, dtype)
        rows = (~(best < cut) if largest else ~(best > cut)).nonzero()[:, 0]
        value, cut = value[rows], cut[rows, None]
        r, c = (~(value < cut) if largest else ~(value > cut)).nonzero(as_tuple=True)
        p = rows[r]
        if allowed is not None:
            inside = allowed[p, c]
            r, p, c = r[inside], p[inside], c[inside]
        low, high = self._bounds(value[r, c], size[c], norm_error2[c], p, dtype)
        self._contenders.add(p, tile.number[c], low, high)

    def _cut(
        self, threshold: Tensor, size: float, norm_error2: float, dtype: torch.dtype
    ) -> Tensor:
        """What a square must reach (or not exceed) for its bound to reach `threshold` (P,)."""
        _, constant, error = self._tiling(dtype)
        slack = 2 * error * (size + constant)
        norm_error = norm_error2**0.5
        if self._plan.largest:
            cut = (threshold - norm_error).clamp(min=0).square() - slack
        else:
            cut = (norm_error - threshold).clamp(min=0).square() + slack
        # The comparison rounds as well.
        shift = 1e-6 * cut.abs()
        moved: Tensor = cut - shift if self._plan.largest else cut + shift
        return moved.to(dtype)

    def _bounds(
        self,
        value: Tensor,
        size: Tensor | float,
        norm_error2: Tensor | float,
        position: Tensor | slice,
        dtype: torch.dtype,
    ) -> tuple[Tensor, Tensor]:
        """Of the norms whose squares were computed as `value` (Q,), float64.

        Negated to find the smallest.
        """
        _, constant, error = self._tiling(dtype)
        value = value.double()
        slack = 2 * error * (size + constant[position])
        norm_error = (
            norm_error2.double().sqrt() if isinstance(norm_error2, Tensor) else norm_error2**0.5
        )
        low = (value - slack).clamp_(min=0).sqrt_() - norm_error
        high = (value + slack).clamp_(min=0).sqrt_() + norm_error
        low, high = low.nan_to_num_(nan=-torch.inf), high.nan_to_num_(nan=torch.inf)
        low, high = (low, high) if self._plan.largest else (-high, -low)
        # Ties are told apart by their place: none of them may be dropped.
        return low, high + 2 * TIE * high.abs()

    def _tighten(self) -> None:
        """Bounds in float64 for the pairs held."""
        held = self._contenders
        if not self._text.engine.closed_form:
            return
        low, high = (torch.empty_like(held.position, dtype=torch.float64) for _ in range(2))
        for rows, here, c in self._held():
            value, size, norm_error2 = self._squares(rows)
            p = held.position[here]
            low[here], high[here] = self._bounds(
                value[p, c], size[c], norm_error2[c], p, torch.float64
            )
        held.tighten(low, high)

    def _held(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Candidates of the pairs held, a tile at a time.

        Their rows (m, d) in float64, the pairs (q,) that they are in, and the row of each.
        """
        numbers, which = self._contenders.candidate.unique(return_inverse=True)
        for first in range(0, len(numbers), self._plan.columns):
            rows = self._table.rows(numbers[first : first + self._plan.columns]).double()
            here = ((which >= first) & (which < first + len(rows))).nonzero()[:, 0]
            yield rows, here, which[here] - first

    def verified(self) -> Pairs:
        """The pairs that may be best, their values from the change itself, in float64."""
        if len(self._contenders) > 2 * self._needed:
            self._tighten()
        held = self._contenders
        value = torch.empty_like(held.position, dtype=torch.float64)
        for rows, here, c in self._held():
            # Equal rows have equal values: a vocabulary may hold many.
            rows, same = rows.unique(dim=0, return_inverse=True)
            pairs = torch.stack([held.position[here], same[c]])
            pairs, back = pairs.unique(dim=1, return_inverse=True)
            norms = replaced_norms(self._text, self._index[pairs[0]], rows[pairs[1]])
            value[here] = norms[back]
        return Pairs(held.position, held.candidate, value)

    def values(self, numbers: Tensor) -> Tensor:
        """‖φ(X') - φ(X)‖ (P, m), float64, for the candidates `numbers` (m,)."""
        parts = []
        for part in numbers.split(self._plan.columns):
            rows = self._table.rows(part).to(self.dtype)
            parts.append(self._certain(rows, self._squares(rows), self.dtype))
        norms = torch.cat(parts, 1)
        if self._allowed is None:
            return norms
        return norms.masked_fill(~self._allowed(numbers, numbers.cpu()), torch.nan)

    def _certain(self, rows: Tensor, squares: Squares, dtype: torch.dtype) -> Tensor:
        """Norms (P, m), float64, as exact as is promised for the dtype of X."""
        value, size, norm_error2 = squares
        norms = value.clamp(min=0).double().sqrt()
        if not self._text.engine.closed_form:
            return norms
        _, constant, _ = self._tiling(dtype)
        accuracy = self._text.dtype
        share = ROUNDING[accuracy]
        rounding = torch.finfo(dtype).eps * 2 * (size + constant[:, None])
        doubtful = rounding > share * self._text.error_unit2(norms, accuracy)
        # Typical, not worst-case rounding of the scores: the bound without its factor d.
        floor = norms.clamp(min=1e-3 * float(self._text.norm))
        doubtful |= norm_error2.sqrt().double() / rows.shape[1] > share * floor
        doubtful |= ~norms.isfinite()
        columns = doubtful.any(0).nonzero()[:, 0]
        if len(columns) == 0:
            return norms
        if dtype == torch.float32:
            for part in columns.split(self._plan.columns):
                again = rows[part].double()
                exact = self._certain(again, self._squares(again), torch.float64)
                norms[:, part] = torch.where(doubtful[:, part], exact, norms[:, part])
            return norms
        p, c = doubtful.nonzero(as_tuple=True)
        return norms.index_put((p, c), replaced_norms(self._text, self._index[p], rows[c]))
