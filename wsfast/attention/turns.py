"""Turns of Δ that an ascent does not find (docs/design.md, section 3).

Whether a row attends the word or not is a choice, and an ascent keeps to the choices of its start.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from wsfast.attention.state import BilinearState

# How far a row's query turns Δ, in units of it, and how many rows do, one after the other: the best
# of all, and then of those that were the best ones: an eighth, or so many.
STEP, ROWS = 0.15, 5
SHARE, LEAST = 8, 8

# How far the score of the own row turns it.
_OWN = 0.5

# Texts of more rows are not turned by them: n² numbers of a text are met at each position.
# An eighth of so many is kTurnCandidates of csrc/arguments.h.
MOST = 1024

_NUMBERS = 1 << 20  # evaluated together


class RowTurns(NamedTuple):
    """What turning Δ by the query of one row does to all of them, at P positions."""

    queries: Tensor  # (n, d)
    phi: Tensor  # (n, d) φ
    directions: Tensor  # (n, d) the queries, of length 1
    lengths: Tensor  # (n,) theirs; 1 for none
    scores: Tensor  # (n, n) of each direction with every query
    means: Tensor  # (n, n) and with every φ_j
    word: Tensor  # (P, d) x_i
    words: Tensor  # (P, n) and with each direction
    # Of `PositionState`, (P, n).
    logit: Tensor
    a: Tensor
    c2: Tensor
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
        queries=state.queries,
        phi=state.means,
        directions=directions,
        lengths=lengths,
        scores=directions @ state.queries.mT,
        means=directions @ state.means.mT,
        word=state.word,
        words=state.word @ directions.mT,
        logit=state.logit,
        a=state.a,
        c2=state.c2,
        inv_b=state.inv_b.index_put(dominated, state.inv_b.new_zeros(())),
    )


def turn_rows(turns: RowTurns, delta: Tensor) -> Tensor:
    """Δ (P, d), turned by what changes the other rows the most, `ROWS` times.

    A turn goes towards the query of a row that does not attend the word much, and away from that of
    one that does; Δ keeps its length. Of all of them the one is taken that leads to the largest
    Σ ‖δ_j‖² over the rows j ≠ i, whether it is larger than before or not.
    """
    at_once = max(1, _NUMBERS // len(turns.queries) ** 2)
    each = [slice(first, first + at_once) for first in range(0, len(delta), at_once)]
    return torch.cat([_turned(_at(turns, some), delta[some]) for some in each])


def candidates(n: int) -> int:
    """Of how many rows the second and further turns are, of n."""
    return min(n, max(LEAST, n // SHARE))


def _at(turns: RowTurns, some: slice) -> RowTurns:
    names = ("word", "words", "logit", "a", "c2", "inv_b")
    return turns._replace(**{name: getattr(turns, name)[some] for name in names})


class _Reached(NamedTuple):
    """Where Δ is, at P positions, by its products."""

    length: Tensor  # (P, 1)
    t: Tensor  # (P, n) with the queries
    mean: Tensor  # (P, n) with the means
    u: Tensor  # (P, 1) with the word


def _turned(turns: RowTurns, delta: Tensor) -> Tensor:
    length = delta.norm(dim=1, keepdim=True).clamp(min=torch.finfo(delta.dtype).tiny)
    at = _Reached(
        length,
        delta @ turns.queries.mT,
        delta @ turns.phi.mT,
        (delta * turns.word).sum(1, keepdim=True),
    )
    n = len(turns.queries)
    rows = torch.arange(n, device=delta.device).expand(len(delta), -1)
    for count in range(ROWS):
        change, back, by = _of_turns(turns, at, rows)
        if count == 0:
            # Of equal ones the first, whatever evaluates them.
            order = change.sort(dim=1, descending=True, stable=True).indices
            rows = order[:, : candidates(n)]
            change, back, by = (x.gather(1, rows) for x in (change, back, by))
        best = change.argmax(1, keepdim=True)
        row, back, by = (x.gather(1, best) for x in (rows, back, by))
        one = row[:, 0]
        at = at._replace(
            t=back * at.t + by * turns.scores[one],
            mean=back * at.mean + by * turns.means[one],
            u=back * at.u + by * turns.words.gather(1, row),
        )
        delta = back * delta + by * turns.directions[one]
    return delta


def _of_turns(turns: RowTurns, at: _Reached, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What turns by `rows` (P, k) lead to: Σ_j ‖δ_j‖², and Δ' = back Δ + by · direction."""
    t = at.t.gather(1, rows)
    logit = turns.logit.gather(1, rows)
    s = STEP * torch.where(logit + t < 0, 1.0, -1.0).to(t.dtype)
    back = (1 + 2 * s * t / (turns.lengths[rows] * at.length) + s * s).rsqrt()
    by = back * s * at.length
    along_word = back * at.u + by * turns.words.gather(1, rows)
    wide_back, wide_by = back[..., None], by[..., None]
    moved = wide_back * at.t[:, None] + wide_by * turns.scores[rows]
    mean = wide_back * at.mean[:, None] + wide_by * turns.means[rows]
    alpha = (turns.logit[:, None] + moved).sigmoid()
    q = alpha - turns.a[:, None]
    along = (along_word[..., None] - mean) * turns.inv_b[:, None]
    length2 = at.length.square()[..., None]
    change = q * (q * turns.c2[:, None] + 2 * alpha * along) + alpha.square() * length2
    return change.sum(-1), back, by


def turn_own(state: BilinearState, delta: Tensor) -> Tensor:
    """Directions (P, d) from Δ (P, d) towards a row i that its own word takes over.

    The score S_ii moves by slope·Δ + ½ Δ·BΔ.
    """
    slope = state.queries[state.index] + state.keys[state.index]
    return towards_own(delta, slope, state.bilinear, _OWN)


def towards_own(delta: Tensor, slope: Tensor, bilinear: Tensor, share: float) -> Tensor:
    """The direction of Δ (P, d), and so much of what raises slope·Δ + ½ Δ·BΔ."""
    rising = normalize(slope, dim=1) + normalize(delta @ bilinear, dim=1)
    turned: Tensor = normalize(delta, dim=1) + share * rising
    return turned
