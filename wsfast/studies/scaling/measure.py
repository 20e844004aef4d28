"""From the name of a feature map to its word sensitivity under one draw of the weights."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sized
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from wsfast import _inputs, _values
from wsfast._random import weights_of_draw
from wsfast.maps.draws import ATTENTION, MapOptions, backend_of, draws_of
from wsfast.maps.network import width_of
from wsfast.maps.random_features import DEEP_FEATURES, DEFAULT_DEPTH
from wsfast.results.cells import Cell
from wsfast.results.sensitivity import SensitivityResult
from wsfast.studies.scaling.options import map_options
from wsfast.studies.sensitivity import (
    drf_sensitivity,
    raf_sensitivity,
    rf_sensitivity,
    sensitivity_under,
    word_sensitivity,
)

# Whose options a map takes; those of `word_sensitivity`, where it is not here.
_FUNCTIONS: dict[str, Callable[..., SensitivityResult]] = {
    **dict.fromkeys(ATTENTION, raf_sensitivity),
    "rf": rf_sensitivity,
    "drf": drf_sensitivity,
}

# What a study decides, and the user does not.
_SET = {
    "X", "W", "V", "phi", "mask", "draws", "seed", "progress", "memory_budget", "weight_fn",
    "normalize", "causal", "perturbation", "rows", "ball",
}  # fmt: skip


def resolve_options(
    feature_map: str, given: dict[str, Any], device: torch.device
) -> dict[str, Any]:
    """All options of the sensitivity of a map: those given, and what stands for the others.

    Raises
    ------
    TypeError, ValueError
        For an option that it does not take, or one whose value costs are computed from. It checks
        the others itself.
    """
    parameters = inspect.signature(_FUNCTIONS.get(feature_map, word_sensitivity)).parameters
    known = {name: one.default for name, one in parameters.items() if name not in _SET}
    map_options(feature_map, given, known)
    options = {**known, **given}
    if isinstance(options["positions"], (Tensor, np.ndarray)):
        options["positions"] = options["positions"].tolist()
    # By name: another backend would give other digits where a study goes on elsewhere.
    if "backend" in known:
        options["backend"] = backend_of(feature_map, options["backend"], device)
    if "k" in known:
        options["k"] = width_of(options["k"])
    # What nobody asks for is no setting: folders of before there were any of these go on.
    for name in ("bound", "quick"):
        if not _values.flag(name, options.get(name, False)):
            options.pop(name, None)
    if "depth" in known:
        depth = DEFAULT_DEPTH if options["depth"] is None else options["depth"]
        options["depth"] = _values.integer("depth", depth, low=1)
    return options


class Measure:
    """Word sensitivity of one map, text by text and draw by draw.

    Parameters
    ----------
    feature_map : str
        Name of the map.
    seed : int
        Of the weights and of the search.
    memory_budget : int
        Bytes that temporaries may take, where the map takes a budget.
    options : dict
        All of those of the sensitivity function.
    """

    def __init__(
        self, feature_map: str, *, seed: int, memory_budget: int, options: dict[str, Any]
    ) -> None:
        self.map = feature_map
        self.options = {**options, "seed": seed}
        self._budget = memory_budget

        # Texts of all lengths have the same W, which costs as much as a short text's search.
        @lru_cache(maxsize=1)
        def weights(d: int, draw: int, dtype: torch.dtype, device: torch.device) -> Tensor:
            return weights_of_draw(d, seed=seed, draw=draw, dtype=dtype, device=device)

        self._weights = weights

    def cell(self, X: Tensor, text: int, draw: int) -> Cell:
        """The cell of text number `text`, X (n, d)."""
        n, d = X.shape
        result = self._sensitivity(X, draw)
        upper = math.nan if result.upper_value is None else float(result.upper_value)
        return Cell(
            map=self.map,
            n=n,
            d=d,
            text=text,
            draw=draw,
            S=float(result.value),
            position=int(result.position),
            upper=upper if math.isfinite(upper) else None,
            k=result.info.get("k"),
        )

    def _sensitivity(self, X: Tensor, draw: int) -> SensitivityResult:
        own = {name: one for name, one in self.options.items() if name in MapOptions._fields}
        search = {name: one for name, one in self.options.items() if name not in own}
        if self.map in ATTENTION:
            own["weights"] = self._weights(X.shape[1], draw, X.dtype, X.device)
            draw = 0
        seed, budget = self.options["seed"], self._budget
        maps = draws_of(self.map, _inputs.texts(X), MapOptions(**own), seed, budget)
        return sensitivity_under(maps.only(draw), X, memory_budget=budget, **search)

    def cost(self, n: int, d: int) -> float:
        """Time of a cell in some unit: what the remaining time of a study is estimated from."""
        positions = self.options["positions"]
        searched = len(positions) if isinstance(positions, Sized) else n
        if self.options.get("bound"):
            searched *= 2
        if self.map in ATTENTION:
            # Products with n words and with W, what lies between them, what a call costs at least.
            return searched * (n * (8 * d + 1700) + d * d) + 6e6
        if self.map not in _FUNCTIONS:  # the whole text for each place
            return searched * n * (8 * d + 1700) + 6e6
        k, deeper = self.options["k"], 0
        if self.map == "drf":
            deeper = self.options["depth"] - 1
            k = k or min(n * d, DEEP_FEATURES)
        k = k or n * d
        # V_i, deeper layers, what a call costs at least; making all of V; norms of the layers.
        search = k * d + 0.3 * deeper * k * k + 7e4
        return searched * search + 0.02 * n * k * d + 2e-3 * deeper * k**3
