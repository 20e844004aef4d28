"""Activations of random features, with their Lipschitz constants."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from wsfast._kinks import relu
from wsfast._values import name_of


@dataclass(frozen=True)
class Activation:
    """An elementwise function ϕ; `lipschitz` is the largest |ϕ'|, NaN where it is not known."""

    name: str
    value: Callable[[Tensor], Tensor]
    lipschitz: float


# The largest slope of GELU, Φ(x) + x Φ'(x), is at x = √2.
_GELU_SLOPE = 0.5 * (1 + math.erf(1)) + math.exp(-1) / math.sqrt(math.pi)

ACTIVATIONS = {
    "relu": Activation("relu", relu, 1.0),
    "tanh": Activation("tanh", torch.tanh, 1.0),
    "gelu": Activation("gelu", torch.nn.functional.gelu, _GELU_SLOPE),
}


def activation_of(activation: str | Callable[[Tensor], Tensor]) -> Activation:
    """The activation of that name, or a checked callable."""
    if isinstance(activation, str):
        return ACTIVATIONS[activation]
    return Activation(name_of(activation), activation, math.nan)
