"""Texts from files."""

from __future__ import annotations

import csv

import pytest

from wsfast.text.files import read_texts


@pytest.fixture
def write(tmp_path):
    def make(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return make


def test_lines(write):
    path = write("a.txt", "one\r\n\n two \x0c 2 \nthree\u2028still three")
    assert read_texts(path) == [(0, "one"), (2, "two \x0c 2"), (3, "three\u2028still three")]


def test_column_text_is_the_default(write):
    path = write("a.csv", 'label,text\n1,"a, ""b""\nc"\n0,\n1,d\n1\n')
    assert read_texts(path) == [(0, 'a, "b"\nc'), (2, "d")]
    assert read_texts(path, "label") == [(0, "1"), (1, "0"), (2, "1"), (3, "1")]


def test_byte_order_mark_is_no_part_of_a_column(write):
    assert read_texts(write("a.CSV", b"\xef\xbb\xbftext\nx\n")) == [(0, "x")]


def test_long_cell(write):
    before = csv.field_size_limit(1000)
    try:
        assert read_texts(write("a.csv", "text\n" + "a" * 200_000)) == [(0, "a" * 200_000)]
        assert csv.field_size_limit() == 1000
    finally:
        csv.field_size_limit(before)


@pytest.mark.parametrize(
    ("name", "content", "column", "message"),
    [
        ("a.txt", "", None, "no texts"),
        ("a.txt", " \n\n", None, "no texts"),
        ("a.txt", "x", "text", "column: only a .csv"),
        ("a.txt", b"\xff\xfe", None, "UTF-8"),
        ("a.csv", "", None, "column: no 'text'"),
        ("a.csv", "text\n", None, "no texts"),
        ("a.csv", "review\nx\n", None, r"column: no 'text'.*\['review'\]"),
        ("a.csv", "text\nx\n", "review", r"column: no 'review'.*\['text'\]"),
    ],
)
def test_bad_files(write, name, content, column, message):
    with pytest.raises(ValueError, match=message):
        read_texts(write(name, content), column)


def test_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_texts(tmp_path / "a.txt")
