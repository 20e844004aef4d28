"""Substitution by its definition: replace the word, compute φ again."""

from __future__ import annotations

import torch
from torch import Tensor

from wsfast.perturbation.problem import RafProblem
from wsfast.substitution.state import Squares


class DefinitionTiles:
    """Evaluates tiles of candidates at the positions `index` (P,), in float64."""

    def __init__(self, problem: RafProblem, index: Tensor) -> None:
        self._problem = problem
        self._index = index

    def squares(self, candidates: Tensor, own_score: Tensor) -> Squares:
        """For candidates (m, d); exact, so that there is no error to bound."""
        m = len(candidates)
        delta = candidates - self._problem.X[self._index, None]
        value = self._problem.definition(self._index).squared_norms(delta)
        return Squares(value, value.new_zeros(m), value.new_zeros(m))
