"""Long texts, and the budget that temporaries keep to; each in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

resource = pytest.importorskip("resource", reason="peak memory is measured with POSIX's resource")

MIB = 2**20
# On Linux in KiB, on macOS in bytes.
UNIT = 1 if sys.platform == "darwin" else 1024

_START = """
import resource, torch, wsfast
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
def text(n, d, dtype=torch.float32):
    X = torch.randn(n, d, dtype=dtype)
    return torch.nn.functional.normalize(X, dim=1) * d**0.5
wsfast.raf_sensitivity(text(8, 4))
"""


def peaks(code: str) -> list[int]:
    """Peak memory in bytes, wherever `code` prints it."""
    done = subprocess.run(
        [sys.executable, "-c", _START + code],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [int(line) * UNIT for line in done.stdout.split()]


def test_long_text():
    code = """
result = wsfast.raf_sensitivity(text(8192, 384), positions=[0, 5])
assert result.per_word.isfinite().nonzero().flatten().tolist() == [0, 5]
assert 0 < float(result) < 100
print(peak())
"""
    (peak,) = peaks(code)
    assert peak < 4 * 2**30


# A process for each: not every combination.
@pytest.mark.parametrize(
    ("call", "weight_fn", "backend"),
    [
        ("search", "softmax", None),
        ("search", "relu", None),
        ("norms", "softmax", None),
        ("search", "softmax", "torch"),
        ("norms", "relu", "torch"),
        ("search", "relu", "reference"),
        ("norms", "softmax", "reference"),
    ],
)
def test_budget(call, weight_fn, backend):
    """Growth of the peak stays within the budget and some copies of what goes in and comes out."""
    n, d, budget = (1500, 128, 32 * MIB) if backend is None else (600, 64, 16 * MIB)
    where = "range(0, 1500, 100)" if backend is None else "[0, 1]"
    calls = {
        "search": f"wsfast.raf_sensitivity(X, W, positions={where}, max_steps=3, **options)",
        "norms": "wsfast.raf_delta_norms(X, W, delta, **options)",
    }
    m = 8 if backend is None else 2
    code = f"""
torch.set_num_threads(1)
X, W, delta = text({n}, {d}), wsfast.random_weights({d}), text({m}, {d})
options = dict(memory_budget={budget}, weight_fn={weight_fn!r}, backend={backend!r})
wsfast.raf_delta_norms(X[:20], W, delta, **options)
before = peak()
{calls[call]}
print(before, peak())
"""
    before, after = peaks(code)
    copies = 12 * 8 * (n * d + d * d)
    assert after - before <= budget + copies + 24 * MIB


def test_many_points_keep_nothing():
    """The reference goes point by point here: what it keeps of each is one number."""
    code = """
torch.set_num_threads(1)
X, W, delta = text(300, 64), wsfast.random_weights(64), text(6, 64)
options = dict(memory_budget=1, backend="reference")
wsfast.raf_delta_norms(X[:20], W, delta, **options)
before = peak()
wsfast.raf_delta_norms(X, W, delta, **options)
print(before, peak())
"""
    before, after = peaks(code)
    assert after - before <= 32 * MIB  # 1,800 points of 75 KiB each would be 132 MiB


def test_budget_of_word_sensitivity():
    code = """
torch.set_num_threads(1)
X = text(400, 64)
sizes = []
def phi(X):
    sizes.append(X.numel() * X.element_size())
    return X.square()
before = peak()
wsfast.word_sensitivity(phi, X, max_steps=2, memory_budget=8 * 2**20)
assert max(sizes[1:]) <= 8 * 2**20, max(sizes)
print(before, peak())
"""
    before, after = peaks(code)
    # φ, its gradient and what autograd keeps come on top.
    assert after - before <= 6 * 8 * MIB
