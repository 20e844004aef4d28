"""What a case is given, and which numbers of what comes back are kept."""

from __future__ import annotations

import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from net.cases import Case
from torch import Tensor, nn

import wsfast
from wsfast import generalization

TABLE = Path(__file__).parents[1] / "data" / "net_0_1.json"

# Functions whose result is what a search finds; that of the others has one value.
SEARCHES = (
    *("raf_sensitivity", "word_sensitivity", "rf_sensitivity", "drf_sensitivity"),
    *("experiment", "scaling"),
)
FIGURES: dict[type, tuple[str, ...]] = {
    wsfast.SensitivityResult: ("value", "per_word", "position", "upper"),
    wsfast.SubstitutionResult: (
        *("value", "best_candidate", "best_value", "top_position", "top_candidate", "top_value"),
        *("grid_candidate", "grid_value", "table"),
    ),
    generalization.GeneralizationResult: ("output_before", "output_after", "loss", "condition"),
}
# The weights that a call is given, unless it asks for random ones.
WEIGHTS = {
    **dict.fromkeys(("raf_features", "raf_delta_norms", "raf_deltas", "raf_sensitivity"), "W"),
    "substitution_sensitivity": "W",
    "rf_sensitivity": "V",
}
COLUMNS = ("n", "d", "text", "draw", "S", "position")  # of a scaling study


# -- inputs ---------------------------------------------------------------------------------------


def arrays(case: Case) -> dict[str, Any]:
    """The inputs in float64, by NumPy's Generator: the same under every PyTorch."""
    random = np.random.default_rng(zlib.crc32(case.name.encode()))
    n, d = case.n, case.d

    def rows(size: float, *shape: int) -> np.ndarray[Any, Any]:
        drawn = random.standard_normal((*shape, d))
        if case.spread is not None:
            drawn = drawn[..., :1, :] + case.spread * drawn
        return drawn / np.linalg.norm(drawn, axis=-1, keepdims=True) * (size * math.sqrt(d))

    def weights(*shape: int) -> np.ndarray[Any, Any]:
        lead = () if case.given_draws is None else (case.given_draws,)
        return random.standard_normal((*lead, *shape)) / math.sqrt(shape[-1])

    if case.function == "scaling":  # makes its own texts
        return {}
    lengths = case.texts if isinstance(case.texts, tuple) else None
    batch = (case.texts,) if isinstance(case.texts, int) else ()
    given: dict[str, Any] = {}
    given["X"] = [rows(case.size, m) for m in lengths] if lengths else rows(case.size, *batch, n)
    if case.mask:
        kept = [np.arange(m) % 3 != 1 for m in lengths or (n,)]
        given["mask"] = kept if lengths else np.tile(kept[0], (*batch, 1))
    if case.function in WEIGHTS and "draws" not in case.options:
        name = WEIGHTS[case.function]
        given[name] = weights(case.k, n * d) if name == "V" else weights(d, d)
    if case.function == "substitution_sensitivity":
        given["E"] = rows(case.size, case.candidates)
    if case.function in ("raf_delta_norms", "raf_deltas"):
        given["delta"] = rows(case.step, *case.points)
    if case.function == "experiment":
        attention = case.options.get("map", "raf") != "rf"
        given["weights"] = weights(d, d) if attention else weights(case.k, n * d)
        given["texts"] = rows(case.size, case.known, n)
        given["labels"] = np.where(np.arange(case.known) % 3 == 0, -1.0, 1.0)
    return given


def sizes(case: Case) -> list[float]:
    """Mean sizes of the inputs' numbers, which tell whether a NumPy draws the same."""
    listed = [value if isinstance(value, list) else [value] for value in arrays(case).values()]
    return [float(np.mean([np.abs(one).mean() for one in several])) for several in listed]


def inputs(case: Case, *, exact: bool = False) -> dict[str, Any]:
    """Keyword arguments of the call, rounded to the case's dtype; `exact`: then in float64."""

    def rounded(value: Any) -> Any:
        if isinstance(value, list):
            return [rounded(one) for one in value]
        tensor = torch.from_numpy(value)
        if tensor.is_floating_point():
            tensor = tensor.to(getattr(torch, case.dtype))
            tensor = tensor.double() if exact else tensor
        return tensor.numpy() if case.kind == "numpy" else tensor

    given = {name: rounded(value) for name, value in arrays(case).items()}
    if case.function == "word_sensitivity":
        phi = layer(case) if case.module else backwards
        given["phi"] = phi.double() if exact and isinstance(phi, nn.Module) else phi
    if case.gradients:
        for name in ("X", "W"):
            given[name].requires_grad_()
    return given | case.options


def backwards(X: Tensor) -> Tensor:
    """Features in which every word sees those before it."""
    return (2 * X).tanh().cumsum(-2) * X.roll(1, -1)


def layer(case: Case) -> nn.Module:
    """A layer of a transformer, all of whose parameters are random."""
    random = np.random.default_rng(zlib.crc32(case.name.encode()) + 1)
    module = nn.TransformerEncoderLayer(case.d, 2, 2 * case.d, batch_first=True)
    for parameter in module.parameters():
        numbers = random.standard_normal(parameter.shape) / math.sqrt(case.d)
        parameter.data = torch.from_numpy(numbers).to(getattr(torch, case.dtype))
    return module.eval().requires_grad_(False)


# -- what comes back ------------------------------------------------------------------------------


def call(case: Case, given: dict[str, Any], backend: str | None) -> Any:
    """What the public function returns; None is for functions without backends."""
    module = generalization if case.function == "experiment" else wsfast
    chosen = {} if backend is None else {"backend": backend}
    return getattr(module, case.function)(**given, **chosen)


def figures(case: Case, given: dict[str, Any], result: Any) -> dict[str, np.ndarray[Any, Any]]:
    """The numbers that are kept, in float64 or int64."""
    found: dict[str, Any] = {"values": result}
    if isinstance(result, wsfast.ScalingResult):
        found = {name: np.array([getattr(row, name) for row in result.rows]) for name in COLUMNS}
    elif type(result) in FIGURES:
        found = {name: getattr(result, name) for name in FIGURES[type(result)]}
    if case.gradients:
        result.nansum().backward()
        found |= {f"gradient by {name}": given[name].grad for name in ("X", "W")}
    return {name: plain(array) for name, array in found.items() if array is not None}


def plain(array: Any) -> np.ndarray[Any, Any]:
    values = np.asarray(array.detach() if isinstance(array, Tensor) else array)
    return values.astype(np.float64 if values.dtype.kind == "f" else np.int64)
