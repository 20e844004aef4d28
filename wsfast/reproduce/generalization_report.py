"""Tables, picture, claims and report of the generalisation experiment."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from wsfast.reproduce import claims, figures, report, tables
from wsfast.reproduce.claims import Claim, Interval
from wsfast.reproduce.tables import Table
from wsfast.results.arrays import to_numpy
from wsfast.results.generalization import FIGURES, GeneralizationResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from wsfast.reproduce.data import Sample
    from wsfast.reproduce.settings import GeneralizationSettings, Run

TITLE = "Texts whose label one word turns round"
REACHED = 0.01  # an Err below this is 0: 4 is that of a model which does not see the change
TRAININGS = ("fine_tuning", "retraining")
LOSSES = ("feature", "alignment", "error")
_NAMES = {"raf": "RAF", "rf": "RF"}


def write(
    out: Path,
    settings: GeneralizationSettings,
    samples: Mapping[int, Sample],
    results: Mapping[Run, GeneralizationResult],
    *,
    command: str,
    seconds: float,
) -> None:
    """Write everything that a run leaves behind."""
    found = Findings(settings, results)
    made = [_trials(settings, results), _summary(found)]
    files = [name for table in made for name in tables.write(table, out)]
    files += figures.save(
        out, "generalization", (9.0, 3.6 * len(settings.ns)), lambda figure: _draw(found, figure)
    )
    texts = [f"Texts: {sample.described(settings.model)}" for sample in samples.values()]
    report.write(
        out,
        TITLE,
        claims=_claims(found),
        notes=[
            *texts,
            f"The first {settings.N} are learnt, with the labels of the data; the other "
            f"{settings.T} are each learnt in addition, by fine-tuning or re-training. Then word "
            f"{settings.position} of such a text changes by the Δ that minimises a loss, and the "
            "label with it. Err is the squared error on the changed text: 4 for a model that does "
            "not see the change, 0 for one that does. RF has k = nd features. Intervals are over "
            f"{settings.draws} draws of the weights, each the mean of {settings.T} texts.",
        ],
        figure="generalization.png",
        table=report.markdown(tuple(made[1].columns), made[1].rows()),
        files=files,
        settings=asdict(settings),
        command=command,
        seconds=seconds,
    )


class Findings:
    """Figures of each draw, averaged over the texts of which a word changes."""

    def __init__(
        self, settings: GeneralizationSettings, results: Mapping[Run, GeneralizationResult]
    ) -> None:
        self.settings = settings
        self._results = results

    def by_draw(self, name: str, feature_map: str, n: int, training: str, loss: str) -> list[float]:
        """Mean over texts of a figure, for each draw."""
        return self._means(feature_map, n, training, loss, lambda result: figure(result, name))

    def missed(self, feature_map: str, n: int, training: str, loss: str) -> list[float]:
        """Mean over texts of √Err - (2 - γ)₊, for each draw."""
        return self._means(
            feature_map,
            n,
            training,
            loss,
            lambda result: (
                np.sqrt(figure(result, "error")) - np.sqrt(figure(result, "lower_bound"))
            ),
        )

    def _means(self, feature_map: str, n: int, training: str, loss: str, of: Any) -> list[float]:
        at = TRAININGS.index(training), LOSSES.index(loss)
        return [
            float(of(result)[(slice(None), *at)].mean())
            for cell, result in self._results.items()
            if (cell.map, cell.n) == (feature_map, n)
        ]


def figure(result: GeneralizationResult, name: str) -> NDArray[np.float64]:
    """A figure (trial, training, loss) of a result."""
    values: NDArray[np.float64] = to_numpy(getattr(result, name))
    return values


def _claims(found: Findings) -> list[Claim]:
    settings = found.settings
    listed = [
        claim
        for n in settings.ns
        for training in TRAININGS
        for claim in _claims_of(found, n, training)
    ]
    if settings.quick:
        listed.append(
            Claim(
                "experiments",
                "the same with N = 1,100 reviews of n = 40 and n = 120 words",
                f"N = {settings.N}, n = {', '.join(map(str, settings.ns))}",
                claims.UNTESTED,
            )
        )
    return listed


def _claims_of(found: Findings, n: int, training: str) -> list[Claim]:
    where = f"{training.replace('_', '-')}, n = {n}, N = {found.settings.N}"
    missed = {loss: claims.mean_of(found.missed("rf", n, training, loss)) for loss in LOSSES}
    worst = min(missed, key=lambda loss: missed[loss].value)
    slack = 1 / math.sqrt(n)
    listed = [
        Claim(
            "generalisation, RF",
            f"RF: Err is at least (2 - γ)² up to O(1/√n), whatever Δ is ({where})",
            f"√Err - (2 - γ) is smallest for the loss “{worst}”: {missed[worst]}; 1/√n is "
            f"{slack:.3f}",
            claims.at_least(missed[worst], -slack),
        )
    ]
    reached = claims.mean_of(found.by_draw("error", "raf", n, training, "error"))
    listed.append(
        Claim(
            "generalisation, RAF",
            f"RAF: a Δ makes Err 0 ({where}, loss “error”)",
            f"Err {reached}",
            claims.below(reached, REACHED),
        )
    )
    raf, rf = (found.by_draw("error", name, n, training, "error") for name in ("raf", "rf"))
    means = [float(np.mean(errors)) for errors in (raf, rf)]
    less = claims.mean_of(np.subtract(raf, rf).tolist())
    listed.append(
        Claim(
            "generalisation",
            f"RAF sees a changed word better than RF: smaller Err ({where}, loss “error”)",
            f"{claims.written('Err {} against {}', *means)}, difference {less}",
            claims.below(less, 0.0),
        )
    )
    return listed


# -- tables ----------------------------------------------------------------------------------------


def _trials(settings: GeneralizationSettings, results: Mapping[Run, GeneralizationResult]) -> Table:
    header = ("map", "n", "N", "draw", "trial", "training", "minimised", "position", *FIGURES)
    rows = []
    for cell, result in results.items():
        columns = [figure(result, name) for name in ("position", *FIGURES)]
        for trial, t, k in np.ndindex(columns[0].shape):
            names = (cell.map, cell.n, settings.N, cell.draw, trial, TRAININGS[t], LOSSES[k])
            rows.append((*names, *(column[trial, t, k].item() for column in columns)))
    return Table.of_rows("trials", header, rows)


def _summary(found: Findings) -> Table:
    header = ("map", "n", "training", "minimised", "Err", "low", "high", "bound", "alignment")
    rows = []
    for n in found.settings.ns:
        for name in found.settings.maps:
            for training in TRAININGS:
                for loss in LOSSES:
                    at = (name, n, training, loss)
                    err = claims.mean_of(found.by_draw("error", *at))
                    bound, alignment = (
                        float(np.mean(found.by_draw(of, *at)))
                        for of in ("lower_bound", "alignment")
                    )
                    rows.append((name, n, training, loss, *err, bound, alignment))
    return Table.of_rows("summary", header, rows)


# -- picture ---------------------------------------------------------------------------------------


def _draw(found: Findings, figure: Figure) -> None:
    ns = found.settings.ns
    axes = figure.subplots(len(ns), 2, squeeze=False, sharey=True)
    for row, n in zip(axes, ns, strict=True):
        for ax, training in zip(row, TRAININGS, strict=True):
            _draw_errors(found, n, training, ax)
            ax.set_title(f"{training.replace('_', '-')}, n = {n}")
        row[0].set_ylabel("Err, mean and 95 % interval")
    axes[0, 0].legend(fontsize="small")


def _draw_errors(found: Findings, n: int, training: str, ax: Axes) -> None:
    maps = found.settings.maps
    width = 0.8 / len(maps)
    for number, name in enumerate(maps):
        left = np.arange(len(LOSSES)) - 0.4 + number * width
        errors: list[Interval] = [
            claims.mean_of(found.by_draw("error", name, n, training, loss)) for loss in LOSSES
        ]
        means = [err.value for err in errors]
        spread = [
            [err.value - err.low for err in errors],
            [err.high - err.value for err in errors],
        ]
        ax.bar(left, means, width, align="edge", yerr=spread, capsize=3, label=_NAMES[name])
        bounds = [np.mean(found.by_draw("lower_bound", name, n, training, loss)) for loss in LOSSES]
        ax.hlines(
            bounds,
            left,
            left + width,
            colors="black",
            linestyles="dashed",
            label="_" if number else "(2 - γ)²",  # once in the legend
        )
    ax.set_xticks(range(len(LOSSES)), labels=[f"loss “{loss}”" for loss in LOSSES])
