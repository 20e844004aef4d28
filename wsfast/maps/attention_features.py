"""Random attention features softmax(X W Xᵀ/√d) X, as one differentiable custom operator."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor, strided
from torch.nn.functional import scaled_dot_product_attention

from wsfast import _inputs, _values
from wsfast._inputs import Texts
from wsfast._interrupt import AT_ONCE
from wsfast._kinks import relu
from wsfast._precision import full_precision, quiet, untraced
from wsfast._transforms import padded, transformed
from wsfast._values import Array
from wsfast.attention.definition import attend, attention_features, what_is_seen
from wsfast.attention.weight_fn import WeightFn
from wsfast.engines import choose, compiled
from wsfast.engines.engine import Engine
from wsfast.engines.features import TILE, FeatureOptions
from wsfast.maps.attention import weight_function, weight_tensor, weights_of


def raf_features(
    X: Texts,
    W: Array,
    *,
    weight_fn: str = "softmax",
    normalize: bool = True,
    mask: Any = None,
    causal: bool = False,
    backend: str | None = None,
) -> Any:
    """Random attention features φ(X) = g(X W Xᵀ/√d) X, rows of g normalised to sum 1.

    Differentiable in `X` and `W`; a custom operator (``torch.ops.wsfast.raf_features``) that
    ``torch.compile`` takes without a graph break. Under the transforms of ``torch.func``, and with
    forward-mode tangents, the definition is evaluated by PyTorch's own operations, whatever the
    backend.

    Parameters
    ----------
    X : Tensor or ndarray, shape (n, d) or (B, n, d), or list of (n_b, d)
        Texts of n words of dimension d. float32 or float64; float16 and bfloat16 are computed and
        returned in float32.
    W : Tensor or ndarray, shape (d, d) or (R, d, d)
        Attention weights W = W_q W_kᵀ, in the dtype of `X`.
    weight_fn : {"softmax", "relu"}, default "softmax"
        g, the exponential or ReLU. A ReLU row whose weights are all 0 gives φ_j = 0. ReLU's slope
        at 0 is taken as 0.
    normalize : bool, default True
        Whether the weights of a row are divided by their sum; False is for "relu" only.
    mask : bool Tensor or ndarray, shape (n,) or (B, n), or list of (n_b,), optional
        True where there is a word. The others neither attend nor are attended to; their rows of φ
        are 0.
    causal : bool, default False
        Whether row j attends to the words up to j alone, itself included.
    backend : {"reference", "torch", "native"}, optional
        The definition; PyTorch's ``scaled_dot_product_attention``; or the compiled kernel. By
        default the fastest that can run.

    Returns
    -------
    Tensor or ndarray, shape (B, R, n, d)
        The axes B and R only where `X` and `W` have them. A list comes back padded with NaN to the
        longest text. Tensors of the meta device give one of it.

    Raises
    ------
    TypeError, ValueError
        For a wrong type, dtype, shape or device, NaN or infinity, or a mask without any word.

    Notes
    -----
    Equation (4) of Bombari & Mondelli (arXiv 2402.02969): "RAF", and with ReLU "ReLU-RAF".

    Examples
    --------
    >>> import torch, wsfast
    >>> X = torch.randn(5, 8)
    >>> wsfast.raf_features(X, wsfast.random_weights(8, draws=3)).shape
    torch.Size([3, 5, 8])
    """
    if weight_fn == "softmax" and normalize is True and mask is None and causal is False:
        phi = _plain(X, W) if backend is None else None
        if phi is not None:
            return phi
    fn, causal = weight_function(weight_fn, normalize), _values.flag("causal", causal)
    if isinstance(X, (list, tuple)) or isinstance(mask, (list, tuple)):
        return _of_list(X, W, FeatureOptions(fn, mask, causal), backend)
    x = _inputs.text_tensor(X)
    w = weight_tensor(W, x)
    m = None if mask is None else _inputs.mask_tensor(mask, x)
    x3, w3 = x if x.ndim == 3 else x[None], w if w.ndim == 3 else w[None]
    if m is not None:
        m = (m if m.ndim == 2 else m[None]).expand(x3.shape[:2]).contiguous()
    phi = _features(x3, w3, FeatureOptions(fn, m, causal), backend)
    phi = phi if w.ndim == 3 else phi[:, 0]
    phi = phi if x.ndim == 3 else phi[0]
    return phi if isinstance(X, Tensor) else phi.detach().numpy()


def _plain(X: Any, W: Any) -> Tensor | None:
    """φ of one text on the CPU with nothing special about it, or None: then all is looked at.

    The checks of a short text, and its way through Python, take as long as its features: here each
    look at a tensor is left out that the operations below do themselves.
    """
    if not (type(X) is type(W) is Tensor and X.is_cpu and W.is_cpu and quiet()):
        return None
    if (X.requires_grad or W.requires_grad) and torch.is_grad_enabled():
        return None
    try:
        finite = _finite_checks().get(X.dtype)
        n, d = X.shape
        if finite is None or W.shape != (d, d) or not 0 < n * n * d <= AT_ONCE:
            return None
        if X.is_neg():  # fused attention would miss the sign
            return None
        words, queries = X[None, None], X @ W
        phi = scaled_dot_product_attention(queries[None, None], words, words)
        # What is not finite in X or W is so in the queries, or in φ.
        if finite(queries.data_ptr(), n * d) and finite(phi.data_ptr(), n * d):
            return phi[0, 0] if W.layout is strided else None
    except (RuntimeError, ValueError):  # another shape, dtype or layout: said below what is wrong
        pass
    return None


@cache
def _finite_checks() -> dict[torch.dtype, Callable[[int, int], bool]]:
    """By dtype, whether so many numbers at an address are finite; empty: nothing is compiled."""
    module = compiled.CPU.module
    if module is None:
        return {}
    return {torch.float32: module.all_finite32, torch.float64: module.all_finite64}


@untraced
def _of_list(X: Any, W: Array, given: FeatureOptions, backend: str | None) -> Any:
    """φ of texts of several lengths, or whose masks are a list."""
    inputs = _inputs.texts(X, given.mask)
    lengths = torch.tensor([len(text) for text in inputs.texts], device=inputs.device)
    missing = torch.arange(inputs.length, device=inputs.device) >= lengths[:, None]
    given = given._replace(mask=padded(inputs.masks))
    phi = _features(padded(inputs.texts), weights_of(W, inputs), given, backend)
    phi = phi.masked_fill(missing[:, None, :, None], torch.nan)
    phi = phi if _values.ndim(W) == 3 else phi[:, 0]
    return inputs.give(phi if inputs.batched else phi[0])


def _features(X: Tensor, W: Tensor, given: FeatureOptions, backend: str | None) -> Tensor:
    fn = given.weight_fn
    if backend is None and fn.exponential and X.device.type == "cpu":
        backend = "torch"  # PyTorch's own fused attention is the fastest there is
    # The kernel serves gradients too: the operator's backward is in PyTorch.
    engine = choose.engine(backend, X.device)
    if transformed(X, W):
        return _definition(X, W, given)
    traced = torch.compiler.is_compiling() or X.is_meta or not (type(X) is type(W) is Tensor)
    if traced or (torch.is_grad_enabled() and (X.requires_grad or W.requires_grad)):
        phi: Tensor = torch.ops.wsfast.raf_features(
            X, W, given.mask, fn.name, fn.normalize, engine.backend, given.causal
        )
        return phi
    # Going through the dispatcher costs as much as the features of a short text.
    return _compute(X, W, given, engine)


def _definition(X: Tensor, W: Tensor, given: FeatureOptions) -> Tensor:
    """φ (B, R, n, d) by PyTorch's own operations alone, which every transform takes."""
    if torch.compiler.is_compiling():
        # A graph can neither look at values nor hold PyTorch's settings; autocast it can.
        with torch.autocast(X.device.type, enabled=False):
            return _by_definition(X, W, given)
    with full_precision():
        _check_values(X, W, given.mask)
        return _by_definition(X, W, given)


def _by_definition(X: Tensor, W: Tensor, given: FeatureOptions) -> Tensor:
    mask = None if given.mask is None else given.mask[:, None]
    return attention_features(X[:, None], W, given.weight_fn, mask, causal=given.causal)


@torch.library.custom_op(
    "wsfast::raf_features",
    mutates_args=(),
    # Not inferred: older PyTorch reads no postponed annotations.
    schema="(Tensor X, Tensor W, Tensor? mask, str weight_fn, bool normalize, str backend,"
    " bool causal=False) -> Tensor",
)
def _raf_features_op(
    X: Tensor,
    W: Tensor,
    mask: Tensor | None,
    weight_fn: str,
    normalize: bool,
    backend: str,
    causal: bool = False,
) -> Tensor:
    """φ (B, R, n, d) of X (B, n, d), W (R, d, d), mask (B, n)."""
    given = FeatureOptions(WeightFn(weight_fn, normalize), mask, causal)
    return _compute(X, W, given, choose.engine(backend, X.device))


@full_precision()
def _compute(X: Tensor, W: Tensor, given: FeatureOptions, engine: Engine) -> Tensor:
    """φ (B, R, n, d)."""
    queries, mask = _queries(X, W), given.mask
    # Values are looked at here, not in the wrapper: there it would break the graph of
    # torch.compile; and once, at the end, so that a device is not waited for before. Whatever is
    # not finite in X or W makes some query so: a look at n·d numbers, not at d².
    told = queries.detach().sum()
    if mask is not None:
        told = told.masked_fill(~mask.any(1).all(), torch.nan)
    phi = engine.features(X, queries, given)
    phi = (phi if mask is None else phi * mask[:, None, :, None]).contiguous()
    if math.isfinite(float(told + phi.sum())):
        return phi
    _check_values(X, W, mask)
    # Scores leave the range of float32 for X of a size beyond 1e18.
    phi = _by_definition(X.double(), W.double(), given).to(X.dtype)
    _values.finite("φ(X)", phi)
    return phi


def _check_values(X: Tensor, W: Tensor, mask: Tensor | None) -> None:
    if mask is not None:
        _inputs.every_text_has_a_word(mask)
    _values.finite("X", X)
    _values.finite("W", W)


def _queries(X: Tensor, W: Tensor) -> Tensor:
    """X W for every text and draw, (B, R, n, d)."""
    B, n, d = X.shape
    # One plain product a draw: a batched one is slower on the CPU.
    rows = X.reshape(B * n, d)
    products = [(rows @ w).view(B, 1, n, d) for w in W]
    return products[0] if len(products) == 1 else torch.cat(products, 1)


@_raf_features_op.register_fake
def _(
    X: Tensor,
    W: Tensor,
    mask: Tensor | None,
    weight_fn: str,
    normalize: bool,
    backend: str,
    causal: bool = False,
) -> Tensor:
    return X.new_empty(X.shape[0], W.shape[0], *X.shape[1:])


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    X, W, mask, weight_fn, normalize, _, ctx.causal = inputs
    ctx.save_for_backward(X, W, mask)
    ctx.fn = WeightFn(weight_fn, normalize)


@full_precision()
def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    """Row tiles of the attention are formed again, so that no n×n array is kept between passes."""
    X, W, mask = ctx.saved_tensors
    fn: WeightFn = ctx.fn
    n, d = X.shape[1:]
    scale = d**-0.5
    words = X[:, None]
    queries = _queries(X, W) * scale
    if mask is not None:
        grad = grad * mask[:, None, :, None]
    keys = None if mask is None else mask[:, None]
    grad_X = torch.zeros_like(X)
    grad_W = torch.zeros_like(W)
    # A symbolic n (torch.compile with dynamic shapes) makes one tile: its size is not known here.
    rows = max(1, TILE // (n * len(X) * len(W))) if isinstance(n, int) else n
    for j in range(0, n, rows):
        here = slice(j, j + rows)
        scores = queries[:, :, here] @ words.mT
        each = torch.arange(j, j + scores.shape[-2], device=X.device)
        seen = what_is_seen(each, n, keys, causal=ctx.causal)
        weights = attend(scores, fn, seen)
        by_weight = grad[:, :, here] @ words.mT
        if fn.exponential:
            mean = (weights * by_weight).sum(-1, keepdim=True)
            by_score = weights * (by_weight - mean)
        else:
            slope = (scores > 0).to(X.dtype)
            if seen is not None:
                slope = slope * seen
            if fn.normalize:
                total = (relu(scores) * slope).sum(-1, keepdim=True)
                slope = slope / torch.where(total > 0, total, 1.0)
                by_weight = by_weight - (weights * by_weight).sum(-1, keepdim=True)
            by_score = slope * by_weight
        by_query = by_score @ words * scale
        grad_X = grad_X + (weights.mT @ grad[:, :, here] + by_score.mT @ queries[:, :, here]).sum(1)
        rows_X = torch.einsum("brne,rde->bnd", by_query, W)
        grad_X = grad_X + torch.nn.functional.pad(rows_X, (0, 0, j, n - j - rows_X.shape[1]))
        grad_W = grad_W + torch.einsum("bnd,brne->rde", X[:, here], by_query)
    return grad_X, grad_W, None, None, None, None, None


_raf_features_op.register_autograd(_backward, setup_context=_setup_context)
