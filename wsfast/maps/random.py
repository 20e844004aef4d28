"""Random features ϕ(V flat(X)) and deep random features ϕ(V_L ϕ(… V_1 flat(X))) of one draw."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

from wsfast._progress import Progress
from wsfast.engines.engine import Engine
from wsfast.maps.activation import Activation
from wsfast.maps.network import Network
from wsfast.maps.projection import (
    GivenProjection,
    Projection,
    RandomProjection,
    project,
    random_layer,
)
from wsfast.maps.singular_value import largest_singular_value


class RandomFeatures:
    """One draw of random features for texts of n words: V_1, and what follows it.

    Parameters
    ----------
    projection : Projection
        V_1.
    layer : callable
        Gives V_l (k, k), in the dtype asked for, of layer l = 2, …, depth.
    layer_norm : callable
        Gives ‖V_l‖, rounded up.
    depth : int
        Number of layers, 1 for random features that are not deep.
    activation : Activation
    """

    def __init__(
        self,
        projection: Projection,
        layer: Callable[[int, torch.dtype], Tensor],
        layer_norm: Callable[[int], float],
        depth: int,
        activation: Activation,
    ) -> None:
        self.projection = projection
        self.depth = depth
        self.activation = activation
        self._layer = layer
        self._layer_norm = layer_norm
        self._layers: dict[torch.dtype, list[Tensor]] = {}

    @property
    def k(self) -> int:
        """Number of features."""
        return self.projection.k

    def layers(self, dtype: torch.dtype) -> list[Tensor]:
        """V_2, …, V_L in `dtype`; those of the last dtype asked for are kept."""
        if dtype not in self._layers:
            self._layers = {dtype: [self._layer(number, dtype) for number in self._deeper]}
        return self._layers[dtype]

    def layer_norms(self) -> list[float]:
        """Upper bounds of ‖V_2‖, …, ‖V_L‖."""
        return [self._layer_norm(number) for number in self._deeper]

    @property
    def _deeper(self) -> range:
        return range(2, self.depth + 1)

    def head(self, z: Tensor) -> Tensor:
        """φ (…, k) from z = V_1 flat(X) (…, k)."""
        phi = self.activation.value(z)
        for V in self.layers(z.dtype):
            phi = self.activation.value(phi @ V.mT)
        return phi

    def features(self, X: Tensor, bar: Progress | None = None) -> Tensor:
        """φ (B, k) of texts (B, n, d)."""
        return self.head(project(self.projection, X, bar))


def random_features(
    network: Network,
    n: int,
    d: int,
    draw: int,
    *,
    seed: int,
    device: torch.device,
    engine: Engine,
) -> RandomFeatures:
    """The features of draw number `draw` for texts of n words of dimension d.

    The engine of the definition holds random V as a whole, in float64.
    """
    depth, activation = network.depth, network.activation
    if network.V is not None:
        given_first, *deeper = (V[draw] for V in network.V)

        def given(number: int, dtype: torch.dtype) -> Tensor:
            return deeper[number - 2].to(dtype)

        def norm(number: int) -> float:
            return largest_singular_value(deeper[number - 2])

        return RandomFeatures(GivenProjection(given_first, n), given, norm, depth, activation)
    k = network.features(n, d)
    random = RandomProjection(
        n, d, k, seed=seed, draw=draw, device=device, engine=engine, gain=network.gain
    )

    def layer(number: int, dtype: torch.dtype) -> Tensor:
        return random_layer(
            number, k, seed=seed, draw=draw, dtype=dtype, device=device, engine=engine
        )

    def layer_norm(number: int) -> float:
        return _random_layer_norm(number, k, seed, draw, str(device), engine)

    first: Projection = random
    if not engine.closed_form:
        first = GivenProjection(random.matrix(torch.float64), n)
    return RandomFeatures(first, layer, layer_norm, depth, activation)


@lru_cache(maxsize=256)
def _random_layer_norm(
    number: int, k: int, seed: int, draw: int, device: str, engine: Engine
) -> float:
    """Kept, as texts of all lengths have the same deeper layers."""
    V = random_layer(
        number, k, seed=seed, draw=draw, dtype=torch.float64, device=device, engine=engine
    )
    return largest_singular_value(V)
