"""How long work will take: a small piece of each kind is timed here, and scaled."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

# Seconds: what takes less is timed again, as a first call also warms up; what will take more is not
# timed at all if a smaller piece was.
_SHORT = 1.0
_LONG = 1.0


class Work(NamedTuple):
    """One kind of work."""

    name: str
    operations: float  # in all
    samples: Sequence[tuple[float, Callable[[], object]]]  # operations of pieces, small ones first


def seconds(work: Sequence[Work]) -> dict[str, float]:
    """Time a small piece of each kind and scale it with the number of operations."""
    return {one.name: one.operations * _pace(one) for one in work}


def _pace(work: Work) -> float:
    """Seconds that an operation takes, in the largest of the pieces that are quick."""
    pace = 0.0
    for operations, sample in work.samples:
        if pace * operations > _LONG:
            break
        pace = timed(sample) / operations
    return pace


def announce(estimates: dict[str, float]) -> None:
    """Print one line on stderr."""
    parts = ", ".join(f"{name}: {duration(value)}" for name, value in estimates.items())
    total = duration(sum(estimates.values()))
    print(
        f"wsfast: estimate {total} here ({parts}); cells that are finished are not done again",
        file=sys.stderr,
        flush=True,
    )


def parts(seconds: Sequence[float], total: int = 1000) -> list[int]:
    """Parts of a progress bar for work of these durations, so that it moves evenly."""
    done = np.cumsum(seconds)
    ends = np.rint(total * done / done[-1]).astype(int) if len(done) else done
    return [int(part) for part in np.diff(ends, prepend=0)]


def duration(value: float) -> str:
    """A time as it is said."""
    for size, unit in ((3600, "h"), (60, "min")):
        if value >= 1.5 * size:
            return f"{value / size:.1f} {unit}"
    return f"{value:.0f} s"


def timed(sample: Callable[[], object]) -> float:
    """Seconds that a small piece of work takes."""
    fastest = float("inf")
    for _ in range(2):
        start = time.perf_counter()
        sample()
        fastest = min(fastest, time.perf_counter() - start)
        if fastest > _SHORT:
            break
    return fastest
