"""The search for the largest changes by CUDA kernels: it waits for the device once, at the end."""

from __future__ import annotations

import torch
from torch import Tensor

from wsfast.maps.candidates import NativeTiles, PairList
from wsfast.results.substitution import LEADERS
from wsfast.studies.substitution.contenders import Contenders
from wsfast.studies.substitution.ranking import TIE
from wsfast.studies.substitution.screen import LARGE, Pairs, Screen, self_scores_of
from wsfast.studies.substitution.table import Tile

# Pairs that may be held, and so many more for each of the k that are asked for and each position: a
# few times what thresholds that rise from tile to tile let through.
_ROOM = 2**14
_ROOM_EACH = 16


class DeviceScreen(Screen):
    """A text's search of which the device keeps the thresholds and the list of contenders.

    A tile raises the thresholds by the lower bounds of its blocks of candidates: each block has a
    pair of its own that reaches its bound, so that the k-th largest bound is one of the k-th best
    pair. Blocks have no candidate in common: as many of them as there are leaders tell what those
    reach. Whether the list had room, and whether all numbers were ones that the kernels can work
    with, is asked once, at the end. Where not, the parent's way begins anew.
    The plan must be one for the largest changes, without the table of all.
    """

    _screened: _Screened | None = None  # from the first tile to the end

    @staticmethod
    def memory(n: int, positions: int, itemsize: int) -> int:
        """Bytes that one text is held in."""
        room = _ROOM + _ROOM_EACH * positions
        return Screen.memory(n, positions, itemsize) + room * (2 * 8 + 2 * itemsize)

    def see(self, tile: Tile, self_scores: Tensor) -> None:
        """Take in the next candidates, whose v·Wv/√d is `self_scores` (m,)."""
        if self.dtype != tile.rows.dtype:
            super().see(tile, self_scores)
            return
        if self._screened is None:
            pairs = len(self._index) * len(self._table)
            room = min(_ROOM + _ROOM_EACH * (self._plan.k + len(self._index)), pairs)
            self._screened = _Screened(len(self._index), self._plan.k, room, tile.rows)
        evaluator = self._tiling(self.dtype).tiles
        assert isinstance(evaluator, NativeTiles)
        allowed = None
        if self._allowed is not None:
            allowed = self._allowed(tile.number).to(torch.uint8).contiguous()
        self._screened.see(evaluator, tile, self_scores, allowed)

    def verified(self) -> Pairs:
        """The pairs that may be best, their values from the change itself, in float64."""
        screened, self._screened = self._screened, None
        if screened is not None and not screened.give(self._contenders):
            for tile in self._table.tiles(self._plan.columns):
                super().see(
                    tile, self_scores_of(tile.rows, self._text.map.weights.W.to(tile.rows.dtype))
                )
        return super().verified()


class _Screened:
    """What the device keeps of the tiles seen so far, for P positions."""

    def __init__(self, positions: int, k: int, room: int, like: Tensor) -> None:
        self._surest = like.new_full((positions,), -torch.inf)
        self._best = like.new_full((k,), -torch.inf)  # the largest bounds of all blocks
        self._leading = like.new_full((LEADERS,), -torch.inf)  # one of each block
        self._size = like.new_zeros(())
        self._list = PairList(
            count=like.new_zeros(1, dtype=torch.int64),
            position=like.new_empty(room, dtype=torch.int64),
            candidate=like.new_empty(room, dtype=torch.int64),
            low=like.new_empty(room),
            high=like.new_empty(room),
        )

    def see(
        self, evaluator: NativeTiles, tile: Tile, self_scores: Tensor, allowed: Tensor | None
    ) -> None:
        squares, low = evaluator.screened(tile.rows, self_scores, self._threshold(), allowed)
        self._surest = torch.maximum(self._surest, low.amax(1))
        self._best = torch.cat([self._best, low.flatten()]).topk(len(self._best)).values
        self._leading = torch.cat([self._leading, low.amax(0)]).topk(LEADERS).values
        self._size = torch.maximum(self._size, squares.size.max())  # NaN stays
        evaluator.keep(squares, tile.number, self._threshold(), allowed, self._list)

    def give(self, contenders: Contenders) -> bool:
        """Hand over the pairs held; False where they may be too few."""
        count, size = torch.cat([self._list.count.double(), self._size.double()[None]]).tolist()
        # The size is at least ‖v‖²: it tells rows that leave float32, and what is not a number.
        if count > len(self._list.position) or not size < LARGE:
            return False
        found = {name: array[: int(count)] for name, array in vars(self._list).items()}
        low, high = found["low"].double(), found["high"].double()
        # Ties are told apart by their place: none of them may be dropped.
        contenders.add(found["position"], found["candidate"], low, high * (1 + 2 * TIE))
        return True

    def _threshold(self) -> Tensor:
        """What the upper bound of a pair must reach, at each position (P,)."""
        return self._surest.clamp(max=torch.minimum(self._best[-1], self._leading[-1]))
