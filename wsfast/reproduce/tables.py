"""Tables of a reproduction: CSV, and Parquet where it can be written."""

from __future__ import annotations

import csv
import importlib.util
import io
from pathlib import Path
from typing import Any, NamedTuple

from wsfast._extras import import_extra
from wsfast._files import write_whole


class Table(NamedTuple):
    """Named columns of equal length; a cell is a str, an int, a float, or None for nothing."""

    name: str
    columns: dict[str, list[Any]]

    @classmethod
    def of_rows(cls, name: str, header: tuple[str, ...], rows: list[tuple[Any, ...]]) -> Table:
        """A table from its rows."""
        columns = zip(*rows, strict=True) if rows else ((),) * len(header)
        return cls(name, {key: list(cells) for key, cells in zip(header, columns, strict=True)})

    def rows(self) -> list[tuple[Any, ...]]:
        """The rows, in order."""
        return list(zip(*self.columns.values(), strict=True))


def write(table: Table, folder: Path) -> list[str]:
    """Write NAME.csv, and NAME.parquet where pyarrow is installed; returns the files' names.

    The bytes depend on the table alone. Numbers have full precision.
    """
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows(table.rows())
    names = [f"{table.name}.csv"]
    write_whole(folder / names[0], stream.getvalue().encode())
    if importlib.util.find_spec("pyarrow") is not None:
        names.append(f"{table.name}.parquet")
        write_whole(folder / names[1], _parquet(table))
    return names


def _parquet(table: Table) -> bytes:
    arrow, parquet = (import_extra(name, "tables") for name in ("pyarrow", "pyarrow.parquet"))
    sink = arrow.BufferOutputStream()
    parquet.write_table(arrow.table(table.columns), sink)
    content: bytes = sink.getvalue().to_pybytes()
    return content
