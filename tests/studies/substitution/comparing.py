"""Results against tables of true changes, and against each other."""

from __future__ import annotations

import torch
from studies.substitution.truth import ACCURACY, error, order

from wsfast.results.substitution import SubstitutionResult

ARRAYS = ("value", "best_candidate", "best_value", "top_position", "top_candidate", "top_value")


def pairs(result, *at):
    """The top pairs, in order."""
    positions, candidates = result.top_position[at], result.top_candidate[at]
    return list(zip(positions.tolist(), candidates.tolist(), strict=True))


def same(one: SubstitutionResult, two: SubstitutionResult, rtol=0.0):
    """Whether two results tell the same, their values up to `rtol`."""
    for name in (*ARRAYS, "grid_candidate", "grid_value", "table"):
        a, b = getattr(one, name), getattr(two, name)
        if a is None or b is None:
            assert a is b
            continue
        a, b = torch.as_tensor(a), torch.as_tensor(b)
        loose = 1e-4 if a.dtype == torch.float32 else 1e-9
        rtol_here = (rtol and loose) if name in ("grid_value", "table") else rtol
        torch.testing.assert_close(a, b, rtol=rtol_here, atol=1e-3 * rtol_here, equal_nan=True)


def matches(result, table, largest=True):
    """Whether a result is what its table (n, V) of true changes says; NaN was not searched."""
    table = torch.as_tensor(table)
    expected = order(table, result.top_value.shape[-1], largest=largest)
    assert pairs(result) == expected
    values = torch.stack([table[pair] for pair in expected])
    limit = 2e-7 if result.top_value.dtype == torch.float32 else 1e-9
    assert error(result.top_value, values) <= limit
    assert float(result.value) == float(result.top_value[0])
    firsts = {}
    for i, row in enumerate(table):
        for _, v in order(row[None], 1, largest=largest):
            firsts[i] = v
    assert result.best_candidate.tolist() == [firsts.get(i, -1) for i in range(len(table))]
    for i, v in firsts.items():
        assert error(result.best_value[i], table[i, v]) <= limit
    assert result.best_value.isnan().tolist() == [i not in firsts for i in range(len(table))]
    candidates = shown(table, result.top_value.shape[-1], largest=largest)
    assert result.grid_candidate.tolist() == candidates
    grid = table[:, candidates]
    assert torch.equal(result.grid_value.isnan(), grid.isnan())
    limit = ACCURACY[result.grid_value.dtype]
    assert error(result.grid_value[~grid.isnan()], grid[~grid.isnan()]) <= limit


def shown(table, k, *, largest=True):
    """Candidates to show, by plain sorting: of the top k, of each position, up to eight in all."""
    table = torch.as_tensor(table)
    ranking = order(table, table.numel(), largest=largest)
    firsts = {i: order(row[None], 1, largest=largest) for i, row in enumerate(table)}
    best = [(i, v) for i, v in ranking if firsts[i][0][1] == v]
    candidates = [*dict.fromkeys(v for _, v in ranking[:k])]
    for more, enough in ((best, 60), (ranking, 8)):
        for _, v in more:
            if v not in candidates and len(candidates) < enough:
                candidates.append(v)
    return candidates
