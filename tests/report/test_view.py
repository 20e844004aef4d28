"""What a table or picture is made of."""

from __future__ import annotations

import math

import numpy as np
import pytest
from results.sensitivities import many, one

from wsfast.report.shade import legend, shades
from wsfast.report.view import Row, View, view_of

NAN = math.nan
T2 = 4.302652729749462  # SciPy's t for 2 degrees of freedom, 95 %


def test_one_text():
    view = view_of(one([1.0, 3.0, 2.0], ["a", "b", "a"]))
    assert view.rows == [Row(0, "a", 1.0), Row(1, "b", 3.0), Row(2, "a", 2.0)]
    assert (view.value, view.low, view.high, view.draws) == (3.0, None, None, None)
    assert view.worst == Row(1, "b", 3.0)


def test_without_words_positions_are_labels():
    assert [row.label for row in view_of(one([1.0, 2.0])).rows] == ["#0", "#1"]


def test_padding_of_a_batch_is_left_out():
    result = many([[1, 2, 3], [5, 4, NAN]], ("texts",), [["a", "b", "c"], ["d", "e"]])
    assert view_of(result, text=1).rows == [Row(0, "d", 5.0), Row(1, "e", 4.0)]


def test_mean_over_draws():
    view = view_of(many([[1, 6], [2, 6], [3, 6]], ("draws",), ["a", "b"]))
    half = T2 / math.sqrt(3)
    assert (view.draws, view.value) == (3, 6.0)
    assert view.rows[0].value == 2.0
    assert [row.share_worst for row in view.rows] == [0, 1]
    assert view.rows[0].low == pytest.approx(2 - half)
    assert view.rows[0].high == pytest.approx(2 + half)
    assert view.worst is view.rows[1]


def test_one_of_the_draws_of_one_of_the_texts():
    result = many([[[1, 2], [3, 4]], [[5, 6], [7, 9]]], ("texts", "draws"))
    assert view_of(result, text=1, draw=1).rows == [Row(0, "", 7.0), Row(1, "", 9.0)]
    assert view_of(result, text=1, draw=1).value == 9.0
    assert [row.value for row in view_of(result, text=1).rows] == [6.0, 7.5]


def test_bounds_of_a_text_and_of_the_mean_over_draws():
    upper = np.array([[[4.0, 3], [7, 8]], [[5, 8], [NAN, 9]]])
    result = many([[[1, 2], [3, 4]], [[5, 6], [NAN, 8]]], ("texts", "draws"), upper=upper)
    view = view_of(result, draw=0)
    assert ([row.upper for row in view.rows], view.upper, view.ratio) == ([4, 3], 4, 2)
    assert view_of(result, text=1, draw=1).upper == 9  # of the word that was searched
    view = view_of(result)
    assert ([row.upper for row in view.rows], view.upper, view.ratio) == ([5.5, 5.5], 6, 2)
    assert [row.top for row in view_of(result, text=1, draw=0).rows] == [5, 8]
    assert view_of(many([[1, 2]], ("draws",))).upper is None


def test_a_single_draw_has_no_interval():
    view = view_of(many([[1, 2]], ("draws",)))
    assert (view.draws, view.rows) == (None, [Row(0, "", 1.0), Row(1, "", 2.0)])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"text": 2}, "text must be from 0 to 1, got 2"),
        ({"text": -1}, "text must be from 0 to 1, got -1"),
        ({"draw": 2}, "draw must be None or from 0 to 1, got 2"),
    ],
)
def test_no_such_text_or_draw(options, message):
    result = many([[[1, 2], [3, 4]], [[5, 6], [7, 9]]], ("texts", "draws"))
    with pytest.raises(ValueError, match=message):
        view_of(result, **options)


def test_nothing_known():
    view = view_of(one([NAN, NAN]))
    assert view.worst is None
    assert math.isnan(view.value)
    assert shades(view) == [None, None]


def test_shades_of_one_w_are_relative():
    view = view_of(one([2.0, NAN, 4.0, 3.0]))
    assert shades(view) == [0.0, None, 1.0, 0.5]
    assert legend(view) == ("shades are relative: from the smallest S_i of the text to the largest")
    assert shades(view_of(one([2.0, 2.0]))) == [1.0, 1.0]


def drawn(*intervals):
    """A view of rows with these intervals; None for a row that was not searched."""
    rows = [
        Row(i, "", NAN, NAN, NAN) if ends is None else Row(i, "", sum(ends) / 2, *ends)
        for i, ends in enumerate(intervals)
    ]
    return View(rows, 1.0, 0.5, 1.5, draws=3)


@pytest.mark.parametrize(
    ("intervals", "expected"),
    [
        # None is told from the largest: one shade, whatever the means.
        ([(1, 5), (2, 6), (3, 7)], [1, 1, 1]),
        # The first reaches the second alone, the second the largest: its shade is the largest's.
        ([(1, 4), (3, 6), (5, 9)], [0, 1, 1]),
        ([(5, 9), (3, 6), (1, 4)], [1, 1, 0]),
        # All apart: as far apart as their means.
        ([(0, 2), (3, 5), (10, 12)], [0, 0.3, 1]),
        ([(0, 2), None, (2, 4)], [1, None, 1]),  # touching
        ([(0, 2), (2.5, 2.5), (1, 1)], [0, 1, 0]),
    ],
)
def test_shades_tell_apart_only_what_intervals_do(intervals, expected):
    view = drawn(*intervals)
    assert shades(view) == pytest.approx(expected)
    assert "95 % intervals" in legend(view)
