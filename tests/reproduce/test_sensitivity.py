"""S against n: the cells are those of the library, the verdicts those of the numbers."""

from __future__ import annotations

import json
import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from reproduce.tiny import SENSITIVITY, rows, verdicts

import wsfast
from wsfast.reproduce import data, sensitivity, sensitivity_report
from wsfast.reproduce.data import Sample
from wsfast.reproduce.seeds import draw_seed
from wsfast.reproduce.sensitivity_report import Findings, finite_slope
from wsfast.reproduce.settings import SeriesCell
from wsfast.results.cells import Cell
from wsfast.results.scaling import ScalingResult
from wsfast.studies.scaling.texts import gaussian_text

pytestmark = [pytest.mark.deep, pytest.mark.needs("plots", "parquet")]

MAPS = {
    "RAF": lambda X, seed: wsfast.raf_sensitivity(X, seed=seed),
    "ReLU-RAF": lambda X, seed: wsfast.raf_sensitivity(X, seed=seed, weight_fn="relu"),
    "RF, k = 12": lambda X, seed: wsfast.rf_sensitivity(X, seed=seed, k=12),
    "RF, k = nd": lambda X, seed: wsfast.rf_sensitivity(X, seed=seed),
    "DRF, L = 2, k = 12": lambda X, seed: wsfast.drf_sensitivity(X, seed=seed, k=12, depth=2),
    "DRF, L = 3, k = 12": lambda X, seed: wsfast.drf_sensitivity(X, seed=seed, k=12, depth=3),
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A folder in which a run has ended."""
    folder = tmp_path_factory.mktemp("sensitivity")
    sensitivity.run(SENSITIVITY, folder, "wsfast reproduce sensitivity …")
    return folder


@pytest.mark.deep
def test_cells_are_those_of_the_library(finished):
    cells = rows(finished / "cells.csv")
    assert len(cells) == 2 * 2 * (5 * 3 + 2)
    assert {cell["series"] for cell in cells} == MAPS.keys()
    for cell in cells:
        n, d, replicate = (int(cell[name]) for name in ("n", "d", "replicate"))
        seed = draw_seed(SENSITIVITY.seed, replicate)
        result = MAPS[cell["series"]](gaussian_text(4, d, seed=seed, draw=0)[:n], seed)
        assert float(cell["S"]) == pytest.approx(float(result), rel=1e-6)
        assert int(cell["position"]) == int(result.position)
        assert cell["k"] == str(result.info.get("k", ""))


def test_means_and_slopes(finished):
    cells, means = rows(finished / "cells.csv"), rows(finished / "means.csv")
    assert len(means) == 2 * (5 * 3 + 2)
    for mean in means:
        same = ("series", "n", "d")
        values = [float(c["S"]) for c in cells if all(c[name] == mean[name] for name in same)]
        assert float(mean["mean"]) == pytest.approx(np.mean(values))
        assert mean["replicates"] == "2"
    for slope in rows(finished / "slopes.csv"):
        other, at = slope["at"].split(" = ")
        points = [
            (math.log(float(c[slope["along"]])), math.log(float(c["S"])))
            for c in cells
            if c["series"] == slope["series"] and c[other] == at
        ]
        fitted = np.polyfit(*zip(*points, strict=True), 1)[0]
        assert float(slope["slope"]) == pytest.approx(fitted)
        assert float(slope["low"]) <= float(slope["slope"]) <= float(slope["high"])


def test_everything_is_there(finished):
    report = (finished / "report.md").read_text(encoding="utf-8")
    names = {path.name for path in finished.iterdir()} - {"cells", "report.md"}
    assert {"sensitivity.png", "sensitivity.svg", "cells.csv"} <= names
    for name in names:
        assert f"[{name}]({name})" in report
    assert "wsfast reproduce sensitivity …" in report
    assert f"| seed | {SENSITIVITY.seed} |" in report
    assert f"| torch | {torch.__version__} |" in report
    assert report.splitlines()[-1].startswith("This run took ")
    assert len(verdicts(finished)) == 2 * 8 + 2
    assert (finished / "sensitivity.png").read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in (finished / "sensitivity.svg").read_bytes()


def test_finished_cells_are_taken_over(finished, monkeypatch):
    before = (finished / "cells.csv").read_bytes()
    monkeypatch.setattr("wsfast.studies.scaling.measure.Measure.cell", None)
    monkeypatch.setattr(sensitivity.estimate, "seconds", lambda work: {w.name: 1.0 for w in work})
    sensitivity.run(SENSITIVITY, finished, "")
    assert (finished / "cells.csv").read_bytes() == before


def test_folders_without_bounds_are_told_as_before_there_were_any(finished):
    kept = json.loads((finished / "cells" / "settings.json").read_text())
    assert kept.keys().isdisjoint({"bound"})
    with pytest.raises(ValueError, match="bound None, now True"):
        sensitivity.run(replace(SENSITIVITY, bound=True), finished, "")


def test_attention_is_bounded_where_that_is_asked_for(tmp_path):
    sensitivity.run(replace(SENSITIVITY, ds=(24,), bound=True), tmp_path, "")
    report = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert report.count(", proved | ") == 3
    assert "mean U" in report
    cells = rows(tmp_path / "cells.csv")
    for cell in cells:
        assert float(cell["S"]) <= float(cell["upper"])
    for bracket in rows(tmp_path / "brackets.csv"):
        same = [c for c in cells if all(c[name] == bracket[name] for name in ("series", "n", "d"))]
        assert float(bracket["mean U"]) == pytest.approx(np.mean([float(c["upper"]) for c in same]))
        ratios = [float(c["upper"]) / float(c["S"]) for c in same]
        assert float(bracket["largest U/S"]) == pytest.approx(max(ratios))


def test_other_settings_are_refused(finished):
    with pytest.raises(ValueError, match="seed 3, now 4"):
        sensitivity.run(replace(SENSITIVITY, seed=4), finished, "")


@pytest.mark.deep
def test_reviews(tmp_path, monkeypatch):
    """Each replicate has its own review, and its first n words."""
    asked = {}

    def reviews(model, count, n, seed, *, progress):
        asked.update(model=model, count=count, n=n, seed=seed)
        return Sample(torch.randn(count, n, 6), [1] * count, short=7, repeated=1)

    monkeypatch.setattr(data, "reviews", reviews)
    settings = replace(SENSITIVITY, dataset="imdb", model="minilm", ds=(6,))
    torch.manual_seed(5)
    sensitivity.run(settings, tmp_path, "")
    assert asked == {"model": "minilm", "count": 2, "n": 4, "seed": 3}
    torch.manual_seed(5)
    texts = torch.randn(2, 4, 6)
    for cell in rows(tmp_path / "cells.csv"):
        n, replicate = int(cell["n"]), int(cell["replicate"])
        result = MAPS[cell["series"]](texts[replicate, :n], draw_seed(3, replicate))
        assert float(cell["S"]) == pytest.approx(float(result), rel=1e-6)
    report = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "7 shorter ones and 1 that begin like another were left out" in report


# -- settings --------------------------------------------------------------------------------------


def test_sizes_of_the_command(monkeypatch):
    monkeypatch.setattr(data, "dimension", lambda model: {"minilm": 384, "mpnet": 768}[model])
    full = sensitivity.settings("imdb", "minilm", 0, quick=False)
    assert (full.ns[0], full.ns[-1], len(full.ns)) == (10, 96, 6)
    assert full.ns_wide == full.ns
    for model, wide in (("minilm", (10, 20)), ("mpnet", (5, 10))):
        quick = sensitivity.settings("imdb", model, 0, quick=True)
        assert (quick.ns, quick.ns_wide) == ((10, 22, 48), wide)
    synthetic = sensitivity.settings("synthetic", None, 1, quick=False)
    assert synthetic.ds == (192, 384, 768)
    assert (synthetic.ns[-1], synthetic.seed) == (48, 1)


@pytest.mark.parametrize("d", [1, 4, 16, 33, 100])
@pytest.mark.parametrize("quick", [True, False])
def test_any_dimension_has_several_n(monkeypatch, d, quick):
    monkeypatch.setattr(data, "dimension", lambda model: d)
    settings = sensitivity.settings("imdb", "small", 0, quick=quick)
    for ns in (settings.ns, settings.ns_wide):
        assert len(ns) >= 2
        assert list(ns) == sorted(set(ns))
        assert ns[0] >= 1
        assert ns[-1] <= settings.ns[-1]


# -- claims ----------------------------------------------------------------------------------------


def findings(depths=(2, 3), **laws):
    """Cells that follow laws S(n, d), with a little noise between replicates."""
    settings = replace(
        SENSITIVITY, ds=(32, 64), ns=(8, 16, 32), ns_wide=(8, 32), replicates=3, depths=depths
    )
    truth = {
        "raf": lambda n, d, L: 3.0,
        "relu_raf": lambda n, d, L: 2.0 * n**-0.2,
        "rf": lambda n, d, L: n**-0.5,
        "wide": lambda n, d, L: (1 + n**-0.5) * n**-0.5,
        "drf": lambda n, d, L: 1.5 ** (L - 1) * n**-0.5,
        **laws,
    }
    series = sensitivity.series_of(settings)
    points = []
    for one in series:
        law = truth["wide" if one.options.get("k", 1) is None else one.map]
        for d in settings.ds:
            for replicate in range(one.replicates):
                for n in one.ns:
                    S = law(n, d, one.options.get("depth", 1)) * (1 + 0.001 * replicate)
                    points.append(SeriesCell(one.name, replicate, Cell(one.map, n, d, 0, 0, S, 0)))
    return Findings(settings, series, points)


def differing(found):
    """(source, first words of the claim) of those that differ, for the first d and along d."""
    claims = sensitivity_report._claims(found)
    return [c.source for c in claims if c.verdict == "differs" and "d = 64" not in c.claim]


def test_slopes_of_all_values_between_s_and_its_bound():
    """U is 1.2 S: any two values may differ by so much."""
    found = findings()
    for one in found.series:
        rows = found.results[one.name].rows
        raised = tuple(cell._replace(upper=1.2 * cell.S) for cell in rows)
        found.results[one.name] = ScalingResult(raised, {})
    assert found.bounded
    raf, rf = found.named("raf"), found.named("rf", k=SENSITIVITY.k)
    low, high = found.extreme_slopes(raf, 32)
    # Of n = 8, 16, 32: the middle one has no weight.
    assert low.value == pytest.approx(-math.log(1.2) / math.log(4), abs=1e-3)
    assert high.value == pytest.approx(math.log(1.2) / math.log(4), abs=1e-3)
    plain = found.log_ratio(raf, rf, 32, [32]).value
    proved = found.log_ratio(raf, rf, 32, [32], upper=(False, True)).value
    assert proved == pytest.approx(plain - math.log(1.2))
    agreed = [claim.verdict for claim in sensitivity_report._proved_at(found, 32)]
    assert agreed == ["differs", "agrees", "agrees"]


@pytest.mark.parametrize("depths", [(2, 3), (2, 4), (3, 5, 6)])
def test_all_agree_where_the_laws_hold(depths):
    claims = sensitivity_report._claims(findings(depths))
    assert len(claims) == 14 + 2 * len(depths)
    assert {claim.verdict for claim in claims} == {"agrees"}


@pytest.mark.parametrize(
    ("laws", "expected"),
    [
        ({"rf": lambda n, d, L: 32**-0.1 * n**-0.4}, ["Theorem 1"]),
        ({"rf": lambda n, d, L: n**-0.9}, []),  # an upper bound
        ({"wide": lambda n, d, L: n**-0.5}, ["law at finite n"]),
        ({"drf": lambda n, d, L: 1.5 ** (L - 1) * n**-0.4}, ["Theorem 2"] * 2),
        ({"drf": lambda n, d, L: 1.2 ** (L * L - 1) * n**-0.5}, ["Theorem 2"]),
        ({"raf": lambda n, d, L: 3.0 * n**-0.1}, ["Theorem 3"]),
        ({"raf": lambda n, d, L: 3.0 * n**0.1}, []),  # a lower bound
        ({"raf": lambda n, d, L: 0.1}, ["Theorems 1 and 3", "ReLU attention"]),
        ({"relu_raf": lambda n, d, L: 3.001}, ["ReLU attention"]),
        ({"wide": lambda n, d, L: (1 + n**-0.5) * (d / n) ** 0.5}, ["Theorem 1"]),
        ({"raf": lambda n, d, L: 300 * d**-1.0}, ["Theorem 3"]),
    ],
)
def test_a_law_that_is_broken_differs(laws, expected):
    assert differing(findings(**laws)) == expected


def test_growth_that_only_begins_late_differs():
    """Unevenly spread depths: log S rises by 0.1 for the second layer, then by 0.3 for each."""
    found = findings((2, 4), drf=lambda n, d, L: np.exp({2: 0.1, 4: 0.7}[L]) * n**-0.5)
    (growth,) = (
        claim
        for claim in sensitivity_report._claims(found)
        if "further layer" in claim.claim and "d = 32" in claim.claim
    )
    assert growth.verdict == "differs"
    assert "rise of the growth of log S 0.200 [" in growth.measured
    assert "1.105 from L = 1 to 2, 1.350 from L = 2 to 4" in growth.measured


def test_slope_of_the_finite_law():
    n = 1e8
    assert finite_slope([n, 2 * n]) == pytest.approx(-0.5, abs=1e-4)
    two = math.log(((1 + 0.25) / 4) / ((1 + 0.5) / 2)) / math.log(4)
    assert finite_slope([4, 16]) == pytest.approx(two)


def test_no_warnings_while_drawing(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sensitivity_report.figures.save(
            tmp_path, "a", (8.0, 5.0), lambda figure: sensitivity_report._draw(findings(), figure)
        )
    assert (tmp_path / "a.svg").stat().st_size > 1000
