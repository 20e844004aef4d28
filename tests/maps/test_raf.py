"""raf_features: three backends against the definition and against numbers worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from definition import WEIGHT_FNS, features, random_text

import wsfast
from wsfast import raf_features, random_weights
from wsfast.engines import features as engines_features
from wsfast.maps import attention_features

BACKENDS = ["reference", "torch", pytest.param("native", marks=pytest.mark.needs("native"))]
DTYPES = [torch.float32, torch.float64]
TOLERANCE = {torch.float32: 2e-6, torch.float64: 1e-13}

backends = pytest.mark.parametrize("backend", BACKENDS)
weight_fns = pytest.mark.parametrize(("weight_fn", "normalize"), WEIGHT_FNS)
dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=["float32", "float64"])


def assert_close(got, expected, dtype=None):
    """Within rounding of the largest entry: an entry may be a difference of larger ones."""
    assert got.dtype == (dtype or expected.dtype)
    assert got.shape == expected.shape
    # The words have entries of about 1, and unnormalised weights may cancel.
    size = max(0.2, float(expected.abs().max()))
    assert float((got.double() - expected.double()).abs().max()) <= TOLERANCE[got.dtype] * size


# -- by hand --------------------------------------------------------------------------------------


@backends
def test_softmax_by_hand(backend):
    # d = 1, so the scale is 1: scores x_j x_l ln 2.
    X = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    W = torch.tensor([[math.log(2)]], dtype=torch.float64)
    expected = torch.tensor([[1 / 2], [2 / 3]], dtype=torch.float64)
    torch.testing.assert_close(raf_features(X, W, backend=backend), expected)


@backends
def test_scale_and_order_of_w_by_hand(backend):
    # d = 4 and X the first two axes: row j has the scores (w_j0, w_j1)/2.
    X = torch.eye(4, dtype=torch.float64)[:2]
    W = torch.zeros(4, 4, dtype=torch.float64)
    W[0, 1] = 2 * math.log(3)
    expected = torch.tensor([[1 / 4, 3 / 4, 0, 0], [1 / 2, 1 / 2, 0, 0]], dtype=torch.float64)
    torch.testing.assert_close(raf_features(X, W, backend=backend), expected)


@backends
@pytest.mark.parametrize(
    ("normalize", "expected"),
    [
        # Scores: row 0 (4, -2), row 1 (-2, 1), row 2 = 0.
        (True, [[2.0], [-1.0], [0.0]]),
        (False, [[8.0], [-1.0], [0.0]]),
    ],
)
def test_relu_by_hand(backend, normalize, expected):
    X = torch.tensor([[2.0], [-1.0], [0.0]], dtype=torch.float64)
    got = raf_features(
        X,
        torch.ones(1, 1, dtype=torch.float64),
        weight_fn="relu",
        normalize=normalize,
        backend=backend,
    )
    torch.testing.assert_close(got, torch.tensor(expected, dtype=torch.float64))


@backends
@pytest.mark.parametrize("normalize", [True, False])
def test_relu_row_without_weight_is_zero(backend, normalize):
    X, W = random_text(5, 3)
    X = X.abs()
    got = raf_features(
        X, -torch.ones_like(W), weight_fn="relu", normalize=normalize, backend=backend
    )
    assert torch.equal(got, torch.zeros_like(X))


@backends
def test_one_word_attends_to_itself(backend):
    X, W = random_text(1, 7)
    torch.testing.assert_close(raf_features(X, W, backend=backend), X)


# -- every size and shape -------------------------------------------------------------------------

# Around the lane widths: 4, 8, 16 float32; 2, 4, 8 float64.
SIZES = [*range(1, 19), 31, 32, 33]


@backends
@weight_fns
@dtypes
def test_definition_at_every_size(backend, weight_fn, normalize, dtype):
    options = {"weight_fn": weight_fn, "normalize": normalize}
    for n in SIZES:
        for d in (1, 3, 8):
            X, W = random_text(n, d, n, dtype)
            got = raf_features(X, W, **options, backend=backend)
            assert_close(got, features(X, W, weight_fn, normalize), dtype)


@backends
@weight_fns
@dtypes
def test_masks_at_every_size(backend, weight_fn, normalize, dtype):
    for n in SIZES:
        X, W = random_text(n, 5, n, dtype)
        mask = torch.rand(n, generator=torch.Generator().manual_seed(n)) < 0.6
        mask[n // 2] = True
        got = raf_features(
            X, W, weight_fn=weight_fn, normalize=normalize, mask=mask, backend=backend
        )
        assert_close(got, features(X, W, weight_fn, normalize, mask), dtype)
        assert torch.equal(got[~mask], torch.zeros_like(got[~mask]))


@backends
@weight_fns
def test_masked_words_are_out_whatever_they_hold(backend, weight_fn, normalize):
    X, W = random_text(6, 4)
    mask = torch.tensor([True, False, True, True, False, True])
    options = {"weight_fn": weight_fn, "normalize": normalize, "backend": backend}
    moved = X.clone()
    moved[~mask] = 100.0
    torch.testing.assert_close(
        raf_features(moved, W, mask=mask, **options), raf_features(X, W, mask=mask, **options)
    )
    torch.testing.assert_close(
        raf_features(X, W, mask=mask, **options)[mask], raf_features(X[mask], W, **options)
    )


@backends
@weight_fns
@pytest.mark.parametrize("shared_mask", [None, True, False])
def test_batches_and_draws(backend, weight_fn, normalize, shared_mask):
    X = torch.stack([random_text(7, 4, seed)[0] for seed in range(3)])
    W = random_weights(4, draws=2, dtype=torch.float64)
    mask = None
    if shared_mask is not None:
        mask = torch.rand(3, 7, generator=torch.Generator().manual_seed(5)) < 0.6
        mask[:, 2] = True
        mask = mask[0] if shared_mask else mask
    options = {"weight_fn": weight_fn, "normalize": normalize, "mask": mask, "backend": backend}
    phi = raf_features(X, W, **options)
    assert phi.shape == (3, 2, 7, 4)
    for b in range(3):
        for r in range(2):
            keep = mask if mask is None or mask.ndim == 1 else mask[b]
            assert_close(phi[b, r], features(X[b], W[r], weight_fn, normalize, keep))
    assert raf_features(X, W[0], **options).shape == (3, 7, 4)
    if mask is None or mask.ndim == 1:
        assert raf_features(X[0], W, **options).shape == (2, 7, 4)
        assert raf_features(X[0], W[0], **options).shape == (7, 4)


@backends
@weight_fns
def test_list_is_padded_with_nan(backend, weight_fn, normalize):
    texts = [random_text(n, 4, n)[0] for n in (3, 6, 1)]
    W = random_weights(4, draws=2, dtype=torch.float64)
    options = {"weight_fn": weight_fn, "normalize": normalize}
    phi = raf_features(texts, W, **options, backend=backend)
    assert phi.shape == (3, 2, 6, 4)
    for b, text in enumerate(texts):
        for r in range(2):
            assert_close(phi[b, r, : len(text)], features(text, W[r], weight_fn, normalize))
        assert phi[b, :, len(text) :].isnan().all()
    masks = [torch.tensor([True, False, True]), torch.ones(6, dtype=torch.bool), None]
    masks[2] = torch.ones(1, dtype=torch.bool)
    phi = raf_features(texts, W[0], mask=masks, **options, backend=backend)
    assert_close(phi[0, :3], features(texts[0], W[0], weight_fn, normalize, masks[0]))
    assert phi[0, 3:].isnan().all()


@backends
@weight_fns
@pytest.mark.parametrize("n", [1, 3, 64, 150, 500])
def test_batch_equals_its_texts_across_tile_borders(backend, weight_fn, normalize, n):
    # The kernel takes 2^17 scores at a time: some texts of a batch, or some rows of a text.
    B = max(1, min(40, 300 // n))
    X = torch.stack([random_text(n, 6, seed)[0] for seed in range(B)])
    W = random_text(1, 6)[1]
    mask = torch.arange(n) % 7 != 3
    options = {"weight_fn": weight_fn, "normalize": normalize, "backend": backend}
    phi = raf_features(X, W, mask=mask, **options)
    for b in (0, B // 2, B - 1):
        assert_close(phi[b], features(X[b], W, weight_fn, normalize, mask))


@backends
@weight_fns
def test_memory_layout_changes_nothing(backend, weight_fn, normalize):
    X, W = random_text(9, 6)
    options = {"weight_fn": weight_fn, "normalize": normalize, "backend": backend}
    expected = raf_features(X, W, **options)
    wide = torch.zeros(18, 13, dtype=X.dtype)
    wide[::2, 1::2] = X
    layouts = [X.t().contiguous().t(), wide[::2, 1::2], X[None].expand(4, -1, -1)]
    for layout in layouts:
        got = raf_features(layout, W.t().contiguous().t(), **options)
        torch.testing.assert_close(got[0] if got.ndim == 3 else got, expected, rtol=0, atol=1e-13)


# -- extremes -------------------------------------------------------------------------------------


@backends
@pytest.mark.parametrize(("dtype", "size"), [(torch.float32, 1e3), (torch.float64, 1e4)])
def test_large_scores(backend, dtype, size):
    X, W = random_text(9, 4, 1, dtype)
    scores = X @ W @ X.T / 2
    W = W * (size / scores.abs().max())
    got = raf_features(X, W, backend=backend)
    assert torch.isfinite(got).all()
    error = (got.double() - features(X, W)).abs().max() / X.abs().max()
    # Scores are rounded to a part in 1/eps of their size before they are exponentiated.
    assert float(error) <= 8 * torch.finfo(dtype).eps * size


@backends
@weight_fns
def test_empty_attention_of_zero_words(backend, weight_fn, normalize):
    X, W = random_text(4, 3)
    X[1] = 0
    got = raf_features(X, W, weight_fn=weight_fn, normalize=normalize, backend=backend)
    assert_close(got, features(X, W, weight_fn, normalize))
    if weight_fn == "softmax":
        torch.testing.assert_close(got[1], X.mean(0))
    else:
        assert torch.equal(got[1], torch.zeros(3, dtype=X.dtype))


# -- dtypes and kinds of arrays -------------------------------------------------------------------


@backends
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
def test_half_precision_becomes_float32(backend, dtype):
    X, W = (x.to(dtype) for x in random_text(6, 4))
    got = raf_features(X, W, backend=backend)
    assert_close(got, features(X, W), torch.float32)


@backends
@pytest.mark.parametrize("dtype", ["f4", "f8", ">f8"])
def test_numpy_in_numpy_out(backend, dtype):
    X, W = (x.numpy().astype(dtype) for x in random_text(6, 4))
    got = raf_features(X, W, backend=backend)
    assert isinstance(got, np.ndarray)
    assert got.dtype == X.dtype.newbyteorder("=")
    expected = features(torch.from_numpy(X.astype("f8")), torch.from_numpy(W.astype("f8")))
    np.testing.assert_allclose(got, expected, atol=2e-6)
    reversed_rows = raf_features(X[::-1], W, backend=backend)
    np.testing.assert_allclose(reversed_rows[::-1], got, atol=1e-6)
    listed = raf_features([X, X[:2]], W, backend=backend)
    assert isinstance(listed, np.ndarray)
    assert np.isnan(listed[1, 2:]).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [1, 2, 17])
def test_plain_case_has_the_same_bits(dtype, n):
    """What is quickly done with one text alone is what is done with all others."""
    X, W = (one.to(dtype) for one in random_text(n, 5, n))
    plain = raf_features(X, W)
    assert torch.equal(plain, raf_features(X, W, backend="torch"))
    assert torch.equal(plain, raf_features(X[None], W)[0])
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(plain, raf_features(X, W))


@pytest.mark.parametrize("n", [1, 6])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("where", ["X", "W"])
def test_numbers_that_are_not_finite_are_named(n, value, where):
    X, W = torch.rand(n, 4) + 0.1, torch.rand(4, 4) + 0.1
    {"X": X, "W": W}[where][0, 0] = value
    with pytest.raises(ValueError, match=f"{where} must"):
        raf_features(X, W)


def test_scores_beyond_float32_in_the_plain_case():
    X = torch.tensor([[3e19, 0.0], [0.0, 1e19]])
    assert torch.equal(raf_features(X, torch.eye(2)), X)


def test_numpy_input_is_not_changed():
    X, W = (x.numpy() for x in random_text(6, 4))
    before = X.copy(), W.copy()
    raf_features(X, W)
    np.testing.assert_array_equal(X, before[0])
    np.testing.assert_array_equal(W, before[1])


@pytest.mark.needs("native")
def test_thread_count_changes_nothing(threads):
    X, W = random_text(300, 8, dtype=torch.float32)
    with threads(1):
        one = raf_features(X, W, backend="native")
    with threads(2):
        two = raf_features(X, W, backend="native")
    assert_close(two, one)


# -- gradients and the operator -------------------------------------------------------------------


def differentiable(weight_fn, normalize, backend, mask=None):
    return lambda X, W: raf_features(
        X, W, weight_fn=weight_fn, normalize=normalize, mask=mask, backend=backend
    )


@backends
@weight_fns
@pytest.mark.parametrize("masked", [False, True])
def test_gradient(backend, weight_fn, normalize, masked):
    X = torch.stack([random_text(5, 3, seed)[0] for seed in (0, 1)]).requires_grad_()
    W = random_weights(3, draws=2, dtype=torch.float64).requires_grad_()
    mask = torch.tensor([[True, True, False, True, True], [True] * 5]) if masked else None
    phi = differentiable(weight_fn, normalize, backend, mask)
    torch.autograd.gradcheck(phi, (X, W))
    grad_X, grad_W = torch.autograd.grad(phi(X, W).square().sum(), (X, W))
    kept = torch.ones(2, 5, dtype=torch.bool) if mask is None else mask
    assert (grad_X[kept].norm(dim=-1) > 1e-3).all()
    assert torch.equal(grad_X[~kept], torch.zeros_like(grad_X[~kept]))
    assert (grad_W.abs() > 1e-6).all()


@backends
def test_gradient_across_row_tiles(backend, monkeypatch):
    for module in (attention_features, engines_features):
        monkeypatch.setattr(module, "TILE", 10)
    X, W = (x.requires_grad_() for x in random_text(7, 3))
    torch.autograd.gradcheck(differentiable("softmax", True, backend), (X, W))
    torch.autograd.gradcheck(differentiable("relu", True, backend), (X, W))


@backends
def test_gradient_of_one_argument_alone(backend):
    X, W = random_text(4, 3)
    phi = differentiable("softmax", True, backend)
    torch.autograd.gradcheck(lambda x: phi(x, W), (X.clone().requires_grad_(),))
    torch.autograd.gradcheck(lambda w: phi(X, w), (W.clone().requires_grad_(),))
    texts = [X.clone().requires_grad_(), X[:2].clone().requires_grad_()]
    raf_features(texts, W, backend=backend)[0].sum().backward()
    assert float(texts[0].grad.norm()) > 0


# Each takes seconds: not every combination.
@pytest.mark.deep
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
@pytest.mark.parametrize(
    ("backend", "weight_fn", "normalize", "masked"),
    [
        pytest.param("native", "softmax", True, True, marks=pytest.mark.needs("native")),
        pytest.param("native", "relu", True, False, marks=pytest.mark.needs("native")),
        ("torch", "softmax", True, True),
        ("reference", "relu", False, False),
    ],
)
def test_operator(backend, weight_fn, normalize, masked):
    X = torch.randn(2, 5, 3, dtype=torch.float64, requires_grad=True)
    W = torch.randn(2, 3, 3, dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[True, False, True, True, True]] * 2) if masked else None
    torch.library.opcheck(
        torch.ops.wsfast.raf_features.default, (X, W, mask, weight_fn, normalize, backend)
    )


@pytest.mark.parametrize(
    ("weight_fn", "normalize"),
    [("softmax", True), *(pytest.param("relu", k, marks=pytest.mark.deep) for k in (True, False))],
)
@pytest.mark.parametrize("masked", [False, True])
def test_compiled_equals_eager(weight_fn, normalize, masked):
    torch.compiler.reset()
    X = torch.randn(2, 5, 4, requires_grad=True)
    W = torch.randn(4, 4, requires_grad=True)
    mask = torch.tensor([True, True, False, True, True]) if masked else None

    def loss(X, W):
        phi = raf_features(2 * X, W, weight_fn=weight_fn, normalize=normalize, mask=mask)
        return phi.square().sum()

    # "aot_eager" traces all that "inductor" does, without waiting for a C++ compiler.
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    eager, traced = loss(X, W), compiled(X, W)
    torch.testing.assert_close(traced, eager)
    for got, expected in zip(
        torch.autograd.grad(traced, (X, W)), torch.autograd.grad(eager, (X, W)), strict=True
    ):
        torch.testing.assert_close(got, expected)
    # Another length: a new graph or a symbolic one, without a break either way.
    longer = torch.randn(2, 9, 4, requires_grad=True)
    if mask is None:
        torch.testing.assert_close(compiled(longer, W), loss(longer, W))


@pytest.mark.deep
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # PyTorch's own
def test_compiled_by_inductor():
    torch.compiler.reset()
    X, W = random_text(6, 4, dtype=torch.float32)
    compiled = torch.compile(lambda X, W: raf_features(X, W) + 1, fullgraph=True)
    torch.testing.assert_close(compiled(X, W), raf_features(X, W) + 1)


def test_global_state_is_untouched(untouched):
    X, W = random_text(5, 3)
    with untouched():
        raf_features(X, W)
        wsfast.nn.RandomAttentionFeatures(3)(X.float())
