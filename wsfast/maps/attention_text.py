"""One text and one W: what every public function of this package computes on."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property

import torch
from torch import Tensor

from wsfast import _checks
from wsfast._interrupt import rows_at_once
from wsfast._kinks import root
from wsfast._random import NORM_STREAM, normals
from wsfast._transforms import values_of
from wsfast.attention import closed_form
from wsfast.attention.definition import attention_features
from wsfast.attention.state import (
    PositionState,
    TextState,
    prepare_positions,
    prepare_text,
)
from wsfast.attention.weight_fn import WeightFn
from wsfast.engines.ascent_kernels import NativeEvaluator
from wsfast.search.objective import Definition

# Rounding of a squared norm, in units of the size of its terms, that is let through: beyond it the
# change itself is formed. A small share of the accuracy promised (1e-4 and 1e-10 of the norm).
ROUNDING = {torch.float32: 3e-5, torch.float64: 3e-11}

# Points evaluated together at each position: enough for the products to run at full speed.
_POINTS = 256


class AttentionWeights:
    """W (d, d) in the forms that every text needs, made once."""

    def __init__(self, W: Tensor) -> None:
        self.W = W.double()
        self._bilinear: dict[torch.dtype, Tensor] = {}

    def bilinear(self, dtype: torch.dtype) -> Tensor:
        """(W + Wᵀ)/√d, rounded to `dtype`."""
        if dtype not in self._bilinear:
            if dtype == torch.float64:
                self._bilinear[dtype] = _symmetric(self.W, len(self.W) ** -0.5)
            else:
                self._bilinear[dtype] = self.bilinear(torch.float64).to(dtype)
        return self._bilinear[dtype]

    @cached_property
    def norm_bound(self) -> float:
        """An upper bound of the largest singular value of W, at most twice as large.

        By the power method from eight random vectors: that all of them miss the leading direction
        by so much that the bound fails has a probability below 1e-12.
        """
        size = float(self.W.norm())
        if size == 0:
            return 0.0
        unit = (self.W / size).float()
        vectors = normals(0, NORM_STREAM, 8 * len(unit)).reshape(8, -1)
        now = torch.from_numpy(vectors).to(unit)
        for _ in range(4):
            now = (now @ unit) @ unit.mT
            now = now / now.norm(dim=1, keepdim=True).clamp(min=1e-30)
        return 2 * size * float((now @ unit).norm(dim=1).max())


def ordinary(size: float) -> bool:
    """Whether products of a few numbers of this size stay in the range of float32."""
    return 1e-12 < size < 1e12


def _symmetric(W: Tensor, scale: float) -> Tensor:
    """(W + Wᵀ) scale."""
    if W.requires_grad:
        return (W + W.mT) * scale
    # In place: fresh memory of this size costs more than the sum.
    return W.mT.clone(memory_format=torch.contiguous_format).add_(W).mul_(scale)


class RafProblem:
    """Random attention features of one text without masked words.

    Parameters
    ----------
    X : Tensor, shape (n, d)
    weights : AttentionWeights
    weight_fn : WeightFn
    backend : {"reference", "torch", "native"}
    memory_budget : int
        Bytes that temporaries may take.
    """

    def __init__(
        self,
        X: Tensor,
        weights: AttentionWeights,
        weight_fn: WeightFn,
        backend: str,
        memory_budget: int,
    ) -> None:
        self.dtype = X.dtype
        self.X, self.W = X.double(), weights.W
        self.weights = weights
        self.weight_fn = weight_fn
        self.backend = backend
        self.memory_budget = memory_budget
        self.n, self.d = X.shape

    @cached_property
    def text(self) -> TextState:
        return self._text(self.weight_fn)

    def _text(self, weight_fn: WeightFn) -> TextState:
        native = self.backend == "native"
        return prepare_text(self.X, self.W, weight_fn, native=native, tile=self._tile)

    @property
    def _tile(self) -> int:
        # Scores, weights and what the plain softmax needs of either: about four arrays at a time.
        return max(1, self.memory_budget // (4 * 8 * self.n))

    def state(self, index: Tensor, weight_fn: WeightFn | None = None) -> PositionState:
        """State of the positions `index` in float64, for `weight_fn` in place of the own one."""
        if weight_fn is None or weight_fn == self.weight_fn:
            text = self.text
        else:
            text = self._text(weight_fn)
        return prepare_positions(text, index, self.weights.bilinear(torch.float64))

    def in_dtype(self, state: PositionState, dtype: torch.dtype) -> PositionState:
        """`state` with its real tensors in `dtype`."""
        return state.to(dtype, self.weights.bilinear(dtype))

    @cached_property
    def norm(self) -> Tensor:
        """‖φ(X)‖, float64."""
        reference = self.backend == "reference"
        phi = self.phi(self.X) if reference else self.text.phi + self.text.shift
        return _checks.size_of("φ(X)", phi)

    @property
    def unit(self) -> float:
        """A power of 2 of the size of X, where a few such sizes multiply out of range; else 1."""
        size = float(self.X.detach().abs().max())
        return 1.0 if size == 0 or ordinary(size) else 2.0 ** math.frexp(size)[1]

    def scaled(self, unit: float) -> RafProblem:
        """The same problem in units of `unit`: φ is unit times smaller, its scores are the same.

        ReLU's features do not depend on the size of the scores but for a factor.
        """
        W = self.W * unit * unit if self.weight_fn.exponential else self.W
        return RafProblem(
            self.X / unit, AttentionWeights(W), self.weight_fn, self.backend, self.memory_budget
        )

    def phi(self, X: Tensor) -> Tensor:
        """Features of texts (..., n, d) by the definition, float64."""
        texts = X.shape[:-2].numel()
        tile = max(1, self._tile // texts)
        return attention_features(X, self.W, self.weight_fn, tile=tile)

    def definition(self, index: Tensor, weight_fn: WeightFn | None = None) -> Definition:
        """The definition in float64, for `weight_fn` in place of the own one."""

        def phi(moved: Tensor) -> Tensor:
            return attention_features(moved, self.W, weight_fn or self.weight_fn)

        base = phi(self.X).flatten()
        return Definition(phi, self.X, base, index, self._texts_at_once)

    @property
    def _texts_at_once(self) -> int:
        """Texts whose features, with their gradients, are formed together."""
        # X, the products, the scores, the weights and their gradients, for each.
        fitting = self.memory_budget // (6 * 8 * self.n * (self.d + self.n))
        quick = rows_at_once(self.n * self.d * (self.d + 2 * self.n))
        return max(1, min(fitting, quick))

    def chunks(self, index: Tensor, points: int) -> Iterator[Tensor]:
        """`index` in parts whose evaluation at `points` Δ each stays within the budget."""
        # Arrays (n,) for a position: its state in float64 with what that is made from, its cast,
        # and the copy that drops positions which are done; ReLU has two smooth states more.
        smooth = self.weight_fn.exponential
        constants = (60 if smooth else 120) * 8 * self.n
        row = (11 * self.n + 8 * self.d) * 8
        if self.backend == "torch":
            row *= 6 if smooth else 12  # what autograd keeps of the forward pass
        yield from index.split(max(1, self.memory_budget // (constants + points * row)))

    def norms(self, index: Tensor, delta: Tensor, dtype: torch.dtype) -> Tensor:
        """‖φ(X^i(Δ)) - φ(X)‖ (P, m), float64, computed in `dtype`, for Δ (P, m, d) or (1, m, d)."""
        if not all(ordinary(float(values_of(x).abs().max())) for x in (self.X, delta)):
            dtype = torch.float64
        if self.backend == "reference":
            points = delta.double().expand(len(index), -1, -1)
            return root(self.definition(index).squared_norms(points))
        at_once = min(_POINTS, delta.shape[1])
        out = []
        for part in self.chunks(torch.arange(len(index), device=index.device), at_once):
            exact = self.state(index[part])
            points = delta.expand(len(index), -1, -1)[part]
            out.append(
                torch.cat([self._norms(exact, at, dtype) for at in points.split(at_once, 1)], 1)
            )
        return torch.cat(out)

    def unit2(self, norm: Tensor, dtype: torch.dtype) -> Tensor:
        """What the error of a squared norm is measured by: it keeps `norm` to the share promised.

        The share, ROUNDING, is of the larger of `norm` and 1e-3 ‖φ(X)‖; an error e of the square
        is e / norm of the norm, or √e where that is less.
        """
        floor = 1e-3 * self.norm
        return torch.maximum(norm, floor) * torch.maximum(norm, ROUNDING[dtype] * floor)

    def replaced_norms(self, index: Tensor, words: Tensor) -> Tensor:
        """‖φ(X') - φ(X)‖ (Q,), float64, with `words` (Q, d) at the positions `index` (Q,)."""
        words = words.double()
        if self.backend == "reference":
            return self.replaced_by_definition(index, words)
        delta = words - self.X[index]
        out = []
        for part in self.chunks(torch.arange(len(index), device=index.device), 1):
            positions, which = index[part].unique(return_inverse=True)
            state = self.state(positions).select(which)
            out.append(self._norms(state, delta[part, None], torch.float64)[:, 0])
        norms = torch.cat(out)
        if not self.weight_fn.exponential and self.weight_fn.normalize:
            # ReLU's weights depend on a word's direction, which x_i + Δ loses where it is tiny.
            tiny = words.norm(dim=-1) < 1e-3 * self.X[index].norm(dim=-1)
            if bool(tiny.any()):
                norms[tiny] = self.replaced_by_definition(index[tiny], words[tiny])
        return norms

    def replaced_by_definition(self, index: Tensor, words: Tensor) -> Tensor:
        """As `replaced_norms`: the word replaced in the text, and φ computed again."""
        before = attention_features(self.X, self.W, self.weight_fn)
        norms = []
        at_once = self._texts_at_once
        for i, word in zip(index.split(at_once), words.split(at_once), strict=True):
            each = torch.arange(len(i), device=i.device)
            moved = self.X.expand(len(i), -1, -1).index_put((each, i), word)
            change = attention_features(moved, self.W, self.weight_fn) - before
            norms.append(change.flatten(1).norm(dim=1))
        return torch.cat(norms)

    def _norms(self, exact: PositionState, delta: Tensor, dtype: torch.dtype) -> Tensor:
        state = self.in_dtype(exact, dtype)
        if self.backend == "native":
            points = delta.to(dtype).contiguous()
            value, size = NativeEvaluator(state, delta.shape[1]).squared_norms(points)
        else:
            value, size = closed_form.squared_norms(state, delta.to(dtype))
        value, size = value.double(), size.double()
        # Inner products lose small changes: there the change itself is formed, in float64.
        lost = ~(torch.finfo(dtype).eps * size <= ROUNDING[dtype] * self.unit2(root(value), dtype))
        p, k = lost.nonzero(as_tuple=True)
        if len(p) == 0:
            return root(value)
        at_once = max(1, self.memory_budget // (6 * 8 * self.n * self.d))
        direct = [
            closed_form.deltas(exact.select(q), delta[q, m].double()).square().sum((1, 2))
            for q, m in zip(p.split(at_once), k.split(at_once), strict=True)
        ]
        return root(value.index_put((p, k), torch.cat(direct)))

    def deltas(self, position: int, delta: Tensor) -> Tensor:
        """φ(X^i(Δ)) - φ(X) (n, d), float64, for one Δ (d,)."""
        if self.backend == "reference":
            at = torch.tensor([position], device=self.X.device)
            moved = self.X.index_put((at,), self.X[at] + delta)
            return self.phi(moved) - self.phi(self.X)
        state = self.state(torch.tensor([position], device=self.X.device))
        return closed_form.deltas(state, delta.double()[None])[0]
