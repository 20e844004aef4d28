"""Scaling laws: text and picture."""

from __future__ import annotations

import math
import re
import sys

import pytest
from results.tables import table

from wsfast.results.scaling import ScalingResult


def law(n, d, r):
    """Slopes -0.4, -0.5 and -0.6."""
    return d * n ** (-0.6 + 0.1 * r)


def test_repr():
    assert repr(table(lambda n, d, r: (n + r) / 4, (2, 16), (8, 100))) == (
        "ScalingResult(12 cells\n"
        "  map   n    d  mean S       ±  replicates\n"
        "  raf   2    8  0.7500  0.6210           3\n"  # 4.3027 · 0.25 / √3
        "  raf  16    8  4.2500  0.6210           3\n"
        "  raf   2  100  0.7500  0.6210           3\n"
        "  raf  16  100  4.2500  0.6210           3)"
    )


def test_repr_of_little():
    assert repr(ScalingResult((), {})) == "ScalingResult(0 cells)"
    assert repr(table(lambda n, d, r: math.nan, (2,), replicates=1)) == (
        "ScalingResult(1 cell\n"
        "  map  n  d  mean S  ±  replicates\n"
        "  raf  2  8     nan              1)"
    )


def test_repr_of_a_long_table():
    lines = repr(table(lambda n, d, r: 1.0, range(1, 31))).split("\n")
    assert len(lines) == 2 + 20 + 1
    assert lines[11].split()[:2] == ["raf", "10"]
    assert lines[12] == "  ... 10 more"
    assert lines[13].split()[:2] == ["raf", "21"]
    assert lines[-1].split()[:2] == ["raf", "30"]
    assert len(repr(table(lambda n, d, r: 1.0, range(1, 21))).split("\n")) == 2 + 20


# -- picture ---------------------------------------------------------------------------------------


@pytest.fixture
def ax():
    from matplotlib.figure import Figure

    return Figure().subplots()


def lines(ax):
    """Points of each line, and its label."""
    return {
        line.get_label(): list(zip(*line.lines[0].get_data(), strict=True))
        for line in ax.containers
    }


@pytest.mark.needs("plots")
def test_a_line_for_each_map_and_dimension(ax):
    result = ScalingResult.concat(
        [table(law, (1, 4, 16), (8, 64)), table(lambda n, d, r: 2.0, (1, 16), name="rf")]
    )
    assert result.plot(ax) is ax
    drawn = lines(ax)
    assert [label.partition(":")[0] for label in drawn] == [
        "rf, d = 8",
        "raf, d = 8",
        "raf, d = 64",
    ]
    flat, low, _ = drawn.values()
    assert flat == [(1, 2), (16, 2)]
    assert [n for n, _ in low] == [1, 4, 16]
    assert low[1][1] == pytest.approx(8 * sum(4**power for power in (-0.4, -0.5, -0.6)) / 3)
    assert "rf, d = 8: slope 0.00 [0.00, 0.00]" in drawn
    assert "raf, d = 8: slope -0.50 [-0.60, -0.40]" in drawn
    assert [text.get_text() for text in ax.get_legend().get_texts()] == list(drawn)
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    assert "words" in ax.get_xlabel()
    ax.figure.draw_without_rendering()


@pytest.mark.needs("plots")
def test_bars_are_t_intervals(ax):
    result = table(lambda n, d, r: n + r, (8, 10))
    result.plot(ax)
    (container,) = ax.containers
    (bars,) = container.lines[2]
    low, high = bars.get_segments()[0][:, 1]
    assert (low, high) == pytest.approx((result.means()[0].low, result.means()[0].high))


@pytest.mark.needs("plots")
def test_along_d(ax):
    table(lambda n, d, r: n * d, (2, 3), (4, 8)).plot(ax, along="d")
    assert lines(ax) == {
        "raf, n = 2: slope 1.00 [1.00, 1.00]": [(4, 8), (8, 16)],
        "raf, n = 3: slope 1.00 [1.00, 1.00]": [(4, 12), (8, 24)],
    }
    assert "dimension" in ax.get_xlabel()


@pytest.mark.needs("plots")
def test_numbers_are_written_plainly(ax):
    table(lambda n, d, r: n / 100, (10, 40, 80)).plot(ax)
    ax.figure.draw_without_rendering()
    for axis in (ax.xaxis, ax.yaxis):
        labels = {tick.get_text() for tick in axis.get_ticklabels(which="both")} - {""}
        assert labels
        assert all(re.fullmatch(r"[0-9]+(\.[0-9]+)?", label) for label in labels)


@pytest.mark.needs("plots")
def test_lines_without_a_law(ax):
    ScalingResult.concat(
        [
            table(lambda n, d, r: 0.0 if r else 1.0, (2, 4)),
            table(lambda n, d, r: math.nan, (2, 4), name="relu_raf"),
            table(lambda n, d, r: 1.0, (2,), name="rf"),
            table(law, (2, 4), replicates=1, name="drf"),
        ]
    ).plot(ax)
    assert list(lines(ax)) == [
        "rf, d = 8: no slope, a single n",
        "drf, d = 8: slope -0.60",
        "raf, d = 8: no slope, an S is 0.0",
        "relu_raf, d = 8: no slope, an S is nan",
    ]
    ax.figure.draw_without_rendering()


@pytest.mark.needs("plots")
def test_nothing_to_draw(ax):
    ScalingResult((), {}).plot(ax)
    assert ax.get_legend() is None
    ax.figure.draw_without_rendering()


@pytest.mark.needs("plots")
def test_without_axes_a_pyplot_figure_is_made(monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "agg")
    from matplotlib import pyplot as plt

    ax = table(law, (2, 4)).plot()
    assert [plt.figure(number) for number in plt.get_fignums()] == [ax.figure]
    plt.close("all")


def test_bad_axis():
    with pytest.raises(ValueError, match="along must be 'n' or 'd', got 'k'"):
        table(law, (2, 4)).plot(along="k")


def test_missing_matplotlib_names_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pip install 'wsfast\[plots\]'"):
        table(law, (2, 4)).plot()
