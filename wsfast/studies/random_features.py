"""Word sensitivity of random features and of deep random features."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from wsfast import _checks
from wsfast._checks import Array, Inputs, Network, SearchOptions, Texts
from wsfast._precision import plain
from wsfast._progress import Progress, progress_bar
from wsfast.engines import choose
from wsfast.maps.projection import project, project_word
from wsfast.maps.random import RandomFeatures, random_features
from wsfast.maps.random_features import drf_network, rf_network
from wsfast.maps.singular_value import largest_singular_value
from wsfast.results.sensitivity import SensitivityResult
from wsfast.search.objective import Definition, Objective
from wsfast.search.search import Search, random_starts, search_dtype
from wsfast.studies.assemble import Worst, assemble, within

# Numbers of the V_i of positions that are searched together.
_TOGETHER = 1 << 24

# What searching a position costs, in units of making its V_i: for the progress bar alone.
_SEARCH_COST = 50


@plain
def rf_sensitivity(
    X: Texts,
    V: Array | None = None,
    *,
    activation: str | Callable[[Tensor], Tensor] = "relu",
    k: int | None = None,
    radius: float | None = None,
    positions: Any = None,
    draws: int | None = None,
    seed: int = 0,
    starts: int = 4,
    max_steps: int = 60,
    tol: float = 1e-4,
    backend: str | None = None,
    progress: bool = False,
) -> SensitivityResult:
    """Word sensitivity S of random features ϕ(V flat(X)), and an upper bound of it.

    S is the largest relative change ‖φ(X^i(Δ)) - φ(X)‖ / ‖φ(X)‖ over the positions i and the
    changes Δ of one word with ‖Δ‖ ≤ radius. The search gives a lower bound that is attained:
    `per_word` is computed from the definition, in float64, at the Δ found. Random V is made in
    blocks, used and dropped: memory is O(k d), one V_i, though V has k n d numbers.

    Parameters
    ----------
    X : Tensor or ndarray, shape (n, d) or (B, n, d), or list of (n_b, d)
        Texts; the paper scales rows to norm √d. float32 or float64 (float16 and bfloat16 are
        computed and returned in float32).
    V, activation, k, draws
        As in `rf_features`.
    radius : float, optional
        Largest ‖Δ‖; by default √d, as in the paper.
    positions : sequence of int, optional
        Where a word may change; by default everywhere.
    seed : int, default 0
        Of random V and of the starts of the search.
    starts : int, default 4
        Points that the ascent starts from: the two directions along which ‖φ‖ changes most, and
        random ones.
    max_steps, tol
        As in `raf_sensitivity`.
    backend : {"reference", "torch", "native"}, optional
        The definition by autograd, V held as a whole, in float64; one V_i at a time, made by
        PyTorch; or made by compiled code. By default the fastest that can run.
    progress : bool, default False
        Whether to show a progress bar, in numbers of V.

    Returns
    -------
    SensitivityResult
        Its `upper` is ‖V_i‖ · radius · Lip(ϕ) / ‖φ(X)‖, which no S_i exceeds; NaN for a callable
        activation. S is NaN, with a warning, where ‖φ(X)‖ = 0. `info` has k, and whether it was
        capped.

    Raises
    ------
    TypeError, ValueError
        For a wrong type, dtype, shape or device, NaN or infinity, an unknown activation, or `V`
        together with `k` or `draws`.
    RuntimeError
        For ``backend="native"`` where the compiled module is missing.

    Notes
    -----
    Theorem 1 of Bombari & Mondelli (arXiv 2402.02969); docs/design.md, section 3.

    Examples
    --------
    >>> import torch, wsfast
    >>> X = torch.nn.functional.normalize(torch.randn(12, 64), dim=1) * 64**0.5
    >>> result = wsfast.rf_sensitivity(X)
    >>> bool((result.per_word <= result.upper).all())
    True
    """
    inputs = _checks.texts(X)
    network = rf_network(V, inputs, activation, k, draws)
    options = _options(inputs, radius, positions, seed, starts, max_steps, tol)
    return _sensitivity("rf", inputs, network, options, backend, progress, range(network.draws))


@plain
def drf_sensitivity(
    X: Texts,
    V: Sequence[Array] | None = None,
    *,
    depth: int | None = None,
    activation: str | Callable[[Tensor], Tensor] = "relu",
    k: int | None = None,
    radius: float | None = None,
    positions: Any = None,
    draws: int | None = None,
    seed: int = 0,
    starts: int = 4,
    max_steps: int = 60,
    tol: float = 1e-4,
    backend: str | None = None,
    progress: bool = False,
) -> SensitivityResult:
    """Word sensitivity S of deep random features, and an upper bound of it.

    Parameters
    ----------
    X, radius, positions, seed, starts, max_steps, tol, backend, progress
        As in `rf_sensitivity`.
    V, depth, activation, k, draws
        As in `drf_features`.

    Returns
    -------
    SensitivityResult
        As of `rf_sensitivity`; `upper` is ‖V_i‖ ∏ ‖V_l‖ Lip(ϕ)^L · radius / ‖φ(X)‖.

    Raises
    ------
    TypeError, ValueError, RuntimeError
        As in `rf_sensitivity`.

    Notes
    -----
    Theorem 2 of Bombari & Mondelli (arXiv 2402.02969).

    Examples
    --------
    >>> import torch, wsfast
    >>> X = torch.nn.functional.normalize(torch.randn(12, 64), dim=1) * 64**0.5
    >>> wsfast.drf_sensitivity(X, depth=2, positions=[0]).info["k"]
    768
    """
    inputs = _checks.texts(X)
    network = drf_network(V, inputs, depth, activation, k, draws)
    options = _options(inputs, radius, positions, seed, starts, max_steps, tol)
    return _sensitivity("drf", inputs, network, options, backend, progress, range(network.draws))


@plain
def sensitivity_of_draw(
    name: str, X: Array, draw: int, *, seed: int = 0, **options: Any
) -> SensitivityResult:
    """Draw number `draw` alone of `rf_sensitivity` ("rf") or `drf_sensitivity` ("drf").

    `options` are theirs, but for `V`, `draws` and `progress`.
    """
    inputs = _checks.texts(X)
    activation, k = options.pop("activation", "relu"), options.pop("k", None)
    depth, backend = options.pop("depth", None), options.pop("backend", None)
    if name == "rf":
        network = rf_network(None, inputs, activation, k, None)
    else:
        network = drf_network(None, inputs, depth, activation, k, None)
    search = {"radius": None, "positions": None, "starts": 4, "max_steps": 60, "tol": 1e-4}
    chosen = _options(inputs, seed=seed, **{**search, **options})
    return _sensitivity(name, inputs, network, chosen, backend, False, range(draw, draw + 1))


def _options(
    inputs: Inputs,
    radius: Any,
    positions: Any,
    seed: Any,
    starts: Any,
    max_steps: Any,
    tol: Any,
) -> SearchOptions:
    return _checks.search_options(
        inputs,
        radius=radius,
        positions=positions,
        seed=seed,
        starts=starts,
        max_steps=max_steps,
        tol=tol,
        memory_budget=1,  # memory is that of one V_i, whatever is asked for
    )


def _sensitivity(
    name: str,
    inputs: Inputs,
    network: Network,
    options: SearchOptions,
    backend: str | None,
    progress: Any,
    draws: range,
) -> SensitivityResult:
    chosen = choose.resolve(backend, inputs.device, cpu_only=True)
    shown = _checks.flag("progress", progress)
    widths = [network.features(len(text), inputs.d) for text in inputs.texts]
    work = sum(
        k * inputs.d * (len(text) + len(at) * (1 + _SEARCH_COST))
        for k, text, at in zip(widths, inputs.texts, options.positions, strict=True)
    )
    worst = []
    with torch.no_grad(), progress_bar(work * len(draws), "number", shown, large=True) as bar:
        for text, at in zip(inputs.texts, options.positions, strict=True):
            for draw in draws:
                drawn = random_features(
                    network,
                    len(text),
                    inputs.d,
                    draw,
                    seed=options.seed,
                    device=inputs.device,
                    backend=chosen,
                )
                worst.append(_worst_case(drawn, text.detach(), at, options, chosen, bar))
    capped = [network.capped(len(text), inputs.d) for text in inputs.texts]
    about = {
        "map": name,
        "activation": network.activation.name,
        "depth": network.depth,
        "k": widths[0] if len(set(widths)) == 1 else widths,
        "k_capped": any(capped),
        "weights": "random" if network.V is None else "given",
        "backend": chosen,
    }
    return assemble(worst, inputs, options, about, draws=len(draws) if network.has_draws else None)


@dataclass(frozen=True)
class MovedWords:
    """‖φ(X^i(Δ)) - φ(X)‖² at P positions whose V_i are in memory."""

    features: RandomFeatures
    V: Tensor  # (P, k, d) V_i
    z: Tensor  # (k,) V flat(X)
    base: Tensor  # (k,) φ(X)

    @property
    def positions(self) -> int:
        return len(self.V)

    def evaluator(self, starts: int) -> MovedWords:
        return self

    def select(self, keep: Tensor) -> MovedWords:
        return replace(self, V=self.V[keep])

    def value_and_gradient(self, delta: Tensor) -> tuple[Tensor, Tensor]:
        """For Δ (P, s, d): the values (P, s) and their gradient (P, s, d)."""
        # This way round a product with few columns runs at the speed of the memory.
        moved = (self.V @ delta.mT).mT.contiguous()
        with torch.enable_grad():
            moved.requires_grad_()
            change = self.features.head(self.z + moved) - self.base
            values = change.square().sum(-1)
            (slope,) = torch.autograd.grad(values.sum(), moved)
        return values.detach(), slope @ self.V


def _worst_case(
    features: RandomFeatures,
    X: Tensor,
    at: Tensor,
    options: SearchOptions,
    backend: str,
    bar: Progress,
) -> Worst:
    """Search the words `at` of a text."""
    d = X.shape[1]
    exact = X.double()
    z = project(features.projection, exact[None], bar)[0]
    base = features.head(z)
    norm = _checks.size_of("φ(X)", base)
    if len(at) == 0 or float(norm) == 0 or options.radius == 0:
        bar.update(len(at) * (1 + _SEARCH_COST) * features.k * d)
        per_word = torch.zeros(len(at), dtype=torch.float64, device=X.device) / norm
        return Worst(per_word, X.new_zeros(len(at), d), at, steps=0, upper=per_word)
    dtype = torch.float64 if backend == "reference" else search_dtype(X, options.radius, X.dtype)
    random = random_starts(max(options.starts, 2), d, options.seed, exact)[: options.starts]
    slope = _slope(features, z).to(dtype)
    beyond = _lipschitz_of_head(features)
    lower = z.to(dtype), features.head(z.to(dtype))
    parts = at.split(max(1, _TOGETHER // (features.k * d)))
    deltas, uppers, steps = [], [], 0
    for part in parts:
        V = torch.stack([features.projection.block(i, dtype) for i in part.tolist()])
        uppers += [beyond * largest_singular_value(V_i) for V_i in V]
        directions = random.to(dtype).repeat(len(part), 1, 1)
        upwards = slope @ V
        directions[:, 0] = upwards
        if options.starts > 1:
            directions[:, 1] = -upwards
        search = Search(options, directions, native=backend == "native")
        if backend == "reference":
            count = len(directions[0])
            objective: Objective = Definition(features.features, exact, base, part, count)
        else:
            objective = MovedWords(features, V, *lower)
        point, taken = search.run(objective)
        deltas.append(point.delta.to(X.dtype))
        steps = max(steps, taken)
        bar.update(_SEARCH_COST * V.numel())
    delta = within(torch.cat(deltas), options.radius)
    # Afterwards, as deeper layers are then made in float64 once.
    values = []
    for part, changes in zip(parts, delta.split([len(part) for part in parts]), strict=True):
        moved = torch.cat(
            [
                project_word(features.projection, i, change[None].double())
                for i, change in zip(part.tolist(), changes, strict=True)
            ]
        )
        values.append((features.head(z + moved) - base).norm(dim=1))
        bar.update(len(part) * features.k * d)
    upper = torch.tensor(uppers, dtype=torch.float64, device=X.device) * options.radius / norm
    return Worst(torch.cat(values) / norm, delta, at, steps, upper)


def _slope(features: RandomFeatures, z: Tensor) -> Tensor:
    """The gradient of ‖φ‖²/2 by z."""
    with torch.enable_grad():
        moving = z.detach().requires_grad_()
        half = features.head(moving).square().sum() / 2
        (slope,) = torch.autograd.grad(half, moving)
    return slope


def _lipschitz_of_head(features: RandomFeatures) -> float:
    """A Lipschitz constant of φ by z."""
    slopes: float = features.activation.lipschitz**features.depth
    return float(slopes * math.prod(features.layer_norms()))
