"""From the name of a feature map, and its options, to the map of each draw."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from wsfast import _checks
from wsfast._checks import Inputs, SearchOptions
from wsfast._random import weights_of_draw
from wsfast.engines import choose
from wsfast.maps.names import ATTENTION, MAPS
from wsfast.maps.random import random_features
from wsfast.maps.random_features import drf_network, rf_network
from wsfast.studies.generalization.attention import AttentionMap
from wsfast.studies.generalization.defined import DefinedMap
from wsfast.studies.generalization.maps import FeatureMap
from wsfast.studies.generalization.random_features import RandomMap


class Draws(NamedTuple):
    """The feature map of every draw."""

    make: Callable[[int], FeatureMap]
    number: int
    has_draws: bool  # whether results have an axis of draws
    about: dict[str, Any]  # for the result's info


class MapOptions(NamedTuple):
    """What the user says of the map, unchecked."""

    weights: Any
    k: Any
    depth: Any
    activation: Any
    draws: Any
    backend: Any

    def only(self, map_: str, *names: str) -> None:
        """Raise ValueError where an option is given that is not one of `names`."""
        for name, value in self._asdict().items():
            if value is not None and name not in names:
                raise ValueError(f"{name} must be left out: it is no option of map={map_}")


def draws_of(map_: Any, inputs: Inputs, options: SearchOptions, given: MapOptions) -> Draws:
    """The map that the user names or gives."""
    if callable(map_):
        given.only("a callable")
        _checks.features_of(map_, inputs.texts[0].detach())
        defined = DefinedMap(map_, options.memory_budget)
        about = {"map": getattr(map_, "__name__", type(map_).__name__), "backend": "definition"}
        return Draws(lambda r: defined, 1, False, about)
    if not isinstance(map_, str) or map_ not in MAPS:
        raise ValueError(f"map must be one of {MAPS} or a callable, got {map_!r}")
    make = _attention if map_ in ATTENTION else _random
    return make(map_, inputs, options, given)


def _attention(map_: str, inputs: Inputs, options: SearchOptions, given: MapOptions) -> Draws:
    given.only(repr(map_), "weights", "draws", "backend")
    backend = choose.resolve(given.backend, inputs.device)
    W = None
    if given.weights is None:
        count = 1 if given.draws is None else _checks.integer("draws", given.draws, low=1)
        has_draws = given.draws is not None
    else:
        if given.draws is not None:
            raise ValueError("weights and draws cannot both be given: draws are random")
        W = _checks.weights(given.weights, inputs).detach()
        count, has_draws = len(W), _checks.ndim(given.weights) == 3

    def make(draw: int) -> FeatureMap:
        if W is None:
            of_draw = weights_of_draw(
                inputs.d, seed=options.seed, draw=draw, dtype=inputs.dtype, device=inputs.device
            )
        else:
            of_draw = W[draw]
        return AttentionMap(of_draw, ATTENTION[map_], backend, options.memory_budget)

    weights = "random" if W is None else "given"
    return Draws(make, count, has_draws, {"map": map_, "weights": weights, "backend": backend})


def _random(map_: str, inputs: Inputs, options: SearchOptions, given: MapOptions) -> Draws:
    backend = choose.resolve(given.backend, inputs.device, cpu_only=True)
    activation = "relu" if given.activation is None else given.activation
    if map_ == "rf":
        given.only(repr(map_), "weights", "k", "activation", "draws", "backend")
        network = rf_network(given.weights, inputs, activation, given.k, given.draws)
    else:
        network = drf_network(given.weights, inputs, given.depth, activation, given.k, given.draws)
    n = len(inputs.texts[0])

    def make(draw: int) -> FeatureMap:
        drawn = random_features(
            network,
            n,
            inputs.d,
            draw,
            seed=options.seed,
            device=inputs.device,
            backend=backend,
        )
        return RandomMap(drawn, backend)

    about = {
        "map": map_,
        "activation": network.activation.name,
        "depth": network.depth,
        "k_capped": network.capped(n, inputs.d),
        "weights": "random" if network.V is None else "given",
        "backend": backend,
    }
    return Draws(make, network.draws, network.has_draws, about)
