"""CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
import math

import numpy as np
import pytest
from results.sensitivities import many, one

from wsfast.report.export import json_line, to_json, write_csv_header, write_csv_rows, writer
from wsfast.report.view import view_of

THIRD = 1 / 3


def read_csv(view):
    stream = io.StringIO()
    write_csv_header(stream, view)
    write_csv_rows(stream, 7, view)
    return list(csv.reader(io.StringIO(stream.getvalue())))


def test_csv():
    rows = read_csv(view_of(one([THIRD, math.nan], ['a,"b"\n', "c"])))
    assert rows == [
        ["text", "position", "word", "S_i"],
        ["7", "0", 'a,"b"\n', repr(THIRD)],
        ["7", "1", "c", ""],
    ]


@pytest.mark.parametrize("word", ["a\rb", "a\r\nb", "a\nb", 'a"b', "=1+1", " a ", "\t"])
def test_csv_gives_every_word_back(word):
    stream = io.StringIO(newline="")
    writer(stream).writerow([word, "b"])
    assert list(csv.reader(io.StringIO(stream.getvalue(), newline=""))) == [[word, "b"]]
    assert stream.getvalue().endswith("b\n")
    assert not stream.getvalue().endswith("\r\n")


def test_json_has_no_nan_and_no_infinity():
    record = {"a": [math.nan, 1.0, {"b": -math.inf}], "c": (math.inf, "d"), "e": None}
    assert json.loads(to_json(record)) == {
        "a": [None, 1.0, {"b": None}],
        "c": [None, "d"],
        "e": None,
    }


def test_csv_with_draws():
    view = view_of(many([[1], [1]], ("draws",)))
    assert read_csv(view) == [
        ["text", "position", "word", "S_i", "S_i_low", "S_i_high", "share_worst"],
        ["7", "0", "", "1.0", "1.0", "1.0", "1.0"],
    ]


def test_bounds_are_the_last_column_and_have_keys_of_their_own():
    view = view_of(one([1.0, 2.0, 1.0], upper=np.array([1.5, 3.0, math.nan])))
    header, *rows = read_csv(view)
    assert header == ["text", "position", "word", "S_i", "upper"]
    assert [row[3:] for row in rows] == [["1.0", "1.5"], ["2.0", "3.0"], ["1.0", ""]]
    record = json.loads(json_line(0, view, {}))
    assert (record["upper"], record["ratio"]) == (None, None)
    assert [row["upper"] for row in record["words"]] == [1.5, 3.0, None]
    drawn = view_of(many([[1], [1]], ("draws",), upper=np.array([[1.5], [2.5]])))
    assert read_csv(drawn)[0][-2:] == ["share_worst", "upper"]
    record = json.loads(json_line(0, drawn, {}))
    assert (record["upper"], record["ratio"], record["words"][0]["upper"]) == (2.0, 2.5, 2.0)


def test_json():
    line = json_line(7, view_of(one([THIRD, math.nan], ['"é\n', "c"])), {"seed": 3})
    assert "\n" not in line
    assert json.loads(line) == {
        "text": 7,
        "S": THIRD,
        "position": 0,
        "word": '"é\n',
        "words": [
            {"position": 0, "word": '"é\n', "S_i": THIRD},
            {"position": 1, "word": "c", "S_i": None},
        ],
        "seed": 3,
    }


def test_json_with_draws():
    def cells(position, S):
        return {"position": position, "word": "", "S_i": S, "S_i_low": S, "S_i_high": S}

    record = json.loads(json_line(0, view_of(many([[1, 2], [1, 2]], ("draws",))), {}))
    assert record == {
        "text": 0,
        "S": 2.0,
        "position": 1,
        "word": "",
        "draws": 2,
        "S_low": 2.0,
        "S_high": 2.0,
        "words": [
            {**cells(0, 1.0), "share_worst": 0.0},
            {**cells(1, 2.0), "share_worst": 1.0},
        ],
    }


def test_json_of_nothing_known():
    record = json.loads(json_line(0, view_of(one([math.nan])), {}))
    assert (record["S"], record["position"], record["word"]) == (None, None, None)
