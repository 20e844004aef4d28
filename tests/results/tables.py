"""Tables of scaling studies made by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from wsfast.results.cells import Cell
from wsfast.results.scaling import ScalingResult


def table(
    S: Callable[[int, int, int], float],
    ns: Iterable[int],
    ds: Iterable[int] = (8,),
    replicates: int = 3,
    name: str = "raf",
    **changes: Any,
) -> ScalingResult:
    """S(n, d, r) for replicate r, which is text r under draw r."""
    cells = [
        Cell(name, n, d, r, r, S(n, d, r), position=0, **changes)
        for n in ns
        for d in ds
        for r in range(replicates)
    ]
    return ScalingResult(tuple(cells), {name: {"seed": 0}})
