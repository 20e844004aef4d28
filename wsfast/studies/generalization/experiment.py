"""Fine-tuning and re-training on one more sample, and what one word does to what was learnt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from wsfast import _inputs, _values
from wsfast._precision import at_full_precision
from wsfast._progress import Progress, progress_bar
from wsfast._values import Array
from wsfast.maps.draws import Draws, MapOptions, draws_of
from wsfast.maps.feature_map import FeatureMap
from wsfast.results.generalization import FIGURES, GeneralizationResult
from wsfast.search.options import DEFAULT_BUDGET, SearchOptions, search_options
from wsfast.studies.generalization.added_sample import AddedSample
from wsfast.studies.generalization.assemble import Asked, OfDraw, assemble
from wsfast.studies.generalization.inputs import (
    LOSSES,
    TRAININGS,
    TrainingSet,
    choices,
    signs,
    training_set,
)
from wsfast.studies.generalization.minimise import Minimum, minimise
from wsfast.studies.generalization.training import MinNorm


@at_full_precision
def experiment(
    texts: Array,
    labels: Any,
    X: Array,
    y: Any,
    *,
    map: str | Callable[[Tensor], Tensor] | FeatureMap = "raf",  # noqa: A002
    weights: Any = None,
    training: str | Sequence[str] = TRAININGS,
    loss: str | Sequence[str] = LOSSES,
    positions: Any = None,
    radius: float | None = None,
    k: int | None = None,
    depth: int | None = None,
    activation: str | Callable[[Tensor], Tensor] | None = None,
    draws: int | None = None,
    seed: int = 0,
    starts: int = 4,
    max_steps: int = 60,
    tol: float = 1e-4,
    memory_budget: int = DEFAULT_BUDGET,
    backend: str | None = None,
    progress: bool = False,
) -> GeneralizationResult:
    """Learn one more sample (X, y) with fixed features φ, then change one word of X, and its label.

    The model is f(X, θ) = ⟨φ(X), θ⟩, and θ* the min-norm least-squares solution on the features Φ
    of N texts with labels ±1. With one more sample it is fine-tuned, θ = θ* + φ(X) (y - f(X, θ*)) /
    ‖φ(X)‖², or re-trained on all N + 1 samples, which is the same with P⊥φ(X) in place of φ(X), P⊥
    the projection away from the rows of Φ. Then one word of X changes by Δ, and the label with it:
    how far is f(X^i(Δ), θ) from -y? Δ is found by minimising one of three losses over ‖Δ‖ ≤ radius
    and the positions i:

    - "feature": (⟨φ(X^i(Δ)), φ(X)⟩ / ‖φ(X)‖² + 1)²;
    - "alignment": (⟨φ(X^i(Δ)), P⊥φ(X)⟩ / ‖P⊥φ(X)‖² + 1)²;
    - "error": (f(X^i(Δ), θ) + y)².

    All is computed from the N×N matrix ΦΦᵀ, never from a D×D one.

    Parameters
    ----------
    texts : Tensor or ndarray, shape (N, n, d)
        The texts to train on; float32 or float64 (half precision is computed in float32).
    labels : sequence of N numbers
        Their labels, 1 or -1.
    X : Tensor or ndarray, shape (n, d) or (T, n, d)
        The text of the sample that is added, or T of them, each by itself: T trials.
    y : 1 or -1, or T of them
        Its label.
    map : {"raf", "relu_raf", "relu_raf_unnormalized", "rf", "drf"} or callable, default "raf"
        φ: random attention features, with softmax or ReLU; random features, or deep ones; or a
        function or nn.Module from texts (m, n, d) to features (m, ...), as for `word_sensitivity`.
    weights : Tensor, ndarray or list, optional
        Weights of the map: W (d, d) or (R, d, d) for attention, V (k, n d) or (R, k, n d) for
        "rf", a list of matrices for "drf". By default random, as `random_weights`, `rf_weights`
        and `drf_weights` give for `seed`.
    training : {"fine_tuning", "retraining"} or a sequence of them, default both
    loss : {"feature", "alignment", "error"} or a sequence of them, default all
        Each gives its own Δ. Those of the first two do not depend on the training.
    positions : sequence of int, optional
        Where a word may change; by default everywhere.
    radius : float, optional
        Largest ‖Δ‖; by default √d, as in the paper.
    k, depth, activation
        Of "rf" and "drf", as in `rf_features` and `drf_features`.
    draws : int, optional
        Number R of independent draws of random weights; not together with `weights`.
    seed : int, default 0
        Of random weights and of the starts of the search.
    starts, max_steps, tol
        Of the search, as in `raf_sensitivity`. The best positions then go on until nothing is
        gained any more, for up to ten times as many steps.
    memory_budget : int, default 256 MiB
        Bytes that temporaries may take, beyond the texts, the weights and Φ, which is held once
        in the dtype of `texts`, N·D numbers.
    backend : {"reference", "torch", "native"}, optional
        What the search evaluates: the definition by autograd, the closed form of attention by
        autograd, or by compiled kernels. By default the fastest that can run.
    progress : bool, default False
        Whether to show a progress bar, in positions searched.

    Returns
    -------
    GeneralizationResult
        NumPy arrays if `X` is NumPy, else tensors on the device of `X`.

    Raises
    ------
    TypeError, ValueError
        For a wrong type, dtype, shape or device, NaN or infinity, labels other than ±1, an unknown
        map, training or loss, or options that the map does not have; for texts whose features
        are dependent (repeated texts, or more texts than features), and for an X whose features
        are a combination of theirs, where P⊥φ(X) = 0 is needed.
    RuntimeError
        For ``backend="native"`` where the compiled module is missing.

    Warns
    -----
    RuntimeWarning
        If the condition number of ΦΦᵀ, the square of that of Φ, exceeds 1e12, where four of the
        sixteen digits of float64 are left to θ*. Nothing is ever added to its diagonal.

    Notes
    -----
    Section 5 of Bombari & Mondelli (arXiv 2402.02969). Each loss asks how far a linear functional
    of φ can be moved towards a target (docs/design.md, section 2); where it can be moved beyond, Δ
    is shortened until the loss is 0. The search is a local one. The figures returned are computed
    from the definition, in float64, at the Δ returned.

    Examples
    --------
    >>> import torch
    >>> from wsfast.generalization import experiment
    >>> texts, X = torch.randn(20, 6, 32), torch.randn(6, 32)
    >>> labels = [1, -1] * 10
    >>> result = experiment(texts, labels, X, y=1)
    >>> result.error.shape  # of two trainings and three losses
    torch.Size([2, 3])
    >>> bool(result.error[1, 2] < 1e-3)
    True
    """
    inputs = _inputs.texts(X)
    known = training_set(texts, labels, inputs)
    asked = Asked(choices("training", training, TRAININGS), choices("loss", loss, LOSSES))
    options = search_options(
        inputs,
        radius=radius,
        positions=positions,
        seed=seed,
        starts=starts,
        max_steps=max_steps,
        tol=tol,
        memory_budget=memory_budget,
    )
    if options.sites is not None:
        raise ValueError(f"positions must be single words here, got sites: {positions!r}")
    y = signs("y", y, len(inputs.texts), inputs.device, one=True)
    given = MapOptions(weights, k, depth, activation, draws, backend)
    maps = draws_of(map, inputs, given, options.seed, options.memory_budget)
    shown = _values.flag("progress", progress)
    trials = torch.stack(inputs.texts).detach()
    total = len(y) * len(maps.numbers) * asked.searches * len(options.places[0].column)
    of_draws = []
    with torch.no_grad(), progress_bar(total, "word", shown) as bar:
        for draw in maps.numbers:
            made = maps.make(draw)
            with made.ready():
                of_draws.append(_of_draw(made, maps, known, trials, y, options, asked, bar))
    return assemble(of_draws, maps, len(known.texts), inputs, options, asked)


def _of_draw(
    feature_map: FeatureMap,
    maps: Draws,
    known: TrainingSet,
    trials: Tensor,
    y: Tensor,
    options: SearchOptions,
    asked: Asked,
    bar: Progress,
) -> OfDraw:
    budget = options.memory_budget
    features = feature_map.of_texts(known.texts, budget)
    _values.finite("φ(texts)", features)
    _values.size_of("φ(texts)", features)
    solution = MinNorm(features, known.labels, options.memory_budget)
    texts = list(feature_map.prepare(list(trials), maps.engine, budget))
    phi = torch.stack([text.phi.flatten() for text in texts])
    _values.finite("φ(X)", phi)
    _values.size_of("φ(X)", phi)
    none = ~phi.any(1)
    if bool(none.any()):
        raise ValueError(f"X must have features, but φ(X) = 0 for text {int(none.nonzero()[0])}")
    away = solution.away(phi) if asked.away else phi
    theta, condition = solution.theta, solution.condition
    del features, solution  # N·D numbers that the search does not need
    result = OfDraw({name: [] for name in FIGURES}, [], [], condition, phi.shape[1])
    for t in range(len(trials)):
        text = texts.pop(0)  # what it holds goes after its turn
        sample = AddedSample(phi[t], away[t], float(y[t]), theta)
        minimised: dict[tuple[str, str], Minimum] = {}
        for training in asked.trainings:
            for name in asked.losses:
                # Δ of the first two losses does not depend on the training.
                key = (name, training if name == "error" else "")
                loss = sample.loss(name, training)
                if key not in minimised:
                    minimised[key] = minimise(
                        text, loss, options.places[t].column, options, trials[t, 0], bar
                    )
                found = minimised[key]
                result.changes.append(found.change)
                result.steps.append(found.steps)
                for figure, value in sample.figures(found.phi, loss, training).items():
                    result.figures[figure].append(value)
    return result
