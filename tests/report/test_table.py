"""Text for terminals."""

from __future__ import annotations

import io
import math

import numpy as np
import pytest
from results.sensitivities import many, one

from wsfast.report.table import colored_text, printable, summary, wants_color, word_table
from wsfast.report.view import view_of


def test_table():
    assert word_table(view_of(one([0.5, 12.25, math.nan], ["so", "what", "?"]))) == (
        "position  word     S_i\n"
        "       0  so     0.500\n"
        "       1  what  12.250  <- worst\n"
        "       2  ?        nan"
    )


def test_table_with_draws():
    view = view_of(many([[1, 6], [2, 6], [3, 6]], ("draws",)))
    assert word_table(view) == (
        "position  word     S_i       ±  worst in\n"
        "       0  #0    2.0000  2.4841       0 %\n"
        "       1  #1    6.0000       0     100 %  <- worst"
    )


def test_table_with_bounds():
    view = view_of(one([0.5, 12.25, math.nan], upper=np.array([0.75, math.nan, math.nan])))
    assert word_table(view) == (
        "position  word     S_i  at most\n"
        "       0  #0     0.500    0.750\n"
        "       1  #1    12.250      nan  <- worst\n"
        "       2  #2       nan      nan"
    )
    drawn = many([[1, 6], [2, 6], [3, 6]], ("draws",), upper=np.full((3, 2), 7.5))
    assert word_table(view_of(drawn)).split("\n")[1:] == [
        "       0  #0    2.0000  2.4841   7.5000       0 %",
        "       1  #1    6.0000       0   7.5000     100 %  <- worst",
    ]


@pytest.mark.parametrize(
    ("word", "columns"),
    [
        ("東京", 4),
        ("e\u0301", 1),  # a mark of its own
        ("\u0e17\u0e35\u0e48", 1),  # Thai: a letter with a vowel and a tone above it
        ("\u0e01\u0e33", 2),
        ("\u0939\u093f\u0928\u094d\u0926\u0940", 4),  # Hindi
        ("\u0645\u06cc\u200c\u0634\u0648\u062f", 5),  # Persian, with a non-joiner
        ("\U0001f468\u200d\U0001f469\u200d\U0001f467", 2),  # a family: one picture of three
        ("\U0001f44d\U0001f3fd", 2),
        ("\u2764\ufe0f", 2),
        ("\U0001f1e9\U0001f1ea", 2),
        ("\ud55c\uad6d", 4),
        ("\u05e9\u05b8\u05dc\u05d5\u05b9\u05dd", 4),
    ],
)
def test_table_aligns_words_of_all_scripts(word, columns):
    lines = word_table(view_of(one([1.0, 2.0], [word, "abcdef"]))).split("\n")
    assert lines[1:] == [
        f"       0  {word}{' ' * (6 - columns)}  1.0000",
        "       1  abcdef  2.0000  <- worst",
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


def test_summary_says_what_s_is_at_most():
    assert summary(view_of(one([1.0, 2.0], upper=np.array([2.5, 2.25])))) == (
        "S = 2.0000, at most 2.5000 (ratio 1.250), worst word: the word at position 1"
    )
    assert "at most" not in summary(view_of(one([1.0, 2.0], upper=np.array([math.nan, 3.0]))))
    drawn = many([[1, 6], [2, 8]], ("draws",), upper=np.array([[2.0, 9], [4, 10]]))
    assert "interval), at most 9.5000 (ratio up to 1.500), worst" in summary(view_of(drawn))


TEXT = " so,\n\tWHAT \x1b[2J now"
OFFSETS = [(1, 3), (3, 4), (6, 10)]


def test_colored_text():
    view = view_of(one([1.0, math.nan, 3.0], ["so", ",", "WHAT"]))
    assert colored_text(TEXT, OFFSETS, view) == (
        "\x1b[30;48;5;230mso\x1b[0m,  \x1b[1;4;30;48;5;196mWHAT\x1b[0m …\n"
        "\x1b[2m(shades are relative: from the smallest S_i of the text to the largest; "
        "of the feature map; found by search, a lower bound)\x1b[0m"
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
