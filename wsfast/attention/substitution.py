"""What the closed form keeps of a text while candidates replace its words.

The notation is that of docs/design.md, section 4: candidate v takes the place of word i, row j
attends.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from wsfast.attention.state import PositionState, TextState
from wsfast.attention.weight_fn import WeightFn
from wsfast.maps.attention_text import RafProblem

# Marks, among the attentions of the pairs, one whose change has a form of its own.
APART = -1.0

# Arrays (n,) that the state keeps of a position.
PAIR_ARRAYS = 4


@dataclass(frozen=True)
class SubstitutionState:
    """Everything that the candidates of a tile are met with, for P positions of n words."""

    weight_fn: WeightFn
    index: Tensor  # (P,) int64, the positions
    shift: Tensor  # (d,) what candidates are centred by
    rows: Tensor  # (4n, d): queries, φ (the others' mean where a word dominates), words, keys
    # Rows of attention, (n,) each.
    full: Tensor  # log-sum-exp of the row, for scores of the centred v (ReLU: sum of weights)
    phi2: Tensor  # ‖φ_j‖²
    base_weight: Tensor  # φ_j = base_weight · (row n + j) + top_weight · (word top)
    top_weight: Tensor
    top: Tensor  # int64
    gain2: Tensor  # 1/(1 - largest attention that does not dominate)²
    # Pairs, (P, n) each.
    a: Tensor  # attention of row j on word i; APART for the word's own row and dominated pairs
    b: Tensor  # 1 - a
    along: Tensor  # a x_i·φ_j
    removed: Tensor  # (a ‖x_i - φ_j‖)²
    # Pairs where row j puts more than half of its attention on word i, sorted by position.
    dominated_start: Tensor  # (P + 1,) int64
    dominated_position: Tensor  # (K,) int64
    dominated_row: Tensor  # (K,) int64
    dominated: Tensor  # (K, 5): a, `full` of the others, ‖m‖², x_i·m, (a ‖x_i - m‖)²
    # The candidate's own row.
    key_shift: Tensor  # (n,) what its scores add to those of the centred v
    mean_rows: Tensor  # (n + P, n): x_i·x_l, then φ_i·x_l
    # Of each position (P,): the size of its terms that do not depend on v, and how far all other
    # rows move together where the word is only taken out.
    constant: Tensor
    removed_norm: Tensor
    shift_norm: float
    radius: float  # largest ‖x_l‖
    phi_radius: float
    score_error: float  # bounds of the error of a score, over ‖v‖ (own: ‖v‖²)
    key_error: float
    own_error: float
    score_offset: float  # of a row's log-sum-exp
    product_error: float  # of a squared norm, over the size of its terms

    @property
    def n(self) -> int:
        return len(self.full)


class Squares(NamedTuple):
    """‖φ(X') - φ(X)‖² of a tile of m candidates, and what bounds its rounding error."""

    value: Tensor  # (P, m)
    size: Tensor  # (m,) the size of the terms that depend on the candidate
    blur2: Tensor  # (m,) squared error of the norm that the rounding of scores may cause


def prepare(problem: RafProblem, index: Tensor, dtype: torch.dtype) -> SubstitutionState:
    """The state of the positions `index` (P,) int64, its real tensors in `dtype`."""
    text = problem.text
    fn, n, d = text.weight_fn, problem.n, problem.d
    parts = [_pairs(text, problem.state(part), dtype) for part in problem.chunks(index, 1)]
    a, b, along, removed, gain, constant, removed_norm, position, row, dominated = (
        torch.cat(column) for column in zip(*parts, strict=True)
    )
    offsets = torch.tensor([0, *(len(part[0]) for part in parts[:-1])], device="cpu").cumsum(0)
    counts = torch.tensor([len(part[7]) for part in parts], device="cpu")
    position = position + offsets.repeat_interleave(counts).to(position.device)
    starts = torch.bincount(position, minlength=len(index)).cumsum(0)
    apart = torch.zeros(n, dtype=torch.bool, device=index.device)
    apart[row] = True
    top, top_score, others = text.statistics
    if fn.exponential:
        full = torch.logaddexp(top_score, others) - text.queries @ text.shift
        top_share = (top_score - others).sigmoid()
        rest_share = (others - top_score).sigmoid()
    else:
        weight = fn.value(top_score)
        full = weight + others
        top_share, rest_share = weight / full, others / full
    unit = torch.finfo(dtype).eps / 2
    state = SubstitutionState(
        weight_fn=fn,
        index=index,
        shift=text.shift,
        rows=torch.cat(
            [
                part.to(dtype)
                for part in (
                    text.queries,
                    torch.where(apart[:, None], text.others_mean, text.phi),
                    text.words,
                    text.keys,
                )
            ]
        ),
        full=full,
        phi2=text.phi.square().sum(-1),
        base_weight=torch.where(apart, rest_share, 1.0),
        top_weight=torch.where(apart, top_share, 0.0),
        top=torch.where(apart, top, 0),
        gain2=gain.unflatten(0, (len(parts), n)).amax(0).square(),
        a=a,
        b=b,
        along=along,
        removed=removed,
        dominated_start=torch.cat([starts.new_zeros(1), starts]),
        dominated_position=position,
        dominated_row=row,
        dominated=dominated,
        key_shift=text.keys @ text.shift,
        mean_rows=torch.cat([text.words, text.phi[index]]) @ text.words.mT,
        constant=constant,
        removed_norm=removed_norm,
        shift_norm=float(text.shift.norm()),
        radius=_longest(text.words),
        phi_radius=_longest(text.phi),
        # Of a product of length d, in the worst case; sums of n terms; a few roundings more.
        score_error=(d + 16) * unit * _longest(text.queries),
        key_error=(d + 16) * unit * _longest(text.keys),
        own_error=(2 * d + 16) * unit * problem.weights.norm_bound * d**-0.5,
        score_offset=4 * unit * float(full.abs().max()) if fn.exponential else 0.0,
        product_error=2 * (d + n + 64) * unit,
    )
    cast: dict[str, Any] = {
        name: value.to(dtype)
        for name, value in vars(state).items()
        if isinstance(value, Tensor) and value.is_floating_point()
    }
    return replace(state, **cast)


def _longest(rows: Tensor) -> float:
    return float(rows.norm(dim=-1).max())


def _pairs(text: TextState, state: PositionState, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """Pairs of the positions of `state`, in `dtype`, and dominated pairs in float64."""
    i = state.index
    fn = text.weight_fn
    radius = _longest(text.words)
    plain = torch.ones_like(state.a, dtype=torch.bool)
    plain[torch.arange(len(i), device=i.device), i] = False
    plain[state.dominated_position, state.dominated_row] = False
    a = state.a
    b = state.b if fn.normalize else torch.ones_like(a)
    along = a * (state.word @ text.phi.mT) if fn.normalize else torch.zeros_like(a)
    removed = (a * b).square() * state.c2
    gain = torch.where(plain & (b < 1), 1 / b, 1.0) if fn.normalize else torch.ones_like(a)
    reach = (state.word.norm(dim=-1)[:, None] + radius) * a
    position, row = state.dominated_position, state.dominated_row
    mean, word = state.dominated_mean, state.word[position]
    others = text.statistics.others[row]
    if fn.exponential:
        others = others - text.queries[row] @ text.shift
    share = a[position, row]
    dominated = torch.stack(
        [
            share,
            others,
            mean.square().sum(-1),
            (word * mean).sum(-1),
            share.square() * (word - mean).square().sum(-1),
        ],
        -1,
    )
    return (
        a.masked_fill(~plain, APART).to(dtype),
        b.masked_fill(~plain, 1.0).to(dtype),
        along.masked_fill(~plain, 0.0).to(dtype),
        removed.masked_fill(~plain, 0.0).to(dtype),
        gain.amax(0),
        (reach * torch.where(plain, gain, 1.0)).square().sum(-1),
        (removed * gain.square()).masked_fill(~plain, 0.0).sum(-1).sqrt(),
        position,
        row,
        dominated,
    )
