"""Upper bounds of the change at every position of a text, each as far as it is worth."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from wsfast.bound.certificate import certified
from wsfast.bound.form import admissible
from wsfast.bound.grid import WIDE, nodes
from wsfast.bound.multipliers import Descent, Kernels
from wsfast.bound.pairs import Pairs
from wsfast.bound.shape import Shape

# Steps at all positions, and then so many at a time, up to so many in all, where the bound is above
# what was found by this factor.
_FIRST, _MORE, _ALL, _WORTH = 12, 4, 96, 1.045

# Grids of the log-odds, step and growth: where multipliers are sought, and of the proof.
COARSE, FINE = (1.0, 1.6), (0.1, 1.08)

# Scores and words that are larger are not for float32.
_ORDINARY = 1e3

BYTES_OF_PAIR = 600
"""That the bound of a pair takes at most."""


class Bounds(NamedTuple):
    """What is proved at P positions."""

    squared: Tensor  # (P,) of the norm, in units of `Pairs`; inf where there is no proof
    relaxed: Tensor  # (P, D) maximisers of what was relaxed: good starts for a search
    refined: Tensor  # (P,) bool, whether it was worth all steps


def _sought_in(pairs: Pairs) -> torch.dtype:
    """In which multipliers are sought: float32, half the work, where it tells changes apart.

    By what all positions of a text share, so that no part of it is sought otherwise than the whole.
    """
    reach, far = (rows.norm(dim=1) for rows in (pairs.scores, pairs.words))
    plain = 2 * reach.median() >= WIDE and max(reach.max(), far.max()) < _ORDINARY
    return torch.float32 if plain and not pairs.relu else torch.float64


def upper_bounds(
    pairs: Pairs, shape: Shape, delta: Tensor, largest: float, kernels: Kernels
) -> Bounds:
    """Bounds from what a search has found: Δ (P, D), in units of `Pairs`.

    `largest` is the largest squared norm found in the whole text: bounds that are near it, or
    below, are not refined.
    """
    dtype = _sought_in(pairs)
    coarse, fine = nodes(pairs, *COARSE), nodes(pairs, *FINE)
    descent = Descent(
        pairs.to(dtype), shape.to(dtype), delta.to(dtype), coarse.to(dtype), _ALL, kernels
    )
    descent.go_on(_FIRST)
    part, left = descent, torch.arange(len(pairs.index), device=pairs.index.device)
    for _ in range(_FIRST, _ALL, _MORE):
        worth = (~(part.value <= _WORTH**2 * largest)).nonzero()[:, 0]
        part, left = part.select(worth), left[worth]
        if len(left) == 0:
            break
        part.go_on(_MORE)
        descent.put(left, part)
    refined = torch.zeros_like(pairs.index, dtype=torch.bool).index_fill(0, left, True)
    by = admissible(pairs, descent.best.to(torch.float64))
    squared, relaxed = certified(
        pairs, shape, by, kernels.bound_rows(pairs, shape, by, fine, proof=True)
    )
    return Bounds(squared, relaxed, refined)
