"""Word sensitivity of random attention features."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from wsfast import _checks
from wsfast._checks import Array, Inputs, SearchOptions, Texts
from wsfast._precision import plain
from wsfast._progress import Progress, progress_bar
from wsfast._random import random_weights
from wsfast.attention.weight_fn import WeightFn
from wsfast.engines import choose
from wsfast.maps.attention_text import AttentionWeights, RafProblem
from wsfast.results.sensitivity import SensitivityResult
from wsfast.search.objective import ClosedForm, Definition
from wsfast.search.search import Search, random_starts, search_dtype
from wsfast.studies.assemble import Worst, assemble, within, words_among
from wsfast.studies.deltas import DEFAULT_BUDGET

# Curves of the smooth ReLU, strongest first: the height at 0 of softplus(κ s)/κ for κ = 2 and 10.
CURVES = (0.48, 0.0192)

# Texts of so many numbers or fewer get so many times the starts: there they cost next to nothing.
SHORT = 1 << 12
MORE_STARTS = 4

# The small basis is used where a step in it costs at most this share of one in full d.
WORTHWHILE = 0.6


@plain
def raf_sensitivity(
    X: Texts,
    W: Array | None = None,
    *,
    radius: float | None = None,
    weight_fn: str = "softmax",
    normalize: bool = True,
    mask: Any = None,
    positions: Any = None,
    draws: int | None = None,
    seed: int = 0,
    starts: int = 4,
    max_steps: int = 60,
    tol: float = 1e-4,
    memory_budget: int = DEFAULT_BUDGET,
    backend: str | None = None,
    progress: bool = False,
) -> SensitivityResult:
    """Word sensitivity S of random attention features, at every position at once.

    S is the largest relative change ‖φ(X^i(Δ)) - φ(X)‖ / ‖φ(X)‖ over the positions i and the
    changes Δ of one word with ‖Δ‖ ≤ radius. The search gives a lower bound that is attained:
    `value` is computed from the definition, in float64, at the `delta` returned.

    Parameters
    ----------
    X : Tensor or ndarray, shape (n, d) or (B, n, d), or list of (n_b, d)
        Texts; the paper scales rows to norm √d. float32 or float64 (float16 and bfloat16 are
        computed and returned in float32).
    W : Tensor or ndarray, shape (d, d) or (R, d, d), optional
        Attention weights. By default random, as `random_weights` gives for `seed`.
    radius : float, optional
        Largest ‖Δ‖; by default √d, as in the paper.
    weight_fn, normalize, mask
        As in `raf_features`.
    positions : sequence of int, optional
        Where a word may change; by default everywhere.
    draws : int, optional
        Number R of independent random W; not together with `W`.
    seed : int, default 0
        Of the random W and of the starts of the search, which are the same at every position.
    starts : int, default 4
        Points that the ascent starts from at each position: the direction that raises all scores at
        once, and random ones. Four times as many for texts of n d ≤ 4,096 numbers, where the closed
        form makes them cost next to nothing and they matter most.
    max_steps : int, default 60
        Steps at most, per position. For "relu", whose objective has kinks, two and a half times as
        many in all.
    tol : float, default 1e-4
        A position is done when four steps together raise its norm by less than this share.
    memory_budget : int, default 256 MiB
        Bytes that temporaries may take, beyond copies of `X` and `W`.
    backend : {"reference", "torch", "native"}, optional
        What the search evaluates: the definition by autograd, the closed form by autograd, or the
        closed form by compiled kernels. By default the fastest that can run.
    progress : bool, default False
        Whether to show a progress bar, in positions.

    Returns
    -------
    SensitivityResult
        NumPy arrays if `X` is NumPy, else tensors on the device of `X`. Leading axes (B, R), each
        only if `X` is batched and W or `draws` has draws. S is NaN, with a warning, where ‖φ(X)‖ =
        0.

    Raises
    ------
    TypeError, ValueError
        For a wrong type, dtype, shape or device, NaN or infinity, `W` together with `draws`, or a
        mask without any word.
    RuntimeError
        For ``backend="native"`` where the compiled module is missing.

    Notes
    -----
    Definition (5) of Bombari & Mondelli (arXiv 2402.02969); closed form and search: docs/design.md,
    2 and 3.

    Examples
    --------
    >>> import torch, wsfast
    >>> X = torch.nn.functional.normalize(torch.randn(12, 64), dim=1) * 64**0.5
    >>> result = wsfast.raf_sensitivity(X)
    >>> result.per_word.shape
    torch.Size([12])
    """
    _checks.weight_function(weight_fn, normalize)
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
    weights, has_draws = draw_weights(W, draws, options.seed, inputs)
    backend = choose.resolve(backend, inputs.device)
    fn = WeightFn(weight_fn, normalize)
    total = sum(map(len, options.positions)) * len(weights)
    shown = _checks.flag("progress", progress)
    by_draw = []
    with torch.no_grad(), progress_bar(total, "word", shown) as bar:
        for w in weights:
            prepared = AttentionWeights(w.detach())
            by_draw.append(
                [
                    _worst_case(
                        RafProblem(
                            text[keep].detach(), prepared, fn, backend, options.memory_budget
                        ),
                        words_among(keep, at),
                        at,
                        options,
                        bar,
                    )
                    for text, keep, at in zip(
                        inputs.texts, inputs.masks, options.positions, strict=True
                    )
                ]
            )
    worst = [one for text in zip(*by_draw, strict=True) for one in text]
    about = {
        "map": "raf",
        "weight_fn": weight_fn,
        "normalize": normalize,
        "weights": "random" if W is None else "given",
        "backend": backend,
    }
    return assemble(worst, inputs, options, about, draws=len(weights) if has_draws else None)


def draw_weights(
    W: Array | None, draws: int | None, seed: int, inputs: Inputs
) -> tuple[Tensor, bool]:
    """W (R, d, d), and whether results have an axis of draws."""
    if W is not None:
        if draws is not None:
            raise ValueError("W and draws cannot both be given: draws asks for random W")
        return _checks.weights(W, inputs), W.ndim == 3
    count = 1 if draws is None else _checks.integer("draws", draws, low=1)
    W = random_weights(inputs.d, draws=count, seed=seed, dtype=inputs.dtype, device=inputs.device)
    return W, draws is not None


def _worst_case(
    problem: RafProblem,
    index: Tensor,
    at: Tensor,
    options: SearchOptions,
    bar: Progress,
) -> Worst:
    """Search the words `index` of `problem`, which stand at `at` in the user's text."""
    if (unit := problem.unit) != 1:
        inside = options._replace(radius=options.radius / unit)
        worst = _worst_case(problem.scaled(unit), index, at, inside, bar)
        delta = within((worst.delta * unit).to(problem.dtype), options.radius)
        return worst._replace(delta=delta)
    norm = problem.norm
    _checks.finite("φ(X)", norm)
    empty = torch.zeros(len(index), problem.d, dtype=problem.dtype, device=index.device)
    if len(index) == 0 or float(norm) == 0 or options.radius == 0:
        bar.update(len(index))
        per_word = torch.zeros(len(index), dtype=torch.float64, device=index.device) / norm
        return Worst(per_word, empty, at, steps=0)
    deltas, steps = [], 0
    fn = problem.weight_fn
    curves = () if fn.exponential else CURVES
    smooth_fns = [WeightFn("squareplus", fn.normalize, curve) for curve in curves]
    basis = _basis(problem, search_dtype(problem.X, options.radius, problem.dtype))
    search = attention_search(problem, options, basis, native=problem.backend == "native")
    dtype = search.directions.dtype

    def objective(part: Tensor, weight_fn: WeightFn) -> Definition | ClosedForm:
        if problem.backend == "reference":
            return problem.definition(part, weight_fn)
        state = problem.in_dtype(problem.state(part, weight_fn), dtype)
        return ClosedForm(state, problem.backend == "native")

    for part in problem.chunks(index, search.points_at_once(fn.exponential)):
        smoothed = [objective(part, smooth) for smooth in smooth_fns]
        point, taken = search.run_through_basis(objective(part, fn), smoothed)
        deltas.append(point.delta)
        steps = max(steps, taken)
        bar.update(len(part))
    delta = within(torch.cat(deltas).to(problem.dtype), options.radius)
    per_word = problem.norms(index, delta[:, None], torch.float64)[:, 0] / norm
    # The winner from the definition itself. Where ReLU jumps, that may make another the winner.
    claimed, defined = torch.inf, 0.0
    while defined < claimed * (1 - 1e-9):
        best = int(per_word.argmax())
        claimed = float(per_word[best])
        moved = problem.X.index_put((index[best],), problem.X[index[best]] + delta[best].double())
        before, after = problem.phi(torch.stack([problem.X, moved]))
        per_word[best] = (after - before).norm() / norm
        defined = float(per_word[best])
    return Worst(per_word, delta, at, steps)


def attention_search(
    problem: RafProblem, options: SearchOptions, basis: Tensor | None, *, native: bool
) -> Search:
    """The search of a text, the same whichever backend evaluates its points.

    The definition is evaluated in float64, from starts and in a basis that are rounded as those of
    the others.
    """
    dtype = search_dtype(problem.X, options.radius, problem.dtype)
    count = options.starts * (MORE_STARTS if problem.n * problem.d <= SHORT else 1)
    directions = random_starts(count, problem.d, options.seed, problem.X.to(dtype))
    directions[0] = (problem.X @ problem.W).sum(0)
    if problem.backend == "reference":
        directions = directions.double()
        basis = None if basis is None else basis.double()
    return Search(options, directions, native=native, basis=basis)


def _basis(problem: RafProblem, dtype: torch.dtype) -> Tensor | None:
    """Orthonormal basis (d, r) of the rows of X, XW and XWᵀ, where searching in it saves work."""
    n, d = problem.n, problem.d
    r = 3 * n
    if r >= d or 8 * n * r + r * r > WORTHWHILE * (8 * n * d + d * d):
        return None
    text = problem.text
    rows = torch.cat([text.X, text.queries * d**0.5, text.keys * d**0.5]).to(dtype)
    basis: Tensor = torch.linalg.qr(rows.mT).Q
    return basis
