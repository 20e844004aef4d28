"""Substitutions as lines of text, pictures and HTML."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from report.html_tags import ClosedTags
from results.substitutions import NAN, found

from wsfast.report.substitution import save_figure, summary
from wsfast.results.substitution import Substitution

THIRD = 1 / 3
TABLE = [[1.0, 4.0, NAN], [7.0, 2.0, 6.0], [3.0, 5.0, 0.5]]
ROWS = [
    Substitution(1, 17, 12.5, "love", "hate"),
    Substitution(0, 3, THIRD, "I"),
    Substitution(20, 4, 1.25e-5, "", "東京"),
]
CONTROL = "\x1b[2J"

# -- text ------------------------------------------------------------------------------------------


def test_summary():
    assert summary(ROWS, largest=True) == "largest change 12.500: 'love' -> 'hate' at position 1"
    assert summary(ROWS[1:], largest=False) == (
        "smallest change 0.33333: 'I' -> candidate 3 at position 0"
    )
    assert summary(ROWS[2:], largest=True) == "largest change 1.2500e-05: '東京' at position 20"
    assert summary([], largest=True) == "largest change: none is known"
    unknown = [Substitution(0, 1, NAN)]
    assert summary(unknown, largest=True) == "largest change nan: candidate 1 at position 0"


def test_control_characters_do_not_reach_the_terminal():
    rows = [Substitution(0, 0, 1.0, CONTROL, CONTROL)]
    assert "\x1b" not in summary(rows, largest=True)


# -- pictures --------------------------------------------------------------------------------------


@pytest.fixture
def ax():
    from matplotlib.figure import Figure

    return Figure(layout="constrained").subplots()


@pytest.fixture
def pyplot(monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "agg")
    from matplotlib import pyplot as plt

    yield plt
    plt.close("all")


def cells(ax):
    (image,) = ax.images
    return image.get_array().filled(NAN)


def frame(ax):
    """Row and column that the frame is around."""
    (patch,) = ax.patches
    x, y = patch.get_xy()
    assert (patch.get_width(), patch.get_height()) == (1, 1)
    return y + 0.5, x + 0.5


def labels(ticks):
    assert not any(label.get_parse_math() for label in ticks)
    return [label.get_text() for label in ticks]


def bold(ticks):
    return [label.get_text() for label in ticks if label.get_fontweight() == "bold"]


@pytest.mark.needs("plots")
@pytest.mark.parametrize("kind", ["torch", "numpy"])
def test_cells_are_the_changes(ax, kind):
    # Top pairs: (1, 0), (1, 2), (2, 1), (0, 1), (2, 0): candidates 0, 2, 1, each once.
    result = found(TABLE, k=5, kind=kind).with_words(["$a", "b$", "c"]).with_names(["$", "^_", ""])
    assert result.plot(ax) is ax
    np.testing.assert_array_equal(cells(ax), np.array(TABLE)[:, [0, 2, 1]])
    assert labels(ax.get_xticklabels()) == ["$", "2", "^_"]
    assert labels(ax.get_yticklabels()) == ["$a", "b$", "c"]
    assert (bold(ax.get_xticklabels()), bold(ax.get_yticklabels())) == (["$"], ["b$"])
    assert frame(ax) == (1, 0)
    assert ax.get_title() == "largest relative change 7.000\nof the feature map"
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("new word", "word")
    ax.figure.draw_without_rendering()


@pytest.mark.needs("plots")
def test_numbers_without_labels(ax):
    # (2, 2) and (0, 0); then 1, the best of the second position.
    found(TABLE, k=2, largest=False).plot(ax)
    np.testing.assert_array_equal(cells(ax), np.array(TABLE)[:, [2, 0, 1]])
    assert labels(ax.get_xticklabels()) == ["2", "0", "1"]
    assert labels(ax.get_yticklabels()) == ["0", "1", "2"]
    assert frame(ax) == (2, 0)
    assert ax.get_title() == "smallest relative change 0.5000\nof the feature map"
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("candidate", "position")


@pytest.mark.needs("plots")
def test_colors(ax):
    found(TABLE).plot(ax)
    (image,) = ax.images
    assert image.colorbar.ax.get_ylabel() == "relative change"
    assert image.get_clim() == (0.5, 7.0)
    red, green, blue = (image.to_rgba(image.get_array())[0, 1])[:3]  # (0, 2), not searched
    assert red == green == blue
    light, dark = (image.to_rgba(value)[:3] for value in (1.0, 6.0))
    assert sum(light) > sum(dark)


@pytest.mark.needs("plots")
def test_one_draw_of_one_text_without_padding(ax):
    tables = [[TABLE, np.add(TABLE, 10)], [[[1, 2, 3], [6, 5, 4], [NAN] * 3]] * 2]
    result = found(tables, ("texts", "draws"), k=2).with_words([["a", "b", "c"], ["x", "y"]])
    result.plot(ax, text=1, draw=1)
    np.testing.assert_array_equal(cells(ax), [[1, 2, 3], [6, 5, 4]])
    assert labels(ax.get_yticklabels()) == ["x", "y"]
    with pytest.raises(ValueError, match="text must be from 0 to 1, got 2"):
        result.plot(ax, text=2)
    with pytest.raises(ValueError, match="draw must be from 0 to 1, got 2"):
        result.plot(ax, draw=2)
    ax.clear()
    result.plot(ax, text=0, draw=1)
    np.testing.assert_array_equal(cells(ax), np.array(TABLE)[:, [0, 2, 1]] + 10)


# One candidate is the best everywhere; the others come next in the order 7, 3, 1, ...
DOMINATED = np.linspace(1, 2, 12)[:, None] * np.linspace(1, 2, 20)
DOMINATED[:, [7, 3, 1]] += [[5, 3, 2]]
BEST = [7, 3, 1, 19, 18, 17, 16, 15]


@pytest.mark.needs("plots")
def test_eight_candidates_where_one_is_the_best_everywhere(ax):
    result = found(DOMINATED, k=3)
    assert {row.candidate for row in result.top()} == {7}
    result.plot(ax)
    assert labels(ax.get_xticklabels()) == [str(v) for v in BEST]
    np.testing.assert_array_equal(cells(ax), DOMINATED[:, BEST])


@pytest.mark.needs("plots")
def test_positions_that_were_not_searched_are_left_out(ax):
    table = np.array([[NAN, NAN], [1.0, NAN], [NAN, NAN], [2.0, 3.0]])
    found(table).with_words(["a", "b", "c", "d"]).plot(ax)
    assert labels(ax.get_yticklabels()) == ["b", "d"]
    np.testing.assert_array_equal(cells(ax), [[NAN, 1], [3, 2]])
    assert frame(ax) == (1, 0)


@pytest.mark.needs("plots")
@pytest.mark.parametrize("table", [[[2.0]], [[NAN, 1e-30], [NAN, NAN]], [[0.0]], [[3.0, 3.0]]])
def test_few_cells(ax, table):
    found(table).plot(ax)
    assert cells(ax).shape == tuple(len({*known}) for known in np.nonzero(~np.isnan(table)))
    ax.figure.draw_without_rendering()


@pytest.mark.deep
@pytest.mark.needs("plots")
def test_many_positions_and_candidates(ax):
    table = 1 + np.arange(300)[:, None] * 7 % 300 / 300 + np.arange(100) / 1e5
    words = [f"w{i}" for i in range(300)]
    result = found(table, k=100).with_words(words).with_names([f"n{v}" for v in range(100)])
    result.plot(ax)
    best = result.top()[0]
    assert cells(ax).shape == (300, 100)
    assert frame(ax) == (best.position, 0)
    for axis, name in ((ax.yaxis, best.word), (ax.xaxis, best.name)):
        ticks = axis.get_ticklabels()
        assert 40 <= len(ticks) <= 60
        assert bold(ticks) == [name]
    where = dict(zip(labels(ax.get_yticklabels()), ax.get_yticks(), strict=True))
    assert all(word == f"w{row}" for word, row in where.items())
    ax.figure.draw_without_rendering()


@pytest.mark.needs("plots")
@pytest.mark.filterwarnings("ignore:no installed font")
@pytest.mark.parametrize(
    "label",
    [
        *("x" * 500, "東" * 50, "$x^{", CONTROL),
        *(
            pytest.param(label, marks=pytest.mark.deep)
            for label in ("אהבה", "<b>&amp;", "a\nb", "\\frac", "_", "e\u0301")
        ),
    ],
)
def test_labels_of_every_kind_fit(pyplot, label):
    result = found([[1.0]]).with_words([label]).with_names([label])
    ax = result.plot()
    (shown,) = labels(ax.get_xticklabels())
    assert labels(ax.get_yticklabels()) == [shown]
    if len(label) > 20:
        assert shown.endswith("…")
        assert label.startswith(shown[:-1].replace("\u25a1", "東"))
        assert len(shown) <= 20
    else:
        assert shown == label.replace("\n", " ").replace("\x1b", "\\x1b")
    ax.figure.canvas.draw()
    assert ax.get_window_extent().width > 100
    assert ax.get_window_extent().height > 30
    pyplot.close(ax.figure)


@pytest.mark.needs("plots")
def test_nothing_known(ax):
    found([[NAN, NAN]]).plot(ax)
    assert ax.get_title() == "largest relative change: none is known\nof the feature map"
    assert not ax.images
    ax.figure.draw_without_rendering()


@pytest.mark.needs("plots")
def test_a_given_axes_leaves_pyplot_alone(ax, pyplot, untouched):
    before = dict(pyplot.rcParams)
    with untouched():
        found(TABLE).plot(ax)
    assert pyplot.get_fignums() == []
    assert dict(pyplot.rcParams) == before


@pytest.mark.needs("plots")
def test_colormap_of_others_is_left_alone(ax):
    import matplotlib as mpl

    found(TABLE).plot(ax)
    assert tuple(mpl.colormaps["Oranges"].get_bad()) == (0, 0, 0, 0)


@pytest.mark.needs("plots")
def test_without_axes_a_pyplot_figure_is_made(pyplot):
    ax = found(TABLE).plot()
    assert [pyplot.figure(number) for number in pyplot.get_fignums()] == [ax.figure]
    ax.figure.canvas.draw()


@pytest.mark.deep
@pytest.mark.needs("plots")
def test_figures_grow_with_what_they_show(pyplot):
    small, large = (found(np.eye(n), k=n).plot().figure.get_size_inches() for n in (2, 400))
    assert (small < large).all()
    assert large.max() <= 15


@pytest.mark.needs("plots")
@pytest.mark.parametrize("suffix", ["png", "pdf", "svg"])
def test_save_figure(tmp_path, suffix):
    path = tmp_path / f"a.{suffix}"
    save_figure(found(TABLE).with_words(["a", "b", "$"]), path)
    assert path.stat().st_size > 1000


def test_missing_matplotlib_names_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pip install 'wsfast\[plots\]'"):
        found(TABLE).plot()


# -- HTML ------------------------------------------------------------------------------------------


class Reader(ClosedTags):
    """The rows of tables and the paragraphs, too."""

    def __init__(self, html):
        self.rows, self.paragraphs = [], []
        super().__init__(html)

    def handle_starttag(self, tag, attrs):
        super().handle_starttag(tag, attrs)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag == "p":
            self.paragraphs.append("")

    def handle_data(self, data):
        if self.open[-1] == "p":
            self.paragraphs[-1] += data
        else:
            self.rows[-1][-1] += data


def test_html_has_the_substitutions():
    result = found(TABLE, k=2).with_words(["a", "b", "c"]).with_names(["x", "y", "z"])
    read = Reader(result._repr_html_())
    assert read.paragraphs == [
        "largest change 7.0000: 'b' -> 'x' at position 1",
        "the next candidates, each where it changes most:",
        "(changes of the feature map)",
    ]
    assert read.rows == [
        ["position", "word", "new word", "change"],
        ["1", "b", "x", "7.0000"],
        ["1", "b", "z", "6.0000"],
        ["word", "new word", "change"],
        ["c", "y", "5.0000"],
    ]


@pytest.mark.parametrize("largest", [True, False])
def test_html_has_eight_candidates_where_one_is_the_best_everywhere(largest):
    table = DOMINATED if largest else -DOMINATED
    names = [f"n{v}" for v in range(20)]
    result = found(table, k=3, largest=largest).with_names(names)
    read = Reader(result._repr_html_())
    assert [row[2] for row in read.rows[1:4]] == ["n7"] * 3
    assert [row[1] for row in read.rows[5:]] == [f"n{v}" for v in BEST[1:]]
    assert [row[0] for row in read.rows[5:]] == ["#11"] * 7
    assert f"changes {'most' if largest else 'least'}:" in read.paragraphs[1]
    drawn = Reader(found([table, table], ("draws",), k=3, largest=largest)._repr_html_())
    assert "under the first draw of W" in drawn.paragraphs[2]


def test_everything_is_escaped():
    nasty = ['<script>alert("1")</script>', "\"'><b>", "<i>&amp;"]
    read = Reader(found(TABLE, k=9).with_words(nasty).with_names(nasty)._repr_html_())
    assert {row[1] for row in read.rows[1:]} == {*nasty}
    assert {row[2] for row in read.rows[1:]} == {*nasty}
    assert read.tags == {"div", "p", "table", "tr", "th", "td"}


def test_html_of_a_batch_shows_the_first_texts():
    result = found([[[[1, 2]], [[3, 4]]]] * 13, ("texts", "draws"), k=1)
    read = Reader(result._repr_html_())
    assert read.paragraphs[:2] == [
        "13 texts, 2 draws, up to 1 word, 2 candidates, backend torch",
        "text 0, draw 0: largest change 2.0000: candidate 1 at position 0",
    ]
    assert len(read.paragraphs) == 2 * 10 + 3
    assert read.paragraphs[-2:] == ["… and 3 more texts", "(changes of the feature map)"]
    assert len(read.rows) == 2 * 20


def test_html_of_many_substitutions():
    read = Reader(found(np.arange(70.0)[None], k=70)._repr_html_())
    assert len(read.rows) == 51
    assert read.paragraphs[1] == "… and 20 more substitutions"


def test_html_of_nothing_known():
    read = Reader(found([[NAN]])._repr_html_())
    assert read.paragraphs[0] == "largest change: none is known"
    assert read.rows == []
