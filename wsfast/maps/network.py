"""Random features as a user describes them, checked: their weights, width, depth and activation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from wsfast._inputs import Inputs
from wsfast._values import (
    differentiable,
    either,
    finite,
    integer,
    match,
    real_tensor,
    shape_of,
)
from wsfast.maps.activation import ACTIVATIONS, Activation, activation_of

# Rows of V are numbered in 32 bits, and so are draws.
_MOST = 2**32 - 1


@dataclass(frozen=True)
class Network:
    """Checked random features: V given, or what random V is made from."""

    activation: Activation
    depth: int
    gain: float  # entries of V are N(0, gain / fan_in)
    V: list[Tensor] | None  # of each layer (R, k, …)
    k: int | None
    most: int | None  # k of a text where the user gives none: at most this
    draws: int
    has_draws: bool  # whether results have an axis of draws

    def features(self, n: int, d: int) -> int:
        """k of the texts of n words."""
        if self.V is not None:
            return self.V[0].shape[1]
        if self.k is not None:
            return self.k
        return n * d if self.most is None else min(n * d, self.most)

    def capped(self, n: int, d: int) -> bool:
        """Whether k is smaller than n d for being cut off."""
        return self.V is None and self.k is None and self.features(n, d) < n * d


def checked_activation(value: Any, device: torch.device) -> Activation:
    """The activation that `value` names or is, for tensors on `device`."""
    if isinstance(value, str):
        if value not in ACTIVATIONS:
            known = either(ACTIVATIONS, "a callable")
            raise ValueError(f"activation must be {known}, got {value!r}")
        return activation_of(value)
    if not callable(value):
        raise TypeError(f"activation must be a name or a callable, got {type(value).__name__}")
    with torch.enable_grad():
        x = (
            torch.linspace(-2, 2, 6, dtype=torch.float64, device=device)
            .reshape(2, 3)
            .requires_grad_()
        )
        y = value(x)
        fits = isinstance(y, Tensor) and y.shape == x.shape and y.dtype == x.dtype
        if not fits:
            got = f"{y.dtype} {shape_of(y)}" if isinstance(y, Tensor) else type(y).__name__
            raise ValueError(
                f"activation must keep shape and dtype, got {got} for {x.dtype} {shape_of(x)}"
            )
        if not y.requires_grad:
            raise ValueError("activation must be differentiable, got a result without a gradient")
    return activation_of(value)


def width_of(k: Any) -> int | None:
    """k, or None for n d."""
    return None if k is None else integer("k", k, low=1, high=_MOST)


def layers_of(V: Any, depth: Any) -> list[Any]:
    """The matrices of deep random features, one a layer."""
    if not isinstance(V, (list, tuple)):
        raise TypeError(f"V must be a sequence of matrices, one a layer, got {type(V).__name__}")
    if not V:
        raise ValueError("V must hold at least one matrix, got none")
    if depth is not None:
        raise ValueError("V and depth cannot both be given: V has one matrix for each layer")
    return list(V)


def network_of(
    V: Any,
    inputs: Inputs | None,
    *,
    activation: Activation,
    depth: Any,
    gain: float,
    k: Any,
    most: int | None,
    draws: Any,
) -> Network:
    """Random features: `V` is one array for each layer, for `inputs`, or None for random ones."""
    depth = integer("depth", depth, low=1)
    count = 1 if draws is None else integer("draws", draws, low=1, high=_MOST)
    given = None
    if V is not None and inputs is not None:
        for name, value in (("k", k), ("draws", draws)):
            if value is not None:
                raise ValueError(f"V and {name} cannot both be given: {name} asks for random V")
        given, has_draws = _matrices(V, inputs)
        count = len(given[0])
    else:
        has_draws = draws is not None
    return Network(
        activation=activation,
        depth=depth,
        gain=gain,
        V=given,
        k=width_of(k),
        most=most,
        draws=count,
        has_draws=has_draws,
    )


def _matrices(V: list[Any], inputs: Inputs) -> tuple[list[Tensor], bool]:
    """Each V_l as (R, k, …), and whether it was given with an axis of draws."""
    names = ["V"] if len(V) == 1 else [f"V[{layer}]" for layer in range(len(V))]
    out: list[Tensor] = []
    lengths = {len(text) for text in inputs.texts}
    if len(lengths) > 1:
        raise ValueError(
            f"X must hold texts of one length where V is given, got texts of {sorted(lengths)} "
            "words"
        )
    n = lengths.pop()
    axes = None
    for name, value in zip(names, V, strict=True):
        tensor = differentiable(real_tensor(name, value))
        axes = tensor.ndim if axes is None else axes
        fan_in = n * inputs.d if not out else out[0].shape[1]
        square = not out or tensor.shape[-2:-1] == (fan_in,)
        if (
            tensor.ndim not in (2, 3)
            or tensor.ndim != axes
            or 0 in tensor.shape
            or tensor.shape[-1] != fan_in
            or not square
            or (out and tensor.ndim == 3 and len(tensor) != len(out[0]))
        ):
            rows = "k" if not out else str(fan_in)
            lead = "" if not out or axes == 2 else f"{len(out[0])}, "
            also = "" if out else f" or (R, {rows}, {fan_in})"
            raise ValueError(
                f"{name} must have shape ({lead}{rows}, {fan_in}){also} for texts of {n} words "
                f"with d = {inputs.d}, got {shape_of(tensor)}"
            )
        match(name, tensor, inputs.texts[0])
        finite(name, tensor)
        out.append(tensor if tensor.ndim == 3 else tensor[None])
    return out, axes == 3
