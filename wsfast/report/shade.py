"""How dark a word is shown."""

from __future__ import annotations

import math

from wsfast.report.view import Row, View


def shades(view: View) -> list[float | None]:
    """Give each row a number from 0 (palest) to 1 (darkest); None for NaN.

    Words of one text are compared with one another: S_i of attention seldom comes near 0, and
    shades from 0 on would look all alike. Where rows have intervals, no shade tells apart what they
    do not: the darkest is that of the largest S_i and of every word whose interval reaches that
    word's interval; the next begins with the largest S_i that is left, and so on. Where all are
    equal, all are 1.
    """
    leaders = _leaders(view.rows)
    known = [leader.value for leader in leaders if leader is not None]
    if not known:
        return [None] * len(leaders)
    low, high = min(known), max(known)
    span = high - low
    return [
        None if leader is None else (leader.value - low) / span if span > 0 else 1.0
        for leader in leaders
    ]


def legend(view: View) -> str:
    """Say what the shades mean."""
    if view.draws is None:
        return "shades are relative: from the smallest S_i of the text to the largest"
    return (
        "shades are relative: from the smallest S_i of the text to the largest; words share one "
        "where their 95 % intervals reach that of the largest of them"
    )


def _leaders(rows: list[Row]) -> list[Row | None]:
    """For each row the one whose S_i its shade shows; None for NaN."""
    leaders: list[Row | None] = [None] * len(rows)
    known = [place for place, row in enumerate(rows) if not math.isnan(row.value)]
    leader = None
    for place in sorted(known, key=lambda place: rows[place].value, reverse=True):
        if leader is None or not _reaches(rows[place], leader):
            leader = rows[place]
        leaders[place] = leader
    return leaders


def _reaches(row: Row, leader: Row) -> bool:
    """Whether the interval of a row overlaps that of one with a larger S_i."""
    return row.high is not None and leader.low is not None and row.high >= leader.low
