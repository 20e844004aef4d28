"""Random attention as the search sees it: a norm or a functional of the change of φ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import torch
from torch import Tensor

from wsfast.attention.functional import FunctionalState
from wsfast.attention.sites import BilinearSiteState
from wsfast.attention.state import BilinearState
from wsfast.attention.turns import MOST, RowTurns, row_turns, turn_own
from wsfast.engines.engine import Engine, Evaluator
from wsfast.search.objective import Objective, Small, Turn, of_each_word, onto_span


@dataclass(frozen=True)
class AttentionObjective(Objective):
    """By the closed form, at P positions."""

    engine: Engine
    state: BilinearState | FunctionalState | BilinearSiteState
    more_starts: int = 1
    momentum: bool = False
    lead: Tensor | None = None
    smoother: tuple[AttentionObjective, ...] = ()
    basis: Callable[[], Tensor | None] | None = None  # (d, r) that is worth searching in first
    rows: Callable[[], Tensor | None] | None = None  # (r, d) whose span is worth starting in

    @property
    def _word(self) -> Tensor:
        """The words that change, (P, d) or (P, m, d)."""
        return self.state.state.word if isinstance(self.state, FunctionalState) else self.state.word

    @property
    def places(self) -> int:
        return len(self._word)

    @property
    def width(self) -> int:
        return self._word[0].numel()

    @property
    def dtype(self) -> torch.dtype:
        return self._word.dtype

    @property
    def device(self) -> torch.device:
        return self._word.device

    def evaluator(self, starts: int) -> Evaluator:
        if isinstance(self.state, BilinearSiteState):
            return self.engine.site_norms(self.state)
        if isinstance(self.state, FunctionalState):
            return self.engine.functional(self.state, starts)
        return self.engine.norms(self.state, starts)

    def evaluator_with(self, others: Sequence[Objective], starts: int) -> Evaluator:
        states = [
            one.state
            for one in (self, *others)
            if isinstance(one, AttentionObjective) and isinstance(one.state, BilinearState)
        ]
        if len(states) <= len(others):
            return super().evaluator_with(others, starts)
        return self.engine.norms_of_texts(states, starts)

    def select(self, keep: Tensor) -> AttentionObjective:
        return replace(self, state=self.state.select(keep))

    def leads(self) -> Tensor | None:
        return self.lead

    def towards(self, directions: Tensor) -> Tensor:
        rows = None if self.rows is None else self.rows()
        if rows is None:
            return directions
        of_words = directions.unflatten(-1, (-1, rows.shape[-1]))
        return onto_span(of_words, rows.to(directions.dtype)).flatten(-2)

    def turns(self) -> Sequence[Turn]:
        if not (self.momentum and isinstance(self.state, BilinearState)):
            return ()
        return turns_of(self.state, self.engine)

    def smoothed(self) -> Sequence[AttentionObjective]:
        return self.smoother

    def small(self) -> Small | None:
        basis = None if self.basis is None else self.basis()
        if basis is None:
            return None
        smoother = tuple(replace(one, state=one.state.project(basis)) for one in self.smoother)
        state = self.state.project(basis)
        small = replace(self, state=state, smoother=smoother, basis=None)
        return Small(small, (of_each_word(basis, self.width // len(basis)),))


def turns_of(state: BilinearState, engine: Engine) -> Sequence[Turn]:
    """Turns of the changes that a state is of: towards its own row, and by the other ones."""
    if state.n > MOST:
        return [partial(turn_own, state)]
    of = _Turns(state, engine)
    return [of.own, of.by_rows, of.by_rows, of.own, of.by_rows]


@dataclass(frozen=True)
class _Turns:
    state: BilinearState
    engine: Engine

    @cached_property
    def _rows(self) -> RowTurns:
        return row_turns(self.state)

    def own(self, delta: Tensor) -> Tensor:
        return turn_own(self.state, delta)

    def by_rows(self, delta: Tensor) -> Tensor:
        return self.engine.turn_rows(self._rows, delta)
