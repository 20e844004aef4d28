"""Shards of a corpus: so many rows of its files, and the Parquet file that is made of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from wsfast._extras import import_extra
from wsfast._read_texts import Row, read_texts

if TYPE_CHECKING:
    from wsfast.corpus.scorer import Scorer

_ABOUT = b"wsfast"  # key of what a file says of itself


class Source(NamedTuple):
    """Files of texts, read one after the other, and the columns that are wanted of them."""

    files: tuple[Path, ...]
    column: str | None
    id: str | None
    label: str | None
    limit: int | None

    @property
    def also(self) -> dict[str, str]:
        """Names of further columns in a shard, and in the files."""
        named = {"id": self.id, "label": self.label}
        return {name: column for name, column in named.items() if column is not None}

    def rows(self) -> Iterator[Row]:
        """All rows, numbered over all files."""
        also = tuple(self.also.values())
        every = (row for file in self.files for row in read_texts(file, self.column, also))
        numbered = (row._replace(number=number) for number, row in enumerate(every))
        return islice(numbered, self.limit)

    def shards(self, size: int) -> Iterator[Shard]:
        """The rows, `size` of them at a time; the last may have fewer."""
        rows = self.rows()
        number = 0
        while some := list(islice(rows, size)):
            yield Shard(number, tuple(self.also), some)
            number += 1


class About(NamedTuple):
    """What a shard's file says of itself."""

    digest: str
    rows: int
    errors: int


class Shard(NamedTuple):
    """Rows that are measured, and written, together."""

    number: int
    also: tuple[str, ...]  # names of the further columns
    rows: list[Row]

    @property
    def name(self) -> str:
        """Of its file."""
        return name_of(self.number)

    @property
    def digest(self) -> str:
        """Tells these rows from others."""
        found = hashlib.sha256()
        for row in self.rows:
            cells = [row.text, row.problem, *row.also]
            found.update(json.dumps(cells, default=str).encode())
        return found.hexdigest()

    def measured(self, scorer: Scorer) -> bytes:
        """The Parquet file of its rows; the same bytes for the same rows and settings."""
        arrow, parquet = (import_extra(part, "tables") for part in ("pyarrow", "pyarrow.parquet"))
        found = scorer({scorer.column: [row.text for row in self.rows]})
        broken = [row.problem for row in self.rows]
        found["error"] = [own or error for own, error in zip(broken, found["error"], strict=True)]
        columns = {
            "row": arrow.array([row.number for row in self.rows], arrow.int64()),
            **{
                name: arrow.array([_string(row.also[k]) for row in self.rows], arrow.string())
                for k, name in enumerate(self.also)
            },
            "digest": arrow.array(
                [_short(row.text) if row.problem is None else None for row in self.rows],
                arrow.string(),
            ),
            **{field.name: arrow.array(found[field.name], field.type) for field in scorer.schema},
        }
        errors = sum(error is not None for error in found["error"])
        about = About(self.digest, len(self.rows), errors)
        table = arrow.table(columns).replace_schema_metadata(
            {_ABOUT: json.dumps(about._asdict()).encode()}
        )
        sink = arrow.BufferOutputStream()
        parquet.write_table(table, sink, compression="zstd")
        content: bytes = sink.getvalue().to_pybytes()
        return content


def name_of(number: int) -> str:
    """The file of a shard."""
    return f"{number:08}.parquet"


def about(file: Path) -> About:
    """What a shard's file says of itself.

    Raises
    ------
    ValueError
        If it is none.
    """
    arrow, parquet = (import_extra(part, "tables") for part in ("pyarrow", "pyarrow.parquet"))
    try:
        metadata = parquet.read_metadata(file).metadata or {}
        return About(**json.loads(metadata[_ABOUT]))
    except (arrow.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{str(file)!r} is not a shard that wsfast wrote: {error}") from error


def column_names(scorer: Scorer, also: Iterable[str]) -> list[str]:
    """Columns of a shard."""
    return ["row", *also, "digest", *scorer.columns]


def _short(text: str) -> str:
    """Tells a text from others."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _string(cell: Any) -> str | None:
    """An identifier or a label as a column of strings holds it."""
    if cell is None or cell != cell:
        return None
    return str(cell).encode(errors="backslashreplace").decode()
