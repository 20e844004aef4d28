"""`Corpus.audit`: rules that a corpus must meet, and what has changed since another run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from wsfast.corpus.measures import BY_NAME
from wsfast.corpus.query import (
    BASE,
    OWN,
    columns_in,
    error_of,
    interval,
    is_one_query,
    left_side,
    opened,
    parsed,
)
from wsfast.results.audit import Audit, Paired, Verdict

if TYPE_CHECKING:
    from wsfast.corpus.folder import Folder

_SAME = 1e-5  # a value of a head that has changed by less, relative to it, is the same
# What may differ between runs that compare: who measured, and how the rows were written down.
_MAY_DIFFER = (
    "model", "weights", "versions", "torch", "instruction set", "threads", "backend",
    "column", "keep", "columns", "id", "label", "limit", "shard_rows",
)  # fmt: skip
_PAIRED = ("S", "upper", "mask_max", "substitute_max", "heads_max", "heads_upper")


def audited(corpus: Folder, rules: Sequence[str], baseline: Folder | None) -> Audit:
    """What :meth:`Corpus.audit` gives."""
    if isinstance(rules, str) or not all(isinstance(rule, str) for rule in rules):
        raise TypeError(f"rules must be a list of str, got {rules!r}")
    if not rules and baseline is None:
        raise ValueError("rules must hold a rule where there is no baseline, got none")
    if baseline is not None:
        _check_alike(corpus, baseline)
    with opened(corpus, baseline) as connection:
        columns: list[Paired] = []
        heads: list[Paired] = []
        texts = OWN
        if baseline is not None:
            shared = [
                name
                for name in corpus.settings["columns"]
                if name in baseline.settings["columns"] and name != "row"
            ]
            texts = _joined(shared)
            _check_same_texts(connection)
            columns = _columns(connection, texts, [one for one in _PAIRED if one in shared])
            heads = _heads(connection, texts) if "head_S" in shared else []
        verdicts = [_verdict(connection, rule, texts, corpus) for rule in rules]
    return Audit(
        path=corpus.path,
        baseline=None if baseline is None else baseline.path,
        model=corpus.settings["model"],
        base_model="" if baseline is None else baseline.settings["model"],
        rows=corpus.rows,
        errors=corpus.errors,
        verdicts=verdicts,
        columns=columns,
        heads=heads,
    )


# -- rules -----------------------------------------------------------------------------------------


def _verdict(connection: Any, rule: str, texts: str, corpus: Folder) -> Verdict:
    # In a line of its own: a comment in a rule must not hide what follows.
    sql = f"SELECT {rule}\nFROM {texts}"
    try:
        if not rule.strip() or not is_one_query(connection, sql):
            raise ValueError(f"rules must hold SQL conditions, got {rule!r}")
        # Without its table, which is long: a rule that reads another one is told by its columns.
        node = parsed(connection, f"SELECT {rule}")
        rows = connection.execute(sql).fetchmany(2)
        value = _left_value(connection, node, f"SELECT {rule}", texts)
    except error_of() as error:
        reason = str(error).strip().splitlines()[0]
        raise ValueError(f"rules must hold SQL conditions, got {rule!r}: {reason}") from error
    if rows and len(rows[0]) != 1:
        raise ValueError(f"rules must be one condition each, got {rule!r}")
    if len(rows) != 1:
        raise ValueError(
            f"rules must be aggregates, with one value for the whole corpus, got {rule!r}, which "
            "has one for each text: take avg, max, quantile_cont, …"
        )
    (found,) = rows[0]
    if found is not None and not isinstance(found, bool):
        raise ValueError(f"rules must be true or false, got {rule!r}, which is {found!r}")
    note = _note(columns_in(node), corpus)
    if found is None:
        value, note = "no value", "; ".join(filter(None, ["no text has a value", note]))
    return Verdict(rule, bool(found), value if value is not None else str(found).lower(), note)


def _left_value(connection: Any, node: Any, sql: str, texts: str) -> str | None:
    """What the left side of a comparison comes to, to show beside the rule."""
    left = left_side(node, sql)
    if left is None:
        return None
    try:
        found = connection.execute(f"SELECT {left}\nFROM {texts}").fetchone()[0]
    except error_of():  # of a comparison within brackets
        return None
    return f"{found:.6g}" if isinstance(found, float) else str(found)


def _note(names: set[str], corpus: Folder) -> str:
    """What a rule about values that a search has found does not show."""
    notes = []
    for measure in BY_NAME.values():
        used = [name for name in measure.searched if name.lower() in names]
        if not used:
            continue
        proved = measure.proved
        has = proved in corpus.settings["columns"]
        offer = f"`{proved}` is proved" + ("" if has else ": score with a bound to have it")
        notes.append(
            f"{', '.join(used)} is found by a search, a lower bound: no limit of it proves "
            f"anything from above; {offer}"
        )
    return "; ".join(notes)


# -- two runs --------------------------------------------------------------------------------------


def _check_alike(corpus: Folder, baseline: Folder) -> None:
    """Refuse runs whose values do not compare."""
    own, base = corpus.settings, baseline.settings
    for name in own.keys() | base.keys():
        if name not in _MAY_DIFFER and own.get(name) != base.get(name):
            raise ValueError(
                f"baseline must be of the same settings, got {name} {base.get(name)!r}, and "
                f"{own.get(name)!r} in {str(corpus.path)!r}"
            )
    if corpus.rows != baseline.rows:
        raise ValueError(
            f"baseline must be of the same texts, got {baseline.rows} of them, and {corpus.rows} "
            f"in {str(corpus.path)!r}"
        )


def _joined(shared: list[str]) -> str:
    """The texts of both runs: their columns, and those of the baseline as ``base_…``."""
    base = ", ".join(f'base."{name}" AS "base_{name}"' for name in shared)
    return f"(SELECT own.*, {base} FROM {OWN} AS own JOIN {BASE} AS base USING (row)) AS texts"


def _check_same_texts(connection: Any) -> None:
    (differ,) = connection.execute(
        f"SELECT count(*) FROM {OWN} AS own JOIN {BASE} AS base USING (row) "
        "WHERE own.digest IS DISTINCT FROM base.digest"
    ).fetchone()
    if differ:
        raise ValueError(f"baseline must be of the same texts, got {differ} others")


_STATISTICS = f"""
count(*), avg(before), avg(after), avg(after - before), stddev_samp(after - before),
count(*) FILTER (after > before), count(*) FILTER (after < before),
coalesce(max(abs(after - before) / greatest(abs(before), abs(after), 1e-300)), 0) <= {_SAME}
"""


def _columns(connection: Any, texts: str, names: list[str]) -> list[Paired]:
    found = []
    for name in names:
        row = connection.execute(
            f'WITH pairs AS (SELECT "base_{name}" AS before, "{name}" AS after FROM {texts}) '
            f"SELECT {_STATISTICS} FROM pairs WHERE before IS NOT NULL AND after IS NOT NULL"
        ).fetchone()
        if row[0]:
            found.append(_paired(name, None, *row))
    return found


def _heads(connection: Any, texts: str) -> list[Paired]:
    (differ,) = connection.execute(
        f"SELECT count(*) FROM {texts} WHERE head_layer <> base_head_layer OR head <> base_head"
    ).fetchone()
    if differ:
        raise ValueError("baseline must have the same layers and heads, got others")
    rows = connection.execute(
        "WITH pairs AS (SELECT unnest(head_layer) AS layer, unnest(head) AS head, "
        f"unnest(base_head_S)::DOUBLE AS before, unnest(head_S)::DOUBLE AS after FROM {texts}) "
        f"SELECT layer, head, {_STATISTICS} FROM pairs "
        "WHERE before IS NOT NULL AND after IS NOT NULL GROUP BY layer, head ORDER BY layer, head"
    ).fetchall()
    return [_paired("head_S", (layer, head), *row) for layer, head, *row in rows]


def _paired(
    name: str,
    place: tuple[int, int] | None,
    texts: int,
    before: float,
    after: float,
    difference: float,
    spread: float | None,
    rose: int,
    fell: int,
    same: bool,
) -> Paired:
    ends = interval(difference, spread, texts)
    return Paired(name, texts, before, after, difference, *ends, rose, fell, same, *(place or ()))
