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
    on_host: Tensor  # the same, on the CPU
    rows: Tensor  # (m, d), in the dtype that is computed with
    place: slice  # of them among all candidates


def sent(array: Tensor, device: torch.device) -> Tensor:
    """An array of the host on `device`; the host goes on before a GPU has it."""
    if device.type != "cuda" or array.is_cuda:
        return array.to(device)
    return array.pin_memory().to(device, non_blocking=True)


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
        self._all = keep is None
        self.dtype = dtype
        self._device = device
        self.size = len(E)
        self.d = int(E.shape[1])
        # Rows of the candidates in E, (C,) int64.
        self.numbers = torch.arange(self.size, device=device) if keep is None else keep
        on_host = device.type == "cpu" or keep is not None
        self._on_host = self.numbers.cpu() if on_host else torch.arange(self.size, device="cpu")

    def __len__(self) -> int:
        return len(self.numbers)

    def tiles(self, rows: int) -> Iterator[Tile]:
        """All candidates, `rows` at a time; the host waits for no device."""
        for first in range(0, len(self), rows):
            place = slice(first, min(first + rows, len(self)))
            number, on_host = self.numbers[place], self._on_host[place]
            if self._all:
                read = self._E[place]
            else:
                read = self._E[number if isinstance(self._E, Tensor) else on_host.numpy()]
            yield Tile(number, on_host, self._tensor(read), place)

    def rows(self, number: Tensor) -> Tensor:
        """The rows `number` (m,) of E, (m, d)."""
        if isinstance(self._E, Tensor):
            return self._tensor(self._E[number])
        return self._tensor(self._E[number.cpu().numpy()])

    def _tensor(self, part: Any) -> Tensor:
        if isinstance(part, np.ndarray):
            # A copy: the array may be read-only, mapped from a file, or of foreign byte order.
            part = torch.from_numpy(np.array(part, dtype=part.dtype.newbyteorder("=")))
        return sent(part.detach(), self._device).to(self.dtype)
