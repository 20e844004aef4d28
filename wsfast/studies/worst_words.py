"""The worst words of a text: one after the other, each beside those that are chosen already."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from wsfast import _inputs, _values
from wsfast._inputs import Texts
from wsfast._precision import at_full_precision
from wsfast._progress import progress_bar
from wsfast._values import Array
from wsfast.perturbation.change import BALL, Kind
from wsfast.results.sensitivity import SensitivityResult
from wsfast.search.options import DEFAULT_BUDGET
from wsfast.studies.sensitivity import raf_sensitivity


@at_full_precision
def worst_words(
    X: Texts,
    m: int,
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
    seed: int = 0,
    starts: int = 4,
    max_steps: int = 60,
    tol: float = 1e-4,
    memory_budget: int = DEFAULT_BUDGET,
    backend: str | None = None,
    progress: bool = False,
) -> list[SensitivityResult]:
    """The m words that move random attention features most together, chosen greedily.

    First the worst word; then, of all words beside it, the one with which it moves the features
    most; and so on. At each step the change of all chosen words is searched again, in the joint
    ball. The best m words of all may be others: of a text of n words that would be a choice among
    n!/(m! (n - m)!).

    Parameters
    ----------
    X : Tensor or ndarray, shape (n, d)
        One text.
    m : int
        How many words, from 1 to n.
    W : Tensor or ndarray, shape (d, d), optional
        Attention weights. By default random, as `random_weights` gives for `seed`.
    radius, perturbation, rows, ball, weight_fn, normalize, mask, causal
        As in `raf_sensitivity`.
    seed, starts, max_steps, tol, memory_budget, backend
        Likewise.
    progress : bool, default False
        Whether to show a progress bar, in words.

    Returns
    -------
    list of SensitivityResult
        One for each number of words, from 1 to m: `site` are the words chosen, `value` is what they
        attain, and `per_word` has every word that might have been the last.

    Raises
    ------
    TypeError, ValueError
        As in `raf_sensitivity`; for several texts or draws, m beyond the words of the text, and a
        text without features.

    Notes
    -----
    docs/design.md, sections 2 and 3.

    Examples
    --------
    >>> import torch, wsfast
    >>> X = torch.nn.functional.normalize(torch.randn(12, 64), dim=1) * 64**0.5
    >>> one, two = wsfast.worst_words(X, 2)
    >>> int(one.position) in two.site.tolist(), float(two) > float(one)
    (True, True)
    """
    inputs = _inputs.texts(X, mask)
    if inputs.batched:
        raise ValueError(f"X must be one text (n, d), got a batch of {len(inputs.texts)}")
    if W is not None and _values.ndim(W) != 2:
        raise ValueError(f"W must be one W, of shape (d, d), got {_values.shape_of(W)}")
    words = inputs.masks[0].nonzero()[:, 0].tolist()
    m = _values.integer("m", m, low=1, high=len(words))
    shown = _values.flag("progress", progress)
    chosen: tuple[int, ...] = ()
    found: list[SensitivityResult] = []
    with progress_bar(m, "word", shown) as bar:
        for _ in range(m):
            result = raf_sensitivity(
                X,
                W,
                positions=[(*chosen, i) for i in words if i not in chosen],
                radius=radius,
                perturbation=perturbation,
                rows=rows,
                ball=ball,
                weight_fn=weight_fn,
                normalize=normalize,
                mask=mask,
                causal=causal,
                seed=seed,
                starts=starts,
                max_steps=max_steps,
                tol=tol,
                memory_budget=memory_budget,
                backend=backend,
            )
            if result.sites is None or int(result.position) < 0:
                raise ValueError("X must have features, got φ(X) = 0")
            chosen = result.sites[int(result.position)]
            found.append(replace(result, info={**result.info, "chosen": "greedily"}))
            bar.update(1)
    return found
