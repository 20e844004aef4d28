"""Substitution by its definition: replace the word, compute φ again."""

from __future__ import annotations

import torch
from torch import Tensor

from wsfast.attention.substitution import Squares
from wsfast.maps.attention_text import RafProblem


class DefinitionTiles:
    """Evaluates tiles of candidates at the positions `index` (P,), in float64."""

    def __init__(self, problem: RafProblem, index: Tensor) -> None:
        self._problem = problem
        self._index = index

    def squares(
        self, candidates: Tensor, own_score: Tensor, threshold: Tensor | None = None
    ) -> Squares:
        """For candidates (m, d); exact, so that there is no error to bound."""
        none = candidates.new_zeros(len(candidates))
        norms = [
            self._problem.replaced_by_definition(at.expand(len(candidates)), candidates)
            for at in self._index.split(1)
        ]
        return Squares(torch.stack(norms).square(), none, none)
