"""Results as pandas data frames; the same things have the same names in all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from wsfast._extras import import_extra
from wsfast.results.axes import HasAxes, size, words_of

if TYPE_CHECKING:
    from pandas import DataFrame


def places(
    result: HasAxes, known: tuple[Any, ...], position: np.ndarray[Any, Any], n: int
) -> dict[str, Any]:
    """Text, draw, position and word of rows whose places along the axes are `known`."""
    columns: dict[str, Any] = {
        axis[:-1]: number for axis, number in zip(result.axes, known, strict=False)
    }
    words = [words_of(result, text, n) for text in range(size(result, "texts") or 1)]
    texts = columns.get("text", np.zeros_like(position))
    columns["position"] = position
    columns["word"] = [words[text][i] for text, i in zip(texts, position, strict=True)]
    return columns


def frame(columns: dict[str, Any]) -> DataFrame:
    """Make a data frame of columns; lists are texts."""
    pandas = import_extra("pandas", "tables")
    made: DataFrame = pandas.DataFrame(
        {
            # Lists are texts, also where they are empty.
            name: pandas.Series(cells, dtype=str) if isinstance(cells, list) else cells
            for name, cells in columns.items()
        }
    )
    return made
