"""Random attention as the search sees it: a norm or a functional of the change of φ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from wsfast.attention.functional import FunctionalState
from wsfast.attention.state import PositionState
from wsfast.engines.engine import Engine, Evaluator
from wsfast.search.objective import Objective, Small


@dataclass(frozen=True)
class AttentionObjective(Objective):
    """By the closed form, at P positions."""

    engine: Engine
    state: PositionState | FunctionalState
    more_starts: int = 1
    lead: Tensor | None = None
    smoother: tuple[AttentionObjective, ...] = ()
    basis: Callable[[], Tensor | None] | None = None  # (d, r) that is worth searching in first

    @property
    def _position(self) -> PositionState:
        return self.state.state if isinstance(self.state, FunctionalState) else self.state

    @property
    def places(self) -> int:
        return len(self._position.index)

    @property
    def width(self) -> int:
        return self._position.d

    @property
    def dtype(self) -> torch.dtype:
        return self._position.word.dtype

    @property
    def device(self) -> torch.device:
        return self._position.word.device

    def evaluator(self, starts: int) -> Evaluator:
        if isinstance(self.state, FunctionalState):
            return self.engine.functional(self.state, starts)
        return self.engine.norms(self.state, starts)

    def select(self, keep: Tensor) -> AttentionObjective:
        return replace(self, state=self.state.select(keep))

    def leads(self) -> Tensor | None:
        return self.lead

    def smoothed(self) -> Sequence[AttentionObjective]:
        return self.smoother

    def small(self) -> Small | None:
        basis = None if self.basis is None else self.basis()
        if basis is None:
            return None
        smoother = tuple(replace(one, state=one.state.project(basis)) for one in self.smoother)
        state = self.state.project(basis)
        return Small(replace(self, state=state, smoother=smoother, basis=None), basis)
