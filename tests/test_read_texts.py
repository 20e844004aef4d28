"""Texts from files of every kind: what is read, what is wrong with a row, what with a file."""

from __future__ import annotations

import csv
import gzip
import importlib
import io
import itertools
import json
import sys

import pytest

from wsfast._read_texts import read_stream, read_texts, row_of

needs_parquet = pytest.mark.needs("parquet")


@pytest.fixture
def write(tmp_path):
    def make(name, content):
        path = tmp_path / name
        content = content if isinstance(content, bytes) else content.encode()
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return path

    return make


def imported(module):
    """A part of pyarrow, which is not made for every NumPy that it is installed beside."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        pytest.skip(str(error))


@pytest.fixture
def parquet(tmp_path):
    def make(columns, **options):
        arrow, files = imported("pyarrow"), imported("pyarrow.parquet")
        path = tmp_path / "a.parquet"
        files.write_table(arrow.table(columns), path, **options)
        return path

    return make


def texts(path, column=None):
    """Number and text of each row without a problem."""
    return [(row.number, row.text) for row in read_texts(path, column) if row.problem is None]


def problems(path, column=None):
    return {row.number: row.problem for row in read_texts(path, column) if row.problem}


# -- every kind, by its suffix ---------------------------------------------------------------------

TABLES = {
    ".csv": 'label,text\n1,"so, ""b""\nc"\n0,two\n',
    ".tsv": 'label\ttext\n1\t"so, ""b""\nc"\n0\ttwo\n',
    ".jsonl": '{"label": 1, "text": "so, \\"b\\"\\nc"}\n\n{"text": "two", "label": 0}\n',
    ".ndjson": '{"label": 1, "text": "so, \\"b\\"\\nc"}\n{"text": "two", "label": 0}\n',
}


@pytest.mark.parametrize("packed", ["", ".gz"])
@pytest.mark.parametrize("kind", TABLES)
def test_tables_plain_and_compressed(write, kind, packed):
    path = write(f"a.b{kind.upper()}{packed}", TABLES[kind])
    assert texts(path) == [(0, 'so, "b"\nc'), (1, "two")]


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.gz", "a", "a.csv.old"])
def test_lines(write, name):
    path = write(name, "one\r\n\n two \x0c 2 \nthree\u2028still three")
    assert texts(path) == [(0, "one"), (2, "two \x0c 2"), (3, "three\u2028still three")]
    assert problems(path) == {}


@needs_parquet
def test_parquet(parquet):
    path = parquet({"label": [1, 2, 3], "text": ["so", None, " two\n"]}, row_group_size=1)
    assert texts(path) == [(0, "so"), (2, "two")]
    assert list(problems(path)) == [1]
    many = [str(number) for number in range(3000)]
    assert texts(parquet({"review": many}), "review") == list(enumerate(many))


@needs_parquet
def test_parquet_of_categories(parquet):
    arrow = imported("pyarrow")
    path = parquet({"text": arrow.array(["so", "so", "two"]).dictionary_encode()})
    assert texts(path) == [(0, "so"), (1, "so"), (2, "two")]


@pytest.mark.parametrize("kind", [".csv", ".jsonl", ".txt"])
@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_byte_order_marks(write, kind, encoding):
    content = {".csv": "text\nnaïve\n", ".jsonl": '{"text": "naïve"}\n', ".txt": "naïve\n"}[kind]
    mark = "\ufeff" if encoding in ("utf-16-le", "utf-16-be") else ""
    assert texts(write(f"a{kind}", (mark + content).encode(encoding))) == [(0, "naïve")]


def test_jsonl_of_strings(write):
    assert texts(write("a.jsonl", '"so"\n"two"\n')) == [(0, "so"), (1, "two")]


def test_a_column_that_the_first_rows_lack(write):
    path = write("a.jsonl", '{"label": 1}\n{"label": 0, "text": "so"}\n')
    assert texts(path) == [(1, "so")]
    assert problems(path) == {0: "line 1 has no 'text'"}


def test_long_cell(write):
    before = csv.field_size_limit(1000)
    try:
        assert texts(write("a.csv", "text\n" + "a" * 200_000)) == [(0, "a" * 200_000)]
        assert csv.field_size_limit() == 1000
    finally:
        csv.field_size_limit(before)


def test_a_pipe_is_read_as_it_comes():
    """No more than its buffer: a file of any length has room."""

    class Endless(io.RawIOBase):
        def readable(self):
            return True

        def readinto(self, block):
            block[:4] = b"so\n\n"
            return 4

    with io.BufferedReader(Endless()) as stream:
        rows = read_stream(stream, "standard input")
        assert [row.number for row in itertools.islice(rows, 3)] == [0, 2, 4]
        rows.close()


# -- rows that are no texts ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "bad"),
    [
        ("a.csv", "label,text\n1,\n2, \n3,so\n4\n", {0: "no text", 1: "no text", 3: "no text"}),
        ("a.csv", "text,label\nso,1\nso, what,1\n", {1: "3 cells, and the header has 2"}),
        ("a.csv", 'text\n"so"x\nso\n', {0: "quotes up to line 2"}),
        ("a.csv", 'text\nso\n"so\nme\n', {1: "quotes up to line 4"}),
        ("a.csv", b"text\nso\ncaf\xe9 so\n", {1: "not UTF-8: byte 0xe9 after 'caf'"}),
        ("a.txt", b"so\ncaf\xe9\nso", {1: "not UTF-8: byte 0xe9 after 'caf'"}),
        ("a.jsonl", '{"text": "so"}\n{"text": \n"a\n', {1: "line 2 is not JSON", 2: "line 3"}),
        ("a.jsonl", '{"text": "so"}\n{"text": 5}\n[1]\n', {1: "got int: 5", 2: "got list"}),
        ("a.jsonl", '{"text": "so"}\n{"text": null}\n{"text": NaN}\n', {1: "empty", 2: "empty"}),
        ("a.jsonl", '{"text": "so"}\n{"text": "\\ud83d"}\n', {1: r"'\\ud83d'"}),
        ("a.jsonl", '{"text": "so"}\n' + "[" * 100_000, {1: "line 2 is not JSON"}),
    ],
)
def test_bad_rows_are_numbered_and_the_others_read(write, name, content, bad):
    path = write(name, content)
    found = problems(path)
    assert list(found) == list(bad)
    for number, problem in bad.items():
        assert problem.replace("\\\\", "\\") in found[number]
    assert {text.partition(" ")[0] for _, text in texts(path)} == {"so"}


@pytest.mark.parametrize("value", [None, float("nan"), "", " \n", 3, b"so", ["so"], "\udcff"])
def test_what_is_no_text(value):
    assert row_of(7, value).number == 7
    assert row_of(7, value).text == ""
    assert row_of(7, value).problem


# -- files that cannot be read ---------------------------------------------------------------------

COLUMNS = "column: no 'text' in '.*'; its columns: 'review', 'stars'$"


@pytest.mark.parametrize(
    ("name", "content", "column", "message"),
    [
        ("a.csv", "review,stars\nx,1\n", None, COLUMNS),
        ("a.tsv", "review\tstars\nx\t1\n", None, COLUMNS),
        ("a.jsonl", '{"review": "x"}\n{"stars": 1}\n', None, COLUMNS),
        ("a.csv.gz", "review,stars\nx,1\n", None, COLUMNS),
        (
            "a.csv",
            "review\nx\n",
            None,
            "no 'text' in .*: 'review'",
        ),  # also where it is the only one
        ("a.csv", "text\nx\n", "review", "no 'review' in .*: 'text'"),
        ("a.csv", "", None, "none at all"),
        ("a.csv", "text,text\nx,y\n", None, "2 columns called 'text'"),
        ("a.csv", '"text\nx\n', None, "header"),
        ("a.txt", "x", "text", "column: only CSV, TSV, JSONL and Parquet"),
        ("a.json", '[{"text": "x"}]', None, "take .jsonl"),
        ("a.xlsx", b"PK\x03\x04\x14", None, "archive"),
        ("a.pdf", b"%PDF-1.7\n", None, "PDF"),
        ("a.doc", b"\xd0\xcf\x11\xe0", None, "Office"),
        ("a.csv", gzip.compress(b"text\nx\n", mtime=0), None, "gzip.*\\.gz"),
        ("a.csv", b"PAR1", None, "Parquet"),
        ("a.txt", "naïve\n".encode("utf-16-le"), None, "UTF-16 without a byte-order mark"),
        ("a.txt", b"\x7fELF\x02\x01\x01\0", None, "binary"),
        ("a.txt", "\ufeffso".encode("utf-16-le")[:-1], None, "not UTF-16"),
        ("a.parquet", "text\nx\n", None, "Parquet file"),
        ("a.parquet.gz", "x", None, "unpack"),
    ],
)
def test_bad_files(write, name, content, column, message):
    if name == "a.parquet":
        imported("pyarrow")
    with pytest.raises(ValueError, match=message):
        list(read_texts(write(name, content), column))


@needs_parquet
def test_bad_columns_of_parquet(parquet):
    with pytest.raises(ValueError, match=COLUMNS):
        list(read_texts(parquet({"review": ["x"], "stars": [1]})))
    with pytest.raises(ValueError, match=r"'stars' in .* holds int64, not texts"):
        list(read_texts(parquet({"review": ["x"], "stars": [1]}), "stars"))


def test_gzip_that_is_none_or_breaks_off(tmp_path):
    path = tmp_path / "a.txt.gz"
    path.write_bytes(b"so\n")
    with pytest.raises(ValueError, match="not compressed by gzip"):
        list(read_texts(path))
    lines = "".join(f"{json.dumps(number * 7919 % 10_007)}\n" for number in range(20_000)).encode()
    path.write_bytes(gzip.compress(lines)[:-1000])
    rows = read_texts(path)
    assert next(rows).text == "0"
    with pytest.raises(ValueError, match="broken or cut off"):
        list(rows)


def test_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        list(read_texts(tmp_path / "a.txt"))


def test_parquet_without_pyarrow(write, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"wsfast\[tables\]"):
        list(read_texts(write("a.parquet", "")))
