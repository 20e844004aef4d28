"""The budget that temporaries keep to; each in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

# resource.getrusage would not do: a process inherits the peak of the one that started it.
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")

MIB = 2**20

_START = """
import sys, numpy as np, torch, wsfast
torch.set_num_threads(1)
def memory(what):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(what))
def peak():
    return memory("VmHWM")
def text(n, d):
    return torch.nn.functional.normalize(torch.randn(n, d), dim=1) * d**0.5
def search(X, E, W, **options):
    return wsfast.substitution_sensitivity(X, E, W, top_k=5, **options)
# What is made once: threads, buffers of the matrix product, imports.
for backend in ({backend!r}, "torch"):
    search(text(8, 16), text(1500, 16), wsfast.random_weights(16), full=True, backend=backend)
"""


def growth(code: str, *arguments: str, backend: str | None = None) -> int:
    """By how much the peak grows, in bytes, from where `code` sets `before` to its end."""
    code = _START.format(backend=backend) + code + "\nprint(before, peak())"
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    before, after = (1024 * int(number) for number in done.stdout.split())
    return after - before


def allowed(budget: int, *, n: int, d: int, texts: int = 1, draws: int = 1, result: int = 0) -> int:
    """Budget, copies of X and W, n² numbers for a text, the result, and room for the allocator."""
    copies = 12 * 8 * (texts * draws * n * d + draws * d * d)
    return budget + copies + 2 * 8 * n * n + 3 * result + 16 * MIB


@pytest.mark.parametrize("backend", [None, "torch"])
def test_many_candidates(backend):
    code = f"""
X, E, W = text(100, 64), text(30_000, 64), wsfast.random_weights(64)
scores = wsfast.self_scores(E, W)
before = peak()
search(X, E, W, self_scores=scores, memory_budget=8 * 2**20, backend={backend!r})
wsfast.self_scores(E, W, memory_budget=8 * 2**20)
"""
    # E in float64 is 15 MiB, its product with the text 45 MiB.
    assert growth(code, backend=backend) <= allowed(8 * MIB, n=100, d=64)


def test_vocabulary_in_a_file(tmp_path):
    """Larger than the budget, and read where it is: looked at whenever a tile is read."""
    path = tmp_path / "rows"
    code = """
from wsfast.substitution.table import CandidateTable
rows, d = 400_000, 128
E = np.memmap(sys.argv[1], dtype=np.float16, mode="w+", shape=(rows, d))
for first in range(0, rows, 10_000):
    E[first:first + 10_000] = text(10_000, d).numpy()
E.flush()
E = np.memmap(sys.argv[1], dtype=np.float16, mode="r", shape=(rows, d))
X, W = text(6, d), wsfast.random_weights(d)
search(X, E[:5000], W, memory_budget=8 * 2**20)
before, seen, read = memory("RssAnon"), [], CandidateTable._tensor
def looked(table, part):
    seen.append(memory("RssAnon"))
    return read(table, part)
CandidateTable._tensor = looked
search(X, E, W, memory_budget=8 * 2**20)
assert len(seen) > 390
peak = lambda: max(seen)
"""
    assert growth(code, str(path)) <= 8 * MIB


def test_all_values():
    code = """
X, E, W = text(100, 16), text(40_000, 16), wsfast.random_weights(16)
before = peak()
result = search(X, E, W, full=True, memory_budget=8 * 2**20)
assert result.table.numel() * result.table.element_size() == 16_000_000
"""
    assert growth(code) <= allowed(8 * MIB, n=100, d=16, result=16_000_000)


def test_many_texts_and_draws():
    """What is kept of 60 texts and draws is 60 MiB: they are let go of."""
    code = """
X, E, W = [text(200, 8) for _ in range(20)], text(300, 8), wsfast.random_weights(8, draws=3)
before = peak()
search(X, E, W, memory_budget=8 * 2**20)
"""
    # The allocator keeps pieces of every search, 26 to 39 MiB were seen in all.
    assert growth(code) <= allowed(8 * MIB, n=200, d=8, texts=20, draws=3) + 12 * MIB


def test_long_text():
    """n² numbers are held once, not for every position."""
    code = """
X, E, W = text(1500, 8), text(200, 8), wsfast.random_weights(8)
before = peak()
search(X, E, W, positions=range(0, 1500, 50), memory_budget=8 * 2**20)
"""
    assert growth(code) <= allowed(8 * MIB, n=1500, d=8)


def test_ties():
    """A vocabulary of one row: all pairs are as good as each other."""
    code = """
X, E, W = text(10, 512), text(1, 512).repeat(8_000, 1), wsfast.random_weights(512)
before = peak()
search(X, E, W, memory_budget=8 * 2**20)
"""
    # The pairs themselves, in a few arrays.
    pairs = 10 * 8_000 * 8
    assert growth(code) <= allowed(8 * MIB, n=10, d=512) + 12 * pairs


def test_reference():
    code = """
X, E, W = text(30, 64), text(400, 64), wsfast.random_weights(64)
before = peak()
search(X, E, W, positions=range(0, 30, 5), memory_budget=8 * 2**20, backend="reference")
"""
    assert growth(code, backend="reference") <= allowed(8 * MIB, n=30, d=64)
