"""The closed form of substitution: torch's matrix products, one compiled kernel between any two."""

from __future__ import annotations

from typing import Any

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


class ContenderList:
    """Pairs (position, candidate) that may be among the best, and what tells them, on the device.

    Each block of candidates of a tile has a pair whose norm is no less than a bound, and raises by
    it what the pairs of its position, of a slot of pairs and of a slot of candidates reach for
    sure. Slots have no pair, or no candidate, in common: the k-th largest is one of the k-th best.

    Parameters
    ----------
    positions : int
    k : int
        Pairs that are wanted beside the best of each position.
    leaders : int
        Candidates whose best pairs are wanted as well.
    room : int
        Pairs that there is room for.
    limit : float
        Sizes from here on count as more pairs than that.
    like : Tensor
        On the device and in the dtype of the kernels.
    """

    def __init__(
        self, positions: int, k: int, leaders: int, room: int, limit: float, like: Tensor
    ) -> None:
        slots = 1 << max(8, (4 * max(k, leaders) - 1).bit_length())
        self.wanted = {"pairs": k, "leaders": leaders, "slots": slots, "limit": limit}
        self.blocks = 0  # of the tiles seen
        self.surest, self.threshold = (like.new_zeros(positions) for _ in range(2))
        self.of_pairs, self.of_blocks = (like.new_zeros(slots) for _ in range(2))
        self.count = like.new_zeros(1, dtype=torch.int64)  # also those that found no room
        self.position, self.candidate = (like.new_empty(room, dtype=torch.int64) for _ in range(2))
        self.low, self.high = (like.new_empty(room) for _ in range(2))  # bounds of the norm

    def arguments(self, candidates: int) -> dict[str, float]:
        """What the kernels are given for the next tile of so many."""
        before, self.blocks = self.blocks, self.blocks - -candidates // _BLOCK
        held = {name: x.data_ptr() for name, x in vars(self).items() if isinstance(x, Tensor)}
        return {**self.wanted, **held, "first_block": before, "capacity": len(self.position)}


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
        if threshold is not None:  # rounded towards more work; ties reach it as well
            threshold = (threshold * (1 - 1e-6)).to(candidates.dtype).contiguous()
        return self._evaluate(candidates, self_scores, threshold, None)

    def screen(
        self,
        candidates: Tensor,
        self_scores: Tensor,
        number: Tensor,
        allowed: Tensor | None,
        into: ContenderList,
    ) -> Squares:
        """The same by CUDA kernels, which raise the thresholds and add to the contenders.

        `number` (m,) are the candidates' rows of the vocabulary; only pairs count that `allowed`
        (P, m) uint8 admits.
        """
        given = self._kernels.struct("ContenderList", self._state.stack.dtype)(
            **into.arguments(len(candidates)),
            number=number.data_ptr(),
            allowed=0 if allowed is None else allowed.data_ptr(),
        )
        return self._evaluate(candidates, self_scores, into.threshold, given)

    def _evaluate(
        self,
        candidates: Tensor,
        self_scores: Tensor,
        threshold: Tensor | None,
        contenders: Any,
    ) -> Squares:
        state, m, n = self._state, len(candidates), self._state.n
        positions, d = len(state.index), candidates.shape[1]
        centred = self._take("centred", self._columns, d)[:m]
        own, norm2, size, norm_error2 = self._take("scalars", 4)
        if self._kernels.gpu:
            own = self_scores.to(own.dtype).contiguous()
        else:  # these kernels read whole blocks
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
            self._kernels.launch("substitution_tile", self._given, tile, contenders)
        else:
            self._kernels.launch("substitution_norms", self._given, tile)
        return Squares(value[:, :m], size[:m], norm_error2[:m])

    def _take(self, name: str, rows: int, columns: int = 0) -> Tensor:
        dtype = self._state.stack.dtype
        return self._workspace.take(name, rows, columns or self._stride, dtype)


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
