"""The closed form of substitution: torch's matrix products, one compiled kernel between any two."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from wsfast.attention.substitution import PAIR_ARRAYS, Squares, SubstitutionState
from wsfast.engines import compiled

_GROUP = 4  # kGroup of csrc/arguments.h
_OWN_ROWS = 8  # kOwnRows
_LANES = {torch.float32: 16, torch.float64: 8}  # kLanes
_BLOCK = 64  # kTileCandidates of csrc/cuda/kernels.h


class Workspace:
    """Memory on one device for one tile at a time, which all texts share."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._flat: dict[tuple[str, torch.dtype], Tensor] = {}

    def take(self, name: str, rows: int, columns: int, dtype: torch.dtype) -> Tensor:
        """An array (rows, columns) of numbers that are finite, whatever they are."""
        size = rows * columns
        flat = self._flat.get((name, dtype))
        if flat is None or len(flat) < size:
            flat = self._flat[name, dtype] = torch.zeros(size, dtype=dtype, device=self._device)
        return flat[:size].view(rows, columns)


@dataclass(frozen=True)
class PairList:
    """Pairs (position, candidate) with the bounds of their norms, and room for more."""

    count: Tensor  # (1,) int64: pairs so far, also those that found no room
    position: Tensor  # (room,) int64
    candidate: Tensor  # (room,) int64, rows of the vocabulary
    low: Tensor  # (room,)
    high: Tensor  # (room,)


class NativeTiles:
    """Evaluates tiles of at most `columns` candidates."""

    def __init__(self, state: SubstitutionState, columns: int, workspace: Workspace) -> None:
        self._kernels = compiled.kernels(state.stack.device)
        self._state = state
        dtype = state.stack.dtype
        lanes = _LANES[dtype]
        # Whole blocks of columns. An odd number of them: rows that lie a multiple of the page size
        # apart would share few places of the cache.
        self._stride = lanes * ((columns + lanes - 1) // lanes | 1)
        n, positions = state.n, len(state.index)
        self._columns, self._workspace = columns, workspace
        pairs, plain = _grouped(state)
        held = {
            "pairs": pairs,
            "plain": plain,
            "gram": state.mean_rows[:n],
            "phi_words": state.mean_rows[n:],
            **{
                name: getattr(state, name).contiguous()
                for name in (
                    "index", "full", "phi2", "base_weight", "top_weight", "top", "gain2",
                    "dominated_start", "dominated_row", "dominated", "key_shift", "constant",
                    "removed_norm",
                )
            },
        }  # fmt: skip
        self._given = self._kernels.struct("SubstitutionState", dtype)(
            weight_fn=state.weight_fn.code,
            positions=positions,
            n=n,
            **{name: value.data_ptr() for name, value in held.items()},
            shift=state.shift_norm,
            radius=state.radius,
            phi_radius=state.phi_radius,
            score_error=state.score_error,
            key_error=state.key_error,
            own_error=state.own_error,
            score_offset=state.score_offset,
            product_error=state.product_error,
        )
        # As long as the kernels may read them.
        self._held = held | {"shift": state.shift.contiguous()}
        self._tile_type = self._kernels.struct("SubstitutionTile", dtype)

    def squares(
        self, candidates: Tensor, self_scores: Tensor, threshold: Tensor | None = None
    ) -> Squares:
        """For candidates (m, d) and v·Wv/√d (m,); overwritten by the next call of any text.

        Where the norm surely is below `threshold` (P,), the square may be any smaller number.
        """
        return self._evaluate(candidates, self_scores, threshold, None, None)

    def screened(
        self, candidates: Tensor, self_scores: Tensor, threshold: Tensor, allowed: Tensor | None
    ) -> tuple[Squares, Tensor]:
        """The same by CUDA kernels, and a lower bound (P, blocks) for each block of candidates.

        Some pair of the block has a norm of at least that, among those that `allowed` (P, m) uint8
        admits; where there is none the bound is -inf.
        """
        blocks = (len(candidates) + _BLOCK - 1) // _BLOCK
        low = candidates.new_empty(len(self._state.index), blocks)
        return self._evaluate(candidates, self_scores, threshold, allowed, low), low

    def keep(
        self,
        squares: Squares,
        number: Tensor,
        threshold: Tensor,
        allowed: Tensor | None,
        pairs: PairList,
    ) -> None:
        """Add to `pairs` those of the last tile whose upper bound reaches `threshold` (P,).

        By CUDA kernels; `number` (m,) are the candidates' rows of the vocabulary.
        """
        state = self._state
        threshold = _towards_more(threshold, state.stack.dtype)
        self._kernels.launch(
            "keep_contenders",
            dtype=state.stack.dtype,
            positions=len(state.index),
            candidates=len(number),
            stride=self._stride,
            value=squares.value.data_ptr(),
            size=squares.size.data_ptr(),
            norm_error=squares.norm_error2.data_ptr(),
            constant=self._held["constant"].data_ptr(),
            product_error=state.product_error,
            threshold=threshold.data_ptr(),
            allowed=0 if allowed is None else allowed.data_ptr(),
            number=number.data_ptr(),
            capacity=len(pairs.position),
            **{name: array.data_ptr() for name, array in vars(pairs).items()},
        )

    def _evaluate(
        self,
        candidates: Tensor,
        self_scores: Tensor,
        threshold: Tensor | None,
        allowed: Tensor | None,
        best_low: Tensor | None,
    ) -> Squares:
        if threshold is not None:
            threshold = _towards_more(threshold, candidates.dtype)
        state, m, n = self._state, len(candidates), self._state.n
        positions, d = len(state.index), candidates.shape[1]
        centred = self._take("centred", self._columns, d)[:m]
        own, norm2, size, norm_error2 = self._take("scalars", 4)
        own[:m] = self_scores
        candidates = candidates.contiguous()
        self._kernels.launch(
            "centre_rows",
            dtype=state.stack.dtype,
            rows=m,
            d=d,
            given=candidates.data_ptr(),
            shift=self._held["shift"].data_ptr(),
            centred=centred.data_ptr(),
            norm2=norm2.data_ptr(),
        )
        products = self._take("products", 4 * n)
        torch.mm(state.stack, centred.mT, out=products[:, :m])
        scores, base, words, keys = products.split(n)
        attention = self._take("attention", _OWN_ROWS)
        mean_products = self._take("mean products", n + positions)
        value = self._take("value", positions)
        top = self._workspace.take("top", 1, self._stride, torch.int64)
        tile = self._tile_type(
            candidates=m,
            stride=self._stride,
            scores=scores.data_ptr(),
            base=base.data_ptr(),
            words=words.data_ptr(),
            keys=keys.data_ptr(),
            own_score=own.data_ptr(),
            norm2=norm2.data_ptr(),
            attention=attention.data_ptr(),
            top=top.data_ptr(),
            mean_products=mean_products.data_ptr(),
            threshold=0 if threshold is None else threshold.data_ptr(),
            value=value.data_ptr(),
            size=size.data_ptr(),
            norm_error=norm_error2.data_ptr(),
        )
        self._kernels.launch("candidate_attention", self._given, tile)
        torch.mm(state.mean_rows, keys[:, :m], out=mean_products[:, :m])
        if self._kernels.gpu:
            may, low = (0 if array is None else array.data_ptr() for array in (allowed, best_low))
            self._kernels.launch("substitution_tile", self._given, tile, may, low)
        else:
            self._kernels.launch("substitution_norms", self._given, tile)
        return Squares(value[:, :m], size[:m], norm_error2[:m])

    def _take(self, name: str, rows: int, columns: int = 0) -> Tensor:
        dtype = self._state.stack.dtype
        return self._workspace.take(name, rows, columns or self._stride, dtype)


def _towards_more(threshold: Tensor, dtype: torch.dtype) -> Tensor:
    """The threshold in the kernels' dtype, rounded towards more work; ties reach it as well."""
    return (threshold * (1 - 1e-6)).to(dtype).contiguous()


def _grouped(state: SubstitutionState) -> tuple[Tensor, Tensor]:
    """Pairs as the kernel reads them, (m / 4, P, 4, 4), and which groups (m / 4, P) are plain."""
    groups = (state.n + _GROUP - 1) // _GROUP
    missing = groups * _GROUP - state.n
    pairs = state.a.new_empty(groups, len(state.index), _GROUP, PAIR_ARRAYS)
    arrays = ((state.a, 2, 0.0), (state.cross, 2, 0.0), (state.removal2, 1, 0.0), (state.b, 1, 1.0))
    for k, (values, times, filling) in enumerate(arrays):
        padded = torch.nn.functional.pad(values, (0, missing), value=filling)
        pairs[..., k] = times * padded.unflatten(1, (groups, _GROUP)).transpose(0, 1)
    plain = (pairs[..., 0] >= 0).all(-1)
    return pairs, plain.to(torch.uint8).contiguous()
