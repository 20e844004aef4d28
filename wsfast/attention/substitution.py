"""What the closed form keeps of a text while candidates replace its words.

The notation is that of docs/design.md, section 4: candidate v takes the place of word i, row j
attends.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from wsfast.attention.rows import Rows
from wsfast.attention.state import PositionState, reals
from wsfast.attention.weight_fn import WeightFn

# Marks, among the attentions of the pairs, one whose change has a form of its own.
OTHER_FORM = -1.0

# Arrays (n,) that the state keeps of a position.
PAIR_ARRAYS = 4


@dataclass(frozen=True)
class SubstitutionState:
    """Everything that the candidates of a tile are met with, for P positions of n words."""

    weight_fn: WeightFn
    index: Tensor  # (P,) int64, the positions
    shift: Tensor  # (d,) what candidates are centred by
    stack: Tensor  # (4n, d): queries, φ (the others' mean where a word dominates), words, keys
    # Rows of attention, (n,) each.
    full: Tensor  # log-sum-exp of the row, for scores of the centred v (ReLU: sum of weights)
    phi2: Tensor  # ‖φ_j‖²
    base_weight: Tensor  # φ_j = base_weight · (stack n + j) + top_weight · (word top)
    top_weight: Tensor
    top: Tensor  # int64
    gain2: Tensor  # 1/(1 - largest attention that does not dominate)²
    # Pairs, (P, n) each.
    a: Tensor  # attention of row j on word i; OTHER_FORM for the word's own row and dominated pairs
    b: Tensor  # 1 - a
    cross: Tensor  # a x_i·φ_j
    removal2: Tensor  # (a ‖x_i - φ_j‖)²
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
    norm_error2: Tensor  # (m,) squared error of the norm that the rounding of scores may cause


def prepare(
    rows: Rows, states: Iterable[PositionState], norm_bound: float, dtype: torch.dtype
) -> SubstitutionState:
    """The state of the positions of `states`, its real tensors in `dtype`.

    `norm_bound` is no less than the largest singular value of W.
    """
    core = rows.core
    fn, (n, d) = core.weight_fn, core.values.shape
    indices, made, before = [], [], 0
    for some in states:
        indices.append(some.index)
        made.append(_pairs(rows, some, before, dtype))
        before += len(some.index)
    index = torch.cat(indices)
    a, b, cross, removal2, gain, constant, removed_norm, position, row, dominated = (
        torch.cat(column) for column in zip(*made, strict=True)
    )
    apart = torch.zeros(n, dtype=torch.bool, device=index.device)
    apart[row] = True
    top, top_score, rest = rows.statistics
    if fn.exponential:
        full = torch.logaddexp(top_score, rest) - core.queries @ rows.shift
        top_share = (top_score - rest).sigmoid()
        rest_share = (rest - top_score).sigmoid()
    else:
        weight = fn.value(top_score)
        full = weight + rest
        top_share, rest_share = weight / full, rest / full
    lengths = (_longest(each) for each in (rows.words, rows.phi, core.queries, core.keys))
    sizes = [rows.shift.norm(), full.abs().max(), *lengths]
    shift, highest, radius, phi_radius, query, key = torch.stack(sizes).tolist()
    unit = torch.finfo(dtype).eps / 2
    state = SubstitutionState(
        weight_fn=fn,
        index=index,
        shift=rows.shift,
        stack=torch.cat(
            [
                part.to(dtype)
                for part in (
                    core.queries,
                    torch.where(apart[:, None], rows.rest_mean, rows.phi),
                    rows.words,
                    core.keys,
                )
            ]
        ),
        full=full,
        phi2=rows.phi.square().sum(-1),
        base_weight=torch.where(apart, rest_share, 1.0),
        top_weight=torch.where(apart, top_share, 0.0),
        top=torch.where(apart, top, 0),
        gain2=gain.unflatten(0, (len(made), n)).amax(0).square(),
        a=a,
        b=b,
        cross=cross,
        removal2=removal2,
        dominated_start=torch.searchsorted(
            position, torch.arange(len(index) + 1, device=index.device)
        ),
        dominated_position=position,
        dominated_row=row,
        dominated=dominated,
        key_shift=core.keys @ rows.shift,
        mean_rows=torch.cat([rows.words, rows.phi[index]]) @ rows.words.mT,
        constant=constant,
        removed_norm=removed_norm,
        shift_norm=shift,
        radius=radius,
        phi_radius=phi_radius,
        # Of a product of length d, in the worst case; sums of n terms; a few roundings more.
        score_error=(d + 16) * unit * query,
        key_error=(d + 16) * unit * key,
        own_error=(2 * d + 16) * unit * norm_bound * d**-0.5,
        score_offset=4 * unit * highest if fn.exponential else 0.0,
        product_error=2 * (d + n + 64) * unit,
    )
    return replace(state, **reals(state, dtype))


def _longest(rows: Tensor) -> Tensor:
    lengths: Tensor = rows.norm(dim=-1)
    return lengths.max()


def _pairs(rows: Rows, state: PositionState, before: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """Pairs of the positions of `state`, in `dtype`, and dominated pairs in float64.

    Their positions are counted after `before` others.
    """
    i = state.index
    fn = state.weight_fn
    radius = _longest(rows.words)
    common_form = torch.ones_like(state.a, dtype=torch.bool)
    common_form[torch.arange(len(i), device=i.device), i] = False
    common_form[state.dominated_position, state.dominated_row] = False
    a = state.a
    b = state.b if fn.normalize else torch.ones_like(a)
    cross = a * (state.word @ rows.phi.mT) if fn.normalize else torch.zeros_like(a)
    removal2 = (a * b).square() * state.c2
    gain = torch.where(common_form & (b < 1), 1 / b, 1.0) if fn.normalize else torch.ones_like(a)
    reach = (state.word.norm(dim=-1)[:, None] + radius) * a
    position, row = state.dominated_position, state.dominated_row
    mean, word = state.dominated_mean, state.word[position]
    rest = rows.statistics.rest[row]
    if fn.exponential:
        rest = rest - rows.core.queries[row] @ rows.shift
    share = a[position, row]
    dominated = torch.stack(
        [
            share,
            rest,
            mean.square().sum(-1),
            (word * mean).sum(-1),
            share.square() * (word - mean).square().sum(-1),
        ],
        -1,
    )
    return (
        a.masked_fill(~common_form, OTHER_FORM).to(dtype),
        b.masked_fill(~common_form, 1.0).to(dtype),
        cross.masked_fill(~common_form, 0.0).to(dtype),
        removal2.masked_fill(~common_form, 0.0).to(dtype),
        gain.amax(0),
        (reach * torch.where(common_form, gain, 1.0)).square().sum(-1),
        (removal2 * gain.square()).masked_fill(~common_form, 0.0).sum(-1).sqrt(),
        before + position,
        row,
        dominated,
    )
