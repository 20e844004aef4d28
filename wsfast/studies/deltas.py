"""The change of φ when one word moves by a given Δ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from wsfast import _inputs, _values
from wsfast._inputs import Inputs, Site, Texts, words_among
from wsfast._precision import at_full_precision, untraced
from wsfast._transforms import padded
from wsfast._values import Array, differentiable, finite, match, real_tensor, shape_of
from wsfast.maps.attention import WeightFn, Weights, weight_function, weights_of
from wsfast.maps.attention_text import AttentionMap
from wsfast.maps.draws import engine_of
from wsfast.maps.feature_map import PreparedText
from wsfast.maps.measure import ROWS, Norm
from wsfast.perturbation.change import BALL, KINDS, Change, Kind, Sites, edit, kind_of
from wsfast.search.options import DEFAULT_BUDGET
from wsfast.studies.worst_case import checked_change


@untraced
def perturb(X: Texts, position: int | Sequence[int], delta: Array) -> Any:
    """X^i(Δ): the text with Δ added to the word at `position`.

    Parameters
    ----------
    X : Tensor or ndarray, shape (n, d) or (B, n, d), or list of (n_b, d)
    position : int, or sequence of int
        From 0 to n - 1 (of the shortest text); several words change together.
    delta : Tensor or ndarray, shape (d,) or (B, d)
        One Δ for every text, or one for each, in the dtype of `X`. For m positions (m, d) or (B, m,
        d), in ascending order of the positions.

    Returns
    -------
    Tensor, ndarray or list
        New, of the kind and shape of `X`; half precision becomes float32. Differentiable.

    Raises
    ------
    TypeError, ValueError
        For a wrong type, dtype, shape or device, NaN or infinity, or a position out of range.
    """
    inputs = _inputs.texts(X)
    site = _inputs.site(position, inputs)
    delta = perturbation_of(delta, inputs, position, len(site))
    moved = []
    for text, by in zip(inputs.texts, delta, strict=True):
        at = Sites(torch.tensor([site], device=text.device))
        moved.append(edit(text, at, Change(add=by[None, None]))[0][0])
    if isinstance(X, (list, tuple)):
        return [inputs.give(text) for text in moved]
    return inputs.give(torch.stack(moved) if inputs.batched else moved[0])


@at_full_precision
def raf_delta_norms(
    X: Texts,
    W: Array,
    delta: Array | None = None,
    *,
    positions: Any = None,
    perturbation: str | Kind | None = None,
    rows: str = "all",
    weight_fn: str = "softmax",
    normalize: bool = True,
    mask: Any = None,
    causal: bool = False,
    memory_budget: int = DEFAULT_BUDGET,
    backend: str | None = None,
) -> Any:
    """‖φ(X^i(Δ)) - φ(X)‖ for every position i and many Δ at once, φ the random attention features.

    Or for every position whose word is hidden, or replaced: with a `perturbation` in place of Δ.

    Parameters
    ----------
    X : Tensor or ndarray, shape (n, d) or (B, n, d), or list of (n_b, d)
        float32 or float64 (float16 and bfloat16 are computed and returned in float32).
    W : Tensor or ndarray, shape (d, d) or (R, d, d)
    delta : Tensor or ndarray, shape (s, d), (n, s, d) or (B, n, s, d), optional
        s changes shared by all positions; s for each position; or, with batched `X`, s for each
        position of each text. n is the length of the longest text. Of P sites (s, m, d), (P, s, m,
        d) or (B, P, s, m, d): of a site's words in ascending order; m is that of the longest site.
    positions : sequence of int, or of sites, optional
        As in `raf_sensitivity`; by default every word.
    perturbation : {"mask", "zero", "mean"} or callable, optional
        As in `raf_sensitivity`; either this or `delta`.
    rows : {"all", "others"}, default "all"
        Of which rows of φ the change is taken: all, or those of the other words.
    weight_fn, normalize, mask, causal
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
    Tensor or ndarray, shape (B, R, n, s), or (B, R, n) with `perturbation`
        The axes B and R only where `X` and `W` have them. NaN at masked words, and where no change
        was asked for. Of sites (B, R, P, s), in their order.

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
    given = _Given(weight_function(weight_fn, normalize), causal, backend, memory_budget)
    inputs = _inputs.texts(X, mask)
    weights = weights_of(W, inputs)
    kind = _kind(perturbation, delta)
    measure = Norm(_values.one_of("rows", rows, ROWS))
    every, several = _inputs.places(positions, inputs, transforms=True)
    changes = None if delta is None else perturbations(delta, inputs, several)
    columns = inputs.length if several is None else len(several)
    count = 1 if changes is None else changes.shape[2]

    def norms(b: int, text: PreparedText) -> Tensor:
        full = inputs.texts[b].new_full((columns, count), torch.nan)
        for which, at in every[b].alike(inputs.masks[b]):
            if len(which) == 0:
                continue
            sites, column = Sites(at), every[b].column[which]
            if kind is not None:
                change = checked_change(kind(text.X, sites.at), sites, text)
            else:
                assert changes is not None
                by = changes[b if len(changes) > 1 else 0]
                by = by if len(by) == 1 else by[column]
                change = Change(add=by[:, :, : sites.words].expand(len(at), -1, -1, -1))
            found = text.measured(sites, change, measure, inputs.dtype).to(inputs.dtype)
            full = full.index_put((column,), found)
        return full

    out = torch.stack(_of_all(inputs, weights, changes, given, norms))
    return inputs.give(_axes(out if kind is None else out[..., 0], inputs, W))


@at_full_precision
def raf_deltas(
    X: Texts,
    W: Array,
    position: int | Sequence[int],
    delta: Array | None = None,
    *,
    perturbation: str | Kind | None = None,
    weight_fn: str = "softmax",
    normalize: bool = True,
    mask: Any = None,
    causal: bool = False,
    backend: str | None = None,
) -> Any:
    """φ(X^i(Δ)) - φ(X) itself, φ the random attention features.

    Parameters
    ----------
    X, W, perturbation, weight_fn, normalize, mask, causal, backend
        As in `raf_delta_norms`.
    position : int, or sequence of int
        i, a word of every text; or several words, which change together.
    delta : Tensor or ndarray, shape (d,) or (B, d), optional
        One Δ for every text, or one for each; either this or `perturbation`. For m positions (m, d)
        or (B, m, d), in ascending order of the positions.

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
    given = _Given(weight_function(weight_fn, normalize), causal, backend, DEFAULT_BUDGET)
    inputs = _inputs.texts(X, mask)
    weights = weights_of(W, inputs)
    site = _inputs.site(position, inputs)
    kind = _kind(perturbation, delta)
    changes = None if delta is None else perturbation_of(delta, inputs, position, len(site))

    def deltas(b: int, text: PreparedText) -> Tensor:
        at = torch.tensor([site], device=inputs.device)
        sites = Sites(words_among(inputs.masks[b], at))
        if kind is not None:
            change = checked_change(kind(text.X, sites.at), sites, text)
        else:
            assert changes is not None
            change = Change(add=changes[b][None, None])
        words = inputs.masks[b].nonzero()[:, 0]
        found = text.changes(sites, change)[0, 0].to(inputs.dtype)
        _values.finite("φ(X^i(Δ)) - φ(X)", found)
        return torch.zeros_like(inputs.texts[b]).index_put((words,), found)

    out = _of_all(inputs, weights, changes, given, deltas)
    return inputs.give(_axes(padded(out, torch.nan), inputs, W))


class _Given(NamedTuple):
    """What both functions are told of the attention, partly unchecked."""

    weight_fn: WeightFn
    causal: Any
    backend: str | None
    budget: Any


def _kind(perturbation: Any, delta: Any) -> Kind | None:
    """The kind of change that takes the place of Δ."""
    if (perturbation is None) == (delta is None):
        raise ValueError("either delta or perturbation must be given, and not both")
    if perturbation is None:
        return None
    if perturbation == BALL:
        known = _values.either(KINDS, "a function")
        raise ValueError(f"perturbation must be {known}, got {perturbation!r}")
    return kind_of(perturbation, None)


def _of_all(
    inputs: Inputs,
    weights: Tensor,
    changes: Tensor | None,
    given: _Given,
    of_text: Callable[[int, PreparedText], Tensor],
) -> list[Tensor]:
    """What `of_text` gives for the number of each text and the text, draw by draw."""
    budget = _values.integer("memory_budget", given.budget, low=1)
    causal = _values.flag("causal", given.causal)
    others = [weights] if changes is None else [weights, changes]
    engine = engine_of(given.backend, inputs, *others)
    words = [text[keep] for text, keep in zip(inputs.texts, inputs.masks, strict=True)]
    out = []
    for W in weights:
        map_ = AttentionMap(Weights(W), given.weight_fn, causal=causal, budget=budget)
        for b, text in enumerate(map_.prepare(words, engine, budget)):
            out.append(of_text(b, text))
    return out


def _axes(results: Tensor, inputs: Inputs, W: Array) -> Tensor:
    """(B, R, ...) from one result for each text of each draw; only the axes that the user gave."""
    stacked: Tensor = results.unflatten(0, (-1, len(inputs.texts))).transpose(0, 1)
    if W.ndim != 3:
        stacked = stacked[:, 0]
    return stacked if inputs.batched else stacked[0]


def perturbations(delta: Any, inputs: Inputs, sites: list[Site] | None) -> Tensor:
    """Δ as (B or 1, P or 1, s, m, d): for all places, for each, or for each of each text.

    Of single words P is the number n of positions, and Δ comes without the axis m.
    """
    tensor = differentiable(real_tensor("delta", delta))
    own = (inputs.d,) if sites is None else (max(map(len, sites)), inputs.d)
    count = len(inputs.texts)
    leads = [(), (inputs.length if sites is None else len(sites),)]
    leads += [(count, *leads[1])] if inputs.batched else []
    shape, most = tuple(tensor.shape), len(own) + 1
    ends_well = shape[-len(own) :] == own and len(shape) >= most and shape[-most] > 0
    if not ends_well or shape[:-most] not in leads:
        expected = " or ".join(_written(*lead, "s", *own) for lead in leads)
        raise ValueError(f"delta must have shape {expected}, s >= 1, got {shape_of(tensor)}")
    match("delta", tensor, inputs.texts[0])
    finite("delta", tensor)
    tensor = tensor[..., None, :] if sites is None else tensor
    return tensor[(None,) * (5 - tensor.ndim)]


def _written(*lengths: int | str) -> str:
    return f"({', '.join(map(str, lengths))})"


def perturbation_of(delta: Any, inputs: Inputs, position: Any, m: int) -> Tensor:
    """One Δ for the whole of X, or one for each text; as (B, m, d).

    Where `position` is a number, and not a sequence of m of them, Δ comes without the axis m.
    """
    tensor = differentiable(real_tensor("delta", delta))
    count, d = len(inputs.texts), inputs.d
    own = (m, d) if isinstance(position, Sequence) or np.ndim(position) > 0 else (d,)
    shapes = [own, (count, *own)] if inputs.batched else [own]
    if tuple(tensor.shape) not in shapes:
        expected = " or ".join(str(shape) for shape in shapes)
        raise ValueError(f"delta must have shape {expected}, got {shape_of(tensor)}")
    match("delta", tensor, inputs.texts[0])
    finite("delta", tensor)
    return (tensor if len(own) == 2 else tensor[..., None, :]).expand(count, m, d)
