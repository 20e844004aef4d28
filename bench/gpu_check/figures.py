"""The benchmark table of bench/gpu_check.sh.

``python -m bench.gpu_check.figures --out FILE --seconds N [--dry-run]`` rewrites FILE after each
row. Candidate and baselines take turns; each turn gives a ratio, and the median is the figure.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

import wsfast
from wsfast.attention.weight_fn import WeightFn
from wsfast.engines.cuda import CUDA
from wsfast.engines.features import fused_features
from wsfast.engines.substitution_kernels import Workspace
from wsfast.studies.substitution import search

from .. import baselines
from ..inputs import directions, prepared, text_and_weights, vocabulary
from ..measure import Baseline, ratio_text
from . import floors
from .machine import Clock, choose_device, facts

STARTS, STEPS = 4, 40  # of the closed form in PyTorch autograd
SHORTEST = 5e-3  # seconds: a call shorter than this is repeated within a turn
LONG = 0.5  # a call longer than this needs no second one to be warm
TURNS = range(3, 16)


class Sizes(NamedTuple):
    texts: int  # B
    lengths: tuple[int, ...]  # n of features
    n: int
    d: int
    V: int
    pairs: int  # of the batched definition in one call
    in_turn: int  # bytes of inputs that take turns, more than the cache holds


REAL = Sizes(8, (128, 512), 128, 768, 30_522, 32, 2**28)
TINY = Sizes(2, (8, 12), 8, 16, 60, 8, 2**12)


@dataclass(frozen=True)
class Row:
    """One figure: a ratio of times or, against "its floor", the share of the floor reached."""

    operation: str
    case: str
    against: str
    figure: str
    value: float
    quartiles: tuple[float, float]
    seconds: float  # median of wsfast's
    turns: int
    stick: str
    met: bool | None  # None: there is no stick, or this is a dry run
    note: str


class Figures:
    """Measures, and keeps everything measured in a file."""

    def __init__(self, path: Path, device: torch.device, seconds: float, *, dry_run: bool) -> None:
        self.path, self.device, self.dry_run = path, device, dry_run
        self.clock = Clock(device)
        self.end = time.monotonic() + seconds
        self.sizes = TINY if dry_run else REAL
        self.rows: list[Row] = []
        self.errors: dict[str, str] = {}
        self.rates = floors.measure_rates(self.clock, device, small=dry_run)
        self.facts = facts(device)
        self.save()

    def save(self) -> None:
        everything: dict[str, Any] = {
            "dry_run": self.dry_run,
            "facts": self.facts,
            "rates": {
                "copy GB/s": self.rates.copy / 1e9,
                "TF32 Tflop/s": self.rates.tf32 / 1e12,
                "float32 Tflop/s": self.rates.float32 / 1e12,
            },
            "figures": [asdict(row) for row in self.rows],
            "errors": self.errors,
        }
        self.path.write_text(json.dumps(everything, indent=1, ensure_ascii=False) + "\n")

    def compare(
        self,
        operation: str,
        case: str,
        candidate: Callable[[], object],
        others: Sequence[Baseline],
        seconds: float,
    ) -> None:
        """Time `candidate` in turns with `others`, for at most `seconds` after the fewest turns."""
        runs = {"": candidate, **{other.name: other.run for other in others}}
        calls = {name: self._calls(run) for name, run in runs.items()}
        times: dict[str, list[float]] = {name: [] for name in runs}
        stop = min(self.end, time.monotonic() + seconds)
        for turn in range(TURNS.stop):
            if turn >= TURNS.start and time.monotonic() > stop:
                break
            for name, run in runs.items():
                times[name].append(self.clock.seconds(run, calls[name]))
        for other in others:
            pairs = zip(times[""], times[other.name], strict=True)
            self._add(
                operation,
                case,
                other.name,
                [a / b * other.share for a, b in pairs],
                statistics.median(times[""]),
                other.at_most,
                other.note,
            )

    def floor(
        self, operation: str, case: str, runs: Sequence[Callable[[], object]], work: floors.Work
    ) -> None:
        """Share of the floor that `runs`, each with inputs of its own, reach; the stick is half."""
        least, bound = work.floor(self.rates)
        run = self.clock.in_graph(runs)
        calls = self._calls(run)
        times = [self.clock.seconds(run, calls) / len(runs) for _ in range(TURNS.stop)]
        self._add(
            operation,
            case,
            "its floor",
            [least / seconds for seconds in times],
            statistics.median(times),
            None,
            f"floor of {bound}, {least * 1e6:.3g} µs",
            at_least=0.5,
        )

    def _calls(self, run: Callable[[], object]) -> int:
        """How often to call `run` in a turn; warms it up."""
        seconds = self.clock.seconds(run)
        if seconds < LONG:
            seconds = self.clock.seconds(run)
        return max(1, min(1000, math.ceil(SHORTEST / seconds)))

    def _add(
        self,
        operation: str,
        case: str,
        against: str,
        values: list[float],
        seconds: float,
        at_most: float | None,
        note: str,
        *,
        at_least: float | None = None,
    ) -> None:
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
        stick, met, figure = "", None, ratio_text(median)
        if at_most is not None:
            stick, met = f"≤ {ratio_text(at_most)}", median <= at_most
        if at_least is not None:
            stick, met, figure = f"≥ {at_least:.0%}", median >= at_least, f"{median:.1%}"
        self.rows.append(
            Row(
                operation,
                case,
                against,
                figure,
                median,
                (low, high),
                seconds,
                len(values),
                stick,
                None if self.dry_run else met,
                note,
            )
        )
        self.save()
        print(f"{operation} | {case} | {against} | {figure} | {stick}", flush=True)

    def attempt(self, measure: Callable[[Figures], None]) -> None:
        """`measure`; where it fails, what comes after it is measured all the same."""
        try:
            measure(self)
        except Exception as error:
            traceback.print_exc()
            self.errors[measure.__name__] = f"{type(error).__name__}: {error}".splitlines()[0]
            self.save()


# -- inputs ----------------------------------------------------------------------------------------


def batch(figures: Figures, n: int) -> tuple[Tensor, Tensor]:
    """X (B, n, d) and W on the device."""
    X, W = text_and_weights(n * figures.sizes.texts, figures.sizes.d)
    X, W = X.to(figures.device), W.to(figures.device)
    return X.view(figures.sizes.texts, n, -1), W


def copies(figures: Figures, values: Tensor) -> list[Tensor]:
    """Different values of the same shape, more of them than the cache holds."""
    count = max(2, math.ceil(figures.sizes.in_turn / values.nbytes))
    return [values.roll(shift, -1) for shift in range(count)]


# -- features --------------------------------------------------------------------------------------


def features(figures: Figures) -> None:
    for n in figures.sizes.lengths:
        X, W = batch(figures, n)
        for dtype in (torch.float32, torch.bfloat16):
            words = X.to(dtype)

            by = partial(wsfast.raf_features, words, W)
            exact = wsfast.raf_features(words.double(), W.double(), backend="reference")
            error = float((by(backend="native").double() - exact).abs().max() / exact.abs().max())
            if not error <= 1e-4:
                raise ValueError(f"features of {n} words in {dtype} are off by {error}")
            figures.compare(
                "raf_features",
                case_of(figures, n, dtype),
                partial(by, backend="native"),
                [
                    Baseline("PyTorch backend", partial(by, backend="torch")),
                    Baseline("sdpa in float32, XW included", partial(sdpa, words, W)),
                    Baseline("definition", partial(by, backend="reference")),
                ],
                seconds=2,
            )


def features_floor(figures: Figures) -> None:
    for n in figures.sizes.lengths:
        X, W = batch(figures, n)
        for dtype in (torch.float32, torch.bfloat16):
            words = copies(figures, X.to(dtype))
            queries = [(x.float() @ W)[:, None].contiguous() for x in words]

            figures.floor(
                "kernel raf_features",
                case_of(figures, n, dtype),
                [partial(one_pass, x, q) for x, q in zip(words, queries, strict=True)],
                floors.features_work(words[0], queries[0]),
            )


def sdpa(words: Tensor, W: Tensor) -> Tensor:
    x = words.float()[:, None]
    return scaled_dot_product_attention(x @ W, x, x)


def one_pass(words: Tensor, queries: Tensor) -> Tensor:
    return fused_features(words, queries, WeightFn("softmax"), None, words.shape[-1] ** -0.5)


def case_of(figures: Figures, n: int, dtype: torch.dtype) -> str:
    name = str(dtype).removeprefix("torch.")
    return f"n={n}, d={figures.sizes.d}, batch {figures.sizes.texts}, {name}"


# -- the search over the ball ----------------------------------------------------------------------


class FullSearch(baselines.ClosedFormSearch):
    """On the device of X."""

    def first(self) -> Tensor:
        starts = directions(self.starts, self.X.shape[1]).to(self.X)
        starts[0] = (self.X @ self.W).sum(0)
        return self._onto_sphere(starts).expand(len(self.X), -1, -1).contiguous()


def ball(figures: Figures) -> None:
    n, d = figures.sizes.n, figures.sizes.d
    X, W = batch(figures, n)

    def by(backend: str) -> wsfast.SensitivityResult:
        return wsfast.raf_sensitivity(X, W, backend=backend)

    def full_d() -> list[float]:
        return [FullSearch(x, W, STARTS).run(STEPS) for x in X]

    native, closed, full = by("native"), by("torch"), full_d()
    # Both are lower bounds of one supremum; where they end depends on rounding.
    if not bool((native.value >= 0.98 * closed.value).all()):
        raise ValueError(f"S {native.value.tolist()}, by PyTorch {closed.value.tolist()}")
    one_text = baselines.layer(X[0], W)
    count = min(16, n * STARTS)
    rows = torch.arange(n, device=figures.device).repeat_interleave(STARTS)[:count]
    some = directions(count, d).to(figures.device)

    def definition() -> object:
        with torch.device(figures.device):
            return baselines.batched_norms_and_gradient(X[0], W, one_text, rows, some)

    figures.compare(
        "raf_sensitivity",
        case_of(figures, n, X.dtype),
        lambda: by("native"),
        [
            Baseline("PyTorch closed form", lambda: by("torch"), at_most=1 / 5),
            Baseline(
                f"PyTorch closed form in full d, {STARTS} starts × {STEPS} steps",
                full_d,
                note=f"S={full}, of native {native.value.tolist()}",
            ),
            Baseline(
                f"definition, batched, autograd, {STARTS} starts × {STEPS} steps",
                definition,
                share=count / (len(X) * n * STARTS * STEPS),
                note=f"extrapolated from {count} texts of 1 step",
            ),
        ],
        seconds=10,
    )


# -- the search over a vocabulary ------------------------------------------------------------------


def substitution(figures: Figures) -> None:
    n, d, V, pairs = figures.sizes.n, figures.sizes.d, figures.sizes.V, figures.sizes.pairs
    X, W = (x.to(figures.device) for x in text_and_weights(n, d))
    E = vocabulary(V, d).to(figures.device)
    scores = wsfast.self_scores(E, W)
    some = torch.arange(pairs, device=figures.device)
    position, candidate = some % n, some * (V // pairs)
    delta, phi = E[candidate] - X[position], baselines.layer(X, W)

    def by(backend: str) -> wsfast.SubstitutionResult:
        return wsfast.substitution_sensitivity(X, E, W, self_scores=scores, backend=backend)

    def definition() -> Tensor:
        with torch.device(figures.device):
            return baselines.batched_norms(X, W, phi, position, delta)

    native, closed = by("native"), by("torch")
    for name in ("top_position", "top_candidate"):
        if not torch.equal(getattr(native, name), getattr(closed, name)):
            raise ValueError(f"{name} of native and PyTorch differ")
    with torch.device(figures.device):
        products = baselines.SubstitutionProducts(X, E, W, self_scores=False)
    figures.compare(
        "substitution_sensitivity",
        f"n={n}, V={V}, d={d}, self-scores kept",
        lambda: by("native"),
        [
            Baseline("PyTorch closed form", lambda: by("torch")),
            Baseline("its matrix products", products.run),
            Baseline(
                "definition, batched",
                definition,
                share=pairs / (n * V),
                note=f"extrapolated from {pairs} of {n * V} pairs",
            ),
        ],
        seconds=8,
    )


def substitution_floor(figures: Figures) -> None:
    n, d, V = figures.sizes.n, figures.sizes.d, figures.sizes.V
    X, W = (x.to(figures.device) for x in text_and_weights(n, d))
    E = vocabulary(V, d).to(figures.device)
    scores = wsfast.self_scores(E, W)
    text = prepared(X, W, CUDA, 2**28)
    state = text.substitution(torch.arange(n, device=figures.device), X.dtype)
    columns = search._columns(figures.device, V // 2)
    tiles = CUDA.tiles(state, columns, text.budget, Workspace(figures.device))
    parts = [slice(first, first + columns) for first in range(0, V - columns + 1, columns)]
    figures.floor(
        "kernel substitution_tile with its products",
        f"n={n}, d={d}, {columns} candidates, float32",
        [lambda part=part: tiles.squares(E[part], scores[part]) for part in parts],
        floors.substitution_work(n, d, columns),
    )


MEASURES = (features, features_floor, ball, substitution, substitution_floor)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--dry-run", action="store_true")
    given = parser.parse_args()
    device = choose_device(dry_run=given.dry_run)
    torch.manual_seed(0)
    figures = Figures(given.out, device, given.seconds, dry_run=given.dry_run)
    for measure in MEASURES:
        figures.attempt(measure)
    return 1 if figures.errors else 0


if __name__ == "__main__":
    raise SystemExit(main())
