"""The change of φ when one word moves by a given Δ."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from wsfast import _checks
from wsfast._checks import Array, Inputs, Texts
from wsfast._precision import plain, untraced
from wsfast._transforms import padded, transformed
from wsfast.attention.weight_fn import WeightFn
from wsfast.engines import choose
from wsfast.maps.attention_text import AttentionWeights, RafProblem

DEFAULT_BUDGET = 256 * 2**20


@untraced
def perturb(X: Texts, position: int, delta: Array) -> Any:
    """X^i(Δ): the text with Δ added to the word at `position`.

    Parameters
    ----------
    X : Tensor or ndarray, shape (n, d) or (B, n, d), or list of (n_b, d)
    position : int
        From 0 to n - 1 (of the shortest text).
    delta : Tensor or ndarray, shape (d,) or (B, d)
        One Δ for every text, or one for each, in the dtype of `X`.

    Returns
    -------
    Tensor, ndarray or list
        New, of the kind and shape of `X`; half precision becomes float32. Differentiable.

    Raises
    ------
    TypeError, ValueError
        For a wrong type, dtype, shape or device, NaN or infinity, or a position out of range.
    """
    inputs = _checks.texts(X)
    i = _checks.position(position, inputs)
    delta = _checks.perturbation(delta, inputs)
    moved = [
        text.index_add(0, torch.tensor([i], device=text.device), by[None])
        for text, by in zip(inputs.texts, delta, strict=True)
    ]
    if isinstance(X, (list, tuple)):
        return [inputs.give(text) for text in moved]
    return inputs.give(torch.stack(moved) if inputs.batched else moved[0])


@plain
def raf_delta_norms(
    X: Texts,
    W: Array,
    delta: Array,
    *,
    weight_fn: str = "softmax",
    normalize: bool = True,
    mask: Any = None,
    memory_budget: int = DEFAULT_BUDGET,
    backend: str | None = None,
) -> Any:
    """‖φ(X^i(Δ)) - φ(X)‖ for every position i and many Δ at once, φ the random attention features.

    Parameters
    ----------
    X : Tensor or ndarray, shape (n, d) or (B, n, d), or list of (n_b, d)
        float32 or float64 (float16 and bfloat16 are computed and returned in float32).
    W : Tensor or ndarray, shape (d, d) or (R, d, d)
    delta : Tensor or ndarray, shape (m, d), (n, m, d) or (B, n, m, d)
        m changes shared by all positions; m for each position; or, with batched `X`, m for each
        position of each text. n is the length of the longest text.
    weight_fn, normalize, mask
        As in `raf_features`.
    memory_budget : int, default 256 MiB
        Bytes that temporaries may take.
    backend : {"reference", "torch", "native"}, optional
        The definition (one layer for each position and Δ); the closed form in PyTorch,
        differentiable in `X`, `W` and `delta`; the closed form with compiled kernels. By default
        the fastest that can run (and give gradients, where an input requires them). Under the
        transforms of ``torch.func``, and with forward-mode tangents, the definition.

    Returns
    -------
    Tensor or ndarray, shape (B, R, n, m)
        The axes B and R only where `X` and `W` have them. NaN at masked words.

    Raises
    ------
    TypeError, ValueError
        For a wrong type, dtype, shape or device, NaN or infinity, or a mask without any word.

    Notes
    -----
    docs/design.md, section 2. float32 is within 1e-4 and float64 within 1e-10 of the definition,
    relative to the larger of the norm and 1e-3·‖φ(X)‖, for scores up to 1e3 and 1e4 in size.

    Examples
    --------
    >>> import torch, wsfast
    >>> X, W = torch.randn(5, 8), wsfast.random_weights(8)
    >>> wsfast.raf_delta_norms(X, W, torch.randn(3, 8)).shape
    torch.Size([5, 3])
    """
    _checks.weight_function(weight_fn, normalize)
    inputs = _checks.texts(X, mask)
    weights = _checks.weights(W, inputs)
    changes = _checks.perturbations(delta, inputs)
    budget = _checks.integer("memory_budget", memory_budget, low=1)
    backend = _resolve(backend, inputs, weights, changes)
    fn = WeightFn(weight_fn, normalize)
    out = []
    for w in map(AttentionWeights, weights):
        for b, (text, keep) in enumerate(zip(inputs.texts, inputs.masks, strict=True)):
            words = keep.nonzero()[:, 0]
            at = changes[b if len(changes) > 1 else 0]
            at = at if len(at) == 1 else at[words]
            problem = RafProblem(text[keep], w, fn, backend, budget)
            index = torch.arange(len(words), device=inputs.device)
            norms = problem.norms(index, at, inputs.dtype).to(inputs.dtype)
            full = norms.new_full((inputs.length, norms.shape[1]), torch.nan)
            out.append(full.index_put((words,), norms))
    return inputs.give(_axes(torch.stack(out), inputs, W))


@plain
def raf_deltas(
    X: Texts,
    W: Array,
    position: int,
    delta: Array,
    *,
    weight_fn: str = "softmax",
    normalize: bool = True,
    mask: Any = None,
    backend: str | None = None,
) -> Any:
    """φ(X^i(Δ)) - φ(X) itself, φ the random attention features.

    Parameters
    ----------
    X, W, weight_fn, normalize, mask, backend
        As in `raf_delta_norms`.
    position : int
        i, a word of every text.
    delta : Tensor or ndarray, shape (d,) or (B, d)
        One Δ for every text, or one for each.

    Returns
    -------
    Tensor or ndarray, shape (B, R, n, d)
        The axes B and R only where `X` and `W` have them. Rows of masked words are 0; a list comes
        back padded with NaN to the longest text. The closed form takes no difference of features:
        small changes keep their relative accuracy.

    Raises
    ------
    TypeError, ValueError
        As in `raf_delta_norms`, and for a position out of range or masked.
    """
    _checks.weight_function(weight_fn, normalize)
    inputs = _checks.texts(X, mask)
    weights = _checks.weights(W, inputs)
    i = _checks.position(position, inputs)
    changes = _checks.perturbation(delta, inputs)
    backend = _resolve(backend, inputs, weights, changes)
    fn = WeightFn(weight_fn, normalize)
    out = []
    for w in map(AttentionWeights, weights):
        for text, keep, by in zip(inputs.texts, inputs.masks, changes, strict=True):
            problem = RafProblem(text[keep], w, fn, backend, DEFAULT_BUDGET)
            change = problem.deltas(int(keep[:i].sum()), by).to(inputs.dtype)
            _checks.finite("φ(X^i(Δ)) - φ(X)", change)
            words = keep.nonzero()[:, 0]
            out.append(torch.zeros_like(text).index_put((words,), change))
    return inputs.give(_axes(padded(out, torch.nan), inputs, W))


def _resolve(backend: str | None, inputs: Inputs, *others: Tensor) -> str:
    requires_grad = inputs.requires_grad or (
        torch.is_grad_enabled() and any(x.requires_grad for x in others)
    )
    chosen = choose.resolve(backend, inputs.device, requires_grad=requires_grad)
    # The closed form looks at values: rows that one word dominates are apart.
    return "reference" if transformed(*inputs.texts, *others) else chosen


def _axes(results: Tensor, inputs: Inputs, W: Array) -> Tensor:
    """(B, R, ...) from one result for each text of each draw; only the axes that the user gave."""
    stacked: Tensor = results.unflatten(0, (-1, len(inputs.texts))).transpose(0, 1)
    if W.ndim != 3:
        stacked = stacked[:, 0]
    return stacked if inputs.batched else stacked[0]
