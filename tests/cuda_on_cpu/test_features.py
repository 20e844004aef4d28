"""raf_features in one pass over the words: φ, and the statistics of every row."""

from __future__ import annotations

import pytest
import torch
from cuda_on_cpu.sizes import sampled
from definition import WEIGHT_FNS, features, random_text

from wsfast import raf_features
from wsfast.attention.core import core_of
from wsfast.attention.weight_fn import WeightFn
from wsfast.engines import compiled
from wsfast.engines.cuda import CUDA
from wsfast.engines.engine import TORCH
from wsfast.engines.features import fused_features, fused_text

pytestmark = [
    pytest.mark.deep,
    pytest.mark.needs("cuda_on_cpu"),
    pytest.mark.usefixtures("cuda_on_cpu"),
]

weight_fns = pytest.mark.parametrize(("weight_fn", "normalize"), WEIGHT_FNS)
dtypes = pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16], ids=["float32", "float64", "bfloat16"]
)
LIMIT = {torch.float32: 6e-6, torch.float64: 1e-13}


def text_batch(texts, n, d, dtype, seed=0, scale=1.0):
    """X (B, n, d), one word of each text eight times as long as the others, and W (2, d, d)."""
    pairs = [random_text(n, d, seed + 10 * b, scale=scale) for b in range(texts)]
    X = torch.stack([X for X, _ in pairs])
    X[:, n // 2] *= 8
    W = torch.stack([random_text(n, d, 77 + r)[1] for r in range(2)])
    return X.to(dtype), W.to(torch.float32 if dtype == torch.bfloat16 else dtype)


def truth(X, W, weight_fn, normalize, mask=None):
    return torch.stack(
        [
            torch.stack(
                [features(x, w, weight_fn, normalize, None if mask is None else mask[b]) for w in W]
            )
            for b, x in enumerate(X)
        ]
    )


def check(phi, expected):
    assert phi.shape == expected.shape
    size = max(0.2, float(expected.abs().max()))
    assert float((phi.double() - expected).abs().max()) <= LIMIT[phi.dtype] * size


@weight_fns
@dtypes
def test_every_size(weight_fn, normalize, dtype):
    for n, d in sampled():
        texts = 2 if n * d < 2000 else 1
        X, W = text_batch(texts, n, d, dtype, seed=n)
        W = W if n * d < 2000 else W[:1]
        phi = raf_features(X, W, weight_fn=weight_fn, normalize=normalize, backend="native")
        assert phi.dtype == W.dtype
        check(phi, truth(X, W, weight_fn, normalize))


@weight_fns
@dtypes
def test_every_order(order, weight_fn, normalize, dtype):
    X, W = text_batch(2, 37, 40, dtype)
    mask = torch.rand(2, 37) > 0.3
    mask[:, 3] = True
    phi = raf_features(X, W, weight_fn=weight_fn, normalize=normalize, mask=mask, backend="native")
    check(phi, truth(X, W, weight_fn, normalize, mask))


@dtypes
def test_a_text_does_not_depend_on_its_batch(dtype):
    X, W = text_batch(3, 21, 40, dtype)
    queries, fn = X[:, None].to(W.dtype) @ W, WeightFn("softmax")
    phi = fused_features(X, queries, fn, None, 0.2)
    for b in range(3):
        for r in range(2):
            alone = fused_features(X[b : b + 1], queries[b : b + 1, r : r + 1], fn, None, 0.2)
            assert torch.equal(alone[0, 0], phi[b, r])


@dtypes
@pytest.mark.parametrize("limit", [166912, 101376], ids=["A100", "consumer"])
def test_devices_with_less_shared_memory(monkeypatch, dtype, limit):
    """Slabs where a block cannot hold all columns: the same φ."""
    monkeypatch.setenv("CUDA_ON_CPU_SHARED_LIMIT", str(limit))
    for d in (384, 768, 1024, 1100):
        X, W = text_batch(1, 18, d, dtype)
        phi = raf_features(X, W[:1], backend="native")
        check(phi, truth(X, W[:1], "softmax", True))


@weight_fns
@dtypes
def test_masks(weight_fn, normalize, dtype):
    """Whole tiles without a word, words at the edges of tiles, one word alone."""
    X, W = text_batch(1, 50, 24, dtype)
    for words in ([0], [49], [15, 16], [31], [0, 16, 32, 48], [*range(16, 32)], [*range(50)]):
        mask = torch.zeros(1, 50, dtype=torch.bool)
        mask[0, words] = True
        phi = raf_features(
            X, W, weight_fn=weight_fn, normalize=normalize, mask=mask, backend="native"
        )
        check(phi, truth(X, W, weight_fn, normalize, mask))
        assert not bool(phi[~mask[:, None].expand(phi.shape[:-1])].any())


@weight_fns
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("rising", [True, False])
def test_saturated_rows(weight_fn, normalize, dtype, rising):
    """Scores of up to a thousand, the largest word changing in every tile, or known at once."""
    X, W = random_text(40, 12, 3)
    X = X * torch.linspace(0.1, 3, 40, dtype=torch.float64)[:, None]
    X = X if rising else X.flip(0)
    largest = float((X @ W @ X.T).abs().max()) / 12**0.5
    X, W = X.to(dtype), (W * (1e3 / largest)).to(dtype)
    options = {"weight_fn": weight_fn, "normalize": normalize}
    phi = raf_features(X, W, **options, backend="native").double()
    expected = features(X, W, **options)
    # A score of a thousand is known to this many digits.
    limit = {torch.float32: 2e-4, torch.float64: 1e-11}[dtype]
    assert float((phi - expected).norm() / expected.norm()) <= limit


def statistics_match(X, W, fn):
    core = core_of(X, W, fn)
    got, expected = CUDA.rows(core, 2**20), TORCH.rows(core, 2**20)
    assert torch.equal(got.statistics.top, expected.statistics.top)
    for a, b in zip(got.statistics[1:], expected.statistics[1:], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
    for name in ("phi", "rest_mean"):
        torch.testing.assert_close(
            getattr(got, name), getattr(expected, name), rtol=1e-11, atol=1e-12
        )


FUNCTIONS = [
    WeightFn("softmax"),
    WeightFn("relu"),
    WeightFn("relu", normalize=False),
    WeightFn("squareplus", curve=0.48),
    WeightFn("squareplus", normalize=False, curve=0.0192),
]
functions = pytest.mark.parametrize("fn", FUNCTIONS, ids=str)


@functions
def test_statistics(fn):
    for n, d in [
        (1, 1),
        (1, 8),
        (2, 3),
        (16, 7),
        (17, 130),
        (33, 64),
        (40, 385),
        (65, 8),
        (20, 900),
    ]:
        X, W = random_text(n, d, n)
        X[n // 2] *= 4
        statistics_match(X, W, fn)
        statistics_match(X.flip(0), W, fn)


@functions
def test_statistics_of_equal_words(fn):
    """Ties: the first of the largest words is the one left out."""
    X, W = random_text(40, 6, 1)
    X[:] = X[torch.tensor([0, 1, 2, 3]).repeat(10)]
    statistics_match(X, W + torch.eye(6), fn)


def test_statistics_of_a_row_that_one_word_has(order):
    """What is left of a row is exact however far its largest word stands out."""
    X = torch.zeros(20, 4, dtype=torch.float64)
    X[:, 0], X[11, 1] = 1.0, 1.0
    X[:, 2] = torch.arange(20) / 20
    W = torch.zeros(4, 4, dtype=torch.float64)
    W[0, 1], W[0, 2] = 1600.0, 2.0
    rows = fused_text(X, X @ W / 2, WeightFn("softmax"))
    others = [word for word in range(20) if word != 11]
    scores = X[others, 2]
    assert rows.statistics.top.tolist() == [11] * 20
    torch.testing.assert_close(
        rows.statistics.rest, scores.logsumexp(0).expand(20), rtol=1e-15, atol=0
    )
    mean = scores.softmax(0) @ X[others]
    torch.testing.assert_close(rows.rest_mean, mean.expand(20, -1), rtol=1e-14, atol=1e-15)


def test_views_and_odd_layouts():
    big = torch.randn(41, 9, 12)
    W = random_text(2, 12, 0, torch.float32)[1]
    plain = raf_features(big[1:, 3].contiguous(), W, backend="native")
    odd = torch.empty(40 * 12 + 1)[1:].view(40, 12).copy_(big[1:, 3])  # not at 16 bytes
    for X in (big[1:, 3], big[1:, 3].t().contiguous().t(), odd):
        assert torch.equal(raf_features(X, W, backend="native"), plain)


def test_numbers_that_are_not_finite_stay_so():
    """Scores beyond the largest number: φ is not finite, rather than wrong."""
    X = torch.full((3, 4), 1e25)
    rows = fused_text(X, X, WeightFn("relu"))
    assert not bool(rows.phi.isfinite().all())


def test_an_error_is_reported_once(monkeypatch):
    """The launch after one that failed is none the worse for it."""
    X = torch.randn(3, 384) / 10  # more than may be used without asking
    with monkeypatch.context() as patch:
        patch.setenv("CUDA_ON_CPU_SHARED_LIMIT", "1024")
        with pytest.raises(RuntimeError, match=r"CUDA kernel raf_features: .*shared memory"):
            fused_features(X[None], X[None, None], WeightFn("softmax"), None, 1.0)
    phi = fused_features(X[None], X[None, None], WeightFn("softmax"), None, 1.0)
    torch.testing.assert_close(phi[0, 0], (X @ X.mT).softmax(-1) @ X, rtol=1e-4, atol=1e-4)


def test_no_text_is_no_launch(cuda_on_cpu):
    kernels = compiled.kernels(torch.device("cpu"))
    names = ("words", "queries", "mask", "phi", "top", "top_score", "others", "others_mean")
    kernels.launch(
        "raf_features",
        dtype=torch.float32,
        **dict.fromkeys(names, 0),
        weight_fn=0,
        curve=0.0,
        texts=0,
        draws=1,
        n=4,
        d=4,
        scale=1.0,
    )
