"""Word sensitivity of any differentiable feature map."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from wsfast import _checks
from wsfast._checks import SearchOptions, Texts
from wsfast._precision import plain
from wsfast._progress import Progress, progress_bar
from wsfast._warn import warn
from wsfast.results.sensitivity import SensitivityResult
from wsfast.search.objective import Definition
from wsfast.search.search import Search, random_starts
from wsfast.studies.assemble import Worst, assemble, within, words_among
from wsfast.studies.deltas import DEFAULT_BUDGET


@plain
def word_sensitivity(
    phi: Callable[[Tensor], Tensor] | nn.Module,
    X: Texts,
    *,
    radius: float | None = None,
    mask: Any = None,
    positions: Any = None,
    seed: int = 0,
    starts: int = 4,
    max_steps: int = 60,
    tol: float = 1e-4,
    memory_budget: int = DEFAULT_BUDGET,
    progress: bool = False,
) -> SensitivityResult:
    """Word sensitivity S of any differentiable feature map, by automatic differentiation.

    The ascent of `raf_sensitivity` with the definition in place of the closed form: φ is computed
    again for every position, start and step, and all starts are random.

    Parameters
    ----------
    phi : callable or nn.Module
        Takes texts (m, n, d), in the dtype of `X`, and returns features of shape (m, ...), each
        text's from that text alone. A module is called in eval mode, and left in the mode it was
        in; its parameters get no gradient.
    X, radius, positions, seed, starts, max_steps, tol, progress
        As in `raf_sensitivity`. In float32 φ's own rounding is all that is left of an S near 1e-6;
        below 1e-4 a warning says so: use float64.
    mask : bool Tensor or ndarray, shape (n,) or (B, n), or list of (n_b,), optional
        True where there is a word. φ gets the words alone: masked rows are left out of the text.
    memory_budget : int, default 256 MiB
        Bytes that copies of `X` may take at a time; what φ itself needs comes on top.

    Returns
    -------
    SensitivityResult
        With a leading axis B only if `X` is batched.

    Raises
    ------
    TypeError, ValueError
        For bad input, as in `raf_sensitivity`, or a `phi` whose result is not a real tensor with
        one row per text, is not finite, or has no gradient.

    Notes
    -----
    Definition (5) of Bombari & Mondelli (arXiv 2402.02969).

    Examples
    --------
    >>> import torch, wsfast
    >>> layer = torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    >>> result = wsfast.word_sensitivity(layer, torch.randn(5, 16), positions=[0, 3])
    >>> result.per_word.isnan().tolist()
    [False, True, True, False, True]
    """
    if not callable(phi):
        raise TypeError(f"phi must be a function or an nn.Module, got {type(phi).__name__}")
    inputs = _checks.texts(X, mask)
    options = _checks.search_options(
        inputs,
        radius=radius,
        positions=positions,
        seed=seed,
        starts=starts,
        max_steps=max_steps,
        tol=tol,
        memory_budget=memory_budget,
    )
    total = sum(map(len, options.positions))
    shown = _checks.flag("progress", progress)
    with torch.no_grad(), progress_bar(total, "word", shown) as bar, evaluating(phi):
        worst = [
            _worst_case(phi, text[keep].detach(), words_among(keep, at), at, options, bar)
            for text, keep, at in zip(inputs.texts, inputs.masks, options.positions, strict=True)
        ]
    about = {"map": getattr(phi, "__name__", type(phi).__name__), "backend": "definition"}
    rounding = 1e3 * torch.finfo(inputs.dtype).eps
    if any(bool(((one.per_word > 0) & (one.per_word < rounding)).any()) for one in worst):
        warn(
            f"some S_i are below {rounding:.0e}, where rounding of phi in "
            f"{str(inputs.dtype).removeprefix('torch.')} shows: use float64, if this is float32"
        )
    return assemble(worst, inputs, options, about, draws=None)


@contextmanager
def evaluating(phi: Callable[[Tensor], Tensor] | nn.Module) -> Iterator[None]:
    """Eval mode for `phi` and all of its parts, each put back into its own mode afterwards."""
    modes = [(m, m.training) for m in phi.modules()] if isinstance(phi, nn.Module) else []
    for module, _ in modes:
        module.training = False
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def _worst_case(
    phi: Callable[[Tensor], Tensor],
    X: Tensor,
    index: Tensor,
    at: Tensor,
    options: SearchOptions,
    bar: Progress,
) -> Worst:
    n, d = X.shape
    base = _checks.features_of(phi, X).double()
    norm = _checks.size_of("phi(X)", base, X.dtype)
    if len(index) == 0 or float(norm) == 0 or options.radius == 0:
        bar.update(len(index))
        return Worst(
            torch.zeros(len(index), dtype=torch.float64, device=X.device) / norm,
            X.new_zeros(len(index), d),
            at,
            steps=0,
        )
    rows_at_once = max(1, options.memory_budget // (4 * n * d * X.element_size()))
    search = Search(options, random_starts(options.starts, d, options.seed, X), native=False)
    deltas, values, steps = [], [], 0
    # In parts, for the bar and for Ctrl-C: positions do not depend on one another.
    for part in index.split(max(1, rows_at_once // options.starts)):
        objective = Definition(phi, X, base, part, rows_at_once)
        point, taken = search.run(objective)
        delta = within(point.delta, options.radius)
        deltas.append(delta)
        values.append(objective.squared_norms(delta[:, None])[:, 0].double().sqrt())
        steps = max(steps, taken)
        bar.update(len(part))
    return Worst(torch.cat(values) / norm, torch.cat(deltas), at, steps)
