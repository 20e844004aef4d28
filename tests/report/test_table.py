"""Text for terminals."""

from __future__ import annotations

import io
import math

import pytest
from report.results import many, one

from wsfast.report.table import colored_text, printable, summary, wants_color, word_table
from wsfast.report.view import view_of


def test_table():
    assert word_table(view_of(one([0.5, 12.25, math.nan], ["so", "what", "?"]))) == (
        "position  word      S_i\n"
        "       0  so     0.5000\n"
        "       1  what  12.2500  <- worst\n"
        "       2  ?         nan"
    )


def test_table_with_draws():
    view = view_of(many([[1, 6], [2, 6], [3, 6]], ("draws",)))
    assert word_table(view) == (
        "position  word     S_i       ±\n"
        "       0  #0    2.0000  2.4841\n"
        "       1  #1    6.0000  0.0000  <- worst"
    )


def test_table_aligns_wide_characters_and_marks():
    lines = word_table(view_of(one([1.0, 2.0, 3.0], ["東京", "e\u0301", "abcd"]))).split("\n")
    assert lines[1:] == [
        "       0  東京  1.0000",
        "       1  e\u0301     2.0000",
        "       2  abcd  3.0000  <- worst",
    ]


def test_summary():
    assert (
        summary(view_of(one([1.0, 2.0], ["a", "b"]))) == "S = 2.0000, worst word: 'b' at position 1"
    )
    assert summary(view_of(one([1.0, 2.0]))) == "S = 2.0000, worst word: the word at position 1"
    assert summary(view_of(one([math.nan]))) == "S = nan"
    assert summary(view_of(many([[1, 6], [2, 7], [3, 8]], ("draws",), ["a", "b"]))) == (
        "S = 7.0000 ± 2.4841 (mean of 3 draws of W, 95 % interval), "
        "worst word on average: 'b' at position 1"
    )


TEXT = " so,\n\tWHAT \x1b[2J now"
OFFSETS = [(1, 3), (3, 4), (6, 10)]


def test_colored_text():
    view = view_of(one([1.0, math.nan, 3.0], ["so", ",", "WHAT"]))
    assert colored_text(TEXT, OFFSETS, view) == (
        "\x1b[30;48;5;230mso\x1b[0m,  \x1b[1;4;30;48;5;196mWHAT\x1b[0m …"
    )


def test_text_without_color():
    view = view_of(one([1.0, 2.0, 3.0]))
    assert colored_text(TEXT, OFFSETS, view, color=False) == "so,  WHAT …"
    assert colored_text("a b", [(0, 1), (2, 3)], view_of(one([1.0, 2.0])), color=False) == "a b"


def test_control_characters_do_not_reach_the_terminal():
    assert printable("a\x1b[2J\tb\r\nc\x07é東\u202e") == "a\\x1b[2J b  c\\x07é東\\u202e"
    assert "\x1b" not in word_table(view_of(one([1.0], ["\x1b[2J"])))
    assert "\x1b" not in summary(view_of(one([1.0], ["\x1b[2J"])))
    assert "\x1b" not in colored_text("\x1b[2J a", [(5, 6)], view_of(one([1.0])), color=False)


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("stream", "no_color", "expected"),
    [
        (Terminal(), None, True),
        (Terminal(), "", True),
        (Terminal(), "1", False),
        (io.StringIO(), None, False),
    ],
)
def test_wants_color(monkeypatch, stream, no_color, expected):
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_color is not None:
        monkeypatch.setenv("NO_COLOR", no_color)
    assert wants_color(stream) is expected
