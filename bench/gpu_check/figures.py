"""What is timed: ``python -m bench.gpu_check.figures NAME... [--dry-run]``.

Ratios of calls; and single kernels, as called, within a CUDA graph, where the host does not count,
and as the profiler lists them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial

import torch
from torch import Tensor
from torch.utils.benchmark import Timer

import wsfast
from wsfast._precision import full_precision, tf32_products
from wsfast.attention.weight_fn import WeightFn
from wsfast.engines.cuda import CUDA
from wsfast.engines.features import FeatureOptions
from wsfast.engines.substitution_kernels import Workspace
from wsfast.maps.attention_objective import AttentionObjective
from wsfast.search.ascent import Limits, explore
from wsfast.studies.substitution import search

from .. import baselines
from ..inputs import directions, prepared, text_and_weights, vocabulary
from ..measure import Baseline, ratio_text
from .floors import TILE, B
from .machine import choose_device
from .report import record

Run = Callable[..., object]
STEPS = 16  # of an ascent in one call
CACHE = 2**28  # bytes that no cache holds
BUDGET = 2**28  # bytes of memory


def in_turn(runs: Sequence[Run]) -> None:
    for run in runs:
        run()


def captured(runs: Sequence[Run]) -> Run:
    """A call of them as one graph: no time of the host between them."""
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        runs[0]()  # libraries prepare for a stream in their first call
    with torch.cuda.graph(graph, stream=stream):
        in_turn(runs)
    return graph.replay


class Bench:
    """Measures on one device; on the CPU in tiny sizes, and without graphs."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.real = device, device.type == "cuda"
        self.d, self.V, self.texts = (768, 30_522, B) if self.real else (16, 60, 2)

    def text(self, n: int) -> tuple[Tensor, Tensor]:
        """X (n, d) and W."""
        X, W = text_and_weights(n if self.real else n // 16, self.d)
        return X.to(self.device), W.to(self.device)

    def batch(self, n: int) -> tuple[Tensor, Tensor]:
        """X (B, n, d) and W."""
        X, W = self.text(n * self.texts)
        return X.view(self.texts, -1, self.d), W

    def seconds(self, run: Run) -> float:
        """Of a warm call, from its first launch to its last kernel's end."""
        most = 0.5 if self.real else 0.01
        timer = Timer("run()", globals={"run": run}, num_threads=torch.get_num_threads())
        return timer.adaptive_autorange(min_run_time=most / 10, max_run_time=most).median

    def product_seconds(self, a: Tensor, b: Tensor, *, tf32: bool) -> float:
        with full_precision(), tf32_products() if tf32 else nullcontext():
            return self.seconds(partial(torch.matmul, a, b))

    def compare(
        self, operation: str, by: Run, *others: Baseline, at_most: float | None = None
    ) -> None:
        """Time of `by` with the kernels in units of PyTorch's and the others'."""
        seconds = self.seconds(partial(by, backend="native"))
        closed = Baseline("PyTorch backend", partial(by, backend="torch"), at_most=at_most)
        for other in (closed, *others):
            ratio = seconds / self.seconds(other.run) * other.share
            most = other.at_most
            record(
                "figure",
                what=f"{operation}, d={self.d}, against {other.name}",
                figure=ratio_text(ratio),
                seconds=seconds,
                stick="" if most is None else f"≤ {ratio_text(most)}",
                met=None if most is None else ratio <= most,
            )

    def time(self, what: str, run: Run, share: float = 1) -> None:
        record("time", what=what, us=self.seconds(run) * 1e6 * share)

    def case(self, name: str, runs: Sequence[Run], per_call: int = 1) -> None:
        """`runs`, each with inputs of its own; each counts as `per_call` of what is told."""
        share, run = 1 / len(runs) / per_call, partial(in_turn, runs)
        self.time(name, run, share)
        self.time(f"{name}, in a graph", captured(runs) if self.real else run, share)
        with torch.profiler.profile() as profile:
            run()
        for event in profile.key_averages():
            if event.device_type.name.lower() == self.device.type:
                us = event.self_device_time_total if self.real else event.self_cpu_time_total
                launches, kernel = event.count * share, event.key[:160]
                record("kernel", case=name, kernel=kernel, us=us * share, launches=launches)


# -- features --------------------------------------------------------------------------------------


def features(bench: Bench) -> None:
    for n in (128, 512):
        X, W = bench.batch(n)
        by = partial(wsfast.raf_features, X, W)
        exact = wsfast.raf_features(X.double(), W.double(), backend="reference")
        most = 1e-4 * float(exact.abs().max())
        torch.testing.assert_close(by(backend="native").double(), exact, rtol=0, atol=most)
        bench.compare(
            f"raf_features, n={X.shape[1]}, batch {len(X)}",
            by,
            Baseline("sdpa, XW included", partial(baselines.sdpa_features, X, W)),
            Baseline("definition", partial(by, backend="reference")),
        )


def features_kernels(bench: Bench) -> None:
    """With the rates that the card reaches: of a large copy and two large products."""
    size = 2**14 if bench.real else 2**7
    a, b = torch.randn(2, size, size, device=bench.device)
    tf32, float32 = (2 * size**3 / bench.product_seconds(a, b, tf32=on) for on in (True, False))
    record("rates", bytes=2 * a.nbytes / bench.seconds(a.clone), tf32=tf32, float32=float32)
    given = FeatureOptions(WeightFn("softmax"), mask=None, causal=False)
    for n in (64, 128, 256, 512):
        X, W = bench.batch(n)
        copies = range(-(-CACHE // X.nbytes) if bench.real else 1)
        words = [X.roll(shift, -1) for shift in copies]
        pairs = [(x, (x @ W)[:, None].contiguous()) for x in words]
        bench.case(f"features n={n}", [partial(CUDA.features, *pair, given) for pair in pairs])


def products(bench: Bench) -> None:
    """Of a library: float32 as TF32 in two parts, three times as many sums, against float32."""
    n, m = (512, TILE) if bench.real else (8, 16)
    for what, columns, texts in (("features", n, B), ("substitution", m, 1)):
        for precision, times in (("tf32", 3), ("ieee", 1)):
            a = torch.randn(texts, n, times * bench.d, device=bench.device)
            b = torch.randn(texts, columns, times * bench.d, device=bench.device)
            seconds = bench.product_seconds(a, b.mT, tf32=precision == "tf32")
            record("time", what=f"product of {what}, {precision}", us=seconds * 1e6)


# -- the search over the ball ----------------------------------------------------------------------


def ball(bench: Bench) -> None:
    X, W = bench.batch(128)
    n = X.shape[1]
    by = partial(wsfast.raf_sensitivity, X, W)
    native, closed = (by(backend=name).value for name in ("native", "torch"))
    # Both are lower bounds of one supremum; where they end depends on rounding.
    if not bool((native >= 0.98 * closed).all()):
        raise ValueError(f"S {native.tolist()}, by PyTorch {closed.tolist()}")
    starts, steps, count = 4, 40, 16
    rows = torch.arange(count, device=bench.device) // starts
    some, phi = directions(count, bench.d).to(bench.device), baselines.layer(X[0], W)
    definition = Baseline(
        f"definition, batched, autograd, extrapolated from {count} texts of 1 step",
        partial(baselines.batched_norms_and_gradient, X[0], W, phi, rows, some),
        share=count / (len(X) * n * starts * steps),
    )
    bench.compare(f"raf_sensitivity, n={n}, batch {len(X)}", by, definition, at_most=1 / 5)


def objective_of(bench: Bench, n: int) -> AttentionObjective:
    text = prepared(*bench.text(n), CUDA, BUDGET)
    state = text.in_dtype(text.state(torch.arange(len(text.X), device=bench.device)), torch.float32)
    return AttentionObjective(CUDA, state, momentum=True)


def steps_of(objective: AttentionObjective, starts: int) -> Run:
    d = objective.width
    start = directions(objective.places, starts, d).to(objective.device)
    return partial(explore, objective, start, Limits(d**0.5, 1e-4), STEPS)


def ascent_kernels(bench: Bench) -> None:
    objective = objective_of(bench, 128)
    for starts in (1, 4):
        bench.case(f"ascent M={128 * starts}", [steps_of(objective, starts)], STEPS)


def small_basis(bench: Bench) -> None:
    """Whether the small basis, made by QR, pays."""
    objective = objective_of(bench, 64)
    columns = 3 * objective.places
    rows = torch.randn(bench.d, columns, device=bench.device)
    state = objective.state.project(torch.linalg.qr(rows).Q)
    inside = AttentionObjective(CUDA, state, momentum=True)
    bench.time(f"QR of {bench.d} × {columns}", partial(torch.linalg.qr, rows))
    bench.time(f"{STEPS} steps in {bench.d} dimensions", steps_of(objective, 4))
    bench.time(f"{STEPS} steps in {columns}", steps_of(inside, 4))


# -- the search over a vocabulary ------------------------------------------------------------------


def substitution(bench: Bench) -> None:
    X, W = bench.text(128)
    n, V, pairs = len(X), bench.V, 32
    E = vocabulary(V, bench.d).to(bench.device)
    some = torch.arange(pairs, device=bench.device)
    position, candidate = some % n, some * (V // pairs)
    delta, phi = E[candidate] - X[position], baselines.layer(X, W)
    scores = wsfast.self_scores(E, W)
    by = partial(wsfast.substitution_sensitivity, X, E, W, self_scores=scores)
    native, closed = by(backend="native"), by(backend="torch")
    torch.testing.assert_close(native.top_position, closed.top_position)
    torch.testing.assert_close(native.top_candidate, closed.top_candidate)
    definition = Baseline(
        f"definition, batched, extrapolated from {pairs} pairs",
        partial(baselines.batched_norms, X, W, phi, position, delta),
        share=pairs / (n * V),
    )
    bench.compare(f"substitution_sensitivity, n={n}, V={V}, self-scores kept", by, definition)


def tile_kernels(bench: Bench) -> None:
    """Tiles of candidates at all positions."""
    X, W = bench.text(128)
    E = vocabulary(bench.V, bench.d).to(bench.device)
    scores = wsfast.self_scores(E, W)
    text = prepared(X, W, CUDA, BUDGET)
    state = text.substitution(torch.arange(len(X), device=bench.device), X.dtype)
    columns = search._columns(bench.device, min(TILE, bench.V))
    tiles = CUDA.tiles(state, columns, text.budget, Workspace(bench.device))
    firsts = range(0, bench.V - columns + 1, columns)
    parts = [(E[first : first + columns], scores[first : first + columns]) for first in firsts]
    bench.case("substitution", [partial(tiles.squares, *part) for part in parts])


KERNELS = (features_kernels, ascent_kernels, tile_kernels, small_basis, products)
FIGURES = {run.__name__: run for run in (*KERNELS, ball, features, substitution)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", choices=FIGURES, nargs="+")
    parser.add_argument("--dry-run", action="store_true")
    given = parser.parse_args()
    bench = Bench(choose_device(dry_run=given.dry_run))
    for name in given.names:
        FIGURES[name](bench)


if __name__ == "__main__":
    main()
