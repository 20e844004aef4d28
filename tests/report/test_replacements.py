"""Replacements in real text as HTML and pictures."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from results.sensitivities import one
from results.substitutions import found

from wsfast.report.replacements import attained_lines, table, to_html
from wsfast.text import LeftOut, Replacement, Replacements

# Candidate 7 is the best everywhere, then 3, then 1; only two of four words were searched.
TABLE = np.linspace(1, 2, 4)[:, None] * np.linspace(1, 2, 20)
TABLE[:, [7, 3, 1]] += [[5, 3, 2]]
TABLE[[0, 2]] = np.nan
NEXT = [3, 1, 19, 18, 17, 16, 15]


def row(position, value, distance=2.0):
    return Replacement(position, f"w{position}", "n7", value, distance, "t")


def replaced(draws=None):
    tables, axes = (TABLE, ()) if draws is None else ([TABLE] * draws, ("draws",))
    result = found(tables, axes, k=2).with_words([f"w{i}" for i in range(4)])
    return SimpleNamespace(
        replacements=[row(3, 6.0), row(1, 5.0)],
        result=result.with_names([f"n{v}" for v in range(20)]),
        embedded=SimpleNamespace(text="w0 w1 w2 w3"),
        sensitivity=one([4e-6, 2e-6]),
        left_out=LeftOut(2, 0),
        share_attained=0.5,
        share_attained_at_distance=0.75,
    )


@pytest.mark.parametrize("draws", [None, 2])
def test_html_has_eight_candidates_where_one_is_the_best_everywhere(draws):
    html = to_html(replaced(draws))
    order = [html.index(f">n{v}</td>") for v in (7, *NEXT)]
    assert order == sorted(order)
    assert ">n14</td>" not in html
    assert ("under the first draw of W" in html) == (draws is not None)
    assert "not of a whole model" in html or "of the feature map" in html


def test_figures_of_a_table_align_and_small_ones_are_not_zeros():
    lines = table([row(3, 1.5491), row(0, 0.01, 123.4), row(2, 4e-6)]).split("\n")
    assert [line.split()[-2:] for line in lines[1:]] == [
        ["1.549", "2"],
        ["0.010", "123"],
        ["4.000e-06", "2"],
    ]
    assert "S = 4.0000e-06, the worst case found" in attained_lines(replaced())[0]


@pytest.mark.needs("plots")
def test_plot_has_the_words_that_were_searched():
    from matplotlib.figure import Figure

    ax = Figure().subplots()
    assert Replacements.plot(replaced(draws=2), ax, draw=1) is ax
    assert [label.get_text() for label in ax.get_yticklabels()] == ["w1", "w3"]
    assert [label.get_text() for label in ax.get_xticklabels()] == [f"n{v}" for v in (7, *NEXT)]
