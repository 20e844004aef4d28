"""Tables as CSV and Parquet."""

from __future__ import annotations

import os
import sys

import pytest

from wsfast.reproduce import report, tables
from wsfast.reproduce.tables import Table

HEADER = ("name", "n", "x")
ROWS = [("a, b", 1, 0.1 + 0.2), ('say "so"', 2, None), ("naïve", 3, 1e-300)]


@pytest.fixture
def table():
    return Table.of_rows("numbers", HEADER, ROWS)


def test_rows_and_columns(table):
    assert table.columns["n"] == [1, 2, 3]
    assert table.rows() == ROWS
    assert Table.of_rows("none", HEADER, []).columns == {"name": [], "n": [], "x": []}


def test_csv(table, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert tables.write(table, tmp_path) == ["numbers.csv"]
    assert os.listdir(tmp_path) == ["numbers.csv"]
    assert (tmp_path / "numbers.csv").read_bytes().decode() == (
        'name,n,x\n"a, b",1,0.30000000000000004\n"say ""so""",2,\nnaïve,3,1e-300\n'
    )


@pytest.mark.needs("parquet")
def test_parquet(table, tmp_path):
    from pyarrow import parquet

    assert tables.write(table, tmp_path) == ["numbers.csv", "numbers.parquet"]
    read = parquet.read_table(tmp_path / "numbers.parquet")
    assert read.column_names == list(HEADER)
    assert list(zip(*(column.to_pylist() for column in read.columns), strict=True)) == ROWS
    first = (tmp_path / "numbers.parquet").read_bytes()
    tables.write(table, tmp_path)
    assert (tmp_path / "numbers.parquet").read_bytes() == first


def test_markdown():
    rows = [("a|b", 1.23456, None), ("c\nd", 7, True)]
    assert report.markdown(HEADER, rows) == (
        "| name | n | x |\n| --- | --- | --- |\n| a\\|b | 1.235 |  |\n| c d | 7 | True |"
    )
