"""Write data/net_0_1.json and data/saved_0_1: `PYTHONPATH=tests python -m net.write`.

Both were written by wsfast 0.1.0 at commit 5c77c43483a76dd8b790d88c7bfd0bd3436bf810, before the
middle of the package was rebuilt, and say what that version gave. They are not to be written again
to make a test pass.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import torch
from net.cases import CASES, Case
from net.running import SEARCHES, TABLE, call, figures, inputs, plain, sizes
from net.saved import FOLDER, RESULTS, describe, statistics

import wsfast


def values(case: Case) -> dict[str, Any]:
    """What the table has of a case.

    What is searched is what the default backend finds. What has one value is the closed form's in
    float64, at the inputs as the case's dtype rounds them.
    """
    searched = case.function in SEARCHES
    given = inputs(case, exact=not searched)
    backend = "torch" if case.backends and not searched else None
    known = figures(case, given, call(case, given, backend))
    if "delta" in given:
        known["size of φ"] = size(given)
    return {"inputs": sizes(case)} | {name: array.tolist() for name, array in known.items()}


def size(given: dict[str, Any]) -> np.ndarray[Any, Any]:
    """‖φ(X)‖ (B?, R?), which accuracy is relative to where changes are small."""
    names = ("X", "W", "mask", "weight_fn", "normalize")
    phi = wsfast.raf_features(**{name: given[name] for name in names if name in given})
    return np.sqrt(np.nansum(plain(phi) ** 2, axis=(-2, -1)))


def lines(values: Any, depth: int = 2) -> str:
    """JSON with a line for each entry of the outer dicts."""
    if depth == 0 or not isinstance(values, dict):
        return json.dumps(values, ensure_ascii=False)
    inner = ",\n".join(
        f"{json.dumps(k, ensure_ascii=False)}: {lines(v, depth - 1)}" for k, v in values.items()
    )
    return f"{{\n{inner}\n}}"


def main() -> None:
    torch.set_num_threads(1)
    TABLE.write_text(lines({case.name: values(case) for case in CASES}) + "\n", encoding="utf-8")
    FOLDER.mkdir(exist_ok=True)
    known = {}
    by_name = {case.name: case for case in CASES}
    for file, one in RESULTS.items():
        case = by_name[one.case]
        result = one.labelled(call(case, inputs(case), None))
        result.save(FOLDER / file)
        known[file] = describe(result) | {"statistics": statistics(result)}
    (FOLDER / "figures.json").write_text(lines(known) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
