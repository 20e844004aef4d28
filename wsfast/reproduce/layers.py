"""Word sensitivity of trained heads on IMDb reviews, beside shuffled twins and the whole model."""

from __future__ import annotations

import time
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from wsfast._progress import progress_bar
from wsfast.reproduce import data, estimate, layers_report
from wsfast.reproduce.data import Beginnings
from wsfast.reproduce.folder import cells_of
from wsfast.reproduce.layers_runs import ChangedTexts, Model
from wsfast.reproduce.seeds import draw_seed
from wsfast.reproduce.settings import LARGE, SMALL, LayersSettings, Part
from wsfast.results.embedded import Embedded
from wsfast.results.layers import LayerSensitivityResult
from wsfast.text.layer_sensitivity import layer_sensitivity


def settings(model: str, seed: int, *, quick: bool) -> LayersSettings:
    """Settings of the command; a quick run has fewer and shorter reviews."""
    return LayersSettings(
        model=model,
        reviews=4 if quick else 12,
        n=24 if quick else 64,
        radii=(SMALL, LARGE) if quick else (0.03, SMALL, 0.3, LARGE),
        draws=1 if quick else 3,
        words=2 if quick else 3,
        quick=quick,
        seed=seed,
    )


def run(settings: LayersSettings, out: Path, command: str, *, progress: bool = False) -> None:
    """Write report.md, tables and pictures into `out`; finished cells there are taken over."""
    start = time.perf_counter()
    folder = cells_of(out, "layers", asdict(settings))
    sample = data.beginnings(
        settings.model, settings.reviews, settings.n, settings.seed, "words", progress=progress
    )
    parts = [part for review in range(settings.reviews) for part in _parts(settings, review)]
    left = [part for part in parts if not (folder / part.file).exists()]
    seconds = _estimate(settings, sample, left)
    estimate.announce(
        {kind: value * sum(part.kind == kind for part in left) for kind, value in seconds.items()}
    )
    shares = estimate.parts([seconds[part.kind] for part in left])
    with progress_bar(sum(shares), "part", progress) as bar:
        for part, share in zip(left, shares, strict=True):
            _done(settings, sample, part).save(folder / part.file)
            bar.update(share)
    layers_report.write(
        out,
        settings,
        sample,
        {part: _kind(part).load(folder / part.file) for part in parts},
        command=command,
        seconds=time.perf_counter() - start,
    )


def _parts(settings: LayersSettings, review: int) -> list[Part]:
    balls = [Part("ball", review, radius) for radius in settings.radii]
    return [*balls, Part("mask", review), Part("runs", review)]


def _kind(part: Part) -> Any:
    """Class of what a part of the work gives."""
    return ChangedTexts if part.kind == "runs" else LayerSensitivityResult


def _done(settings: LayersSettings, sample: Beginnings, part: Part) -> Any:
    """What a part of the work gives."""
    review = sample.taken[part.review]
    if part.kind == "runs":
        model = Model(settings.model)
        return model.changed_texts(review, settings.words, [settings.seed, part.review])
    return _sensitivity(settings, review, part, settings.draws)


def _sensitivity(
    settings: LayersSettings, review: Embedded, part: Part, draws: int
) -> LayerSensitivityResult:
    """S of all heads: of one radius, or of masks.

    The twins of a review are shuffled in its own way: an interval over reviews has their spread in
    it. They are the same at all radii.
    """
    options: dict[str, Any] = {"perturbation": "mask"}
    if part.radius is not None:
        options = {"relative_radius": [part.radius]}
    if draws:
        options |= {"control": "shuffled", "control_draws": draws}
    return layer_sensitivity(
        settings.model,
        review.text,
        seed=draw_seed(settings.seed, part.review),
        max_tokens=settings.n,
        **options,
    )


# -- how long it takes -----------------------------------------------------------------------------


def _estimate(settings: LayersSettings, sample: Beginnings, left: list[Part]) -> dict[str, float]:
    """Seconds of a part of each kind that is left, from pieces of the first review.

    Shuffled twins take as long as the trained heads. The largest radius takes longest. Balls come
    last: a first call also warms up.
    """
    review, seconds = sample.taken[0], {}
    for part in reversed({part.kind: part for part in left}.values()):
        if part.kind == "runs":
            text = Model(settings.model).text(review)
            one = partial(text.changes, text.places[0], review.token_ids[text.places[0]])
            seconds[part.kind] = settings.words * len(text.places) * estimate.timed(one)
        else:
            trained = partial(_sensitivity, settings, review, part, 0)
            seconds[part.kind] = (1 + settings.draws) * estimate.timed(trained)
    return seconds
