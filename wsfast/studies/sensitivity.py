"""Word sensitivity of random attention, of random features, and of any feature map."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from wsfast import _inputs, _values
from wsfast._inputs import Inputs, Texts
from wsfast._precision import at_full_precision
from wsfast._values import Array
from wsfast._warn import warn
from wsfast.maps.attention import weight_function
from wsfast.maps.draws import (
    Draws,
    attention_draws,
    function_draws,
    random_draws,
)
from wsfast.maps.feature_map import FeatureMap
from wsfast.maps.network import Network
from wsfast.maps.random_features import drf_network, rf_network
from wsfast.perturbation.ball import BALLS
from wsfast.perturbation.change import BALL, Kind, hide, kind_of
from wsfast.results.sensitivity import SensitivityResult
from wsfast.search.options import DEFAULT_BUDGET, search_options
from wsfast.studies.assemble import assemble
from wsfast.studies.worst_case import Asked, norm_of, worst_cases


@at_full_precision
def raf_sensitivity(
    X: Texts,
    W: Array | None = None,
    *,
    radius: float | None = None,
    perturbation: str | Kind = BALL,
    rows: str = "all",
    ball: str = "joint",
    weight_fn: str = "softmax",
    normalize: bool = True,
    mask: Any = None,
    causal: bool = False,
    positions: Any = None,
    draws: int | None = None,
    seed: int = 0,
    starts: int = 4,
    max_steps: int = 60,
    tol: float = 1e-4,
    quick: bool = False,
    bound: bool = False,
    memory_budget: int = DEFAULT_BUDGET,
    backend: str | None = None,
    progress: bool = False,
) -> SensitivityResult:
    """Word sensitivity S of random attention features, at every position at once.

    S is the largest relative change ‖φ(X^i(Δ)) - φ(X)‖ / ‖φ(X)‖ over the positions i and the
    changes Δ of one word with ‖Δ‖ ≤ radius. The search gives a lower bound that is attained:
    `value` is computed from the definition, in float64, at the `delta` returned. With another
    `perturbation` than the ball there is nothing to search: each word is changed in one way.

    Parameters
    ----------
    X : Tensor or ndarray, shape (n, d) or (B, n, d), or list of (n_b, d)
        Texts; the paper scales rows to norm √d. float32 or float64 (float16 and bfloat16 are
        computed and returned in float32).
    W : Tensor or ndarray, shape (d, d) or (R, d, d), optional
        Attention weights. By default random, as `random_weights` gives for `seed`.
    radius : float, optional
        Largest ‖Δ‖; by default √d, as in the paper.
    perturbation : {"ball", "mask", "zero", "mean"} or callable, default "ball"
        How a word changes: to any within the ball; hidden, so that nobody attends to it, while its
        own row stays as a query (a row that saw nothing else becomes 0); replaced by 0, or by the
        mean of the words of its text. A function takes a text (n, d), float64, and positions (P,
        m), m = 1 for single words, and returns a `wsfast.Change`: `Change(put=words)` or
        `Change(add=deltas)`, (P, 1, m, d), or `Change()`, which hides the words.
    rows : {"all", "others"}, default "all"
        Of which rows of φ the change is taken: all, or those of the words that do not change, whose
        number stays the same. "others" is not for the ball.
    weight_fn, normalize, mask, causal
        As in `raf_features`.
    ball : {"joint", "each"}, default "joint"
        Of a site of several words: ‖(Δ_1, …, Δ_m)‖ ≤ radius, so that sites of different length
        compare; or ‖Δ_k‖ ≤ radius for each of its words.
    positions : sequence of int, or of sites, optional
        Where a word may change; by default everywhere. A site is a tuple of positions whose words
        change together: ``[3, (4, 5)]``. The result then has a value for each site.
    draws : int, optional
        Number R of independent random W; not together with `W`.
    seed : int, default 0
        Of the random W and of the starts of the search, which are the same at every position.
    starts : int, default 4
        Points that the ascent starts from at each position: the direction that raises all scores at
        once, and random ones. For "softmax" half of them, and what leads from one choice of the
        rows that attend the word to another (docs/design.md, section 3). Four times as many for
        texts of n d ≤ 4,096 numbers, where the closed form makes them cost next to nothing and
        they matter most.
    max_steps : int, default 60
        Steps at most, per position. For "relu", whose objective has kinks, two and a half times as
        many in all.
    tol : float, default 1e-4
        A position is done when four steps together raise its norm by less than this share.
    quick : bool, default False
        Whether to search in 12 steps from one start, and longer only at the positions whose S_i is
        then within 1 % of the largest, four at most: there in twice `max_steps` from four times
        `starts`. Reviews of 128 tokens take about half the time; S is as large, S_i elsewhere lower
        by some 0.05 %.
    bound : bool, default False
        Whether to prove from above as well: no Δ of the ball gives more than `upper` of the result
        (docs/design.md, 8). It costs as much as one to six further searches, and what the proof
        shows of the worst Δ raises S too. Single words, softmax or normalised ReLU, the ball;
        elsewhere `upper` is NaN, and ``info["bound"]["none"]`` says why.
        ``info["bound"]["refined"]`` lists the positions whose bound was worth all steps, text by
        text and draw by draw: those of the others are near the largest S_i found, or below, and
        looser than they could be.
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
    fn = weight_function(weight_fn, normalize)
    inputs = _inputs.texts(X, mask)
    asked = _asked(
        inputs,
        perturbation,
        rows,
        ball=ball,
        radius=radius,
        positions=positions,
        seed=seed,
        starts=starts,
        max_steps=max_steps,
        tol=tol,
        quick=quick,
        memory_budget=memory_budget,
        bound=bound,
    )
    causal = _values.flag("causal", causal)
    options = asked.options
    maps = attention_draws(
        inputs, fn, W, draws, options.seed, backend, options.memory_budget, causal=causal
    )
    return _sensitivity(inputs, maps, asked, perturbation, progress)


@at_full_precision
def word_sensitivity(
    phi: Callable[..., Tensor] | nn.Module | FeatureMap,
    X: Texts,
    *,
    radius: float | None = None,
    perturbation: str | Kind = BALL,
    rows: str = "all",
    ball: str = "joint",
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
    X, radius, perturbation, rows, ball, positions, seed, starts, max_steps, tol, progress
        As in `raf_sensitivity`. In float32 φ's own rounding is all that is left of an S near 1e-6;
        below 1e-4 a warning says so: use float64. With ``perturbation="mask"``, phi is called with
        a keyword argument `mask`, bool (m, n), False at the hidden words, and must keep their rows
        as queries; ``rows="others"`` is for features (m, n, ...).
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
    hides = perturbation not in (BALL, "zero", "mean")
    maps = function_draws(phi, hides=hides)
    inputs = _inputs.texts(X, mask)
    asked = _asked(
        inputs,
        perturbation,
        rows,
        ball=ball,
        radius=radius,
        positions=positions,
        seed=seed,
        starts=starts,
        max_steps=max_steps,
        tol=tol,
        memory_budget=memory_budget,
    )
    return _sensitivity(inputs, maps, asked, perturbation, progress)


@at_full_precision
def rf_sensitivity(
    X: Texts,
    V: Array | None = None,
    *,
    activation: str | Callable[[Tensor], Tensor] = "relu",
    k: int | None = None,
    radius: float | None = None,
    perturbation: str | Kind = BALL,
    ball: str = "joint",
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
    perturbation : {"ball", "zero", "mean"} or callable, default "ball"
        As in `raf_sensitivity`; these features cannot hide a word.
    ball, positions
        As in `raf_sensitivity`.
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
        With the ball, its `upper` is ‖V_i‖ · radius · Lip(ϕ) / ‖φ(X)‖, which no S_i exceeds; NaN
        for a callable activation. S is NaN, with a warning, where ‖φ(X)‖ = 0. `info` has k, and
        whether it was capped.

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
    inputs = _inputs.texts(X)
    network = rf_network(V, inputs, activation, k, draws)
    given = {"radius": radius, "positions": positions, "seed": seed, "starts": starts, "ball": ball}
    given |= {"max_steps": max_steps, "tol": tol}
    return _of_network("rf", inputs, network, perturbation, given, backend, progress)


@at_full_precision
def drf_sensitivity(
    X: Texts,
    V: Sequence[Array] | None = None,
    *,
    depth: int | None = None,
    activation: str | Callable[[Tensor], Tensor] = "relu",
    k: int | None = None,
    radius: float | None = None,
    perturbation: str | Kind = BALL,
    ball: str = "joint",
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
    X, radius, perturbation, ball, positions, seed, starts, max_steps, tol, backend, progress
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
    inputs = _inputs.texts(X)
    network = drf_network(V, inputs, depth, activation, k, draws)
    given = {"radius": radius, "positions": positions, "seed": seed, "starts": starts, "ball": ball}
    given |= {"max_steps": max_steps, "tol": tol}
    return _of_network("drf", inputs, network, perturbation, given, backend, progress)


@at_full_precision
def sensitivity_under(
    maps: Draws,
    X: Texts,
    *,
    perturbation: str | Kind = BALL,
    memory_budget: int = DEFAULT_BUDGET,
    progress: bool = False,
    **options: Any,
) -> SensitivityResult:
    """Under maps that are there already; `options` are those of `search_options`."""
    inputs = _inputs.texts(X)
    asked = _asked(inputs, perturbation, "all", memory_budget=memory_budget, **options)
    return _sensitivity(inputs, maps, asked, perturbation, progress)


def _of_network(
    name: str,
    inputs: Inputs,
    network: Network,
    perturbation: str | Kind,
    given: dict[str, Any],
    backend: str | None,
    progress: Any,
) -> SensitivityResult:
    # Memory is that of one V_i, whatever is asked for.
    asked = _asked(inputs, perturbation, "all", **given, memory_budget=1)
    if asked.kind is hide:
        raise ValueError(
            "perturbation must be 'ball', 'zero' or 'mean' for random features, which cannot hide "
            "a word, got 'mask'"
        )
    maps = random_draws(name, inputs, network, asked.options.seed, backend)
    return _sensitivity(inputs, maps, asked, perturbation, progress)


def _asked(
    inputs: Inputs,
    perturbation: Any,
    rows: Any,
    ball: Any = "joint",
    bound: Any = False,
    **given: Any,
) -> Asked:
    """What is asked for, checked; `given` are the arguments of `search_options`."""
    kind = kind_of(perturbation, given.get("radius"))
    measure = norm_of(kind, rows)
    _values.one_of("ball", ball, BALLS)
    if _values.flag("bound", bound) and kind is not None:
        raise ValueError(
            f"bound must be False with perturbation={perturbation!r}: bounds are of the ball"
        )
    return Asked(search_options(inputs, **given), kind, measure, ball, bound)


def _sensitivity(
    inputs: Inputs, maps: Draws, asked: Asked, perturbation: Any, progress: Any
) -> SensitivityResult:
    shown = _values.flag("progress", progress)
    worst = worst_cases(inputs, maps, asked, progress=shown)
    if maps.info["backend"] == "definition":
        _warn_of_rounding(worst, inputs)
    info = dict(maps.info)
    if asked.kind is not None:
        named = isinstance(perturbation, str)
        info["perturbation"] = perturbation if named else _values.name_of(perturbation)
        info["rows"] = asked.measure.rows
    count = len(maps.numbers) if maps.has_axis else None
    return assemble(worst, inputs, asked, info, draws=count)


def _warn_of_rounding(worst: Sequence[Any], inputs: Inputs) -> None:
    """A user's function is computed in the dtype of X."""
    rounding = 1e3 * torch.finfo(inputs.dtype).eps
    if any(bool(((one.per_word > 0) & (one.per_word < rounding)).any()) for one in worst):
        warn(
            f"some S_i are below {rounding:.0e}, where rounding of phi in "
            f"{str(inputs.dtype).removeprefix('torch.')} shows: use float64, if this is float32"
        )
