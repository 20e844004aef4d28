"""Compiled kernels between the matrix products, for CUDA devices."""

from __future__ import annotations

from torch import Tensor

from wsfast.attention.core import Core, HeadCore
from wsfast.attention.rows import Attended, Rows, rows_of
from wsfast.engines.ascent_kernels import OfWordsByGram
from wsfast.engines.engine import TORCH, Climb, Evaluator
from wsfast.engines.features import FeatureOptions, fused_features, fused_text
from wsfast.engines.native import Native


class Cuda(Native):
    """Kernels of the module `_cuda`."""

    waits = False
    of_words = OfWordsByGram

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

    def take_step(
        self, climb: Climb, value: Tensor, gradient: Tensor, radius: float, balls: int = 1
    ) -> None:
        # Kernels read 16 bytes at a time.
        if climb.trial.shape[-1] % 4 == 0:
            super().take_step(climb, value, gradient, radius, balls)
        else:
            TORCH.take_step(climb, value, gradient, radius, balls)

    def go_on(
        self, evaluator: Evaluator, climb: Climb, steps: int, radius: float, balls: int = 1
    ) -> None:
        if isinstance(evaluator, OfWordsByGram) and evaluator.climbs(climb):
            evaluator.climb(climb, steps, None, radius)
        else:
            super().go_on(evaluator, climb, steps, radius, balls)

    def until_still(
        self,
        evaluator: Evaluator,
        climb: Climb,
        steps: int,
        tol: float,
        radius: float,
        balls: int = 1,
    ) -> Tensor:
        if isinstance(evaluator, OfWordsByGram) and evaluator.climbs(climb):
            return evaluator.climb(climb, steps, tol, radius)
        return super().until_still(evaluator, climb, steps, tol, radius, balls)


CUDA = Cuda()
