"""SQL over the shards of a corpus, by DuckDB, which may read nothing else."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from wsfast._extras import import_extra
from wsfast.results.student_t import t_factor

if TYPE_CHECKING:
    from wsfast.corpus.folder import Folder

# No file is read or written, and no option is changed.
_LOCKED = "SET enable_external_access = false; SET lock_configuration = true"

_MOST_DOF = 1000  # where the factor is within 0.2 % of its limit

OWN, BASE = "own", "base"
"""Tables of a corpus, and of the one that it is compared with."""


@contextmanager
def opened(corpus: Folder, baseline: Folder | None = None) -> Iterator[Any]:
    """A connection to a database with the texts of a corpus as the table ``own``, and no more.

    The rows come from the shards as they are asked for. `baseline` is the table ``base``.

    Raises
    ------
    ImportError
        If duckdb is not installed.
    """
    duckdb = import_extra("duckdb", "corpus")
    with duckdb.connect(":memory:") as connection:
        for name, one in ((OWN, corpus), (BASE, baseline)):
            if one is not None:
                dataset = import_extra("pyarrow.dataset", "tables")
                connection.register(name, dataset.dataset([str(path) for path in one.shards]))
        connection.execute(_LOCKED)
        yield connection


def error_of() -> type[Exception]:
    """What DuckDB raises."""
    found: type[Exception] = import_extra("duckdb", "corpus").Error
    return found


def is_one_query(connection: Any, sql: str) -> bool:
    """Whether it is a single SELECT."""
    statements = connection.extract_statements(sql)
    return len(statements) == 1 and statements[0].type.name == "SELECT"


def parsed(connection: Any, sql: str) -> Any:
    """The first thing that a SELECT gives, as DuckDB reads it."""
    (text,) = connection.execute("SELECT json_serialize_sql(?)", [sql]).fetchone()
    return json.loads(text)["statements"][0]["node"]["select_list"][0]


def columns_in(node: Any) -> set[str]:
    """Names of the columns in what `parsed` gave, in small letters: SQL takes them so."""
    if isinstance(node, list):
        return set().union(*map(columns_in, node))
    if not isinstance(node, dict):
        return set()
    own = {str(name).lower() for name in node.get("column_names", ())}
    return own.union(*(columns_in(value) for value in node.values()))


def left_side(node: Any, sql: str) -> str | None:
    """What the comparison that is all of a SELECT has on its left; None for what is none."""
    if node.get("class") != "COMPARISON":
        return None
    left = node["left"]
    if "query_location_length" in left:
        start, stop = left["query_location"], left["query_location_length"]
        stop += start
    else:  # releases before 2.0 tell where the operator is
        start, stop = len("SELECT "), node["query_location"]
    return sql.encode()[start:stop].decode()


def interval(mean: float, spread: float | None, count: int) -> tuple[float, float]:
    """The 95 % interval of a mean over `count` texts (Student t); NaN of one text."""
    if spread is None or count < 2:
        return math.nan, math.nan
    half = _factor(min(count - 1, _MOST_DOF)) * spread / math.sqrt(count)
    return mean - half, mean + half


@cache
def _factor(dof: int) -> float:
    return t_factor(0.95, dof)
