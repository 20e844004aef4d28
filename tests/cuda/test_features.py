"""raf_features on CUDA tensors against the definition in float64."""

from __future__ import annotations

import pytest
import torch
from attention.problems import SEARCHED
from cuda.waits import no_waits
from definition import features
from parameters import weight_fns

from wsfast import nn, raf_features
from wsfast._precision import full_precision
from wsfast.attention.core import core_of
from wsfast.attention.weight_fn import WeightFn
from wsfast.engines.cuda import CUDA
from wsfast.engines.engine import TORCH
from wsfast.engines.features import FeatureOptions, _split, by_tiles, fused_features

# Of the largest number in φ. Products of plain TF32 are at 1e-3.
ACCURACY = {torch.float32: 1e-4, torch.float64: 1e-10}
# Around the tiles of rows, words and columns, and one of each kernel and way.
SIZES = [
    *((1, 1), (1, 8), (2, 3), (3, 16), (15, 64), (16, 128), (17, 130), (33, 36)),
    *((31, 385), (20, 769), (9, 1024), (5, 1025), (130, 7), (257, 20)),
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
def test_masks(text, weight_fn, normalize):
    """Whole tiles without a word, words at the edges of tiles, one word alone."""
    X, W = text(50, 24)
    for words in ([0], [49], [15, 16], [31], [0, 16, 32, 48], [*range(16, 32)]):
        mask = torch.zeros_like(X[:, 0], dtype=torch.bool)
        mask[words] = True
        options = {"weight_fn": weight_fn, "normalize": normalize, "mask": mask}
        check(raf_features(X, W, **options, backend="native"), X, W, **options)


@weight_fns
def test_a_text_does_not_depend_on_its_batch(batch, weight_fn, normalize):
    """To the last bit, given the queries: PyTorch's product that makes them may."""
    X, W, mask = batch(37, 40, torch.float32)
    fn, queries = WeightFn(weight_fn, normalize), (X[:, None] @ W).contiguous()
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


def test_scores_of_a_thousand_whose_terms_have_one_sign(device):
    """The rounding inside tensor cores goes one way: it must not add up over the columns."""
    X = torch.rand(32, 768, dtype=torch.float64) + 0.5
    X[::2] = (8 * X[::2]).round() / 8  # products of these are exact
    queries = torch.rand(32, 768, dtype=torch.float64) + 0.5
    X *= 1e3 / (queries @ X.mT).mean(0)[:, None]
    X[::2] = (64 * X[::2]).round() / 64
    X, queries = X.to(device, torch.float32), queries.to(device, torch.float32)
    phi = fused_features(X[None], queries[None, None], WeightFn("softmax"), None, 1.0)[0, 0]
    expected = (queries.double() @ X.double().mT).softmax(-1) @ X.double()
    assert float((phi - expected).abs().max()) <= 5e-5 * float(expected.abs().max())


@pytest.mark.parametrize("weight_fn", ["softmax", "relu"])
@pytest.mark.parametrize("odd", [torch.nan, torch.inf, 1e25, 3e38])
def test_numbers_that_are_not_finite_stay_so(device, weight_fn, odd):
    """Scores beyond the largest number: φ is not finite, rather than wrong."""
    X = torch.ones(20, 4, device=device)
    X[3] = odd
    fn = WeightFn(weight_fn)
    for phi in (
        fused_features(X[None], X[None, None], fn, None, 1.0),
        by_tiles(X[None], X[None, None].clone(), FeatureOptions(fn, None, False), 99, split=True),
    ):
        assert not bool(phi.isfinite().any(-1).all())


@weight_fns
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_two_products_and_a_kernel_between(batch, weight_fn, normalize, causal, dtype):
    """Whatever the tile: rows of some draws, or several texts; TF32 is left as it was found."""
    X, W, mask = batch(37, 40, dtype)
    mask[:, 0] = True  # a row before the first word sees nothing
    fn, queries = WeightFn(weight_fn, normalize), (X[:, None] @ W).contiguous()
    given = FeatureOptions(fn, mask, causal)
    expected = TORCH.features(X.double(), queries.double(), given)
    for tile in (1, 37 * 50, 2 * 37 * 37 * 3, 1 << 20):
        with full_precision():
            before = torch.get_float32_matmul_precision()
            split = dtype == torch.float32
            phi = by_tiles(X, queries.clone(), given, tile, split=split)
            assert torch.get_float32_matmul_precision() == before
        error = (phi.double() - expected) * mask[:, None, :, None]
        assert float(error.abs().max()) <= ACCURACY[dtype] * float(expected.abs().max())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_nothing_waits_for_the_device(text, device, dtype):
    """`raf_features` looks at values once, behind this."""
    for n, causal in ((37, False), (37, True), (257, False)):
        X, W = text(n, 40, dtype, texts=2)
        given = FeatureOptions(WeightFn("softmax"), torch.ones_like(X[..., 0]) > 0, causal)
        with no_waits(device):
            CUDA.features(X, (X[:, None] @ W).contiguous(), given)


def test_parts_of_a_number():
    """Both are TF32, whether the product truncates or rounds, and together the number."""
    x = torch.randn(1000, generator=torch.Generator().manual_seed(0)) * 1e3
    high, low = _split(x)
    for part in (high, low):
        assert not bool((part.view(torch.int32) & 0x1FFF).any())
    assert float(((high.double() + low - x) / x).abs().max()) <= 2.0**-22
    for odd in (torch.nan, torch.inf, -torch.inf, 3.4e38):
        high, low = _split(torch.tensor([odd]))
        assert not bool((high + low).isfinite())


@pytest.mark.parametrize("fn", SEARCHED, ids=str)
def test_statistics_of_rows(text, fn):
    """What the searches start from: by the kernel, and by PyTorch."""
    texts = [text(n, d, torch.float64) for n, d in ((1, 1), (2, 3), (17, 130), (40, 385))]
    # Ties: the first of the largest words is the one left out.
    X, W = text(40, 6, torch.float64)
    texts.append((X[torch.arange(40, device=X.device) % 4], W))
    for X, W in texts:
        core = core_of(X, W, fn)
        got, expected = CUDA.rows(core, 2**20), TORCH.rows(core, 2**20)
        assert torch.equal(got.statistics.top, expected.statistics.top)
        for name in ("top_score", "rest"):
            a, b = getattr(got.statistics, name), getattr(expected.statistics, name)
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
        for name in ("phi", "rest_mean"):
            a, b = getattr(got, name), getattr(expected, name)
            torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-12)


def test_words_that_are_nearly_equal(text):
    """Means are of centred words: none of the digits in which words differ is lost."""
    X, W = text(20, 8, torch.float64)
    got = CUDA.rows(core_of(X + 2.0**30, 0 * W, WeightFn("softmax")), 2**20)
    shift = (X + 2.0**30) - got.words  # of all words
    assert torch.equal(shift[0].expand_as(shift), shift)
    expected = got.words.mean(0).expand_as(got.phi)
    torch.testing.assert_close(got.phi, expected, rtol=0, atol=1e-14)


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
