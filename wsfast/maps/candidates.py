"""Words of a text replaced by rows of a table, many at a time: what studies screen."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from wsfast.attention.substitution import PAIR_ARRAYS as PAIR_ARRAYS
from wsfast.attention.substitution import Squares as Squares
from wsfast.engines.engine import Tiles
from wsfast.engines.substitution_kernels import ContenderList as ContenderList
from wsfast.engines.substitution_kernels import NativeTiles as NativeTiles
from wsfast.engines.substitution_kernels import Workspace as Workspace
from wsfast.maps.attention_text import AttentionText
from wsfast.maps.feature_map import PreparedText
from wsfast.maps.measure import Norm
from wsfast.perturbation.change import Change, Sites


class Tiling(NamedTuple):
    """How tiles of candidates are evaluated at P positions, and how exactly."""

    tiles: Tiles
    constant: Tensor  # (P,) float64, the size of the terms that do not depend on the candidate
    error: float  # rounding of a square, over the size of its terms


def tiling_of(
    text: AttentionText, index: Tensor, columns: int, workspace: Workspace, dtype: torch.dtype
) -> Tiling:
    """Tiles of at most `columns` candidates in `dtype`, at the positions `index`."""
    if not text.engine.closed_form:
        return Tiling(_DefinedTiles(text, index), text.X.new_zeros(len(index)), 0.0)
    state = text.substitution(index, dtype)
    tiles = text.engine.tiles(state, columns, text.budget // 4, workspace)
    return Tiling(tiles, state.constant.double(), state.product_error)


def replaced_norms(text: PreparedText, index: Tensor, words: Tensor) -> Tensor:
    """‖φ(X') - φ(X)‖ (Q,), float64, with `words` (Q, d) at the positions `index` (Q,)."""
    change = Change(put=words[:, None, None].to(text.X.dtype))
    return text.measured(Sites.of_words(index), change, Norm(), torch.float64)[:, 0]


class _DefinedTiles:
    """By the definition, in float64: exact, so that there is no error to bound."""

    def __init__(self, text: AttentionText, index: Tensor) -> None:
        self._text, self._index = text, index

    def squares(
        self, candidates: Tensor, self_scores: Tensor, threshold: Tensor | None = None
    ) -> Squares:
        none = candidates.new_zeros(len(candidates))
        norms = [
            replaced_norms(self._text, at.expand(len(candidates)), candidates)
            for at in self._index.split(1)
        ]
        return Squares(torch.stack(norms).square(), none, none)
