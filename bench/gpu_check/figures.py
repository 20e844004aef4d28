"""What is timed: ``python -m bench.gpu_check.figures NAME... [--dry-run]``.

Ratios of calls; and single kernels, as called, within a CUDA graph, where the host does not count,
and as the profiler lists them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

import wsfast
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
from .machine import Clock, choose_device, in_turn, product_precision, record

Run = Callable[[], object]
STEPS = 16  # of an ascent in one call
CACHE = 2**28  # bytes that no cache holds


class Bench:
    """Measures on one device; on the CPU in tiny sizes."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.clock, self.real = device, Clock(device), device.type == "cuda"
        self.n, self.d, self.V, self.texts = (128, 768, 30_522, B) if self.real else (8, 16, 60, 2)

    def length(self, n: int) -> int:
        return n if self.real else n // 64

    def text(self, n: int) -> tuple[Tensor, Tensor]:
        X, W = text_and_weights(n, self.d)
        return X.to(self.device), W.to(self.device)

    def batch(self, n: int) -> tuple[Tensor, Tensor]:
        """X (B, n, d) and W."""
        X, W = self.text(n * self.texts)
        return X.view(self.texts, n, -1), W

    def compare(self, operation: str, run: Run, others: Sequence[Baseline]) -> None:
        """Time of `run` in units of the others'."""
        seconds = self.clock.median(run)
        for other in others:
            ratio = seconds / self.clock.median(other.run) * other.share
            most = other.at_most
            record(
                "figure",
                what=f"{operation}, d={self.d}, against {other.name}",
                figure=ratio_text(ratio),
                seconds=seconds,
                stick="" if most is None else f"≤ {ratio_text(most)}",
                met=None if most is None or not self.real else ratio <= most,
                note=other.note,
            )

    def time(self, what: str, run: Run, share: float = 1) -> None:
        record("time", what=what, us=self.clock.median(run) * 1e6 * share)

    def case(self, name: str, runs: Sequence[Run], per_call: int = 1) -> None:
        """`runs`, each with inputs of its own; each counts as `per_call` of what is told."""
        share = 1 / len(runs) / per_call
        self.time(name, in_turn(runs), share)
        self.time(f"{name}, in a graph", self.clock.in_graph(runs), share)
        with torch.profiler.profile() as profile:
            in_turn(runs)()
            if self.real:
                torch.cuda.synchronize()
        for event in profile.key_averages():
            if event.device_type.name.lower() == self.device.type:
                us = event.self_device_time_total if self.real else event.self_cpu_time_total
                launches, kernel = event.count * share, event.key[:160]
                record("kernel", case=name, kernel=kernel, us=us * share, launches=launches)


# -- features --------------------------------------------------------------------------------------


def features(bench: Bench) -> None:
    for n in map(bench.length, (128, 512)):
        X, W = bench.batch(n)
        by = partial(wsfast.raf_features, X, W)
        exact = wsfast.raf_features(X.double(), W.double(), backend="reference")
        error = float((by(backend="native").double() - exact).abs().max() / exact.abs().max())
        if not error <= 1e-4:
            raise ValueError(f"features of {n} words are off by {error}")
        others = [
            Baseline("PyTorch backend", partial(by, backend="torch")),
            Baseline("sdpa in float32, XW included", partial(sdpa, X[:, None], W)),
            Baseline("definition", partial(by, backend="reference")),
        ]
        bench.compare(f"raf_features, n={n}, batch {len(X)}", partial(by, backend="native"), others)


def sdpa(words: Tensor, W: Tensor) -> Tensor:
    return scaled_dot_product_attention(words @ W, words, words)


def features_kernels(bench: Bench) -> None:
    record("rates", **bench.clock.rates()._asdict())
    given = FeatureOptions(WeightFn("softmax"), mask=None, causal=False)
    for n in (64, 128, 256, 512):
        X, W = bench.batch(bench.length(n))
        copies = range(-(-CACHE // X.nbytes) if bench.real else 1)
        words = [X.roll(shift, -1) for shift in copies]
        pairs = [(x, (x @ W)[:, None].contiguous()) for x in words]
        bench.case(f"features n={n}", [partial(CUDA.features, *pair, given) for pair in pairs])


def products(bench: Bench) -> None:
    """Of a library: float32 as TF32 in two parts, three times as many sums, against float32."""
    n, m = (512, TILE) if bench.real else (8, 16)
    for what, columns, texts in (("features", n, B), ("substitution", m, 1)):
        for precision, times in (("tf32", 3), ("ieee", 1)):
            a, b = (
                torch.randn(texts, rows, times * bench.d, device=bench.device)
                for rows in (n, columns)
            )
            with product_precision(precision):
                bench.time(f"product of {what}, {precision}", partial(torch.bmm, a, b.mT))


# -- the search over the ball ----------------------------------------------------------------------


def ball(bench: Bench) -> None:
    X, W = bench.batch(bench.n)
    by = partial(wsfast.raf_sensitivity, X, W)
    native, closed = (by(backend=name).value for name in ("native", "torch"))
    # Both are lower bounds of one supremum; where they end depends on rounding.
    if not bool((native >= 0.98 * closed).all()):
        raise ValueError(f"S {native.tolist()}, by PyTorch {closed.tolist()}")
    phi = baselines.layer(X[0], W)
    starts, steps, count = 4, 40, 16
    rows = torch.arange(count, device=bench.device) // starts
    some = directions(count, bench.d).to(bench.device)

    def definition() -> object:
        with bench.device:
            return baselines.batched_norms_and_gradient(X[0], W, phi, rows, some)

    others = [
        Baseline("PyTorch closed form", partial(by, backend="torch"), at_most=1 / 5),
        Baseline(
            f"definition, batched, autograd, {starts} starts × {steps} steps",
            definition,
            share=count / (len(X) * bench.n * starts * steps),
            note=f"extrapolated from {count} texts of 1 step",
        ),
    ]
    what = f"raf_sensitivity, n={bench.n}, batch {len(X)}"
    bench.compare(what, partial(by, backend="native"), others)


def objective_of(bench: Bench, n: int) -> AttentionObjective:
    text = prepared(*bench.text(n), CUDA, 2**28)
    state = text.in_dtype(text.state(torch.arange(n, device=bench.device)), torch.float32)
    return AttentionObjective(CUDA, state, momentum=True)


def steps_of(objective: AttentionObjective, starts: int) -> Run:
    d = objective.width
    start = directions(objective.places, starts, d).to(objective.device)
    return partial(explore, objective, start, Limits(d**0.5, 1e-4), STEPS)


def ascent_kernels(bench: Bench) -> None:
    objective = objective_of(bench, bench.n)
    for starts in (1, 4):
        bench.case(f"ascent M={128 * starts}", [steps_of(objective, starts)], STEPS)


def small_basis(bench: Bench) -> None:
    """Whether the small basis, made by QR, pays."""
    n = bench.n // 2 if bench.real else 2
    objective = objective_of(bench, n)
    rows = torch.randn(bench.d, 3 * n, device=bench.device)
    state = objective.state.project(torch.linalg.qr(rows).Q)
    inside = AttentionObjective(CUDA, state, momentum=True)
    bench.time(f"QR of {bench.d} × {3 * n}", partial(torch.linalg.qr, rows))
    bench.time(f"{STEPS} steps in {bench.d} dimensions", steps_of(objective, 4))
    bench.time(f"{STEPS} steps in {3 * n}", steps_of(inside, 4))


# -- the search over a vocabulary ------------------------------------------------------------------


def substitution(bench: Bench) -> None:
    n, V, pairs = bench.n, bench.V, 32
    X, W = bench.text(n)
    E = vocabulary(V, bench.d).to(bench.device)
    scores = wsfast.self_scores(E, W)
    some = torch.arange(pairs, device=bench.device)
    position, candidate = some % n, some * (V // pairs)
    delta, phi = E[candidate] - X[position], baselines.layer(X, W)
    by = partial(wsfast.substitution_sensitivity, X, E, W, self_scores=scores)

    def definition() -> Tensor:
        with bench.device:
            return baselines.batched_norms(X, W, phi, position, delta)

    native, closed = by(backend="native"), by(backend="torch")
    for name in ("top_position", "top_candidate"):
        if not torch.equal(getattr(native, name), getattr(closed, name)):
            raise ValueError(f"{name} of native and PyTorch differ")
    with bench.device:
        alone = baselines.SubstitutionProducts(X, E, W, self_scores=False)
    others = [
        Baseline("PyTorch closed form", partial(by, backend="torch")),
        Baseline("its matrix products", alone.run),
        Baseline(
            "definition, batched",
            definition,
            share=pairs / (n * V),
            note=f"extrapolated from {pairs} of {n * V} pairs",
        ),
    ]
    what = f"substitution_sensitivity, n={n}, V={V}, self-scores kept"
    bench.compare(what, partial(by, backend="native"), others)


def tile_kernels(bench: Bench) -> None:
    """Tiles of candidates at all positions."""
    X, W = bench.text(bench.n)
    E = vocabulary(bench.V, bench.d).to(bench.device)
    scores = wsfast.self_scores(E, W)
    text = prepared(X, W, CUDA, 2**28)
    state = text.substitution(torch.arange(bench.n, device=bench.device), X.dtype)
    columns = search._columns(bench.device, min(TILE, bench.V))
    tiles = CUDA.tiles(state, columns, text.budget, Workspace(bench.device))
    firsts = range(0, bench.V - columns + 1, columns)
    parts = [(E[first : first + columns], scores[first : first + columns]) for first in firsts]
    bench.case("substitution", [partial(tiles.squares, *part) for part in parts])


KERNELS = (features_kernels, ascent_kernels, tile_kernels, small_basis, products)
NAMES = {run.__name__: run for run in (*KERNELS, ball, features, substitution)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", choices=NAMES, nargs="+")
    parser.add_argument("--dry-run", action="store_true")
    given = parser.parse_args()
    bench = Bench(choose_device(dry_run=given.dry_run))
    for name in given.names:
        NAMES[name](bench)


if __name__ == "__main__":
    main()
