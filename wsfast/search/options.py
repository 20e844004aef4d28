"""The options of a search over the ball."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from wsfast import _values
from wsfast._inputs import Inputs, Places, Site, places
from wsfast._values import integer, number

DEFAULT_BUDGET = 256 * 2**20
"""Bytes that temporaries may take, where a user does not say."""

# Radius over the largest number of X: beyond, squares of changes leave float64.
_RATIO = (1e-140, 1e140)


class SearchOptions(NamedTuple):
    """Where and how hard to look for a worst case."""

    places: list[Places]  # of each text
    radius: float
    seed: int
    starts: int
    max_steps: int
    tol: float
    memory_budget: int
    sites: list[Site] | None = None  # that were asked for; None: single words
    quick: bool = False  # a short search, and a longer one where S may be attained


class Effort(NamedTuple):
    """How hard to look, whatever the texts."""

    seed: int
    starts: int
    max_steps: int
    tol: float
    memory_budget: int


def effort(*, memory_budget: Any, seed: Any, starts: Any, max_steps: Any, tol: Any) -> Effort:
    """What a user says of it, checked."""
    return Effort(
        seed=_values.seed(seed),
        starts=integer("starts", starts, low=1),
        max_steps=integer("max_steps", max_steps, low=1),
        tol=number("tol", tol, low=0),
        memory_budget=integer("memory_budget", memory_budget, low=1),
    )


def search_options(
    inputs: Inputs,
    *,
    memory_budget: Any = DEFAULT_BUDGET,
    radius: Any = None,
    positions: Any = None,
    seed: Any = 0,
    starts: Any = 4,
    max_steps: Any = 60,
    tol: Any = 1e-4,
    quick: Any = False,
) -> SearchOptions:
    """The options that every search takes; radius None is √d, positions None everywhere."""
    chosen, sites = places(positions, inputs)
    radius = inputs.d**0.5 if radius is None else number("radius", radius, low=0)
    for b, text in enumerate(inputs.texts):
        size = float(text.detach().abs().max())
        if size and radius and not _RATIO[0] < radius / size < _RATIO[1]:
            raise ValueError(
                f"radius must be from {_RATIO[0]:g} to {_RATIO[1]:g} times the size of X, got "
                f"{radius:.3g} for {size:.3g} in text {b}"
            )
    checked = effort(
        memory_budget=memory_budget, seed=seed, starts=starts, max_steps=max_steps, tol=tol
    )
    return SearchOptions(
        places=chosen,
        sites=sites,
        radius=radius,
        quick=_values.flag("quick", quick),
        **checked._asdict(),
    )


def ordinary(size: float) -> bool:
    """Whether products of a few numbers of this size stay in the range of float32."""
    return 1e-12 < size < 1e12


def search_dtype(X: Tensor, radius: float, dtype: torch.dtype) -> torch.dtype:
    """`dtype`, but float64 where squares of the size of `X` or of the radius leave float32."""
    sizes = (float(X.abs().max()), radius)
    return dtype if all(map(ordinary, sizes)) else torch.float64
