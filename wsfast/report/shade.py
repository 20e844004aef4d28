"""How dark a word is shown."""

from __future__ import annotations

import math

from wsfast.report.view import Row


def shades(rows: list[Row]) -> list[float | None]:
    """Give each row a number from 0 (smallest S_i of the text) to 1 (largest); None for NaN.

    Words of one text are compared with one another: S_i of attention seldom comes near 0, and
    shades from 0 on would look all alike. Where all are equal, all are 1.
    """
    known = [row.value for row in rows if not math.isnan(row.value)]
    if not known:
        return [None] * len(rows)
    low, high = min(known), max(known)
    span = high - low
    return [
        None if math.isnan(row.value) else (row.value - low) / span if span > 0 else 1.0
        for row in rows
    ]
