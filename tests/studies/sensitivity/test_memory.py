"""Long texts, and the budget that temporaries keep to; each in a process of its own."""

from __future__ import annotations

import pytest
from peak_memory import MIB, growth, linux_only

pytestmark = linux_only

# The first use of autograd in a process takes some 46 MiB for good.
_START = """
wsfast.raf_sensitivity(text(8, 4))
wsfast.word_sensitivity(torch.square, text(8, 4), max_steps=2)
"""


@pytest.mark.deep
def test_long_text():
    code = """
before = 0
result = wsfast.raf_sensitivity(text(8192, 384), positions=[0, 5])
assert result.per_word.isfinite().nonzero().flatten().tolist() == [0, 5]
assert 0 < float(result) < 100
"""
    assert growth(code) < 4 * 2**30


@pytest.mark.deep
# A process for each: not every combination.
@pytest.mark.parametrize(
    ("call", "weight_fn", "backend"),
    [
        ("search", "softmax", None),
        pytest.param("search", "relu", None, marks=pytest.mark.deep),
        pytest.param("norms", "softmax", None, marks=pytest.mark.deep),
        pytest.param("search", "softmax", "torch", marks=pytest.mark.deep),
        pytest.param("norms", "relu", "torch", marks=pytest.mark.deep),
        pytest.param("sites", "softmax", None, marks=pytest.mark.deep),
        pytest.param("search", "relu", "reference", marks=pytest.mark.deep),
        pytest.param("norms", "softmax", "reference", marks=pytest.mark.deep),
    ],
)
def test_budget(call, weight_fn, backend):
    """Growth of the peak stays within the budget and some copies of what goes in and comes out."""
    n, d, budget = (1500, 128, 32 * MIB) if backend is None else (600, 64, 16 * MIB)
    where = "range(0, 1500, 100)" if backend is None else "[0, 1]"
    calls = {
        "search": f"wsfast.raf_sensitivity(X, W, positions={where}, max_steps=3, **options)",
        "norms": "wsfast.raf_delta_norms(X, W, delta, **options)",
        "sites": "wsfast.raf_sensitivity(X, W, positions=[(i, i + 1) for i in range(0, 1500, 50)],"
        " max_steps=3, **options)",
    }
    m = 8 if backend is None else 2
    code = f"""
{_START}
X, W, delta = text({n}, {d}), wsfast.random_weights({d}), text({m}, {d})
options = dict(memory_budget={budget}, weight_fn={weight_fn!r}, backend={backend!r})
wsfast.raf_delta_norms(X[:20], W, delta, **options)
wsfast.raf_sensitivity(X[:20], W, positions=[0], max_steps=3, **options)
before = peak()
{calls[call]}
"""
    copies = 12 * 8 * (n * d + d * d)
    assert growth(code) <= budget + copies + 24 * MIB


@pytest.mark.deep
def test_many_points_keep_nothing():
    """The reference goes point by point here: what it keeps of each is one number."""
    code = f"""
{_START}
X, W, delta = text(300, 64), wsfast.random_weights(64), text(6, 64)
options = dict(memory_budget=1, backend="reference")
wsfast.raf_delta_norms(X[:20], W, delta, **options)
before = peak()
wsfast.raf_delta_norms(X, W, delta, **options)
"""
    assert growth(code) <= 32 * MIB  # 1,800 points of 75 KiB each would be 132 MiB


@pytest.mark.deep
def test_budget_of_word_sensitivity():
    code = f"""
{_START}
X = text(400, 64)
sizes = []
def phi(X):
    sizes.append(X.numel() * X.element_size())
    return X.square()
before = peak()
wsfast.word_sensitivity(phi, X, max_steps=2, memory_budget=8 * 2**20)
assert max(sizes[1:]) <= 8 * 2**20, max(sizes)
"""
    # φ, its gradient and what autograd keeps come on top.
    assert growth(code) <= 6 * 8 * MIB
