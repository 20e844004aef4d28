"""From the worst case of each text and draw to one result."""

from __future__ import annotations

import platform
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from wsfast import _checks
from wsfast._checks import Inputs, SearchOptions
from wsfast._version import __version__
from wsfast._warn import warn
from wsfast.results.sensitivity import SensitivityResult


class Worst(NamedTuple):
    """What a search found for one text and one draw, at p positions."""

    per_word: Tensor  # (p,) S_i, float64
    delta: Tensor  # (p, d)
    at: Tensor  # (p,) int64, where in the text
    steps: int
    upper: Tensor | None = None  # (p,) upper bounds of S_i, float64


def within(delta: Tensor, radius: float) -> Tensor:
    """Δ (p, d) with ‖Δ‖ ≤ radius in exact arithmetic, not only up to rounding."""
    norm = delta.double().norm(dim=-1, keepdim=True)
    # Rounding of this norm, and of what is shrunk: a point may be outside though its norm says no.
    kind = torch.finfo(delta.dtype)
    # Below `tiny`, numbers are a fixed step apart.
    safe = max(0.0, radius * (1 - 8 * kind.eps) - delta.shape[-1] ** 0.5 * kind.tiny * kind.eps)
    return torch.where(norm > safe, (delta.double() * (safe / norm)).to(delta.dtype), delta)


def words_among(keep: Tensor, at: Tensor) -> Tensor:
    """The places `at` of a text, counted among its words alone; `keep` is its mask."""
    return keep.cumsum(0)[at] - 1


def versions() -> dict[str, str]:
    """Versions of what a result depends on."""
    return {
        "wsfast": __version__,
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def leading_axes(inputs: Inputs, draws: int | None) -> dict[str, int]:
    """Axes of a result before those of one text and draw, with their lengths.

    `draws` is None without an axis of draws.
    """
    lead = {"texts": len(inputs.texts)} if inputs.batched else {}
    return lead if draws is None else lead | {"draws": draws}


def texts_without_value(value: Tensor, draws: int | None) -> str:
    """Numbers of the texts that have a NaN in `value` (B·R,), draw by draw within a text."""
    numbers = sorted({k // (draws or 1) for k in value.isnan().nonzero()[:, 0].tolist()})
    return ", ".join(map(str, numbers))


def assemble(
    worst: list[Worst],
    inputs: Inputs,
    options: SearchOptions,
    about: dict[str, Any],
    *,
    draws: int | None,
) -> SensitivityResult:
    """One result from `worst`, text by text and, within a text, draw by draw.

    `about` says what was searched, for the result's info; `draws` is None without an axis of draws.
    """
    count = len(worst)
    like = inputs.texts[0].detach()
    per_word = like.new_full((count, inputs.length), torch.nan)
    value = like.new_full((count,), torch.nan)
    position = like.new_full((count,), -1, dtype=torch.int64)
    delta = like.new_full((count, inputs.d), torch.nan)
    upper = None if worst[0].upper is None else torch.full_like(per_word, torch.nan)
    for k, one in enumerate(worst):
        per_word[k, one.at] = _checks.fits("S", one.per_word, inputs.dtype)
        if upper is not None and one.upper is not None:
            upper[k, one.at] = one.upper.to(inputs.dtype)
        known = ~one.per_word.isnan()
        if bool(known.any()):
            best = int(one.per_word.masked_fill(~known, -torch.inf).argmax())
            value[k] = per_word[k, one.at[best]]
            position[k] = one.at[best]
            delta[k] = one.delta[best]
    if texts := texts_without_value(value, draws):
        warn(
            f"S is NaN for text {texts}: the features are zero, or not finite "
            "near X, or none of the positions asked for is a word of it"
        )
    lead = leading_axes(inputs, draws)
    shape = tuple(lead.values())
    return SensitivityResult(
        value=inputs.give(value.reshape(shape)),
        per_word=inputs.give(per_word.reshape(*shape, -1)),
        position=inputs.give(position.reshape(shape)),
        delta=inputs.give(delta.reshape(*shape, -1)),
        radius=options.radius,
        info={
            **about,
            "dtype": str(inputs.dtype).removeprefix("torch."),
            "seed": options.seed,
            "starts": options.starts,
            "max_steps": options.max_steps,
            "tol": options.tol,
            "steps": max(one.steps for one in worst),
            "versions": versions(),
        },
        axes=tuple(lead),
        upper=None if upper is None else inputs.give(upper.reshape(*shape, -1)),
    )
