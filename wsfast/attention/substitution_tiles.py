"""The closed form of substitution (docs/design.md, section 4) in PyTorch: runs anywhere."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from wsfast._kinks import reciprocal
from wsfast.attention.substitution import Squares, SubstitutionState
from wsfast.attention.weight_fn import WeightFn


class _Share(NamedTuple):
    """A weight among others, as shares of their sum; unnormalised: the weight itself, and 1."""

    own: Tensor
    rest: Tensor


def _share(fn: WeightFn, score: Tensor, others: Tensor) -> _Share:
    """`others` is their log-sum-exp for softmax, else the sum of their weights."""
    if fn.exponential:
        gap = score - others  # infinite where there is no other word
        return _Share(gap.sigmoid(), (-gap).sigmoid())
    weight = fn.value(score)
    if not fn.normalize:
        return _Share(weight, torch.ones_like(weight))
    inv = reciprocal(weight + others)
    return _Share(weight * inv, others * inv)


class _OwnAttention(NamedTuple):
    """The candidates' attention to the words, without their largest one, and what goes with it."""

    weight: Tensor  # (n, m)
    top: Tensor  # (m,) the largest word
    largest: _Share  # of the largest word, beside the others
    own: _Share  # of the candidate itself, beside all words
    own_no_top: _Share  # beside all but the largest
    norm_error: Tensor  # (m,) error of the row that the rounding of scores may cause
    size: Tensor  # (m,)


class TorchTiles:
    """Evaluates tiles of candidates; `budget` bytes may be taken by temporaries (P, n, m)."""

    def __init__(self, state: SubstitutionState, budget: int) -> None:
        self._state = state
        self._budget = budget

    def squares(
        self, candidates: Tensor, self_scores: Tensor, threshold: Tensor | None = None
    ) -> Squares:
        """For candidates (m, d) and v·Wv/√d (m,)."""
        state, n = self._state, self._state.n
        centred = candidates - state.shift
        v2 = centred.square().sum(-1)
        v = v2.sqrt()
        scores, base, words, keys = (state.stack @ centred.mT).split(n)
        v_phi = state.base_weight[:, None] * base + state.top_weight[:, None] * words[state.top]
        attention = self._own_attention(keys, self_scores, v, v2)
        value = self._own_row(attention, words, v_phi, v2)
        self._add_dominated(value, scores, base, words, v2)
        self._add_others(value, scores, words, v_phi, v2)

        reach = v + state.radius
        error = state.score_error * v + state.score_offset
        strength, felt = self._strength(scores, error)
        norm_error2 = (reach * error).square() * felt + attention.norm_error.square()
        return Squares(value, reach.square() * strength + attention.size.square(), norm_error2)

    def _own_attention(
        self, keys: Tensor, self_scores: Tensor, v: Tensor, v2: Tensor
    ) -> _OwnAttention:
        state, fn = self._state, self._state.weight_fn
        scores = keys + state.key_shift[:, None]
        top_score, top = scores.max(0)
        at_top = torch.zeros_like(scores, dtype=torch.bool).scatter(0, top[None], True)
        radius = torch.maximum(v, torch.full_like(v, state.radius))
        given = v + state.shift_norm
        key_error, own_error = state.key_error * given, state.own_error * given.square()
        size = radius + state.phi_radius
        if fn.exponential:
            rest = scores.masked_fill(at_top, -torch.inf)
            others = rest.logsumexp(0)
            shift = torch.where(others == -torch.inf, 0.0, others)
            weight = (rest - shift).exp()
            own = _share(fn, self_scores, torch.logaddexp(top_score, others))
            own_no_top = _share(fn, self_scores, others)
            norm_error = radius * (key_error + 2 * own_no_top.own * own.rest * own_error)
        else:
            weight = fn.value(scores).masked_fill(at_top, 0.0)
            others = weight.sum(0)
            own = _share(fn, self_scores, others + fn.value(top_score))
            own_no_top = _share(fn, self_scores, others)
            live = (scores > -key_error).sum(0)
            possible = live * key_error + torch.where(self_scores > -own_error, own_error, 0.0)
            if fn.normalize:
                weight = weight * reciprocal(others)
                # Removing the largest word leaves the least weight.
                least = torch.maximum(others + fn.value(self_scores) - possible, possible)
                norm_error = torch.where(possible > 0, 2 * radius * possible / least, 0.0)
            else:
                norm_error = possible * radius
                size = (others + fn.value(top_score) + own.own) * radius + state.phi_radius
        largest = _share(fn, top_score, others)
        return _OwnAttention(weight, top, largest, own, own_no_top, norm_error, size)

    def _own_row(self, at: _OwnAttention, words: Tensor, v_phi: Tensor, v2: Tensor) -> Tensor:
        """‖δ_i‖² (P, m): row i, whose word is now the candidate."""
        state, n, i = self._state, self._state.n, self._state.index
        products = state.mean_rows @ at.weight
        mean_word, mean_phi = products[:n], products[n:]
        gram, phi_words = state.mean_rows[:n], state.mean_rows[n:]
        here = (at.top == i[:, None]).to(v2.dtype)  # (P, m) whether the largest word is replaced
        mean2, mean_v = (at.weight * mean_word).sum(0), (at.weight * words).sum(0)
        top_mean, top_v = (x.gather(0, at.top[None])[0] for x in (mean_word, words))
        top2 = gram.diagonal()[at.top]
        own = torch.lerp(at.own.own, at.own_no_top.own, here)
        rest = torch.lerp(at.own.rest, at.own_no_top.rest, here)
        # new = (rest (others mean + top x_top) - removed x_i + own v) scale
        removed = (1 - here) * rest * at.largest.rest * at.weight[i]
        by_mean = rest * torch.lerp(at.largest.rest, torch.ones_like(here), here)
        by_top = (1 - here) * rest * at.largest.own
        scale = 1 / (1 - removed) if state.weight_fn.normalize else torch.ones_like(removed)
        word2, word_phi = (
            gram.diagonal()[i, None],
            phi_words[torch.arange(len(i), device=i.device), i][:, None],
        )
        with_phi = (
            by_mean * mean_phi + by_top * phi_words[:, at.top] - removed * word_phi + own * v_phi[i]
        )
        norm2 = (
            by_mean * (by_mean * mean2 + 2 * (by_top * top_mean + own * mean_v))
            + by_top * (by_top * top2 + 2 * own * top_v)
            + own.square() * v2
            + removed
            * (
                removed * word2
                - 2 * (by_mean * mean_word[i] + by_top * gram[i][:, at.top] + own * words[i])
            )
        )
        return scale * (scale * norm2 - 2 * with_phi) + state.phi2[i, None]

    def _add_dominated(
        self, value: Tensor, scores: Tensor, base: Tensor, words: Tensor, v2: Tensor
    ) -> None:
        state = self._state
        pairs = zip(state.dominated_position.tolist(), state.dominated_row.tolist(), strict=True)
        for (p, j), (a, others, mean2, word_mean, removal2) in zip(
            pairs, state.dominated, strict=True
        ):
            alpha = _share(state.weight_fn, scores[j], others).own
            cross = words[state.index[p]] - base[j] - word_mean + mean2
            distance2 = v2 - 2 * base[j] + mean2
            value[p] += alpha * (alpha * distance2 - 2 * a * cross) + removal2

    def _add_others(
        self, value: Tensor, scores: Tensor, words: Tensor, v_phi: Tensor, v2: Tensor
    ) -> None:
        """Rows whose change has the common form, some positions at a time."""
        state, fn = self._state, self._state.weight_fn
        own, rest = _share(fn, scores, state.full[:, None])
        offset = v_phi - state.phi2[:, None]
        if fn.normalize:
            direct = own.square() * (v2 - 2 * v_phi + state.phi2[:, None])
        else:
            direct, offset = own.square() * v2, torch.zeros_like(offset)
        at_once = max(1, self._budget // (6 * scores.numel() * scores.element_size()))
        for part in torch.arange(len(state.index), device=scores.device).split(at_once):
            a, cross, removal2 = (x[part, :, None] for x in (state.a, state.cross, state.removal2))
            common_form = a >= 0
            a = a.clamp(min=0)
            inner = a * (words[state.index[part], None] - offset) - cross
            change = direct - 2 * own * rest * inner + rest.square() * removal2
            if fn.normalize:
                change = change / (1 - rest * a).square()
            value[part] += (change * common_form).sum(1)

    def _strength(self, scores: Tensor, error: Tensor) -> tuple[Tensor, Tensor]:
        """Squared shares of the candidates in all rows, and how far an error of scores moves them.

        Both (m,), in units of (‖v‖ + radius)².
        """
        state, fn = self._state, self._state.weight_fn
        gain2 = state.gain2[:, None]
        strength = (_share(fn, scores, state.full[:, None]).own.square() * gain2).sum(0)
        rows = state.dominated_row
        if fn.normalize:
            dominated = _share(fn, scores[rows], state.dominated[:, 1:2]).own
            strength = strength + dominated.square().sum(0)
        if fn.exponential:
            return strength, strength
        live = scores > -error
        if not fn.normalize:
            return strength, (live * gain2).sum(0)
        weight = fn.value(scores)

        def moves(total: Tensor) -> Tensor:
            moved = 1 / torch.maximum(total - error, error.expand_as(total)).square()
            return torch.where(error > 0, moved, 0.0)

        felt = (live * gain2 * moves(state.full[:, None] + weight)).sum(0)
        extra = live[rows] * moves(state.dominated[:, 1:2] + weight[rows])
        return strength, felt + extra.sum(0)
