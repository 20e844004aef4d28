"""Never a D×D array, and temporaries within the budget; in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("resource", reason="peak memory is measured with POSIX's resource")

MIB = 2**20
# On Linux in KiB, on macOS in bytes.
UNIT = 1 if sys.platform == "darwin" else 1024

_CODE = """
import resource, sys, torch
from wsfast.generalization import experiment
torch.set_num_threads(1)
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
def run(N, n, d):
    texts = torch.nn.functional.normalize(torch.randn(N + 1, n, d), dim=-1) * d**0.5
    labels = [1, -1] * (N // 2)
    options = dict(map=sys.argv[1], memory_budget=16 * 2**20, positions=[0, 1], max_steps=5)
    before = peak()
    experiment(texts[:N], labels, texts[N], 1, **options)
    return before, peak()
run(4, 3, 5)
print(*run(200, 64, 128))
"""


@pytest.mark.parametrize("name", ["raf", "rf"])
def test_peak(name):
    """D = 8,192: Φ takes 6.25 MiB, a D×D matrix would take 512."""
    done = subprocess.run(
        [sys.executable, "-c", _CODE, name],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    before, after = (int(word) * UNIT for word in done.stdout.split())
    # Φ twice (before and after ϕ), V_i of a position, a block of V; the budget.
    assert after - before <= 16 * MIB + 64 * MIB
