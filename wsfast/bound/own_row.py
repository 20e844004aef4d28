"""What the row of the word that changes moves by at most (docs/design.md, section 8)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from wsfast.attention.core import NEVER
from wsfast.attention.state import BilinearState, HeadState, PositionState, squared_distances

# Beyond, scores move too far for `near` to say anything.
_FAR = 20.0

# Rows of more words get the norms of all words in place of their own.
_DEAR = 256

# Squares taken of a matrix for its largest eigenvalue.
_SQUARINGS = 4

_NUMBERS = 1 << 20  # evaluated together

_ROUNDED = 1e-12  # of the sizes of what sums are made of


def two_points(state: PositionState) -> tuple[Tensor, Tensor]:
    """The largest ‖x_l - φ_i‖², l ≠ i, and ‖x_i - φ_i‖², (P,) each."""
    phi = state.means[state.index]
    far = squared_distances(phi, state.words)
    far = far.masked_fill(state.own_logit[:, : state.n] <= NEVER / 2, 0.0)
    others = far.scatter(1, state.index[:, None], 0.0).amax(1)
    if not state.weight_fn.exponential or state.own_logit.shape[1] > state.n:
        # All weights may vanish, or a sink take them: then nothing is left of the row.
        others = torch.maximum(others, phi.square().sum(-1))
    return others, (state.word - phi).square().sum(-1)


def near(
    state: BilinearState | HeadState,
    radii: Tensor,
    sizes: Tensor,
    known: Tensor,
    moves: Tensor | None,
) -> Tensor:
    """A bound (P,) of the squared change that is good where the scores of the row move by little.

    Of softmax rows, for changes of norms up to `radii` (P,), of values up to `sizes` (P,); infinite
    where it would be above what is `known` (P,) already. `moves` is what `pairs_of` is given.
    """
    if not state.weight_fn.exponential:
        return torch.full_like(radii, torch.inf)
    row = _row_of(state, radii, sizes, moves)
    some = (row.change(row.least_norms).square() < known).nonzero()[:, 0]
    found = torch.full_like(radii, torch.inf)
    if len(some) > 0:
        row = _row_of(state.select(some), radii[some], sizes[some], moves, short=True)
        norms = row.norms(_norm(_half_bilinear(state, moves)))
        found[some] = row.change(norms).square() * (1 + 1e-9)
    return found


class _Norms(NamedTuple):
    """Of row i without its own word, of attention a_l, φ⁻ = Σ a_l x_l and k̄ = Σ a_l k_l, (P,) each.

    None is below the largest singular value of what it is of.
    """

    words: Tensor  # √a_l (x_l - φ⁻)
    keys: Tensor  # r √a_l (k_l - k̄)
    both: Tensor  # r C, C = Σ a_l (x_l - φ⁻)(k_l - k̄)ᵀ
    straight: Tensor  # r ((1 - P) C + P (1 - P) (x_i - φ⁻) ξᵀ), P the attention to the own word
    bend: Tensor  # r² ½B: the score of the own word moves by (k_i + y_i)·Δ + Δ·½BΔ


class _Text(NamedTuple):
    """What a row is a mean of: coordinates, whose inner products are all that counts."""

    words: Tensor  # (m, .) x_l, and 0 of a sink
    keys: Tensor  # (m, .) k_l, likewise


class _Row(NamedTuple):
    """Rows of P words that change, without these."""

    text: _Text
    xi: Tensor  # (P, .) ξ = k_i + y_i - k̄
    places: Tensor  # (P,) of the words
    radii: Tensor  # (P,)
    size: Tensor  # (P,) of u⃗
    a: Tensor  # (P, m), 0 for the own word
    own: Tensor  # (P,) its attention
    left: Tensor  # (P,) 1 - own
    phi: Tensor  # (P, .)
    mean: Tensor  # (P, .)
    reach: Tensor  # (P, m) r ‖k_l - k̄‖, 0 for what the row does not see
    far: Tensor  # (P, m) ‖x_l - φ⁻‖
    alone: Tensor  # (P,) whether it sees no other word

    def select(self, keep: Tensor) -> _Row:
        """The positions numbered `keep`."""
        return _Row(self.text, *(x[keep] for x in self[1:]))

    @property
    def spread(self) -> Tensor:
        """Σ a_l ‖x_l - φ⁻‖²."""
        return (self.a * self.far.square()).sum(1)

    @property
    def spread_keys(self) -> Tensor:
        """r² Σ a_l ‖k_l - k̄‖²."""
        return (self.a * self.reach.square()).sum(1)

    @property
    def away(self) -> Tensor:
        """x_i - φ⁻, (P, .)."""
        return self.text.words[self.places] - self.phi

    def change(self, by: _Norms) -> Tensor:
        """The largest ‖δ_i‖ (P,): the smaller of two bounds, near and farther from Δ = 0."""
        own, left, size, away = self.own, self.left, self.size, self.away.norm(dim=1)
        most = self.reach.amax(1)
        rho = most.clamp(1e-3, _FAR)
        curve = (rho.expm1() - rho) / rho.square()
        each = self.reach.clamp(max=_FAR)
        curved = (self.a * self.far * (each.expm1() - each)).sum(1)
        curved = torch.minimum(curved, curve * rho * by.keys * by.words)
        grown = torch.minimum(rho.cosh().log(), (curve * by.keys.square()).log1p())
        moved = torch.minimum(by.both + curved, by.words * rho.sinh())
        # The log-odds of the own word move by at most `eta` upwards, `omega` downwards.
        tiny = torch.finfo(own.dtype).tiny
        odds = own.clamp(min=tiny).log() - left.log()
        eta = self.radii * self.xi.norm(dim=1) + by.bend
        omega = eta + grown
        high, low = (odds + eta).sigmoid(), (odds - omega).sigmoid()
        steep = torch.maximum(high * (1 - high), low * (1 - low))
        steep = torch.where((low < 0.5) & (high > 0.5), 0.25, steep)
        shift = omega * steep
        off = own * left * (by.bend + grown) + 0.5 * omega * shift
        first = by.straight + own * size + curved - (-grown).expm1() * by.both
        first = first + shift * (by.both + size) + off * away
        shares = torch.stack([own, high, low])
        farther = (1 - shares) * moved + (shares - own).abs() * away + shares * size
        least = torch.minimum(first, farther.amax(0))
        least = torch.where((most < _FAR) & (left > 1e-200), least, torch.inf)
        return torch.where(self.alone, size, least)

    @property
    def least_norms(self) -> _Norms:
        """What none is below: no sum of k squares has a largest eigenvalue below its trace / k."""
        k, none = self.a.shape[1], torch.zeros_like(self.own)
        words, keys = ((spread / k).sqrt() for spread in (self.spread, self.spread_keys))
        return _Norms(words, keys, none, none, none)

    def norms(self, half_bilinear: Tensor) -> _Norms:
        """No less than the norms, of ½B as given, and close to them where rows are not long."""
        m = self.a.shape[1]
        bend = self.radii.square() * half_bilinear
        if m > _DEAR:
            return self._of_all_words(bend)
        rounding = _ROUNDED * m * (self.spread * self.spread_keys).sqrt()
        widest = max(m, self.text.words.shape[1], self.text.keys.shape[1])
        at_once = max(1, _NUMBERS // (4 * m * widest))
        each = [
            self.select(keep)._own_norms()
            for keep in torch.arange(len(self.places), device=self.a.device).split(at_once)
        ]
        words, keys, both, straight = (torch.cat(column) for column in zip(*each, strict=True))
        return _Norms(words, keys, both + rounding, straight + rounding, bend)

    def _own_norms(self) -> list[Tensor]:
        """Those of the matrices, of some positions."""
        root, r = self.a.sqrt()[:, :, None], self.radii[:, None, None]
        words = root * (self.text.words - self.phi[:, None])
        keys = r * root * (self.text.keys - self.mean[:, None])
        both = words.mT @ keys
        by_own = self.own[:, None, None] * self.away[:, :, None] * (r * self.xi[:, None])
        straight = self.left[:, None, None] * (both + by_own)
        return [_norm(x) for x in (words, keys, both, straight)]

    def _of_all_words(self, bend: Tensor) -> _Norms:
        most = self.a.amax(1).sqrt()
        words, keys = (most * _norm(rows - rows.mean(0)) for rows in self.text)
        words = torch.minimum(words, self.spread.sqrt())
        keys = torch.minimum(self.radii * keys, self.spread_keys.sqrt())
        by_own = self.own * self.away.norm(dim=1) * self.radii * self.xi.norm(dim=1)
        return _Norms(words, keys, words * keys, self.left * (words * keys + by_own), bend)


def _half_bilinear(state: BilinearState | HeadState, moves: Tensor | None) -> Tensor:
    """½B."""
    if moves is None:
        assert isinstance(state, BilinearState)
        return 0.5 * state.bilinear
    d_k = state.keys.shape[1]
    return moves[:, :d_k] @ moves[:, -d_k:].mT


def _row_of(
    state: BilinearState | HeadState,
    radii: Tensor,
    sizes: Tensor,
    moves: Tensor | None,
    *,
    short: bool = False,
) -> _Row:
    """The rows of a state, in coordinates as they are or as few as there can be."""
    queries, keys, words, n = state.queries, state.keys, state.words, state.n
    if moves is not None:
        d_k = keys.shape[1]
        queries, keys = queries @ moves[:, :d_k].mT, keys @ moves[:, -d_k:].mT
    if short:
        words = _coordinates(words)
        keys, queries = _coordinates(torch.cat([keys, queries])).split(n)
    own_keys, i = (keys + queries)[state.index], state.index[:, None]
    seen = state.own_logit > NEVER / 2
    if seen.shape[1] > n:  # a sink has the key 0 and the value 0
        words, keys = (torch.nn.functional.pad(x, (0, 0, 0, 1)) for x in (words, keys))
    own = state.own_a.gather(1, i)
    others = state.own_a.scatter(1, i, 0.0)
    left = others.sum(1, keepdim=True)
    a = others / torch.where(left > 0, left, 1.0)
    phi, mean = a @ words, a @ keys
    far, reach = (
        squared_distances(centre, rows).clamp(min=0).sqrt()
        for centre, rows in ((phi, words), (mean, keys))
    )
    reach = (radii[:, None] * reach).masked_fill(~seen, 0.0).scatter(1, i, 0.0)
    return _Row(
        text=_Text(words, keys),
        xi=own_keys - mean,
        places=state.index,
        radii=radii,
        size=sizes,
        a=a,
        own=own[:, 0],
        left=left[:, 0],
        phi=phi,
        mean=mean,
        reach=reach,
        far=far,
        alone=seen.sum(1) == seen.gather(1, i)[:, 0],
    )


def _coordinates(rows: Tensor) -> Tensor:
    """Rows with the same inner products, no longer than there are rows."""
    if len(rows) >= rows.shape[1]:
        return rows
    found: Tensor = torch.linalg.qr(rows.mT).R.mT
    return found


def _norm(matrices: Tensor) -> Tensor:
    """No less than the largest singular values of matrices (..., k, l)."""
    wide = matrices.shape[-2] < matrices.shape[-1]
    return largest(matrices @ matrices.mT if wide else matrices.mT @ matrices).sqrt()


def largest(gram: Tensor) -> Tensor:
    """No less than the largest eigenvalues of positive semidefinite matrices (..., k, k).

    The trace of a power, of which the other eigenvalues have a small part: at most k^(1/16) above.
    """
    tiny = torch.finfo(gram.dtype).tiny
    found, root = torch.ones_like(gram[..., 0, 0]), 1.0
    for square in range(_SQUARINGS + 1):
        trace = gram.diagonal(dim1=-2, dim2=-1).sum(-1)
        found = found * trace.clamp(min=0) ** root
        if square < _SQUARINGS:
            gram = gram / trace.clamp(min=tiny)[..., None, None]
            gram, root = gram @ gram, root / 2
    return found * (1 + 1e-9)
