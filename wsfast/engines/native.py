"""What the compiled kernels of the CPU and of CUDA have in common."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from wsfast.attention.rows import RowStatistics
from wsfast.attention.state import BilinearState, PositionState
from wsfast.attention.substitution import SubstitutionState
from wsfast.attention.weight_fn import WeightFn
from wsfast.engines.ascent_kernels import OfHead, OfWords
from wsfast.engines.engine import Engine, Evaluator, _row_bytes
from wsfast.engines.features import attention_statistics_
from wsfast.engines.substitution_kernels import NativeTiles, Workspace


class Native(Engine):
    """Kernels that both modules have; PyTorch's operations for all else."""

    backend = "native"
    joins = 1 << 14
    of_words: type[OfWords]

    def evaluator(
        self, state: PositionState, starts: int, moves: Tensor | None = None
    ) -> OfWords | OfHead | None:
        """What evaluates the state by kernels, see `norms`; None where there are none."""
        return self.of_words([state], starts) if isinstance(state, BilinearState) else None

    def _left_top_out(self, scores: Tensor, weight_fn: WeightFn) -> tuple[RowStatistics, Tensor]:
        return attention_statistics_(scores, weight_fn), scores

    def squared_norms(
        self, state: PositionState, delta: Tensor, *, own: bool = True
    ) -> tuple[Tensor, Tensor]:
        if own and (kernels := self.evaluator(state, delta.shape[1])) is not None:
            return kernels.squared_norms(delta)
        return super().squared_norms(state, delta, own=own)  # kernels sum over all rows alone

    def norms(self, state: PositionState, starts: int, moves: Tensor | None = None) -> Evaluator:
        return self.evaluator(state, starts, moves) or super().norms(state, starts, moves)

    def norms_of_texts(self, states: Sequence[PositionState], starts: int) -> Evaluator:
        words = [state for state in states if isinstance(state, BilinearState)]
        if len(words) < len(states):
            return super().norms_of_texts(states, starts)
        return self.of_words(words, starts)

    def tiles(
        self, state: SubstitutionState, columns: int, budget: int, workspace: Workspace
    ) -> NativeTiles:
        return NativeTiles(state, columns, workspace)

    def bytes_of_point(self, n: int, d: int, *, smoothed: bool) -> int:
        return _row_bytes(n, d)
