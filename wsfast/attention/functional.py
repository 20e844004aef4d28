"""A linear functional of the change of φ, by the closed form (docs/design.md, section 2).

For Θ (n, d) it is ⟨φ(X^i(Δ)) - φ(X), Θ⟩ = Σ_j θ_j·δ_j. Rows j ≠ i add q_j θ_j·c_ji + α_j θ_j·Δ, of
which Δ moves q_j, α_j and θ_j·Δ alone; the own row adds Σ_l (P_l - A_l) x_l·θ_i + P_i θ_i·Δ.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from wsfast.attention import closed_form
from wsfast.attention.state import BilinearState


@dataclass(frozen=True)
class FunctionalState:
    """The functional Θ at P positions."""

    state: BilinearState  # its `means` are Θ
    by_shift: Tensor  # (P, n) θ_j · c_ji; any number in the position's own row
    by_word: Tensor  # (P, n) θ_i · x_l

    def select(self, keep: Tensor) -> FunctionalState:
        """The functional at the positions numbered `keep`."""
        return FunctionalState(self.state.select(keep), self.by_shift[keep], self.by_word[keep])

    def project(self, basis: Tensor) -> FunctionalState:
        """The same for Δ in the span of the orthonormal columns of `basis` (d, r)."""
        return replace(self, state=self.state.project(basis))


def functional_at(exact: BilinearState, state: BilinearState, theta: Tensor) -> FunctionalState:
    """The functional `theta` (n, d) at the positions of `state`.

    `exact` is the same state in float64, as `theta` is, of all of which the constants are formed.
    """
    difference = exact.word @ theta.mT - (theta * exact.means).sum(-1)
    k, j = exact.dominated_position, exact.dominated_row
    dominated = (theta[j] * (exact.word[k] - exact.dominated_mean)).sum(-1)
    by_shift = (difference * exact.inv_b).index_put((k, j), dominated)
    dtype = state.word.dtype
    return FunctionalState(
        replace(state, stack=torch.cat([state.queries, theta.to(dtype), state.keys])),
        by_shift.to(dtype),
        (theta[exact.index] @ exact.words.mT).to(dtype),
    )


def values(functional: FunctionalState, delta: Tensor) -> Tensor:
    """⟨φ(X^i(Δ)) - φ(X), Θ⟩ (P, s) for Δ (P, s, d), in PyTorch operations."""
    state = functional.state
    t, theta_delta, r, _ = state.moves(delta)
    alpha, q = closed_form.pair_change(state, t)
    others = q * functional.by_shift[:, None] + alpha * theta_delta
    weight, change = closed_form.own_attention(state, r)
    index = state.index[:, None, None].expand(-1, delta.shape[1], 1)
    own = (change * functional.by_word[:, None]).sum(-1)
    own = own + (weight.gather(-1, index) * theta_delta.gather(-1, index))[..., 0]
    return others.sum(-1) + own
