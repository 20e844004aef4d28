"""Turns of Δ that an ascent does not find (docs/design.md, section 3).

Whether a row attends the word or not is a choice, and an ascent keeps to the choices of its start.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from wsfast.attention.closed_form import pair_change
from wsfast.attention.state import BilinearState

# How far a row's query turns Δ, in units of it, and how many rows do, one after the other.
STEP, ROWS = 0.15, 5

# How far the score of the own row turns it.
_OWN = 0.5

# Texts of more rows are not turned by them: n² numbers of a text are met at each position.
MOST = 1024

_NUMBERS = 1 << 20  # evaluated together


class RowTurns(NamedTuple):
    """What turning Δ by the query of one row does to all of them."""

    directions: Tensor  # (n, d) the queries, of length 1
    lengths: Tensor  # (n,) theirs; 1 for none
    scores: Tensor  # (n, n) of each direction with every query
    means: Tensor  # (n, n) and with every φ_j
    words: Tensor  # (P, n) x_i with each direction
    # (P, n) 1/b; 0 for dominated pairs, of which another mean is needed: this is where the search
    # goes, and not what it finds.
    inv_b: Tensor


def row_turns(state: BilinearState) -> RowTurns:
    """Those of P positions under softmax."""
    lengths = state.queries.norm(dim=1)
    lengths = torch.where(lengths > 0, lengths, 1.0)
    directions = state.queries / lengths[:, None]
    dominated = state.dominated_position, state.dominated_row
    return RowTurns(
        directions=directions,
        lengths=lengths,
        scores=directions @ state.queries.mT,
        means=directions @ state.means.mT,
        words=state.word @ directions.mT,
        inv_b=state.inv_b.index_put(dominated, state.inv_b.new_zeros(())),
    )


def turn_rows(state: BilinearState, turns: RowTurns, delta: Tensor) -> Tensor:
    """Δ (P, d), turned by what changes the other rows the most, `ROWS` times.

    A turn goes towards the query of a row that does not attend the word much, and away from that of
    one that does; Δ keeps its length. Of all of them the one is taken that leads to the largest
    Σ ‖δ_j‖² over the rows j ≠ i, whether it is larger than before or not.
    """
    at_once = max(1, _NUMBERS // state.n**2)
    each = torch.arange(len(delta), device=delta.device).split(at_once)
    return torch.cat([_turned(state.select(p), _at(turns, p), delta[p]) for p in each])


def _at(turns: RowTurns, keep: Tensor) -> RowTurns:
    return turns._replace(words=turns.words[keep], inv_b=turns.inv_b[keep])


def _turned(state: BilinearState, turns: RowTurns, delta: Tensor) -> Tensor:
    length = delta.norm(dim=1, keepdim=True).clamp(min=torch.finfo(delta.dtype).tiny)
    t, mean = delta @ state.queries.mT, delta @ state.means.mT
    u = (delta * state.word).sum(1, keepdim=True)
    everyone = torch.arange(len(delta), device=delta.device)
    for _ in range(ROWS):
        # By s of its length, and back onto the sphere.
        attention = pair_change(state, t[:, None]).alpha[:, 0]
        s = torch.where(attention < 0.5, STEP, -STEP).to(delta.dtype)
        back = (1 + 2 * s * t / (turns.lengths * length) + s * s).rsqrt()
        by = back * s * length
        alpha, q = pair_change(state, back[..., None] * t[:, None] + by[..., None] * turns.scores)
        along = (back * u + by * turns.words)[..., None] - (
            back[..., None] * mean[:, None] + by[..., None] * turns.means
        )
        along = along * turns.inv_b[:, None]
        change = q * (q * state.c2[:, None] + 2 * alpha * along) + alpha.square() * (
            length.square()[..., None]
        )
        row = change.sum(-1).argmax(1)
        back, by = back[everyone, row, None], by[everyone, row, None]
        t, mean = back * t + by * turns.scores[row], back * mean + by * turns.means[row]
        u = back * u + by * turns.words[everyone, row, None]
        delta = back * delta + by * turns.directions[row]
    return delta


def turn_own(state: BilinearState, delta: Tensor) -> Tensor:
    """Directions (P, d) from Δ (P, d) towards a row i that its own word takes over.

    The score S_ii moves by slope·Δ + ½ Δ·BΔ.
    """
    slope = state.queries[state.index] + state.keys[state.index]
    turned: Tensor = normalize(delta, dim=1) + _OWN * (
        normalize(slope, dim=1) + normalize(delta @ state.bilinear, dim=1)
    )
    return turned
