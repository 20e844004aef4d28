"""What the experiment asks of a feature map."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from torch import Tensor

from wsfast._checks import SearchOptions
from wsfast.search.ascent import Point
from wsfast.search.objective import Objective


class Part(NamedTuple):
    """Positions that were searched together, and what was found."""

    at: Tensor  # (P,) int64, positions
    point: Point
    steps: int


class MovingText(Protocol):
    """One text, of which one word changes."""

    phi: Tensor  # (D,) φ(X), float64
    native: bool  # whether compiled kernels take the steps

    def search(self, theta: Tensor, index: Tensor, options: SearchOptions) -> Iterator[Part]:
        """Maximise ⟨φ(X^i(Δ)) - φ(X), Θ⟩ at the positions `index`, for Θ (D,) float64."""

    def objective(self, theta: Tensor, index: Tensor) -> Objective:
        """What is maximised at the positions `index`, in the dtype that is searched in."""

    def along(self, position: int, delta: Tensor) -> Callable[[float], Tensor]:
        """The features φ(X^i(t Δ)) (D,) as a function of t, by the definition, float64."""


class FeatureMap(Protocol):
    """A feature map with the weights of one draw."""

    def features(self, texts: Tensor) -> Tensor:
        """φ (N, D) of texts (N, n, d), in their dtype."""

    def moving(self, texts: Tensor) -> Iterator[MovingText]:
        """Each of the texts (T, n, d), about to change."""
