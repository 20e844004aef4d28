"""raf_features on CUDA tensors against the definition in float64."""

from __future__ import annotations

import pytest
import torch
from definition import features
from parameters import weight_fns

from wsfast import nn, raf_features
from wsfast.attention.core import core_of
from wsfast.attention.weight_fn import WeightFn
from wsfast.engines.cuda import CUDA
from wsfast.engines.engine import TORCH
from wsfast.engines.features import fused_features

# Of the largest number in φ. Products of plain TF32 are at 1e-3.
ACCURACY = {torch.float32: 1e-4, torch.float64: 1e-10}
# Around the tiles of rows, words and columns, and one of each kernel.
SIZES = [
    *((1, 1), (1, 8), (2, 3), (3, 16), (15, 64), (16, 128), (17, 130), (33, 36)),
    *((31, 385), (20, 769), (9, 1024), (5, 1025), (130, 7)),
]
dtypes = pytest.mark.parametrize(
    "dtype",
    [torch.float32, torch.float64, torch.bfloat16, torch.float16],
    ids=["float32", "float64", "bfloat16", "float16"],
)


def check(phi, X, W, weight_fn="softmax", normalize=True, mask=None):
    """φ (n, d) is what the definition gives, in the dtype of W, where X is."""
    assert phi.device == X.device
    assert phi.dtype == W.dtype
    mask = None if mask is None else mask.cpu()
    expected = features(X.cpu(), W.cpu(), weight_fn, normalize, mask)
    error = float((phi.double().cpu() - expected).abs().max())
    assert error <= ACCURACY[phi.dtype] * float(expected.abs().max())
    if mask is not None:
        assert not bool(phi.cpu()[~mask].any())


@weight_fns
@dtypes
def test_sizes(text, weight_fn, normalize, dtype):
    for n, d in SIZES:
        X, W = text(n, d, dtype)
        phi = raf_features(X, W, weight_fn=weight_fn, normalize=normalize, backend="native")
        check(phi, X, W, weight_fn, normalize)


@pytest.mark.needs("cuda")
@dtypes
def test_a_batch_of_long_texts(text, dtype):
    X, W = text(128, 768, dtype, texts=8)
    phi = raf_features(X, W)
    for one, x in zip(phi, X, strict=True):
        check(one, x, W)


@pytest.fixture
def batch(text):
    """X (3, n, d), W (3, d, d), and a mask (3, n) with a text that starts late and one without."""

    def make(n, d, dtype):
        X, W = text(n, d, dtype, texts=3)
        mask = torch.rand(3, n) > 0.3
        mask[0, :16], mask[1], mask[2, -1] = False, True, True
        return X, torch.stack([W, W.mT, 2 * W]), mask.to(X.device)

    return make


@weight_fns
@dtypes
def test_batch_draws_and_mask(batch, weight_fn, normalize, dtype):
    X, W, mask = batch(37, 40, dtype)
    options = {"weight_fn": weight_fn, "normalize": normalize, "backend": "native"}
    phi = raf_features(X, W, mask=mask, **options)
    assert phi.shape == (3, 3, 37, 40)
    lists = raf_features([X[0], X[1, :5]], W[0], **options)
    assert bool(lists[1, 5:].isnan().all())
    check(lists[1, :5], X[1, :5], W[0], weight_fn, normalize)
    for b, x in enumerate(X):
        for r, w in enumerate(W):
            check(phi[b, r], x, w, weight_fn, normalize, mask[b])


@weight_fns
@dtypes
def test_a_text_does_not_depend_on_its_batch(batch, weight_fn, normalize, dtype):
    """To the last bit, given the queries: PyTorch's product that makes them may."""
    X, W, mask = batch(37, 40, dtype)
    fn, queries = WeightFn(weight_fn, normalize), (X[:, None].to(W.dtype) @ W).contiguous()
    if dtype == torch.float16:
        X = X.float()
    phi = fused_features(X, queries, fn, mask, 0.2)
    for b in range(3):
        for r in range(3):
            one = slice(b, b + 1), slice(r, r + 1)
            alone = fused_features(X[one[0]], queries[one], fn, mask[one[0]], 0.2)
            assert torch.equal(alone[0, 0], phi[b, r])


@weight_fns
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_scores_of_a_thousand(text, weight_fn, normalize, dtype):
    """Rows that one word has; the largest word changes from tile to tile."""
    X, W = text(40, 12, torch.float64)
    X = X * torch.linspace(0.1, 3, 40, dtype=X.dtype, device=X.device)[:, None]
    largest = float((X @ W @ X.mT).abs().max()) / 12**0.5
    X, W = X.to(dtype), (W * (1e3 / largest)).to(dtype)
    for words in (X, X.flip(0)):
        phi = raf_features(words, W, weight_fn=weight_fn, normalize=normalize, backend="native")
        check(phi, words, W, weight_fn, normalize)


@pytest.mark.parametrize(
    "fn",
    [WeightFn("softmax"), WeightFn("relu"), WeightFn("squareplus", False, 0.48)],
    ids=["softmax", "relu", "squareplus"],
)
def test_statistics_of_rows(text, fn):
    """What the searches start from: computed in one pass over the words, and by PyTorch."""
    for n, d in ((1, 1), (2, 3), (17, 130), (33, 64), (40, 385), (20, 900)):
        X, W = text(n, d, torch.float64)
        core = core_of(X, W, fn)
        got, expected = CUDA.rows(core, 2**20), TORCH.rows(core, 2**20)
        assert torch.equal(got.statistics.top, expected.statistics.top)
        for name in ("top_score", "rest"):
            a, b = getattr(got.statistics, name), getattr(expected.statistics, name)
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
        for name in ("phi", "rest_mean"):
            a, b = getattr(got, name), getattr(expected, name)
            torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-12)


@weight_fns
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_gradient(text, weight_fn, normalize, dtype):
    X, W = text(19, 24, dtype)
    along = torch.randn_like(X)
    gradients = []
    for x, w in ((X, W), (X.double(), W.double())):
        x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
        phi = raf_features(
            x,
            w,
            weight_fn=weight_fn,
            normalize=normalize,
            backend="native" if not gradients else "reference",
        )
        (phi * along).sum().backward()
        gradients.append((x.grad.double(), w.grad.double()))
    for got, expected in zip(*gradients, strict=True):
        size = float(expected.abs().max())
        assert size > 0
        assert float((got - expected).abs().max()) <= ACCURACY[dtype] * size


def test_module(text, device):
    X, _ = text(12, 16)
    layer = nn.RandomAttentionFeatures(16).to(device)
    phi = layer(X)
    assert phi.device == X.device
    check(phi, X, layer.W)
