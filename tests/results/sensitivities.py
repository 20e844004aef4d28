"""Small results to show."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from wsfast.results.sensitivity import SensitivityResult


def one(per_word: list[float], words: list[str] | None = None, **changes: Any) -> SensitivityResult:
    """A result of one text under one W."""
    array = np.array(per_word)
    known = not np.isnan(array).all()
    parts: dict[str, Any] = {
        "value": np.array(np.nanmax(array) if known else math.nan),
        "per_word": array,
        "position": np.array(np.nanargmax(array) if known else -1),
        "delta": np.zeros(3),
    }
    return SensitivityResult(**parts, radius=1.0, info={}, words=words, **changes)


def many(
    per_word: list[Any], axes: tuple[str, ...], words: Any = None, **changes: Any
) -> SensitivityResult:
    """A result with axes; `per_word` has no row of NaN alone."""
    array = np.array(per_word, dtype=float)
    return SensitivityResult(
        value=np.nanmax(array, axis=-1),
        per_word=array,
        position=np.nanargmax(array, axis=-1),
        delta=np.zeros((*array.shape[:-1], 3)),
        radius=1.0,
        info={},
        axes=axes,
        words=words,
        **changes,
    )
