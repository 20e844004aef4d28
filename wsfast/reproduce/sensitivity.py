"""Word sensitivity against the number of words: Theorems 1 to 3."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
from torch import Tensor

from wsfast._progress import progress_bar
from wsfast.reproduce import data, estimate, sensitivity_report
from wsfast.reproduce.estimate import Work
from wsfast.reproduce.folder import cells_of
from wsfast.reproduce.seeds import draw_seed
from wsfast.reproduce.settings import SensitivitySettings, Series, SeriesCell
from wsfast.results.cells import Cell
from wsfast.studies.scaling.study import scaling

# The longest text of a quick run, and the most features n d of it where k = n d.
_QUICK_LENGTH = 48
_QUICK_WIDTH = 7680


def settings(
    dataset: str, model: str | None, seed: int, *, quick: bool, bound: bool = False
) -> SensitivitySettings:
    """Settings of the command; a quick run has fewer and smaller texts."""
    random_ds = (64, 128) if quick else (192, 384, 768)
    ds = random_ds if model is None else (data.dimension(model),)
    # From 10 to d/4 words, or fewer where d is small: Theorem 3 is about d large against n.
    first = min(10, max(2, ds[0] // 16))
    last = max(ds[0] // 4, 2 * first)
    if not quick:
        ns = _spread(first, last, 6)
        return SensitivitySettings(dataset, model, ds, ns, 10, 2048, (2, 4), ns, 3, seed, bound)
    ns = _spread(first, min(last, _QUICK_LENGTH), 3)
    widest = max(2, min(ns[-1], _QUICK_WIDTH // ds[-1]))
    return SensitivitySettings(
        dataset, model, ds, ns, 4, 512, (2, 3), (widest // 2, widest), 3, seed, bound
    )


def _spread(first: int, last: int, count: int) -> tuple[int, ...]:
    """Integers from `first` to `last`, evenly spread in their logarithm."""
    return tuple(sorted({round(n) for n in np.geomspace(first, last, count)}))


def series_of(settings: SensitivitySettings) -> list[Series]:
    """The curves, in the order of tables and legends."""
    ns, count, k = settings.ns, settings.replicates, settings.k
    attention = {"bound": True} if settings.bound else {}
    return [
        Series("RAF", "raf", ns, count, attention),
        Series("ReLU-RAF", "relu_raf", ns, count, attention),
        Series(f"RF, k = {k}", "rf", ns, count, {"k": k}),
        Series("RF, k = nd", "rf", settings.ns_wide, settings.replicates_wide, {"k": None}),
        *(
            Series(f"DRF, L = {depth}, k = {k}", "drf", ns, count, {"depth": depth, "k": k})
            for depth in settings.depths
        ),
    ]


def run(settings: SensitivitySettings, out: Path, command: str, *, progress: bool = False) -> None:
    """Write report.md, tables and pictures into `out`; finished cells there are taken over."""
    start = time.perf_counter()
    cells = cells_of(out, "sensitivity", settings.told())
    sample = None
    if settings.model is not None:
        sample = data.reviews(
            settings.model, settings.replicates, settings.ns[-1], settings.seed, progress=progress
        )
    texts = None if sample is None else sample.X
    series = series_of(settings)
    work = [_work(one, settings, texts) for one in series]
    seconds = estimate.seconds(work)
    estimate.announce(seconds)
    unit = {one.name: seconds[one.name] / one.operations for one in work}
    keys = list(_keys(series, settings.ds))
    parts = estimate.parts([unit[one.name] * one.operations(n, d) for one, d, n, _ in keys])
    points = []
    with progress_bar(sum(parts), "part", progress) as bar:
        for (one, d, n, replicate), part in zip(keys, parts, strict=True):
            points.append(
                SeriesCell(one.name, replicate, _cell(one, d, n, replicate, settings, texts, cells))
            )
            bar.update(part)
    sensitivity_report.write(
        out,
        settings,
        series,
        points,
        sample=sample,
        command=command,
        seconds=time.perf_counter() - start,
    )


def _keys(series: list[Series], ds: tuple[int, ...]) -> Iterator[tuple[Series, int, int, int]]:
    for one in series:
        for d in ds:
            for replicate in range(one.replicates):
                for n in one.ns:
                    yield one, d, n, replicate


def _cell(
    one: Series,
    d: int,
    n: int,
    replicate: int,
    settings: SensitivitySettings,
    texts: Tensor | None,
    cells: Path | None,
) -> Cell:
    """S of one text of n words; the replicate has its own text and weights, the same for all n."""
    path = None if cells is None else cells / one.name.replace(" ", "") / f"replicate{replicate}"
    result = scaling(
        one.map,
        n,
        d if texts is None else None,
        texts=None if texts is None else [texts[replicate]],
        draws=1,
        seed=draw_seed(settings.seed, replicate),
        path=path,
        **one.options,
    )
    return result.rows[0]


def _work(one: Series, settings: SensitivitySettings, texts: Tensor | None) -> Work:
    """What is to be done for a series, and pieces of it."""
    sizes = sorted((one.operations(n, d), n, d) for d in settings.ds for n in one.ns)
    return Work(
        one.name,
        one.replicates * sum(cost for cost, _, _ in sizes),
        [(cost, partial(_cell, one, d, n, 0, settings, texts, cells=None)) for cost, n, d in sizes],
    )
