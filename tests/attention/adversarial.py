"""Texts, weights and Δ meant to break a closed form, with the truth in decimals."""

from __future__ import annotations

import decimal
from decimal import Decimal
from typing import NamedTuple

import numpy as np
import torch
from definition import exact, exact_deltas, exact_features, exact_norm, exact_scores
from hypothesis import assume
from hypothesis import strategies as st
from torch import Tensor

# Accuracy promised, and the largest scores that it is promised for.
ACCURACY = {torch.float32: 1e-4, torch.float64: 1e-10}
LARGEST_SCORE = {torch.float32: 1e3, torch.float64: 1e4}


class Case(NamedTuple):
    X: Tensor  # (n, d)
    W: Tensor  # (d, d)
    delta: Tensor  # (n, m, d)
    weight_fn: str
    normalize: bool

    @property
    def options(self) -> dict[str, object]:
        return {"weight_fn": self.weight_fn, "normalize": self.normalize}


def _tensor(values, *shape) -> Tensor:
    return torch.tensor(values, dtype=torch.float64).reshape(shape)


@st.composite
def cases(draw, weight_fn: str, normalize: bool, dtype: torch.dtype) -> Case:
    """Duplicate and zero words, saturated rows, Δ = 0, tiny, and onto another word."""
    n, d = draw(st.integers(1, 6)), draw(st.integers(1, 4))
    entries = st.floats(-2, 2, width=16, allow_subnormal=False)

    def array(*shape):
        count = int(np.prod(shape))
        return _tensor(draw(st.lists(entries, min_size=count, max_size=count)), *shape)

    X, W = array(n, d), array(d, d)
    if n > 1 and draw(st.booleans()):
        X[-1] = X[0]
    if draw(st.booleans()):
        X[n // 2] = 0
    size = draw(st.sampled_from([1e-8, 1e-5, 1e-2, 1.0]))
    delta = torch.stack([array(n, d) * size, torch.zeros(n, d), X.roll(1, 0) - X], 1)
    X, delta = X.to(dtype), delta.to(dtype)
    # Scores of the moved text too are within what accuracy is promised for.
    moved = torch.cat([X[:, None], X[:, None] + delta], 1).double().flatten(0, 1)
    largest = float((moved @ W @ moved.T).abs().max()) / d**0.5
    wanted = draw(st.sampled_from([1.0, 30.0, LARGEST_SCORE[dtype]]))
    W = (W * (wanted / largest) if largest > 1e-3 else W).to(dtype)
    return Case(X, W, delta, weight_fn, normalize)


def _near_a_jump(X: np.ndarray, W: np.ndarray, unmoved: np.ndarray) -> bool:
    """Whether normalised ReLU jumps here: a row of nearly no weight, where rounding decides.

    A word that is zero and stays where it is has no weight at all, and no rounding either.
    """
    scores = exact_scores(X, W)
    unit = max(abs(scores).max(), Decimal("1e-300"))
    return any(
        Decimal("-1e-3") < max(row) / unit < Decimal("0.05") and not (stays and not any(x))
        for row, x, stays in zip(scores, X, unmoved, strict=True)
    )


def truth(case: Case) -> tuple[Tensor, float]:
    """‖φ(X^i(Δ)) - φ(X)‖ (n, m) and ‖φ(X)‖, correctly rounded."""
    X, W, delta = exact(case.X), exact(case.W), exact(case.delta)
    options = (case.weight_fn, case.normalize)
    n, m = case.delta.shape[:2]
    norms = torch.zeros(n, m, dtype=torch.float64)
    if options == ("relu", True):
        assume(not _near_a_jump(X, W, np.ones(n, dtype=bool)))
    for i in range(n):
        for k in range(m):
            if options == ("relu", True):
                moved = X.copy()
                with decimal.localcontext() as context:
                    context.prec = 60
                    moved[i] = moved[i] + delta[i, k]
                unmoved = (np.arange(n) != i) | (not any(delta[i, k]))
                assume(not _near_a_jump(moved, W, unmoved))
            norms[i, k] = float(exact_norm(exact_deltas(X, W, i, delta[i, k], *options)))
    norm = float(exact_norm(exact_features(X, W, *options)))
    if options == ("relu", False):
        # Weights are scores: where they all but cancel, so does φ, and accuracy has no unit.
        unit = float(exact_norm(exact_scores(X, W)) * exact_norm(X))
        assume(norm > 1e-2 * unit)
    return norms, norm
