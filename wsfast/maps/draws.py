"""From the name of a feature map, and its options, to the map of each draw of its weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from wsfast._inputs import Inputs
from wsfast._random import weights_of_draw
from wsfast._transforms import transformed
from wsfast._values import either, integer, name_of, ndim
from wsfast.attention.weight_fn import WeightFn
from wsfast.engines import choose
from wsfast.engines.engine import REFERENCE, TORCH, Engine
from wsfast.maps.attention import Weights, weights_of
from wsfast.maps.attention_text import AttentionMap
from wsfast.maps.feature_map import FeatureMap
from wsfast.maps.function import FunctionMap
from wsfast.maps.network import Network
from wsfast.maps.random_features import drf_network, rf_network
from wsfast.maps.random_text import SEARCH_COST, RandomMap
from wsfast.search.options import DEFAULT_BUDGET

ATTENTION = {
    "raf": WeightFn("softmax"),
    "relu_raf": WeightFn("relu"),
    "relu_raf_unnormalized": WeightFn("relu", normalize=False),
}
"""Random attention features, and what makes weights of their scores."""


@dataclass(frozen=True)
class Draws:
    """The feature map of every draw.

    Parameters
    ----------
    make : callable
        From the number of a draw to its map.
    numbers : range
        Of the draws.
    has_axis : bool
        Whether results have an axis of draws.
    engine : Engine
        What texts are prepared with.
    info : dict
        What results tell of the map.
    work : callable, optional
        From n, d and the number of places of a text to what searching it costs; by default a unit a
        place. Bars show it.
    unit : str
        What it is counted in.
    """

    make: Callable[[int], FeatureMap]
    numbers: range
    has_axis: bool
    engine: Engine
    info: dict[str, Any] = field(default_factory=dict)
    work: Callable[[int, int, int], int] = lambda n, d, places: places
    unit: str = "word"

    def kept(self) -> Draws:
        """The same maps, each made once: for texts that come one after another."""
        return replace(self, make=cache(self.make))

    def only(self, draw: int) -> Draws:
        """One draw alone, without an axis."""
        return replace(self, numbers=range(draw, draw + 1), has_axis=False)


class MapOptions(NamedTuple):
    """What a user says of a map, unchecked."""

    weights: Any = None
    k: Any = None
    depth: Any = None
    activation: Any = None
    draws: Any = None
    backend: Any = None

    def only(self, map_: str, *names: str) -> None:
        """Raise ValueError where an option is given that is not one of `names`."""
        for name, value in self._asdict().items():
            if value is not None and name not in names:
                raise ValueError(f"{name} must be left out: it is no option of map={map_}")


Builder = Callable[[Inputs, MapOptions, int, int], Draws]
"""From texts, options, a seed and a budget in bytes to the draws of a map."""


def draws_of(map_: Any, inputs: Inputs, given: MapOptions, seed: int, budget: int) -> Draws:
    """The map that a user names, or gives as a function or a `FeatureMap`."""
    if isinstance(map_, str) and map_ in BUILDERS:
        return BUILDERS[map_](inputs, given, seed, budget)
    if not callable(map_) and not isinstance(map_, FeatureMap):
        raise ValueError(f"map must be {either(BUILDERS, 'a callable')}, got {map_!r}")
    given.only("a callable")
    return function_draws(map_)


def function_draws(phi: Any, *, hides: bool = False) -> Draws:
    """A function, an nn.Module, or a map that has no random weights."""
    if isinstance(phi, FeatureMap):
        info = {"map": type(phi).__name__, "backend": "definition"}
        return Draws(lambda _: phi, range(1), False, TORCH, info)
    made = FunctionMap(phi, hides=hides)
    info = {"map": name_of(phi), "backend": "definition"}
    return Draws(lambda _: made, range(1), False, REFERENCE, info)


def attention_draws(
    inputs: Inputs,
    weight_fn: WeightFn,
    W: Any,
    draws: Any,
    seed: int,
    backend: str | None,
    budget: int = DEFAULT_BUDGET,
    *,
    causal: bool = False,
) -> Draws:
    """Random attention with W given, (d, d) or (R, d, d), or random."""
    engine = choose.engine(backend, inputs.device)
    given = None
    if W is not None:
        if draws is not None:
            raise ValueError("W and draws cannot both be given: draws asks for random W")
        given = weights_of(W, inputs).detach()
    count = 1 if draws is None else integer("draws", draws, low=1)

    def weights(draw: int) -> Tensor:
        if given is not None:
            return given[draw]
        return weights_of_draw(
            inputs.d, seed=seed, draw=draw, dtype=inputs.dtype, device=inputs.device
        )

    def make(draw: int) -> FeatureMap:
        return AttentionMap(Weights(weights(draw)), weight_fn, causal=causal, budget=budget)

    info = {
        "map": "raf",
        "weight_fn": weight_fn.name,
        "normalize": weight_fn.normalize,
        "causal": causal,
        "weights": "random" if given is None else "given",
        "backend": engine.backend,
    }
    if given is None:
        return Draws(make, range(count), draws is not None, engine, info)
    return Draws(make, range(len(given)), ndim(W) == 3, engine, info)


def random_draws(
    name: str, inputs: Inputs, network: Network, seed: int, backend: str | None
) -> Draws:
    """Random features ("rf") or deep ones ("drf")."""
    engine = choose.engine(backend, inputs.device, cpu_only=True)

    def work(n: int, d: int, places: int) -> int:
        return network.features(n, d) * d * (n + places * (1 + SEARCH_COST))

    widths = [network.features(len(text), inputs.d) for text in inputs.texts]
    info = {
        "map": name,
        "activation": network.activation.name,
        "depth": network.depth,
        "k": widths[0] if len(set(widths)) == 1 else widths,
        "k_capped": any(network.capped(len(text), inputs.d) for text in inputs.texts),
        "weights": "random" if network.V is None else "given",
        "backend": engine.backend,
    }
    return Draws(
        make=lambda draw: RandomMap(network, draw, seed=seed, engine=engine),
        numbers=range(network.draws),
        has_axis=network.has_draws,
        engine=engine,
        info=info,
        work=work,
        unit="number",
    )


def _attention(name: str, inputs: Inputs, given: MapOptions, seed: int, budget: int) -> Draws:
    given.only(repr(name), "weights", "draws", "backend")
    if given.weights is not None and given.draws is not None:
        raise ValueError("weights and draws cannot both be given: draws are random")
    fn = ATTENTION[name]
    found = attention_draws(inputs, fn, given.weights, given.draws, seed, given.backend, budget)
    return replace(found, info={"map": name, **_some(found.info, "weights", "backend")})


def _rf(inputs: Inputs, given: MapOptions, seed: int, budget: int) -> Draws:
    given.only("'rf'", "weights", "k", "activation", "draws", "backend")
    activation = "relu" if given.activation is None else given.activation
    network = rf_network(given.weights, inputs, activation, given.k, given.draws)
    return random_draws("rf", inputs, network, seed, given.backend)


def _drf(inputs: Inputs, given: MapOptions, seed: int, budget: int) -> Draws:
    activation = "relu" if given.activation is None else given.activation
    network = drf_network(given.weights, inputs, given.depth, activation, given.k, given.draws)
    return random_draws("drf", inputs, network, seed, given.backend)


def _some(info: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: info[name] for name in names}


BUILDERS: dict[str, Builder] = {
    "rf": _rf,
    "drf": _drf,
    **{name: partial(_attention, name) for name in ATTENTION},
}
"""The feature maps that studies know by name: a new one is registered here."""


def engine_of(backend: str | None, inputs: Inputs, *others: Tensor) -> Engine:
    """What serves a change of given texts, weights and Δ: also their gradients and transforms."""
    requires_grad = inputs.requires_grad or (
        torch.is_grad_enabled() and any(x.requires_grad for x in others)
    )
    engine = choose.engine(backend, inputs.device, requires_grad=requires_grad)
    # The closed form looks at values: rows that one word dominates are apart.
    return REFERENCE if transformed(*inputs.texts, *others) else engine


def backend_of(map_: str, backend: str | None, device: torch.device) -> str:
    """The name of the engine that serves a map."""
    return choose.engine(backend, device, cpu_only=map_ not in ATTENTION).backend
