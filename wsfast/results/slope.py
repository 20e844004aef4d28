"""A power law fitted to the cells of a scaling study."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wsfast.results.cells import Cell

# Numbers that the resamples of one block may take.
_BLOCK = 1 << 20


@dataclass(frozen=True)
class Slope:
    """The law S = exp(intercept) · nᵛᵃˡᵘᵉ, or the same in d.

    Attributes
    ----------
    value : float
        Slope of log S.
    low, high : float
        Ends of its bootstrap interval; NaN with a single replicate.
    confidence : float
        Coverage of the interval.
    along : {"n", "d"}
        The variable of the law.
    at : int
        The value of the other one.
    intercept : float
        log S that the law gives for n (or d) = 1.
    map : str
        Name of the feature map.
    """

    value: float
    low: float
    high: float
    confidence: float
    along: str
    at: int
    intercept: float
    map: str

    def predict(self, size: float) -> float:
        """S that the law gives for n (or d) = `size`."""
        return float(math.exp(self.intercept) * size**self.value)


class NoSlopeError(ValueError):
    """Cells that no power law can be fitted to; `reason` is short enough for a legend."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


def fit(
    cells: Sequence[Cell], along: str, *, confidence: float, resamples: int, seed: int
) -> Slope:
    """Least squares over `cells` of one map and one value of the variable that is not `along`.

    Raises
    ------
    NoSlopeError
        For fewer than two values of the variable `along`, or an S that has no logarithm.
    """
    for cell in cells:
        if not 0 < cell.S < math.inf:
            raise NoSlopeError(
                f"a slope must have S > 0, for it is of log S, got {cell.S} for map {cell.map!r}, "
                f"n = {cell.n}, d = {cell.d}, text {cell.text}, draw {cell.draw}",
                f"an S is {cell.S}",
            )
    values, place = np.unique([getattr(cell, along) for cell in cells], return_inverse=True)
    if len(values) < 2:
        raise NoSlopeError(
            f"a slope must have at least 2 different {along}, got {values.tolist()}",
            f"a single {along}",
        )
    x = np.log(values)[place]
    y = np.log([cell.S for cell in cells])
    keys = [(cell.text, cell.draw) for cell in cells]
    numbers = {key: number for number, key in enumerate(sorted(set(keys)))}
    replicate = np.array([numbers[key] for key in keys])

    # Sums of each replicate are all that a fit to some of them needs; about the means, so that
    # they do not cancel.
    x_mean, y_mean = x.mean(), y.mean()
    dx, dy = x - x_mean, y - y_mean
    sums: NDArray[np.float64] = np.stack(
        [
            np.bincount(replicate, weights, len(numbers))
            for weights in (np.ones_like(x), dx, dy, dx * dx, dx * dy)
        ],
        axis=1,
    )
    value = float(_slopes(sums.sum(0)))
    low = high = math.nan
    if len(numbers) > 1:
        holds = np.zeros((len(numbers), len(values)))
        holds[replicate, place] = 1
        slopes = _bootstrap(sums, holds, resamples, np.random.default_rng(seed))
        if len(slopes):
            tail = (1 - confidence) / 2
            low, high = np.quantile(slopes, [tail, 1 - tail]).tolist()
    first = cells[0]
    return Slope(
        value=value,
        low=low,
        high=high,
        confidence=confidence,
        along=along,
        at=first.d if along == "n" else first.n,
        intercept=float(y_mean - value * x_mean),
        map=first.map,
    )


def _slopes(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Slopes of the least squares, from the sums (..., 5) over their points."""
    count, x, y, xx, xy = np.moveaxis(sums, -1, 0)
    slopes: NDArray[np.float64] = (xy - x * y / count) / (xx - x * x / count)
    return slopes


def _bootstrap(
    sums: NDArray[np.float64],
    holds: NDArray[np.float64],
    resamples: int,
    generator: np.random.Generator,
) -> NDArray[np.float64]:
    """Slopes of resampled replicates (R, 5); `holds` (R, values) says which sizes each has.

    Left out are resamples with one size alone, as may come up where replicates differ in theirs.
    """
    count = len(sums)
    slopes: list[NDArray[np.float64]] = []
    left = resamples
    while left > 0:
        block = min(left, max(1, _BLOCK // count))
        times = generator.multinomial(count, np.full(count, 1 / count), block).astype(float)
        several = ((times @ holds) > 0).sum(1) > 1
        slopes.append(_slopes((times @ sums)[several]))
        left -= block
    return np.concatenate(slopes)
