"""Texts whose label one word turns round: generalisation of RF and of RAF."""

from __future__ import annotations

import time
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch

from wsfast._progress import progress_bar
from wsfast.generalization import GeneralizationResult, experiment
from wsfast.reproduce import data, estimate, generalization_report
from wsfast.reproduce.data import Sample
from wsfast.reproduce.folder import cells_of
from wsfast.reproduce.seeds import draw_seed
from wsfast.reproduce.settings import GeneralizationSettings, Run

# Of what is timed for the estimate.
_TIMED_TEXTS = 60
_TIMED_FEATURES = 2048


def settings(dataset: str, model: str | None, seed: int, *, quick: bool) -> GeneralizationSettings:
    """Settings of the command: the paper's, or small ones for a quick run."""
    return GeneralizationSettings(
        dataset=dataset,
        model=model,
        d=(64 if quick else 384) if model is None else data.dimension(model),
        ns=(8,) if quick else (40, 120),
        N=80 if quick else 1100,
        T=5 if quick else 10,
        draws=6 if quick else 5,
        maps=("raf", "rf"),
        quick=quick,
        seed=seed,
    )


def run(
    settings: GeneralizationSettings, out: Path, command: str, *, progress: bool = False
) -> None:
    """Write report.md, tables and pictures into `out`; finished cells there are taken over."""
    start = time.perf_counter()
    folder = cells_of(out, "generalization", asdict(settings))
    samples = {n: _sample(settings, n, progress) for n in settings.ns}
    cells = [
        Run(name, n, draw)
        for n in settings.ns
        for name in settings.maps
        for draw in range(settings.draws)
    ]
    left = [cell for cell in cells if not (folder / cell.file).exists()]
    seconds = _estimate(settings, samples, left)
    estimate.announce(
        {kind: value * sum(cell.kind == kind for cell in left) for kind, value in seconds.items()}
    )
    parts = estimate.parts([seconds[cell.kind] for cell in left])
    with progress_bar(sum(parts), "part", progress) as bar:
        for cell, part in zip(left, parts, strict=True):
            _experiment(settings, samples[cell.n], cell).save(folder / cell.file)
            bar.update(part)
    results = {cell: GeneralizationResult.load(folder / cell.file) for cell in cells}
    generalization_report.write(
        out,
        settings,
        samples,
        results,
        command=command,
        seconds=time.perf_counter() - start,
    )


def _sample(settings: GeneralizationSettings, n: int, progress: bool) -> Sample:
    """Texts to learn from, then those of which a word changes."""
    count = settings.N + settings.T
    if settings.model is None:
        return data.synthetic(count, n, settings.d, settings.seed)
    return data.reviews(settings.model, count, n, settings.seed, progress=progress)


def _experiment(
    settings: GeneralizationSettings,
    sample: Sample,
    cell: Run,
    *,
    N: int | None = None,
    T: int | None = None,
    k: int | None = None,
) -> GeneralizationResult:
    """Learn from the first texts; the last of the sample are those of which a word changes.

    N, T and k are smaller than those of the settings where a small piece is timed.
    """
    N, T = N or settings.N, T or settings.T
    labels = torch.tensor(sample.labels, dtype=sample.X.dtype, device=sample.X.device)
    options: dict[str, Any] = {} if cell.map == "raf" else {"k": k}
    return experiment(
        sample.X[:N],
        labels[:N],
        sample.X[-T:],
        labels[-T:],
        map=cell.map,
        positions=[settings.position],
        seed=draw_seed(settings.seed, cell.draw),
        **options,
    )


# -- how long it takes -----------------------------------------------------------------------------


def _estimate(
    settings: GeneralizationSettings, samples: dict[int, Sample], left: list[Run]
) -> dict[str, float]:
    """Seconds of a cell of each kind that is left.

    Learning and searching are told apart by timing one text of which a word changes, then two.
    """
    seconds = {}
    for cell in {cell.kind: cell for cell in left}.values():
        N = min(settings.N, _TIMED_TEXTS)
        k = cell.n * settings.d
        small = k if cell.map == "raf" else min(k, _TIMED_FEATURES)
        one, two = (
            estimate.timed(partial(_experiment, settings, samples[cell.n], cell, N=N, T=T, k=small))
            for T in (1, 2)
        )
        search = max(two - one, 0.1 * one)
        more = _operations(settings, cell, settings.N, k) / _operations(settings, cell, N, small)
        learning = max(one - search, 0.0)
        seconds[cell.kind] = learning * more + settings.T * search * k / small
    return seconds


def _operations(settings: GeneralizationSettings, cell: Run, N: int, k: int) -> float:
    """Features of N texts, their Gram matrix, and solving with it."""
    words = cell.n * settings.d
    # Making a number of V takes as long as so many products with it.
    of_text = words * (settings.d + 2 * cell.n)
    features = N * of_text if cell.map == "raf" else k * words * (N + 30)
    return float(features + N * N * k + N**3)
