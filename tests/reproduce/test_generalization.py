"""The generalisation experiment: cells are those of the library, verdicts of the numbers."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest
import torch
from reproduce.tiny import GENERALIZATION, rows, verdicts

from wsfast.generalization import GeneralizationResult, experiment
from wsfast.reproduce import data, generalization, generalization_report
from wsfast.reproduce.data import Sample
from wsfast.reproduce.generalization_report import Findings
from wsfast.reproduce.seeds import draw_seed
from wsfast.reproduce.settings import Run

pytestmark = pytest.mark.needs("plots", "parquet")

LOSSES = ("feature", "alignment", "error")
TRAININGS = ("fine_tuning", "retraining")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A folder in which a run has ended."""
    folder = tmp_path_factory.mktemp("generalization")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generalization.estimate, "timed", lambda _: 1.0)
        generalization.run(GENERALIZATION, folder, "wsfast reproduce generalization …")
    return folder


@pytest.mark.deep
def test_trials_are_those_of_the_library(finished):
    trials = rows(finished / "trials.csv")
    assert len(trials) == 2 * 2 * 3 * 2 * 2 * 3
    for n in GENERALIZATION.ns:
        sample = data.synthetic(12, n, 8, 3)
        labels = torch.tensor(sample.labels).float()
        for name in ("raf", "rf"):
            for draw in range(3):
                for trial in range(2):
                    result = experiment(
                        *(sample.X[:10], labels[:10], sample.X[10 + trial], labels[10 + trial]),
                        map=name,
                        positions=[0],
                        seed=draw_seed(3, draw),
                    )
                    place = {"map": name, "n": str(n), "draw": str(draw), "trial": str(trial)}
                    found = [row for row in trials if place.items() <= row.items()]
                    assert [(row["training"], row["minimised"]) for row in found] == [
                        (training, loss) for training in TRAININGS for loss in LOSSES
                    ]
                    for of in ("error", "gamma", "lower_bound", "output_before", "alignment"):
                        np.testing.assert_allclose(
                            [float(row[of]) for row in found],
                            getattr(result, of).flatten().numpy(),
                            rtol=1e-4,
                            atol=1e-6,
                        )
                    assert {row["position"] for row in found} == {"0"}


def test_summary_is_over_draws(finished):
    trials, summary = rows(finished / "trials.csv"), rows(finished / "summary.csv")
    assert len(summary) == 2 * 2 * 2 * 3
    for line in summary:
        same = ("map", "n", "training", "minimised")
        chosen = [row for row in trials if all(row[name] == line[name] for name in same)]
        by_draw = [
            np.mean([float(row["error"]) for row in chosen if row["draw"] == str(draw)])
            for draw in range(3)
        ]
        half = 4.302653 * np.std(by_draw, ddof=1) / 3**0.5  # t of 2 degrees of freedom
        mean = np.mean(by_draw)
        found = [float(line[name]) for name in ("Err", "low", "high")]
        np.testing.assert_allclose(found, [mean, mean - half, mean + half], rtol=1e-5)
        bound = np.mean([float(row["lower_bound"]) for row in chosen])
        assert float(line["bound"]) == pytest.approx(bound)


def test_everything_is_there(finished):
    report = (finished / "report.md").read_text(encoding="utf-8")
    names = {path.name for path in finished.iterdir()} - {"cells", "report.md"}
    assert {"generalization.png", "generalization.svg", "trials.csv", "summary.csv"} <= names
    for name in names:
        assert f"[{name}]({name})" in report
    assert "wsfast reproduce generalization …" in report
    assert report.splitlines()[-1].startswith("This run took ")
    found = verdicts(finished)
    assert len(found) == 2 * 2 * 3 + 1
    assert found[-1] == (
        "the same with N = 1,100 reviews of n = 40 and n = 120 words",
        "not tested here (quick)",
    )
    assert {verdict for _, verdict in found[:-1]} <= {"agrees", "differs"}


@pytest.mark.deep
def test_finished_cells_are_taken_over(finished, monkeypatch):
    before = (finished / "trials.csv").read_bytes()
    (finished / "cells" / "raf-n5-draw1.npz").unlink()
    made = []
    real = generalization._experiment
    monkeypatch.setattr(
        generalization, "_experiment", lambda *a, **k: made.append((a[2], k)) or real(*a, **k)
    )
    generalization.run(GENERALIZATION, finished, "")
    # What is timed before, with a smaller size, is of the same kind.
    assert {cell for cell, _ in made} == {Run("raf", 5, 1)}
    assert [size for _, size in made].count({}) == 1
    assert (finished / "trials.csv").read_bytes() == before


def test_cells_are_whole_files(finished):
    names = sorted(os.listdir(finished / "cells"))
    assert len(names) == 12 + 1
    result = GeneralizationResult.load(finished / "cells" / "rf-n4-draw2.npz")
    assert result.error.shape == (2, 2, 3)
    assert result.info["D"] == 4 * 8


def test_other_settings_are_refused(finished):
    with pytest.raises(ValueError, match="N 10, now 9"):
        generalization.run(replace(GENERALIZATION, N=9), finished, "")


@pytest.mark.deep
def test_reviews(tmp_path, monkeypatch):
    """The last texts of the sample are those of which a word changes."""
    asked = []

    def reviews(model, count, n, seed, *, progress):
        asked.append((model, count, n, seed))
        sample = data.synthetic(count, n, 8, seed)
        return Sample(sample.X, sample.labels, short=7, repeated=1)

    monkeypatch.setattr(data, "reviews", reviews)
    monkeypatch.setattr(generalization.estimate, "timed", lambda _: 1.0)
    settings = replace(GENERALIZATION, dataset="imdb", model="minilm", ns=(4,), draws=2)
    generalization.run(settings, tmp_path, "")
    assert asked == [("minilm", 12, 4, 3)]
    sample = data.synthetic(12, 4, 8, 3)
    labels = torch.tensor(sample.labels).float()
    result = experiment(
        *(sample.X[:10], labels[:10], sample.X[10:], labels[10:]),
        positions=[0],
        seed=draw_seed(3, 1),
    )
    found = [
        float(row["error"])
        for row in rows(tmp_path / "trials.csv")
        if (row["map"], row["draw"]) == ("raf", "1")
    ]
    np.testing.assert_allclose(found, result.error.flatten(), rtol=1e-4, atol=1e-6)
    report = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "7 shorter ones and 1 that begin like another were left out" in report


def test_settings_of_the_command(monkeypatch):
    monkeypatch.setattr(data, "dimension", lambda _: 384)
    full = generalization.settings("imdb", "minilm", 2, quick=False)
    assert (full.N, full.ns, full.d, full.seed) == (1100, (40, 120), 384, 2)
    assert not full.quick
    quick = generalization.settings("synthetic", None, 0, quick=True)
    assert (quick.model, quick.N, quick.quick) == (None, 80, True)


# -- how long it takes -----------------------------------------------------------------------------


def test_estimate_grows_with_what_is_asked_for(monkeypatch):
    """Each call takes 1 s and 2 s for each text of which a word changes."""
    monkeypatch.setattr(generalization.estimate, "timed", lambda sample: sample())
    monkeypatch.setattr(generalization, "_experiment", lambda *_, T, **__: 1.0 + 2.0 * T)
    settings = replace(GENERALIZATION, d=1000, ns=(4,), N=20, T=10)
    left = [Run("raf", 4, 1), Run("rf", 4, 0), Run("rf", 4, 1)]
    seconds = generalization._estimate(settings, {4: None}, left)
    assert seconds["raf, n = 4"] == pytest.approx(1 + 2 * 10)
    # 4,000 features instead of 2,048: twice of everything but solving.
    assert seconds["rf, n = 4"] == pytest.approx(4000 / 2048 * (1 + 2 * 10), rel=1e-3)
    more = generalization._estimate(replace(settings, N=200), {4: None}, left[:1])
    assert more.keys() == {"raf, n = 4"}
    assert more["raf, n = 4"] > 3 + 2 * 10


# -- claims ----------------------------------------------------------------------------------------


def findings(errors, bounds=None, *, draws=3):
    """Results of which the Err of a map for each loss is given; γ is 0 where no bound is."""
    settings = replace(GENERALIZATION, ns=(16,), draws=draws, quick=False)
    results = {}
    for name, by_loss in errors.items():
        for draw in range(draws):
            error = torch.tensor(by_loss).expand(2, 2, 3) * (1 + 0.001 * draw)
            bound = torch.tensor((bounds or {}).get(name, [4.0] * 3)).expand(2, 2, 3)
            rest = dict.fromkeys(GeneralizationResult.__dataclass_fields__, torch.zeros(2, 2, 3))
            rest |= {"error": error.double(), "lower_bound": bound.double()}
            results[Run(name, 16, draw)] = GeneralizationResult(**rest)
    return Findings(settings, results)


def verdicts_of(found):
    return [claim.verdict for claim in generalization_report._claims_of(found, 16, "retraining")]


RF = [3.9, 3.9, 3.9]


@pytest.mark.parametrize(
    ("errors", "bounds", "expected"),
    [
        ({"raf": [1.0, 1.0, 0.0], "rf": RF}, None, "aaa"),
        # Up to 1/√16: (2 - 0.25)² = 3.06.
        ({"raf": [1.0, 1.0, 0.0], "rf": [3.9, 3.1, 3.9]}, None, "aaa"),
        ({"raf": [1.0, 1.0, 0.0], "rf": [3.9, 3.0, 3.9]}, None, "daa"),
        ({"raf": [1.0, 1.0, 0.0], "rf": [3.9, 0.3, 3.9]}, {"rf": [4.0, 0.25, 4.0]}, "aaa"),
        ({"raf": [1.0, 1.0, 0.02], "rf": RF}, None, "ada"),
        ({"raf": [1.0, 1.0, 5.0], "rf": RF}, None, "add"),
    ],
)
def test_verdicts(errors, bounds, expected):
    words = {"a": "agrees", "d": "differs"}
    assert verdicts_of(findings(errors, bounds)) == [words[letter] for letter in expected]
