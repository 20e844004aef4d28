"""raf_features in one pass over the words, and the rows of attention by a kernel."""

from __future__ import annotations

import pytest
import torch
from cuda_on_cpu.sizes import sampled
from definition import WEIGHT_FNS, features, random_text

from wsfast import raf_features
from wsfast.attention.weight_fn import WeightFn
from wsfast.engines.features import (
    FeatureOptions,
    attention_statistics_,
    by_tiles,
    fused_columns,
    fused_features,
)

pytestmark = [
    pytest.mark.deep,
    pytest.mark.needs("cuda_on_cpu"),
    pytest.mark.usefixtures("cuda_on_cpu"),
]

weight_fns = pytest.mark.parametrize(("weight_fn", "normalize"), WEIGHT_FNS)
LIMIT = 6e-6


def text_batch(texts, n, d, seed=0):
    """X (B, n, d), one word of each text eight times as long as the others, and W (2, d, d)."""
    X = torch.stack([random_text(n, d, seed + 10 * b)[0] for b in range(texts)])
    X[:, n // 2] *= 8
    return X.float(), torch.stack([random_text(n, d, 77 + r)[1] for r in range(2)]).float()


def check(X, W, weight_fn="softmax", normalize=True, mask=None):
    """φ is what the definition gives, in one pass."""
    fn = WeightFn(weight_fn, normalize)
    phi = fused_features(X, X[:, None] @ W, fn, mask, X.shape[-1] ** -0.5)
    for b, x in enumerate(X):
        for r, w in enumerate(W):
            expected = features(x, w, weight_fn, normalize, None if mask is None else mask[b])
            size = max(0.2, float(expected.abs().max()))
            assert float((phi[b, r].double() - expected).abs().max()) <= LIMIT * size
    if mask is not None:
        assert not bool(phi[~mask[:, None].expand(phi.shape[:-1])].any())


@weight_fns
def test_every_size(weight_fn, normalize):
    for n, d in sampled():
        few = n * d < 2000
        X, W = text_batch(2 if few else 1, n, d, seed=n)
        check(X, W if few else W[:1], weight_fn, normalize)


@pytest.mark.parametrize(("limit", "columns"), [(166912, 1024), (101376, 384), (1024, 0)])
def test_devices_with_less_shared_memory(monkeypatch, limit, columns):
    """The same φ by two products where a block cannot hold all columns."""
    monkeypatch.setenv("CUDA_ON_CPU_SHARED_LIMIT", str(limit))
    assert fused_columns(torch.device("cpu")) == columns
    X, W = text_batch(1, 18, 385)
    phi = raf_features(X[0], W[0], backend="native")
    torch.testing.assert_close(phi.double(), features(X[0], W[0]), rtol=0, atol=1e-4)


@weight_fns
def test_masks(weight_fn, normalize):
    """Whole tiles without a word, words at the edges of tiles, one word alone."""
    X, W = text_batch(1, 50, 24)
    for words in ([0], [49], [15, 16], [31], [0, 16, 32, 48], [*range(16, 32)], [*range(50)]):
        mask = torch.zeros(1, 50, dtype=torch.bool)
        mask[0, words] = True
        check(X, W, weight_fn, normalize, mask)


def test_scores_of_a_thousand_whose_terms_have_one_sign():
    """The rounding inside tensor cores goes one way: it must not add up over the columns."""
    X = torch.rand(32, 768, dtype=torch.float64) + 0.5
    X[::2] = (8 * X[::2]).round() / 8  # products of these are exact
    queries = torch.rand(32, 768, dtype=torch.float64) + 0.5
    X *= 1e3 / (queries @ X.mT).mean(0)[:, None]
    X[::2] = (64 * X[::2]).round() / 64
    X, queries = X.float(), queries.float()
    phi = fused_features(X[None], queries[None, None], WeightFn("softmax"), None, 1.0)[0, 0]
    expected = (queries.double() @ X.double().mT).softmax(-1) @ X.double()
    assert float((phi - expected).abs().max()) <= 5e-5 * float(expected.abs().max())


def test_statistics_of_a_row_that_one_word_has():
    """What is left of a row is exact however far its largest word stands out."""
    others = torch.arange(20, dtype=torch.float64) / 20
    scores = others.repeat(3, 1)
    scores[:, 11] = 800.0
    statistics = attention_statistics_(scores, WeightFn("softmax"))
    left = others[[word for word in range(20) if word != 11]]
    assert statistics.top.tolist() == [11] * 3
    torch.testing.assert_close(statistics.rest, left.logsumexp(0).expand(3), rtol=1e-15, atol=0)
    weights = torch.cat([left.softmax(0)[:11], torch.zeros(1), left.softmax(0)[11:]])
    torch.testing.assert_close(scores, weights.expand(3, -1), rtol=1e-14, atol=0)


def test_views_and_odd_layouts():
    big = torch.randn(41, 9, 12)
    W = random_text(2, 12, 0, torch.float32)[1]
    plain = raf_features(big[1:, 3].contiguous(), W, backend="native")
    odd = torch.empty(40 * 12 + 1)[1:].view(40, 12).copy_(big[1:, 3])  # not at 16 bytes
    for X in (big[1:, 3], big[1:, 3].t().contiguous().t(), odd):
        assert torch.equal(raf_features(X, W, backend="native"), plain)


@pytest.mark.parametrize("weight_fn", ["softmax", "relu"])
@pytest.mark.parametrize("odd", [torch.nan, torch.inf, 1e25, 3e38])
def test_numbers_that_are_not_finite_stay_so(weight_fn, odd):
    """Scores beyond the largest number: φ is not finite, rather than wrong."""
    X = torch.ones(20, 4)
    X[3] = odd
    fn = WeightFn(weight_fn)
    for phi in (
        fused_features(X[None], X[None, None], fn, None, 1.0),
        by_tiles(X[None], X[None, None].clone(), FeatureOptions(fn, None, False), 99, split=True),
    ):
        assert not bool(phi.isfinite().any(-1).all())


def test_an_error_is_reported_once(monkeypatch):
    """The launch after one that failed is none the worse for it."""
    X = torch.randn(3, 384) / 10  # more than may be used without asking
    with monkeypatch.context() as patch:
        patch.setenv("CUDA_ON_CPU_SHARED_LIMIT", "1024")
        with pytest.raises(RuntimeError, match=r"CUDA kernel raf_features: .*shared memory"):
            fused_features(X[None], X[None, None], WeightFn("softmax"), None, 1.0)
    phi = fused_features(X[None], X[None, None], WeightFn("softmax"), None, 1.0)
    torch.testing.assert_close(phi[0, 0], (X @ X.mT).softmax(-1) @ X, rtol=1e-4, atol=1e-4)
