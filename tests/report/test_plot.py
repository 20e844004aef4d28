"""Pictures."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
from results.sensitivities import many, one

from wsfast.report.sensitivity import save_figure

pytestmark = pytest.mark.needs("plots")


@pytest.fixture
def ax():
    from matplotlib.figure import Figure

    return Figure().subplots()


@pytest.fixture
def pyplot(monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "agg")
    from matplotlib import pyplot as plt

    yield plt
    plt.close("all")


def bars(ax):
    return [(round(bar.get_x() + bar.get_width() / 2, 9), bar.get_height()) for bar in ax.patches]


def test_a_bar_for_each_word(ax):
    result = one([1.0, math.nan, 3.0, 2.0], ["so", "it", "$is$", "me"])
    assert result.plot(ax) is ax
    assert bars(ax) == [(0, 1), (2, 3), (3, 2)]
    labels = ax.get_xticklabels()
    assert [label.get_text() for label in labels] == ["so", "it", "$is$", "me"]
    assert [label.get_fontweight() for label in labels] == ["normal", "normal", "bold", "normal"]
    assert not any(label.get_parse_math() for label in labels)
    assert ax.get_title() == (
        "word sensitivity S = 3.000\nof the feature map\nfound by search, a lower bound"
    )
    ax.figure.draw_without_rendering()


def test_larger_is_darker(ax):
    one([1.0, 3.0, 2.0]).plot(ax)
    low, high, middle = (sum(bar.get_facecolor()[:3]) for bar in ax.patches)
    assert low > middle > high


def test_many_words_name_the_worst(ax):
    per_word = [1.0 + i % 7 / 10 for i in range(200)]
    per_word[150] = 2.0
    one(per_word, [f"w{i}" for i in range(200)]).plot(ax)
    names = [note.get_text() for note in ax.texts]
    assert len(names) == 8
    assert names[0] == "w150"
    assert len(ax.get_xticks()) < 20
    ax.figure.draw_without_rendering()


def test_draws_have_an_interval(ax):
    result = many([[1, 6], [2, 6], [3, 6]], ("draws",), ["a", "b"])
    result.plot(ax)
    assert bars(ax) == [(0, 2), (1, 6)]
    (errors,) = ax.collections
    low, high = errors.get_segments()[0][:, 1]
    assert high - low == pytest.approx(2 * 4.302652729749462 / math.sqrt(3))


@pytest.mark.parametrize("count", [3, 70])
def test_lines_reach_to_the_bounds(ax, count):
    bounds = np.full(count, math.nan)
    bounds[:2] = 1.5, 4
    one([1.0, 3.0, *[2.0] * (count - 2)], upper=bounds).plot(ax)
    (lines,) = ax.collections
    assert [line.tolist() for line in lines.get_segments()] == [
        [[0, 1], [0, 1.5]],
        [[1, 3], [1, 4]],
    ]
    (caps,) = ax.lines
    assert caps.get_xydata().tolist() == [[0, 1.5], [1, 4]]
    assert "bound" in ax.get_ylabel()
    assert [note.xy for note in ax.texts][:2] == ([] if count == 3 else [(1, 4), (2, 2)])
    ax.figure.draw_without_rendering()


def test_the_title_says_what_s_is_at_most(ax):
    one([1.0, 3.0], upper=np.array([1.5, 3.75])).plot(ax)
    assert ax.get_title().startswith("word sensitivity S = 3.000, at most 3.7500 (ratio 1.250)\n")


def test_one_draw_of_one_text(ax):
    result = many([[[1, 2], [3, 4]], [[5, 6], [7, 9]]], ("texts", "draws"))
    result.plot(ax, text=1, draw=0)
    assert bars(ax) == [(0, 5), (1, 6)]
    assert not ax.collections


LATIN = "so\u0301"
IN_STIX = "\u24ea"  # which DejaVu Sans has not; matplotlib brings both
IN_NONE = "\U0001f98a\u6771"  # in no font of matplotlib


@pytest.fixture
def fonts_of_matplotlib(monkeypatch):
    """As where no other font is installed."""
    import matplotlib as mpl
    from matplotlib import font_manager

    from wsfast.report import fonts

    home = str(mpl.get_data_path())
    entries = [one for one in font_manager.fontManager.ttflist if one.fname.startswith(home)]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", entries)
    monkeypatch.setattr(fonts, "_family_of", {})


@pytest.mark.parametrize("count", [3, 70])
def test_words_get_a_font_that_has_them(ax, fonts_of_matplotlib, tmp_path, count):
    words = [LATIN, f"{LATIN}{IN_STIX}", *["x"] * (count - 2)]
    result = one([2.0, 3.0, *[1.0] * (count - 2)], words)
    result.plot(ax)
    shown = ax.get_xticklabels() if count < 60 else ax.texts
    labels = {label.get_text(): label for label in shown}
    families = labels[words[1]].get_fontfamily()
    assert families[0] == "sans-serif"  # as matplotlib is set to
    assert "STIXGeneral" in families
    ax.figure.savefig(tmp_path / "a.png")  # a glyph that is missing would be a warning


def test_words_that_no_font_has_give_one_warning(ax, fonts_of_matplotlib, tmp_path):
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    words = ["東京", "한국", "हिन्दी", "ที่", "中文"] * 3 + [f"a{IN_NONE}b\u200d"]
    result = one([1.0 + i for i in range(16)], words)
    with pytest.warns(UserWarning, match=r"\(CJK, .*HANGUL.*\).*fonts-noto-cjk") as warned:
        result.plot(ax)
    assert len(warned) == 1
    ax.figure.savefig(tmp_path / "a.png")  # without another
    assert ax.get_xticklabels()[-1].get_text().startswith("a\u25a1\u25a1b")
    assert ax.get_xticklabels()[0].get_text() == "\u25a1\u25a1"
    assert dict(mpl.rcParams) == before


def test_nothing_known(ax):
    one([math.nan, math.nan]).plot(ax)
    assert not ax.patches
    ax.figure.draw_without_rendering()


def test_a_given_axes_leaves_pyplot_alone(ax, pyplot):
    before = dict(pyplot.rcParams)
    one([1.0, 2.0]).plot(ax)
    assert pyplot.get_fignums() == []
    assert dict(pyplot.rcParams) == before


def test_without_axes_a_pyplot_figure_is_made(pyplot):
    ax = one([1.0, 2.0]).plot()
    assert [pyplot.figure(number) for number in pyplot.get_fignums()] == [ax.figure]


@pytest.mark.parametrize("suffix", ["png", "pdf", "svg"])
def test_save_figure(tmp_path, suffix):
    path = tmp_path / f"a.{suffix}"
    save_figure(one([1.0, 2.0], ["a", "b"]), path)
    assert path.stat().st_size > 1000


def test_missing_matplotlib_names_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pip install 'wsfast\[plots\]'"):
        one([1.0]).plot()
