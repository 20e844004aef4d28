"""The rows of E, read tile by tile."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from wsfast._values import Array


class Tile(NamedTuple):
    """m candidates that are read together."""

    number: Tensor  # (m,) int64, their rows in E
    rows: Tensor  # (m, d), in the dtype that is computed with
    place: slice  # of them among all candidates


class CandidateTable:
    """Rows of E (V, d), a tensor or an array that may be larger than memory.

    Parameters
    ----------
    E : Tensor or ndarray, shape (V, d)
    keep : Tensor of int64, optional
        The rows that are candidates, ascending; by default all.
    dtype, device
        What the rows are given in.
    """

    def __init__(
        self, E: Array, keep: Tensor | None, dtype: torch.dtype, device: torch.device
    ) -> None:
        self._E = E
        self._keep = keep
        self.dtype = dtype
        self._device = device
        self.size = len(E)
        self.d = int(E.shape[1])

    def __len__(self) -> int:
        return self.size if self._keep is None else len(self._keep)

    @property
    def numbers(self) -> Tensor:
        """Rows of the candidates in E, (C,) int64."""
        return torch.arange(self.size, device=self._device) if self._keep is None else self._keep

    def tiles(self, rows: int) -> Iterator[Tile]:
        """All candidates, `rows` at a time."""
        numbers = self.numbers
        for first in range(0, len(self), rows):
            place = slice(first, min(first + rows, len(self)))
            part = numbers[place]
            read = self._tensor(self._E[place]) if self._keep is None else self.rows(part)
            yield Tile(part, read, place)

    def rows(self, number: Tensor) -> Tensor:
        """The rows `number` (m,) of E, (m, d)."""
        if isinstance(self._E, Tensor):
            return self._tensor(self._E[number])
        return self._tensor(self._E[number.cpu().numpy()])

    def _tensor(self, part: Any) -> Tensor:
        if isinstance(part, np.ndarray):
            # A copy: the array may be read-only, mapped from a file, or of foreign byte order.
            part = torch.from_numpy(np.array(part, dtype=part.dtype.newbyteorder("=")))
        tensor: Tensor = part.detach().to(self._device, self.dtype)
        return tensor
