"""The search for the largest changes by CUDA kernels: it waits for the device once, at the end."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from wsfast.maps.candidates import ContenderList, NativeTiles
from wsfast.results.substitution import LEADERS
from wsfast.studies.substitution.ranking import TIE
from wsfast.studies.substitution.screen import LARGE, Pairs, Screen, self_scores_of
from wsfast.studies.substitution.table import Tile

# Pairs that may be held, and so many more for each of the k that are asked for and each position: a
# few times what thresholds that rise from tile to tile let through.
_ROOM = 2**14
_ROOM_EACH = 16


class DeviceScreen(Screen):
    """A text's search of which the device keeps the thresholds and the list of contenders.

    Whether the list had room, and whether all numbers were ones that the kernels can work with, is
    asked once, at the end. Where not, the parent's way begins anew. The plan must be one for the
    largest changes, without the table of all.
    """

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._there: ContenderList | None = None  # to the end
        if self.live and self.dtype == self._table.dtype:
            positions, k = len(self._index), self._plan.k
            room = min(_ROOM + _ROOM_EACH * (k + positions), positions * len(self._table))
            like = self._index.new_empty(0, dtype=self.dtype)
            self._there = ContenderList(positions, k, LEADERS, room, LARGE, like)
            self._tiling(self.dtype)  # waits for the device, which no tile does

    @staticmethod
    def memory(n: int, positions: int, itemsize: int) -> int:
        """Bytes that one text is held in."""
        room = _ROOM + _ROOM_EACH * positions
        return Screen.memory(n, positions, itemsize) + room * (2 * 8 + 2 * itemsize)

    def see(self, tile: Tile, self_scores: Tensor) -> None:
        """Take in the next candidates, whose v·Wv/√d is `self_scores` (m,)."""
        if self._there is None:
            super().see(tile, self_scores)
            return
        tiles = self._tiling(self.dtype).tiles
        assert isinstance(tiles, NativeTiles)
        allowed = None
        if self._allowed is not None:
            allowed = self._allowed(tile.number, tile.on_host).to(torch.uint8).contiguous()
        tiles.screen(tile.rows, self_scores, tile.number, allowed, self._there)

    def verified(self) -> Pairs:
        """The pairs that may be best, their values from the change itself, in float64."""
        held, self._there = self._there, None
        if held is not None and not self._take(held):
            for tile in self._table.tiles(self._plan.columns):
                super().see(
                    tile, self_scores_of(tile.rows, self._text.map.weights.W.to(tile.rows.dtype))
                )
        return super().verified()

    def _take(self, held: ContenderList) -> bool:
        """Take over the pairs held; False where they may be too few."""
        count = int(held.count)
        if count > len(held.position):
            return False
        position, candidate, low, high = (
            part[:count] for part in (held.position, held.candidate, held.low, held.high)
        )
        # Ties are told apart by their place: none of them may be dropped.
        self._contenders.add(position, candidate, low.double(), high.double() * (1 + 2 * TIE))
        return True
