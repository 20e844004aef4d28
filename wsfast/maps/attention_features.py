"""Random attention features softmax(X W Xᵀ/√d) X, as one differentiable custom operator."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from wsfast import _checks
from wsfast._checks import Array, Texts
from wsfast._interrupt import rows_at_once
from wsfast._kinks import relu
from wsfast._precision import full_precision, untraced
from wsfast._transforms import padded, transformed
from wsfast.attention.definition import attention_features, attention_weights
from wsfast.attention.weight_fn import WeightFn
from wsfast.engines import choose, compiled
from wsfast.engines.feature_kernels import attention_rows_, fused_features

# Scores of one tile, in elements: few enough to stay in the cache between the two products.
_TILE = 1 << 19


def raf_features(
    X: Texts,
    W: Array,
    *,
    weight_fn: str = "softmax",
    normalize: bool = True,
    mask: Any = None,
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
    _checks.weight_function(weight_fn, normalize)
    if isinstance(X, (list, tuple)) or isinstance(mask, (list, tuple)):
        return _of_list(X, W, mask, (weight_fn, normalize, backend))
    x = _checks.text_tensor(X)
    w = _checks.weight_tensor(W, x)
    m = None if mask is None else _checks.mask_tensor(mask, x)
    phi = _features(
        x if x.ndim == 3 else x[None],
        w if w.ndim == 3 else w[None],
        m if m is None or m.ndim == 2 else m[None],
        (weight_fn, normalize, backend),
        # CUDA kernels read half the bytes for words that are bfloat16, with the same result.
        X if isinstance(X, Tensor) and X.dtype == torch.bfloat16 else None,
    )
    phi = phi if w.ndim == 3 else phi[:, 0]
    phi = phi if x.ndim == 3 else phi[0]
    return phi if isinstance(X, Tensor) else phi.detach().numpy()


@untraced
def _of_list(X: Any, W: Array, mask: Any, options: tuple[str, bool, str | None]) -> Any:
    """φ of texts of several lengths, or whose masks are a list."""
    inputs = _checks.texts(X, mask)
    lengths = torch.tensor([len(text) for text in inputs.texts], device=inputs.device)
    missing = torch.arange(inputs.length, device=inputs.device) >= lengths[:, None]
    phi = _features(
        padded(inputs.texts),
        _checks.weights(W, inputs),
        padded(inputs.masks),
        options,
    ).masked_fill(missing[:, None, :, None], torch.nan)
    phi = phi if _checks.ndim(W) == 3 else phi[:, 0]
    return inputs.give(phi if inputs.batched else phi[0])


def _features(
    X: Tensor,
    W: Tensor,
    mask: Tensor | None,
    options: tuple[str, bool, str | None],
    given: Tensor | None = None,
) -> Tensor:
    weight_fn, normalize, backend = options
    if mask is not None:
        mask = mask.expand(X.shape[:2]).contiguous()
    if backend is None and weight_fn == "softmax" and X.device.type == "cpu":
        backend = "torch"  # PyTorch's own fused attention is the fastest there is
    # The kernel serves gradients too: the operator's backward is in PyTorch.
    chosen = choose.resolve(backend, X.device)
    if transformed(X, W):
        return _definition(X, W, mask, WeightFn(weight_fn, normalize))
    traced = torch.compiler.is_compiling() or X.is_meta or not (type(X) is type(W) is Tensor)
    if traced or (torch.is_grad_enabled() and (X.requires_grad or W.requires_grad)):
        phi: Tensor = torch.ops.wsfast.raf_features(X, W, mask, weight_fn, normalize, chosen)
        return phi
    # Going through the dispatcher costs as much as the features of a short text.
    return _compute(X, W, mask, WeightFn(weight_fn, normalize), chosen, given)


def _definition(X: Tensor, W: Tensor, mask: Tensor | None, fn: WeightFn) -> Tensor:
    """φ (B, R, n, d) by PyTorch's own operations alone, which every transform takes."""
    part = None if mask is None else mask[:, None]
    if torch.compiler.is_compiling():
        # A graph can neither look at values nor hold PyTorch's settings; autocast it can.
        with torch.autocast(X.device.type, enabled=False):
            return attention_features(X[:, None], W, fn, part)
    with full_precision():
        _check_values(X, W, mask)
        return attention_features(X[:, None], W, fn, part)


@torch.library.custom_op(
    "wsfast::raf_features",
    mutates_args=(),
    # Not inferred: older PyTorch reads no postponed annotations.
    schema="(Tensor X, Tensor W, Tensor? mask, str weight_fn, bool normalize, str backend)"
    " -> Tensor",
)
def _raf_features_op(
    X: Tensor, W: Tensor, mask: Tensor | None, weight_fn: str, normalize: bool, backend: str
) -> Tensor:
    """φ (B, R, n, d) of X (B, n, d), W (R, d, d), mask (B, n)."""
    return _compute(X, W, mask, WeightFn(weight_fn, normalize), backend)


@full_precision()
def _compute(
    X: Tensor,
    W: Tensor,
    mask: Tensor | None,
    fn: WeightFn,
    backend: str,
    given: Tensor | None = None,
) -> Tensor:
    """φ (B, R, n, d); `given` is X as bfloat16, where it was."""
    phi = _layer(X, W, mask, fn, backend, given)
    if math.isfinite(float(phi.sum())):
        return phi
    # Scores leave the range of float32 for X of a size beyond 1e18.
    phi = attention_features(
        X.double()[:, None], W.double(), fn, None if mask is None else mask[:, None]
    ).to(X.dtype)
    _checks.finite("φ(X)", phi)
    return phi


def _layer(
    X: Tensor,
    W: Tensor,
    mask: Tensor | None,
    fn: WeightFn,
    backend: str,
    given: Tensor | None,
) -> Tensor:
    queries = _queries(X, W)
    # Values are checked here, not in the wrapper: there it would break the graph of torch.compile.
    # Whatever is not finite in X or W makes some query so: a look at n·d numbers, not at d².
    if mask is not None or not math.isfinite(float(queries.detach().sum())):
        _check_values(X, W, mask)
    part = None if mask is None else mask[:, None]
    if backend == "native":
        if compiled.kernels(X.device).gpu:
            words = X if given is None else given.view_as(X)
            return fused_features(words, queries, fn, mask, X.shape[-1] ** -0.5).contiguous()
        phi = _native_features(X.contiguous(), queries, fn, mask)
    elif backend == "torch" and fn.exponential:
        phi = _plain_features(X, queries, mask)
    else:
        return attention_features(X[:, None], W, fn, part).contiguous()
    return (phi if part is None else phi * part.unsqueeze(-1)).contiguous()


def _check_values(X: Tensor, W: Tensor, mask: Tensor | None) -> None:
    if mask is not None:
        _checks.every_text_has_a_word(mask)
    _checks.finite("X", X)
    _checks.finite("W", W)


def _queries(X: Tensor, W: Tensor) -> Tensor:
    """X W for every text and draw, (B, R, n, d)."""
    B, n, d = X.shape
    # One plain product a draw: a batched one is slower on the CPU.
    rows = X.reshape(B * n, d)
    products = [(rows @ w).view(B, 1, n, d) for w in W]
    return products[0] if len(products) == 1 else torch.cat(products, 1)


def _plain_features(X: Tensor, queries: Tensor, mask: Tensor | None) -> Tensor:
    """φ (B, R, n, d) by PyTorch's fused attention: some texts, or rows of one, a call."""
    B, R, n, d = queries.shape
    words = X[:, None].expand_as(queries)
    seen = None if mask is None else mask[:, None, None].expand(B, R, n, n)
    texts, rows = rows_at_once(R * n * n * d), rows_at_once(R * n * d)
    if texts >= B and rows >= n:
        return scaled_dot_product_attention(queries, words, words, attn_mask=seen, scale=d**-0.5)
    phi = torch.empty_like(queries)
    for b in range(0, B, texts):
        here = slice(b, b + texts)
        for j in range(0, n, rows):
            part = None if seen is None else seen[here, :, j : j + rows]
            phi[here, :, j : j + rows] = scaled_dot_product_attention(
                queries[here, :, j : j + rows],
                words[here],
                words[here],
                attn_mask=part,
                scale=d**-0.5,
            )
    return phi


def _native_features(X: Tensor, queries: Tensor, fn: WeightFn, mask: Tensor | None) -> Tensor:
    """φ in place of `queries` (B, R, n, d)."""
    B, n, d = X.shape
    rows = max(1, min(n, _TILE // n))
    at_once = max(1, min(B, _TILE // (n * n)))
    work = X.new_empty(at_once * rows * n)
    for of_draw in queries.unbind(1):
        for b in range(0, B, at_once):
            words = X[b : b + at_once]
            part = None if mask is None else mask[b : b + at_once]
            for j in range(0, n, rows):
                tile = of_draw[b : b + at_once, j : j + rows]
                scores = work[: tile.shape[0] * tile.shape[1] * n].view(*tile.shape[:2], n)
                torch.baddbmm(scores, tile, words.mT, beta=0, alpha=d**-0.5, out=scores)
                attention_rows_(scores, fn, part)
                torch.bmm(scores, words, out=tile)
    return queries


@_raf_features_op.register_fake
def _(
    X: Tensor, W: Tensor, mask: Tensor | None, weight_fn: str, normalize: bool, backend: str
) -> Tensor:
    return X.new_empty(X.shape[0], W.shape[0], *X.shape[1:])


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    X, W, mask, weight_fn, normalize, _ = inputs
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
    part = None if mask is None else mask[:, None]
    grad_X = torch.zeros_like(X)
    grad_W = torch.zeros_like(W)
    # A symbolic n (torch.compile with dynamic shapes) makes one tile: its size is not known here.
    rows = max(1, _TILE // (n * len(X) * len(W))) if isinstance(n, int) else n
    for j in range(0, n, rows):
        here = slice(j, j + rows)
        scores = queries[:, :, here] @ words.mT
        weights = attention_weights(scores, fn, part)
        by_weight = grad[:, :, here] @ words.mT
        if fn.exponential:
            mean = (weights * by_weight).sum(-1, keepdim=True)
            by_score = weights * (by_weight - mean)
        else:
            slope = (scores > 0).to(X.dtype)
            if part is not None:
                slope = slope * part.unsqueeze(-2)
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
    return grad_X, grad_W, None, None, None, None


_raf_features_op.register_autograd(_backward, setup_context=_setup_context)
