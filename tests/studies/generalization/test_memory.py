"""Never a D×D array, and temporaries within the budget; in a process of its own."""

from __future__ import annotations

import pytest
from peak_memory import MIB, growth, linux_only

pytestmark = linux_only

_CODE = """
from wsfast.generalization import experiment
def run(N, n, d):
    texts = torch.stack([text(n, d) for _ in range(N + 1)])
    labels = [1, -1] * (N // 2)
    options = dict(map=sys.argv[1], memory_budget=16 * 2**20, positions=[0, 1], max_steps=5)
    before = peak()
    experiment(texts[:N], labels, texts[N], 1, **options)
    return before
run(4, 3, 5)
before = run(200, 64, 128)
"""


@pytest.mark.deep
@pytest.mark.parametrize("name", ["raf", "rf"])
def test_peak(name):
    """D = 8,192: Φ takes 6.25 MiB, a D×D matrix would take 512."""
    # Φ twice (before and after ϕ), V_i of a position, a block of V; the budget.
    assert growth(_CODE, name) <= 16 * MIB + 64 * MIB
