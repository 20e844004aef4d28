"""The budget that temporaries keep to; each in a process of its own."""

from __future__ import annotations

import pytest
from peak_memory import MIB, growth, linux_only

pytestmark = linux_only

# What is made once: threads, buffers of the matrix product, imports.
_START = """
def search(X, E, W, **options):
    return wsfast.substitution_sensitivity(X, E, W, top_k=5, **options)
for backend in ({backend!r}, "torch"):
    search(text(8, 16), text(1500, 16), wsfast.random_weights(16), full=True, backend=backend)
"""


def grown(code: str, *arguments: str, backend: str | None = None) -> int:
    return growth(_START.format(backend=backend) + code, *arguments)


def allowed(budget: int, *, n: int, d: int, texts: int = 1, draws: int = 1, result: int = 0) -> int:
    """Budget, copies of X and W, n² numbers for a text, the result, and room for the allocator."""
    copies = 12 * 8 * (texts * draws * n * d + draws * d * d)
    return budget + copies + 2 * 8 * n * n + 3 * result + 16 * MIB


@pytest.mark.deep
@pytest.mark.parametrize("backend", [None, pytest.param("torch", marks=pytest.mark.deep)])
def test_many_candidates(backend):
    code = f"""
X, E, W = text(100, 64), text(30_000, 64), wsfast.random_weights(64)
scores = wsfast.self_scores(E, W)
before = peak()
search(X, E, W, self_scores=scores, memory_budget=8 * 2**20, backend={backend!r})
wsfast.self_scores(E, W, memory_budget=8 * 2**20)
"""
    # E in float64 is 15 MiB, its product with the text 45 MiB.
    assert grown(code, backend=backend) <= allowed(8 * MIB, n=100, d=64)


@pytest.mark.deep
def test_vocabulary_in_a_file(tmp_path):
    """Larger than the budget, and read where it is: looked at whenever a tile is read."""
    path = tmp_path / "rows"
    code = """
from wsfast.studies.substitution.table import CandidateTable
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
    # Beside the budget a self-score of every row is kept; E is 98 MiB in the file.
    assert grown(code, str(path)) <= 8 * MIB + 8 * 400_000


@pytest.mark.deep
def test_all_values():
    code = """
X, E, W = text(100, 16), text(40_000, 16), wsfast.random_weights(16)
before = peak()
result = search(X, E, W, full=True, memory_budget=8 * 2**20)
assert result.table.numel() * result.table.element_size() == 16_000_000
"""
    assert grown(code) <= allowed(8 * MIB, n=100, d=16, result=16_000_000)


@pytest.mark.deep
def test_many_texts_and_draws():
    """What is kept of 60 texts and draws is 60 MiB: they are let go of."""
    code = """
X, E, W = [text(200, 8) for _ in range(20)], text(300, 8), wsfast.random_weights(8, draws=3)
before = peak()
search(X, E, W, memory_budget=8 * 2**20)
"""
    # The allocator keeps pieces of every search, 26 to 39 MiB were seen in all.
    assert grown(code) <= allowed(8 * MIB, n=200, d=8, texts=20, draws=3) + 12 * MIB


@pytest.mark.deep
def test_long_text():
    """n² numbers are held once, not for every position."""
    code = """
X, E, W = text(1500, 8), text(200, 8), wsfast.random_weights(8)
before = peak()
search(X, E, W, positions=range(0, 1500, 50), memory_budget=8 * 2**20)
"""
    assert grown(code) <= allowed(8 * MIB, n=1500, d=8)


@pytest.mark.deep
def test_ties():
    """A vocabulary of one row: all pairs are as good as each other."""
    code = """
X, E, W = text(10, 512), text(1, 512).repeat(8_000, 1), wsfast.random_weights(512)
before = peak()
search(X, E, W, memory_budget=8 * 2**20)
"""
    # The pairs themselves, in a few arrays.
    pairs = 10 * 8_000 * 8
    assert grown(code) <= allowed(8 * MIB, n=10, d=512) + 12 * pairs


@pytest.mark.deep
def test_reference():
    code = """
X, E, W = text(30, 64), text(400, 64), wsfast.random_weights(64)
before = peak()
search(X, E, W, positions=range(0, 30, 5), memory_budget=8 * 2**20, backend="reference")
"""
    assert grown(code, backend="reference") <= allowed(8 * MIB, n=30, d=64)


@pytest.mark.deep
@pytest.mark.parametrize(
    "choice",
    [
        "allowed.expand(512, -1)",
        pytest.param("np.broadcast_to(allowed.numpy(), (512, 200_000))", marks=pytest.mark.deep),
        pytest.param("[allowed] * 512", marks=pytest.mark.deep),
        pytest.param("[allowed.nonzero()[:, 0]] + [[3]] * 511", marks=pytest.mark.deep),
    ],
)
def test_a_mask_of_all_positions_is_not_copied(choice):
    """Expanded, it takes V bytes; as a whole n·V, 98 MiB."""
    code = f"""
X, E, W = text(512, 4), text(200_000, 4), wsfast.random_weights(4)
allowed = torch.arange(200_000) % 1000 == 0
scores = wsfast.self_scores(E, W)
before = peak()
search(X, E, W, self_scores=scores, candidates={choice}, memory_budget=8 * 2**20)
"""
    # What is kept of 512 positions is some 45 MiB without any mask.
    assert grown(code) < 0.6 * 512 * 200_000
