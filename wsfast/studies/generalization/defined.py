"""Any differentiable feature map, as the experiment asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from wsfast._checks import SearchOptions
from wsfast.attention.functional import DefinedFunctional
from wsfast.search.search import Search, random_starts
from wsfast.studies.generalization.maps import Part


class DefinedMap:
    """A callable φ from texts (m, n, d) to features (m, ...)."""

    def __init__(self, phi: Callable[[Tensor], Tensor], memory_budget: int) -> None:
        self.phi = phi
        self.memory_budget = memory_budget

    def features(self, texts: Tensor) -> Tensor:
        return torch.cat([self.flat(part) for part in texts.split(self._at_once(texts))])

    def moving(self, texts: Tensor) -> Iterator[DefinedText]:
        for X in texts:
            yield DefinedText(self, X, self._at_once(X[None]))

    def flat(self, texts: Tensor) -> Tensor:
        """φ (m, D) of texts (m, n, d)."""
        return self.phi(texts).flatten(1)

    def _at_once(self, texts: Tensor) -> int:
        return max(1, self.memory_budget // (4 * texts[0].numel() * texts.element_size()))


class DefinedText:
    """One text, of which one word changes."""

    native = False

    def __init__(self, map: DefinedMap, X: Tensor, rows_at_once: int) -> None:  # noqa: A002
        self.map, self.X = map, X
        self.rows_at_once = rows_at_once
        self.phi = map.flat(X[None])[0].double()

    def search(self, theta: Tensor, index: Tensor, options: SearchOptions) -> Iterator[Part]:
        directions = random_starts(options.starts, self.X.shape[1], options.seed, self.X)
        search = Search(options, directions, native=False)
        for part in index.split(max(1, self.rows_at_once // options.starts)):
            point, steps = search.run(self.objective(theta, part))
            yield Part(part, point, steps)

    def objective(self, theta: Tensor, index: Tensor) -> DefinedFunctional:
        return DefinedFunctional(
            self.map.phi, self.X, self.phi, index, self.rows_at_once, theta=theta
        )

    def along(self, position: int, delta: Tensor) -> Callable[[float], Tensor]:
        def features(t: float) -> Tensor:
            moved = self.X.clone()
            moved[position] += t * delta
            return self.map.flat(moved[None])[0].double()

        return features
