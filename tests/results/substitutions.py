"""Results made from tables of changes, by plain sorting."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from wsfast.results.substitution import SubstitutionResult

NAN = math.nan


def found(
    table: Any,
    axes: tuple[str, ...] = (),
    *,
    k: int = 3,
    largest: bool = True,
    full: bool = False,
    kind: str = "numpy",
    dtype: str = "float64",
    **changes: Any,
) -> SubstitutionResult:
    """The result whose changes are `table` (B?, R?, n, V); NaN for pairs not searched."""
    table = np.array(table, dtype=dtype)
    lead, (n, count) = table.shape[:-2], table.shape[-2:]
    parts: dict[str, Any] = {
        "value": np.full(lead, NAN, dtype),
        "best_candidate": np.full((*lead, n), -1),
        "best_value": np.full((*lead, n), NAN, dtype),
        "top_position": np.full((*lead, k), -1),
        "top_candidate": np.full((*lead, k), -1),
        "top_value": np.full((*lead, k), NAN, dtype),
    }
    grids = {}
    sign = -1 if largest else 1
    for at in np.ndindex(lead):
        one = table[at]
        order = np.argsort(sign * one, axis=None, kind="stable")
        pairs = [divmod(int(pair), count) for pair in order if not math.isnan(one.flat[pair])]
        for i, v in pairs:
            if parts["best_candidate"][at][i] < 0:
                parts["best_candidate"][at][i] = v
                parts["best_value"][at][i] = one[i, v]
        if pairs:
            parts["value"][at] = one[pairs[0]]
        for rank, (i, v) in enumerate(pairs[:k]):
            parts["top_position"][at][rank] = i
            parts["top_candidate"][at][rank] = v
            parts["top_value"][at][rank] = one[i, v]
        grids[at] = _shown(pairs, k)
    width = max(map(len, grids.values()))
    parts["grid_candidate"] = np.full((*lead, width), -1)
    parts["grid_value"] = np.full((*lead, n, width), NAN, dtype)
    for at, shown in grids.items():
        parts["grid_candidate"][at][: len(shown)] = shown
        parts["grid_value"][at][:, : len(shown)] = table[at][:, shown]
    parts["table"] = table if full else None
    if kind == "torch":
        parts = {name: part if part is None else torch.tensor(part) for name, part in parts.items()}
    info = {"candidates": count, "backend": "torch", "seed": 3}
    return SubstitutionResult(
        **{**parts, "largest": largest, "info": info, "axes": axes, **changes}
    )


def _shown(pairs: list[tuple[int, int]], k: int) -> list[int]:
    """Candidates of the top pairs, of each position, and the next best, of ranked pairs."""
    best: dict[int, int] = {}
    for i, v in pairs:
        best.setdefault(i, v)
    shown = [*dict.fromkeys(v for _, v in pairs[:k])]
    for more, enough in ((list(best.values()), 60), ([v for _, v in pairs], 8)):
        for v in more:
            if v not in shown and len(shown) < enough:
                shown.append(v)
    return shown
