"""Checks of the options of a search over the ball, and of a user's feature map."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from wsfast._checks import values
from wsfast._checks.texts import Inputs
from wsfast._checks.values import finite, host_array, integer, number, shape_of
from wsfast._transforms import transformed


def _positions(value: Any, inputs: Inputs) -> list[int]:
    """The positions to search, ascending, without repetition; all of them for None."""
    if value is None:
        return list(range(inputs.length))
    if isinstance(value, Tensor):
        value = host_array("positions", value)
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if not isinstance(value, (list, tuple, range)):
        raise TypeError(f"positions must be a sequence of integers, got {type(value).__name__}")
    if len(value) == 0:
        raise ValueError("positions must hold at least one position, got none")
    return sorted(
        {integer(f"positions[{k}]", p, low=0, high=inputs.length - 1) for k, p in enumerate(value)}
    )


def searched(positions: Any, inputs: Inputs) -> list[Tensor]:
    """The words of each text, int64, ascending, that stand at `positions`."""
    if transformed(*inputs.texts):
        raise ValueError(
            "X must be plain tensors, got a transform of torch.func or a tangent: a search looks "
            "at values"
        )
    wanted = torch.zeros(inputs.length, dtype=torch.bool, device=inputs.device)
    wanted[_positions(positions, inputs)] = True
    return [(keep & wanted[: len(keep)]).nonzero()[:, 0] for keep in inputs.masks]


# Radius over the largest number of X: beyond, squares of changes leave float64.
_RATIO = (1e-140, 1e140)


class SearchOptions(NamedTuple):
    """Where and how hard to look for a worst case."""

    positions: list[Tensor]  # of each text, int64, ascending: words that were asked for
    radius: float
    seed: int
    starts: int
    max_steps: int
    tol: float
    memory_budget: int


def search_options(
    inputs: Inputs,
    *,
    radius: Any,
    positions: Any,
    seed: Any,
    starts: Any,
    max_steps: Any,
    tol: Any,
    memory_budget: Any,
) -> SearchOptions:
    """The options that every search takes; radius None is √d, positions None everywhere."""
    chosen = searched(positions, inputs)
    radius = inputs.d**0.5 if radius is None else number("radius", radius, low=0)
    for b, text in enumerate(inputs.texts):
        size = float(text.detach().abs().max())
        if size and radius and not _RATIO[0] < radius / size < _RATIO[1]:
            raise ValueError(
                f"radius must be from {_RATIO[0]:g} to {_RATIO[1]:g} times the size of X, got "
                f"{radius:.3g} for {size:.3g} in text {b}"
            )
    return SearchOptions(
        positions=chosen,
        radius=radius,
        seed=values.seed(seed),
        starts=integer("starts", starts, low=1),
        max_steps=integer("max_steps", max_steps, low=1),
        tol=number("tol", tol, low=0),
        memory_budget=integer("memory_budget", memory_budget, low=1),
    )


def features_of(phi: Any, X: Tensor) -> Tensor:
    """φ(X), flat, of a user's feature map; what it must be is checked here, once."""
    with torch.enable_grad():
        texts = X.expand(2, -1, -1).clone().requires_grad_()
        value = phi(texts)
    if not isinstance(value, Tensor) or not value.is_floating_point():
        got = value.dtype if isinstance(value, Tensor) else type(value).__name__
        raise TypeError(f"phi must return a real tensor, got {got}")
    if value.ndim < 2 or value.shape[0] != 2:
        raise ValueError(
            f"phi must map texts (m, n, d) to features (m, ...): for {shape_of(texts)} it "
            f"returned {shape_of(value)}"
        )
    gradient = None
    if value.requires_grad:
        (gradient,) = torch.autograd.grad(value, texts, torch.ones_like(value), allow_unused=True)
    if gradient is None:
        raise ValueError("phi must be differentiable: its result has no gradient by the text")
    base = value.detach().flatten(1)[0]
    finite("phi(X)", base)
    return base
