"""`Corpus.summary`: what words, positions, lengths and labels have to do with the values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from wsfast import _values
from wsfast.corpus.query import OWN, interval, opened
from wsfast.results.corpus_summary import OF_LENGTH, CorpusSummary, Group

if TYPE_CHECKING:
    from wsfast.corpus.folder import Folder

LISTS = {"S_i": "S", "mask_i": "mask_max", "substitute_i": "substitute_max"}
"""Lists of values at the words of a text, and the largest of each."""


# One row a group: the mean of a text is one observation, as words of one text are not independent.
_GROUPED = """
WITH cells AS ({cells}),
each_text AS (
    SELECT key, row, avg(value) AS mean, count(*) AS count FROM cells
    WHERE value IS NOT NULL AND key IS NOT NULL GROUP BY key, row
),
of_texts AS (
    SELECT key, count(*) AS texts, sum(count)::BIGINT AS count, avg(mean) AS mean,
        stddev_samp(mean) AS spread
    FROM each_text GROUP BY key
),
of_values AS (
    SELECT key, min(value) AS least, quantile_cont(value, [0.05, 0.5, 0.95]) AS q,
        max(value) AS largest
    FROM cells WHERE value IS NOT NULL AND key IS NOT NULL GROUP BY key
)
SELECT key, texts, count, mean, spread, least, q[1], q[2], q[3], largest
FROM of_texts JOIN of_values USING (key) ORDER BY key
"""
_WORDS = """
SELECT row, unnest({words}) AS key, unnest("{of}") AS value FROM {table} WHERE "{of}" IS NOT NULL
"""
_CELLS = {
    "word": f"SELECT row, lower(key) AS key, value FROM ({_WORDS.replace('{words}', 'words')})",
    "position": _WORDS.replace("{words}", "range(len(words))"),
    "length": f"""
SELECT row, (tokens - 1) // {OF_LENGTH} * {OF_LENGTH} + 1 AS key, "{{largest}}" AS value
FROM {{table}}
""",
    "label": 'SELECT row, label AS key, "{largest}" AS value FROM {table}',
    "all": 'SELECT row, 0 AS key, "{largest}" AS value FROM {table}',
}


def summarized(corpus: Folder, of: str | None, least_texts: int) -> CorpusSummary:
    """What :meth:`Corpus.summary` gives."""
    columns: Sequence[str] = corpus.settings["columns"]
    known = [name for name in LISTS if name in columns]
    if not known:
        raise ValueError(
            f"corpus must have values of words to sum up ({', '.join(LISTS)}), got one of "
            f"{', '.join(corpus.settings['what'])}"
        )
    of = known[0] if of is None else _values.one_of("of", of, tuple(known))
    least_texts = _values.integer("least_texts", least_texts, low=1)
    found = {}
    with opened(corpus) as connection:
        for by, cells in _CELLS.items():
            if by == "label" and "label" not in columns:
                continue
            sql = cells.format(of=of, largest=LISTS[of], table=OWN)
            rows = connection.execute(_GROUPED.format(cells=sql)).fetchall()
            found[by] = [_group(*row) for row in rows]
    overall = found.pop("all")
    return CorpusSummary(
        of, corpus.rows, corpus.errors, overall[0] if overall else None, found, least_texts
    )


def _group(
    key: Any, texts: int, count: int, mean: float, spread: float | None, *quantiles: float
) -> Group:
    return Group(key, texts, count, mean, *interval(mean, spread, texts), *quantiles)
