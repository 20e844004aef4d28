"""Random attention features, as the experiment asks for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from wsfast._checks import SearchOptions
from wsfast.attention.definition import attention_features
from wsfast.attention.functional import (
    ClosedFunctional,
    DefinedFunctional,
    functional_at,
    has_kernel,
)
from wsfast.attention.weight_fn import WeightFn
from wsfast.maps.attention_text import AttentionWeights, RafProblem
from wsfast.search.objective import Objective
from wsfast.search.search import search_dtype
from wsfast.studies.generalization.maps import Part
from wsfast.studies.raf import CURVES, WORTHWHILE, attention_search


class AttentionMap:
    """RAF and ReLU-RAF with the weights W (d, d) of one draw."""

    def __init__(self, W: Tensor, weight_fn: WeightFn, backend: str, memory_budget: int) -> None:
        self.weights = AttentionWeights(W)
        self.weight_fn = weight_fn
        self.backend = backend
        self.memory_budget = memory_budget

    def features(self, texts: Tensor) -> Tensor:
        # In float64 whatever their dtype: X, XW, scores, weights and the features, for each text.
        n, d = texts.shape[1:]
        at_once = max(1, self.memory_budget // (8 * (3 * n * d + 2 * n * n)))
        out = texts.new_empty(len(texts), n * d)
        for part, into in zip(texts.split(at_once), out.split(at_once), strict=True):
            into.copy_(attention_features(part.double(), self.weights.W, self.weight_fn).flatten(1))
        return out

    def moving(self, texts: Tensor) -> Iterator[AttentionText]:
        for X in texts:
            yield AttentionText(
                RafProblem(X, self.weights, self.weight_fn, self.backend, self.memory_budget)
            )


class AttentionText:
    """One text, of which one word changes."""

    def __init__(self, problem: RafProblem) -> None:
        self.problem = problem
        self.reference = problem.backend == "reference"
        self.native = problem.backend == "native" and has_kernel(problem.X.device)
        self.phi = problem.phi(problem.X).flatten()
        fn = problem.weight_fn
        self.dtype = torch.float64  # of the search
        curves = () if fn.exponential else CURVES
        self.smooth_fns = [WeightFn("squareplus", fn.normalize, curve) for curve in curves]

    def search(self, theta: Tensor, index: Tensor, options: SearchOptions) -> Iterator[Part]:
        problem = self.problem
        basis = self._basis(theta, search_dtype(problem.X, options.radius, problem.dtype))
        search = attention_search(problem, options, basis, native=self.native)
        self.dtype = search.directions.dtype
        make = self._defined if self.reference else self._closed
        for part in problem.chunks(index, search.points_at_once(not self.smooth_fns)):
            smoothed = [make(theta, part, fn) for fn in self.smooth_fns]
            point, steps = search.run_through_basis(make(theta, part, problem.weight_fn), smoothed)
            yield Part(part, point, steps)

    def objective(self, theta: Tensor, index: Tensor) -> Objective:
        make = self._defined if self.reference else self._closed
        return make(theta, index, self.problem.weight_fn)

    def along(self, position: int, delta: Tensor) -> Callable[[float], Tensor]:
        problem, by = self.problem, delta.double()

        def features(t: float) -> Tensor:
            moved = problem.X.clone()
            moved[position] += t * by
            return problem.phi(moved).flatten()

        return features

    def _closed(self, theta: Tensor, index: Tensor, fn: WeightFn) -> ClosedFunctional:
        exact = self.problem.state(index, fn)
        state = self.problem.in_dtype(exact, self.dtype)
        by_row = theta.view(self.problem.n, self.problem.d)
        return functional_at(exact, state, by_row, native=self.native)

    def _defined(self, theta: Tensor, index: Tensor, fn: WeightFn) -> DefinedFunctional:
        return DefinedFunctional(**vars(self.problem.definition(index, fn)), theta=theta)

    def _basis(self, theta: Tensor, dtype: torch.dtype) -> Tensor | None:
        """Orthonormal basis (d, r) of the rows of X, XW, XWᵀ and Θ, where it saves work."""
        n, d = self.problem.n, self.problem.d
        r = 4 * n
        if r >= d or 6 * n * r + r * r > WORTHWHILE * (6 * n * d + d * d):
            return None
        text = self.problem.text
        # Of one size each: a basis is sought, whatever the lengths.
        rows = [text.X, text.queries * d**0.5, text.keys * d**0.5, theta.view(n, d)]
        rows = [part / part.norm() if float(part.norm()) > 0 else part for part in rows]
        basis: Tensor = torch.linalg.qr(torch.cat(rows).mT).Q
        return basis.to(dtype)
