"""Measuring a candidate and its baselines alternately, and the table of their ratios.

On a shared machine the speed changes from second to second. Candidate and baselines therefore take
turns, each turn gives one ratio, and the median of these ratios is the figure.
"""

from __future__ import annotations

import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

# A call shorter than this (seconds) is repeated within a turn.
_SHORTEST = 5e-3
# A call longer than this is not run once more, untimed, before it is timed.
_LONG = 0.2


class Limits(NamedTuple):
    """Seconds for one comparison, and the turns it takes at least and at most."""

    seconds: float
    fewest: int
    most: int


@dataclass(frozen=True)
class Baseline:
    """Something that wsfast is compared with.

    Where `run` does only a part of the work, `share` is that part, the time is extrapolated, and
    `note` says so. `at_most` is the measuring stick: the time of wsfast, in units of this one's.
    `turns` bounds how often a slow one runs.
    """

    name: str
    run: Callable[[], object]
    share: float = 1.0
    at_most: float | None = None
    turns: int | None = None
    note: str = ""


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    operation: str
    case: str
    threads: int
    against: str
    figure: str
    stick: str = ""
    met: bool | None = None
    note: str = ""

    def cells(self) -> list[str]:
        verdict = {None: "", True: "met", False: "**not met**"}[self.met]
        measured = [self.operation, self.case, str(self.threads), self.against, self.figure]
        return [*measured, self.stick, verdict, self.note]


def markdown(rows: list[Row]) -> list[str]:
    """The lines of a Markdown table."""
    head = ["operation", "case", "threads", "against", "figure (quartiles)", "stick", "", "note"]
    lines = [head, ["---"] * len(head), *(row.cells() for row in rows)]
    return ["| " + " | ".join(line) + " |" for line in lines]


def ratio_text(ratio: float) -> str:
    """A ratio of times: 1.04, or 1/312 where the candidate is much faster."""
    return f"{ratio:.2f}" if ratio > 0.3 else f"1/{float(f'{1 / ratio:.3g}'):,g}"


def seconds_per_call(run: Callable[[], object], calls: int = 1) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        run()
    return (time.perf_counter() - start) / calls


def slope(sizes: Sequence[int], seconds: Sequence[float]) -> float:
    """Slope of log(seconds) over log(size), fitted through all points."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def run_python(code: str, *arguments: object) -> list[float]:
    """The numbers that `code` prints, run away from this folder by a fresh interpreter."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [float(word) for word in done.stdout.split()]


class Turns:
    """Candidate and baselines in turns; `figures` has a ratio's median and quartiles."""

    def __init__(
        self, candidate: Callable[[], object], baselines: list[Baseline], limits: Limits
    ) -> None:
        self.candidate = candidate
        self.baselines = baselines
        own = _first_time(candidate)
        first = {b.name: _first_time(b.run) for b in baselines}
        self.calls = _calls(own)
        self._baseline_calls = {name: _calls(seconds) for name, seconds in first.items()}
        each = _turn_seconds(own) + sum(
            _turn_seconds(first[b.name]) for b in baselines if b.turns is None
        )
        self._rounds = min(limits.most, max(limits.fewest, math.floor(limits.seconds / each)))
        self.times: list[float] = []
        self.baseline_times: dict[str, list[float]] = {b.name: [] for b in baselines}

    def run(self, benchmark: Any) -> None:
        """Let pytest-benchmark run the candidate, the baselines just before each of its rounds."""
        benchmark.pedantic(self._turn, setup=self._baseline_turns, rounds=self._rounds)

    def figure(self, baseline: Baseline) -> tuple[float, float, float]:
        """Median, lower and upper quartile of the ratios."""
        times = self.baseline_times[baseline.name]
        ratios = [a / b * baseline.share for a, b in zip(self.times, times, strict=False)]
        if len(ratios) == 1:
            return ratios[0], ratios[0], ratios[0]
        low, median, high = statistics.quantiles(ratios, n=4, method="inclusive")
        return median, low, high

    def _baseline_turns(self) -> None:
        for baseline in self.baselines:
            if baseline.turns is not None and len(self.times) >= baseline.turns:
                continue
            calls = self._baseline_calls[baseline.name]
            # Neither side may start with the other's data in the caches.
            if calls > 1:
                baseline.run()
            self.baseline_times[baseline.name].append(seconds_per_call(baseline.run, calls))
        if self.calls > 1:
            self.candidate()

    def _turn(self) -> None:
        self.times.append(seconds_per_call(self.candidate, self.calls))


def _first_time(run: Callable[[], object]) -> float:
    """Seconds of one call, the first left out unless it is a long one."""
    seconds = seconds_per_call(run)
    return seconds if seconds > _LONG else min(seconds_per_call(run) for _ in range(3))


def _calls(seconds: float) -> int:
    return max(1, min(1000, math.ceil(_SHORTEST / seconds)))


def _turn_seconds(seconds: float) -> float:
    calls = _calls(seconds)
    return seconds * (calls + (calls > 1))
