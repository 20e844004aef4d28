"""Upper bounds of the change at every position of a text, each as far as it is worth."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from wsfast.bound.certificate import certified, nodes
from wsfast.bound.form import admissible
from wsfast.bound.multipliers import Descent, Kernels
from wsfast.bound.pairs import Pairs
from wsfast.bound.shape import Shape

# Steps at all positions, and further ones where the bound is above what was found by this factor.
_FIRST, _FURTHER, _WORTH = 30, 40, 1.05

# Grids of the log-odds, step and growth: where multipliers are sought, and of the proof.
_COARSE, _FINE = (0.25, 1.18), (0.1, 1.08)

BYTES_OF_PAIR = 600
"""That the bound of a pair takes at most."""


class Bounds(NamedTuple):
    """What is proved at P positions."""

    squared: Tensor  # (P,) of the norm, in units of `Pairs`; inf where there is no proof
    relaxed: Tensor  # (P, D) maximisers of what was relaxed: good starts for a search
    refined: Tensor  # (P,) bool, whether it was worth all steps


def upper_bounds(
    pairs: Pairs, shape: Shape, delta: Tensor, largest: float, kernels: Kernels
) -> Bounds:
    """Bounds from what a search has found: Δ (P, D) of norm at most 1.

    `largest` is the largest squared norm found in the whole text: bounds that are near it, or
    below, are not refined. Multipliers are sought in float32 and proved in float64.
    """
    dtype = torch.float32
    coarse, fine = nodes(pairs, *_COARSE), nodes(pairs, *_FINE)
    steps = _FIRST + _FURTHER
    descent = Descent(
        pairs.to(dtype), shape.to(dtype), delta.to(dtype), coarse.to(dtype), steps, kernels
    )
    descent.go_on(_FIRST)
    refined = ~(descent.value <= _WORTH**2 * largest)
    left = refined.nonzero()[:, 0]
    if len(left) > 0:
        part = descent.select(left)
        part.go_on(_FURTHER)
        descent.put(left, part)
    by = admissible(pairs, descent.best.to(torch.float64))
    squared, relaxed = certified(
        pairs, shape, by, kernels.bound_rows(pairs, shape, by, fine, proof=True)
    )
    return Bounds(squared, relaxed, refined)
