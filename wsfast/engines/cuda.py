"""Compiled kernels between the matrix products, for CUDA devices."""

from __future__ import annotations

from torch import Tensor

from wsfast.attention.core import Core, HeadCore
from wsfast.attention.functional import FunctionalState
from wsfast.attention.rows import Attended, Rows, rows_of
from wsfast.attention.state import HeadState, PositionState
from wsfast.attention.turns import RowTurns
from wsfast.bound.ball import SmoothBall
from wsfast.bound.certificate import Nodes, RowMaxima
from wsfast.bound.form import Form, Multipliers
from wsfast.bound.multipliers import Path, Slopes, Step
from wsfast.bound.pairs import Pairs
from wsfast.bound.shape import Shape
from wsfast.engines.cpu import Cpu
from wsfast.engines.engine import TORCH, Evaluator, RandomPlane
from wsfast.engines.features import FeatureOptions, fused_features, fused_text


class Cuda(Cpu):
    """Kernels of the module `_cuda`; PyTorch's operations where it has none."""

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

    def turn_rows(self, turns: RowTurns, delta: Tensor) -> Tensor:
        return TORCH.turn_rows(turns, delta)

    def bound_rows(
        self, pairs: Pairs, shape: Shape, by: Multipliers, grid: Nodes, *, proof: bool
    ) -> RowMaxima:
        return TORCH.bound_rows(pairs, shape, by, grid, proof=proof)

    def bound_ball(
        self,
        index: Tensor,
        shape: Shape,
        form: Form,
        lam: Tensor,
        smooth: Tensor,
        radius: Tensor,
    ) -> SmoothBall:
        return TORCH.bound_ball(index, shape, form, lam, smooth, radius)

    def bound_step(self, pairs: Pairs, path: Path, slopes: Slopes, step: Step) -> None:
        TORCH.bound_step(pairs, path, slopes, step)

    def functional(self, state: FunctionalState, starts: int) -> Evaluator:
        return TORCH.functional(state, starts)

    def fill_random(self, out: Tensor, plane: RandomPlane, first: int) -> None:
        TORCH.fill_random(out, plane, first)

    def random_product(self, z: Tensor, plane: RandomPlane, words: Tensor) -> bool:
        return False


CUDA = Cuda()
