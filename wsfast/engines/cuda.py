"""Compiled kernels between the matrix products, for CUDA devices."""

from __future__ import annotations

from torch import Tensor

from wsfast.attention.core import Core, HeadCore
from wsfast.attention.rows import Attended, Rows, rows_of
from wsfast.attention.state import HeadState, PositionState
from wsfast.engines.engine import TORCH, Evaluator
from wsfast.engines.features import FeatureOptions, fused_features, fused_text
from wsfast.engines.native import Native


class Cuda(Native):
    """Kernels of the module `_cuda`."""

    waits = False

    def features(self, X: Tensor, queries: Tensor, given: FeatureOptions) -> Tensor:
        if given.causal:  # the kernel attends to every word
            return TORCH.features(X, queries, given)
        words = X if given.half is None else given.half.view_as(X)
        return fused_features(words, queries, given.weight_fn, given.mask, X.shape[-1] ** -0.5)

    def rows(self, core: Core, budget: int) -> Rows:
        if core.causal or isinstance(core, HeadCore):
            return TORCH.rows(core, budget)

        def attend(words: Tensor, shift: Tensor) -> Attended:
            # Not of centred words: scores are to be rounded as all others of the text are.
            phi, rest_mean, statistics = fused_text(core.values, core.queries, core.weight_fn)
            if core.weight_fn.exponential:
                alone = statistics.rest.isneginf()[:, None]
                phi, rest_mean = phi - shift, (rest_mean - shift).masked_fill(alone, 0.0)
            return Attended(phi, rest_mean, statistics)

        return rows_of(core, attend)

    def squared_norms(
        self, state: PositionState, delta: Tensor, *, own: bool = True
    ) -> tuple[Tensor, Tensor]:
        if isinstance(state, HeadState):
            return TORCH.squared_norms(state, delta, own=own)
        return super().squared_norms(state, delta, own=own)

    def norms(self, state: PositionState, starts: int, moves: Tensor | None = None) -> Evaluator:
        if isinstance(state, HeadState):
            return TORCH.norms(state, starts, moves)
        return super().norms(state, starts, moves)


CUDA = Cuda()
