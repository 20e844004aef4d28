"""Random features and deep random features, as the experiment asks for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from wsfast._checks import SearchOptions
from wsfast.attention.functional import DefinedFunctional
from wsfast.maps.projection import project, project_word
from wsfast.maps.random import RandomFeatures
from wsfast.search.objective import Objective
from wsfast.search.search import Search, random_starts, search_dtype
from wsfast.studies.generalization.maps import Part


class RandomMap:
    """RF and DRF with the weights of one draw."""

    def __init__(self, drawn: RandomFeatures, backend: str) -> None:
        self.drawn = drawn
        self.backend = backend

    def features(self, texts: Tensor) -> Tensor:
        return self.drawn.features(texts)

    def moving(self, texts: Tensor) -> Iterator[RandomText]:
        # All at once: V is made but once for them.
        z = project(self.drawn.projection, texts.double())
        for X, of_text in zip(texts, z, strict=True):
            yield RandomText(self.drawn, X, of_text, self.backend)


class RandomText:
    """One text, of which one word changes."""

    def __init__(self, drawn: RandomFeatures, X: Tensor, z: Tensor, backend: str) -> None:
        self.drawn, self.X, self.z = drawn, X, z
        self.reference = backend == "reference"
        self.native = backend == "native"
        self.dtype = torch.float64  # of the search
        self.phi = drawn.head(z)

    def search(self, theta: Tensor, index: Tensor, options: SearchOptions) -> Iterator[Part]:
        if not self.reference:
            self.dtype = search_dtype(self.X, options.radius, self.X.dtype)
        random = random_starts(options.starts, self.X.shape[1], options.seed, self.X)
        for i in index.split(1):
            objective = self.objective(theta, i)
            directions = random.to(self.dtype)
            # The functional rises fastest there, seen from where the text is.
            rest = torch.zeros_like(directions[None, :1])
            directions[0] = objective.evaluator(1).value_and_gradient(rest)[1][0, 0]
            point, steps = Search(options, directions, native=self.native).run(objective)
            yield Part(i, point, steps)

    def objective(self, theta: Tensor, index: Tensor) -> Objective:
        drawn = self.drawn
        if self.reference:
            rows_at_once = max(1, 8 * len(index))
            X = self.X.double()
            return DefinedFunctional(drawn.features, X, self.phi, index, rows_at_once, theta=theta)
        z = self.z.to(self.dtype)
        V = [drawn.projection.block(i, self.dtype) for i in index.tolist()]
        return WordFunctional(drawn, V, z, drawn.head(z), theta.to(self.dtype))

    def along(self, position: int, delta: Tensor) -> Callable[[float], Tensor]:
        move = project_word(self.drawn.projection, position, delta[None].double())[0]
        return lambda t: self.drawn.head(self.z + t * move)


@dataclass(frozen=True)
class WordFunctional:
    """⟨φ(X^i(Δ)) - φ(X), Θ⟩ at some positions, with their V_i in memory."""

    drawn: RandomFeatures
    V: list[Tensor]  # (k, d) each
    z: Tensor  # (k,) V flat(X)
    base: Tensor  # (k,) φ(X)
    theta: Tensor  # (k,)

    @property
    def positions(self) -> int:
        return len(self.V)

    def evaluator(self, starts: int) -> WordFunctional:
        return self

    def select(self, keep: Tensor) -> WordFunctional:
        return replace(self, V=[self.V[p] for p in keep.tolist()])

    def value_and_gradient(self, delta: Tensor) -> tuple[Tensor, Tensor]:
        """For Δ (P, s, d): the values (P, s) and their gradient (P, s, d)."""
        values, gradients = torch.empty_like(delta[..., 0]), torch.empty_like(delta)
        for V, at, value, gradient in zip(self.V, delta, values, gradients, strict=True):
            # This way round a product with few columns runs at the speed of the memory.
            moved = (V @ at.mT).mT.contiguous()
            with torch.enable_grad():
                moved.requires_grad_()
                change = self.drawn.head(self.z + moved) - self.base
                now = change @ self.theta
                (slope,) = torch.autograd.grad(now.sum(), moved)
            value.copy_(now.detach())
            torch.mm(slope, V, out=gradient)
        return values, gradients
