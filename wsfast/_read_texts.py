"""Texts from a file or from standard input, one after another: none is held for longer."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import zlib
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from wsfast._extras import import_extra

DEFAULT_COLUMN = "text"
STDIN = "standard input"

_CELLS_AT_ONCE = 1024  # of a Parquet file
_ROWS_WITH_KEYS = 100  # of a JSONL file, which has no header: a row may lack the column
_MOST_LISTED = 30  # columns in a message
_LONGEST_CELL = 2**31 - 1  # Python's limit of 128 KiB a cell is less than a long document

# The byte-order marks of encodings that a text file is read in; UTF-8 has none as a rule.
_MARKS = ((b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))
# How files begin that may be taken for texts.
_BINARY = (
    (b"PK\x03\x04", "an archive (.xlsx, .docx, .zip, …)"),
    (b"\xd0\xcf\x11\xe0", "an old Office file (.xls, .doc)"),
    (b"%PDF", "a PDF file"),
    (b"\x1f\x8b", "compressed by gzip, which the name of a file says by .gz at its end"),
    (b"PAR1", "a Parquet file, which its name says by .parquet at its end"),
    (b"BZh", "compressed by bzip2"),
    (b"\xfd7zXZ\x00", "compressed by xz"),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd"),
)
_ESCAPED = re.compile("[\udc80-\udcff]")  # how Python keeps bytes that are not UTF-8


class Row(NamedTuple):
    """One text of a file: its number from 0, and the text or else what is wrong with it.

    A row that cannot be read has None for each other column.
    """

    number: int
    text: str
    problem: str | None = None
    also: tuple[Any, ...] = ()  # cells of the other columns that were asked for


def row_of(number: int, value: Any, also: tuple[Any, ...] = ()) -> Row:
    """The row of one cell: a text without the blanks around it, or why it is none."""
    if value is None or value != value:
        return Row(number, "", "there is no text: the cell is empty", also)
    if not isinstance(value, str):
        problem = f"it must be a text, got {type(value).__name__}: {value!r:.60}"
        return Row(number, "", problem, also)
    text = value.strip()
    if not text:
        return Row(number, "", "there is no text: it is empty", also)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        byte = _ESCAPED.fullmatch(text[error.start])
        what = f"byte 0x{ord(byte[0]) - 0xDC00:02x}" if byte else f"{text[error.start]!r}"
        problem = f"not UTF-8: {what} after {text[: error.start][-20:]!r}"
        return Row(number, "", problem, also)
    return Row(number, text, None, also)


class Columns(NamedTuple):
    """Which columns of a table are wanted: that of the texts, None for ``text``, and others."""

    text: str | None = None
    also: tuple[str, ...] = ()

    @property
    def unread(self) -> tuple[None, ...]:
        """What a row that cannot be read has of the others."""
        return (None,) * len(self.also)

    def known(self, names: Collection[str], table: str) -> tuple[str, ...]:
        """That of the texts and the others, all of which are among `names`."""
        wanted = DEFAULT_COLUMN if self.text is None else self.text
        return tuple(_known_column(column, names, table) for column in (wanted, *self.also))


ONLY_TEXTS = Columns()
"""No column but that called text."""


def read_texts(path: Path, column: str | None = None, also: tuple[str, ...] = ()) -> Iterator[Row]:
    """The texts of a file, numbered from 0, read as they are asked for.

    Parameters
    ----------
    path : Path
        By its suffix: ``.csv`` or ``.tsv`` with a header; ``.jsonl`` or ``.ndjson``, an object or a
        string a line; each of them also compressed (``.csv.gz``); ``.parquet``; any other, also
        ``.gz``, with one text a line. In UTF-8, or in UTF-16 with a byte-order mark.
    column : str, optional
        The column that holds the texts; ``text`` by default.
    also : tuple of str
        Further columns, whose cells a row has as `also`.

    Yields
    ------
    Row
        One for each row of the table, each object, each line. Lines that are blank are left out;
        in a file without columns they count.

    Raises
    ------
    ImportError
        For a Parquet file where pyarrow is not installed.
    OSError
        If the file cannot be read.
    ValueError
        If it is not of the kind that its suffix says, breaks off, or has no such column: the
        message lists those that it has.
    """
    name = repr(str(path))
    suffixes = [suffix.lower() for suffix in path.suffixes]
    packed = suffixes[-1:] == [".gz"]
    kind = (suffixes[:-1] if packed else suffixes)[-1:]
    if kind == [".parquet"]:
        if packed:
            raise ValueError(f"file: unpack {name} first: Parquet files are compressed inside")
        yield from _parquet(path, name, Columns(column, also))
        return
    if kind == [".json"]:
        raise ValueError(f"file: {name} is JSON: take .jsonl, with one object a line")
    with gzip.open(path) if packed else path.open("rb") as stream:
        yield from read_stream(stream, name, Columns(column, also), kind[0] if kind else "")


def read_stream(
    stream: BinaryIO | gzip.GzipFile, name: str, columns: Columns = ONLY_TEXTS, kind: str = ""
) -> Iterator[Row]:
    """The same for an open file whose kind is the suffix `kind`; `name` is for messages."""
    rows = _KINDS.get(kind, _lines)
    if rows is _lines and columns != ONLY_TEXTS:
        raise ValueError(f"column: only CSV, TSV, JSONL and Parquet files have columns, got {name}")
    with _told(name), _decoded(stream, name) as text:
        yield from rows(text, name, columns)


@contextmanager
def _told(name: str) -> Iterator[None]:
    """Say of which file it is that it cannot be read to its end."""
    try:
        yield
    except gzip.BadGzipFile as error:
        raise ValueError(f"file: {name} is not compressed by gzip: {error}") from error
    except (EOFError, zlib.error) as error:
        raise ValueError(f"file: {name} is broken or cut off: {error}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"file: {name} is not {error.encoding.upper()}: {error}") from error


@contextmanager
def _decoded(stream: BinaryIO | gzip.GzipFile, name: str) -> Iterator[io.TextIOWrapper]:
    """The characters of a file; bytes that are not UTF-8 stay in them, for the row to tell."""
    # A first block is enough: that is how git tells a binary file, too.
    head = stream.peek(8192)  # type: ignore[union-attr]
    for beginning, what in _BINARY:
        if head.startswith(beginning):
            raise ValueError(f"file: {name} is {what}, not text")
    encoding = next((known for mark, known in _MARKS if head.startswith(mark)), "utf-8-sig")
    if encoding != "utf-16" and b"\0" in head[:8000]:
        raise ValueError(
            f"file: {name} is binary, or UTF-16 without a byte-order mark: it has null bytes"
        )
    errors = "strict" if encoding == "utf-16" else "surrogateescape"
    text = io.TextIOWrapper(stream, encoding, errors, newline="")
    try:
        yield text
    finally:
        if not text.closed:
            text.detach()  # the caller closes what the caller has opened


# -- one function for each kind of file ------------------------------------------------------------


def _lines(text: io.TextIOWrapper, name: str, columns: Columns) -> Iterator[Row]:
    text.reconfigure(newline=None)
    for number, line in enumerate(text):
        if line.strip():
            yield row_of(number, line)


def _csv(text: io.TextIOWrapper, name: str, columns: Columns) -> Iterator[Row]:
    return _table(text, ",", name, columns)


def _tsv(text: io.TextIOWrapper, name: str, columns: Columns) -> Iterator[Row]:
    return _table(text, "\t", name, columns)


def _table(text: io.TextIOWrapper, separator: str, name: str, columns: Columns) -> Iterator[Row]:
    records = _records(text, separator)
    header: Any = next(records, (0, []))[1]
    if isinstance(header, csv.Error):
        raise ValueError(f"file: the header of {name} cannot be read: {header}")
    at = [header.index(column) for column in columns.known(header, name)]
    for number, (line, cells) in enumerate(records):
        if isinstance(cells, csv.Error):
            problem = f"the quotes up to line {line} do not fit: {cells}"
            yield Row(number, "", problem, columns.unread)
        elif any(cells[len(header) :]):
            # An unquoted separator: what stands after it would be lost without a word.
            counts = f"{len(cells)} cells, and the header has {len(header)}"
            yield Row(number, "", f"line {line} has {counts}", columns.unread)
        else:
            own, *also = [cells[k] if k < len(cells) else None for k in at]
            yield row_of(number, own, tuple(also))


def _records(text: io.TextIOWrapper, separator: str) -> Iterator[tuple[int, Any]]:
    """Line number and cells of each record that is not blank, or the error in place of them."""
    # strict: quotes that do not fit would swallow the rows after them.
    reader = csv.reader(text, delimiter=separator, strict=True)
    while True:
        before = csv.field_size_limit(_LONGEST_CELL)
        record: list[str] | csv.Error
        try:
            record = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            record = error
        finally:
            csv.field_size_limit(before)
        if record:
            yield reader.line_num, record


def _jsonl(text: io.TextIOWrapper, name: str, columns: Columns) -> Iterator[Row]:
    text.reconfigure(newline="\n")
    values = _values(text)
    first = list(islice(values, _ROWS_WITH_KEYS))
    objects = [value for _, value in first if isinstance(value, dict)]
    wanted = DEFAULT_COLUMN
    if objects or columns != ONLY_TEXTS:
        wanted, *_ = columns.known(list(dict.fromkeys(chain(*objects))), name)
    for number, (line, value) in enumerate(chain(first, values)):
        if isinstance(value, Exception):
            yield Row(number, "", f"line {line} is not JSON: {value}", columns.unread)
            continue
        own, also = value, columns.unread
        if isinstance(value, dict):
            also = tuple(value.get(column) for column in columns.also)
            if wanted not in value:
                yield Row(number, "", f"line {line} has no {wanted!r}", also)
                continue
            own = value[wanted]
        yield row_of(number, own, also)


def _values(text: io.TextIOWrapper) -> Iterator[tuple[int, Any]]:
    """Line number and value of each line that is not blank, or the error in place of it."""
    for number, line in enumerate(text, 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            value = error
        yield number, value


def _parquet(path: Path, name: str, columns: Columns) -> Iterator[Row]:
    arrow, parquet = (import_extra(part, "tables") for part in ("pyarrow", "pyarrow.parquet"))
    with path.open("rb") as stream:
        try:
            file = parquet.ParquetFile(stream)
            wanted, *others = columns.known(file.schema_arrow.names, name)
            held = file.schema_arrow.field(wanted).type
            if arrow.types.is_dictionary(held):
                held = held.value_type
            texts = ("string", "large_string", "string_view", "null")
            if str(held) not in texts:
                raise ValueError(f"column: {wanted!r} in {name} holds {held}, not texts")
            number = 0
            for batch in file.iter_batches(_CELLS_AT_ONCE, columns=[wanted, *others]):
                cells = [batch.column(column).to_pylist() for column in (wanted, *others)]
                for own, *also in zip(*cells, strict=True):
                    yield row_of(number, own, tuple(also))
                    number += 1
        except (arrow.ArrowException, OSError) as error:
            raise ValueError(f"file: {name} is no whole Parquet file: {error}") from error


_KINDS: dict[str, Callable[[io.TextIOWrapper, str, Columns], Iterator[Row]]] = {
    ".csv": _csv,
    ".tsv": _tsv,
    ".jsonl": _jsonl,
    ".ndjson": _jsonl,
}


def _known_column(wanted: str, names: Collection[str], name: str) -> str:
    """The column that was asked for, where there is one of that name."""
    count = list(names).count(wanted)
    if count == 1:
        return wanted
    if count > 1:
        raise ValueError(f"column: {name} has {count} columns called {wanted!r}")
    listed = ", ".join(map(repr, islice(names, _MOST_LISTED))) or "none at all"
    more = ", …" if len(names) > _MOST_LISTED else ""
    raise ValueError(f"column: no {wanted!r} in {name}; its columns: {listed}{more}")
