"""Results as pandas data frames; the same things have the same names in all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from wsfast._extras import import_extra
from wsfast.results.arrays import to_numpy
from wsfast.results.axes import HasAxes, size, words_of

if TYPE_CHECKING:
    from pandas import DataFrame

    from wsfast.results.sensitivity import SensitivityResult
    from wsfast.results.substitution import SubstitutionResult


def of_sensitivity(result: SensitivityResult) -> DataFrame:
    """Rows of a result; see :meth:`wsfast.SensitivityResult.to_frame`."""
    S = to_numpy(result.per_word)
    known = np.nonzero(~np.isnan(S))
    columns = _places(result, known, known[-1], S.shape[-1])
    columns["S_i"] = S[known]
    if result.upper is not None:
        columns["upper"] = to_numpy(result.upper)[known]
    columns["worst"] = known[-1] == to_numpy(result.position)[known[:-1]]
    return _frame(columns)


def of_substitution(result: SubstitutionResult, of: str) -> DataFrame:
    """Rows of a result; see :meth:`wsfast.SubstitutionResult.to_frame`."""
    if of not in ("top", "positions"):
        raise ValueError(f'of: expected "top" or "positions", got {of!r}')
    candidates, values = (
        to_numpy(array)
        for array in (
            (result.top_candidate, result.top_value)
            if of == "top"
            else (result.best_candidate, result.best_value)
        )
    )
    known = np.nonzero(candidates >= 0)
    position = to_numpy(result.top_position)[known] if of == "top" else known[-1]
    candidate = candidates[known]
    columns = _places(result, known, position, int(result.best_value.shape[-1]))
    columns["candidate"] = candidate
    columns["name"] = ["" if result.names is None else result.names[v] for v in candidate]
    columns["value"] = values[known]
    return _frame(columns)


def _places(
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


def _frame(columns: dict[str, Any]) -> DataFrame:
    pandas = import_extra("pandas", "tables")
    frame: DataFrame = pandas.DataFrame(
        {
            # Lists are texts, also where they are empty.
            name: pandas.Series(cells, dtype=str) if isinstance(cells, list) else cells
            for name, cells in columns.items()
        }
    )
    return frame
