"""From the worst case of each text and draw to one result."""

from __future__ import annotations

import math
import platform
from typing import Any

import numpy as np
import torch
from torch import Tensor

from wsfast import _values
from wsfast._inputs import Inputs
from wsfast._version import __version__
from wsfast._warn import warn
from wsfast.results.sensitivity import SensitivityResult
from wsfast.search.options import SearchOptions
from wsfast.studies.worst_case import Asked, WorstCase, each_once


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
    worst: list[WorstCase],
    inputs: Inputs,
    asked: Asked,
    info: dict[str, Any],
    *,
    draws: int | None,
) -> SensitivityResult:
    """One result from `worst`, text by text and, within a text, draw by draw.

    `info` says what was searched, for the result's info; `draws` is None without an axis of draws.
    """
    options = asked.options
    count = len(worst)
    like = inputs.texts[0].detach()
    sites = options.sites
    widest = 1 if sites is None else max(map(len, sites))
    columns = inputs.length if sites is None else len(sites)
    per_word = like.new_full((count, columns), torch.nan)
    value = like.new_full((count,), torch.nan)
    position = like.new_full((count,), -1, dtype=torch.int64)
    site = position.new_full((count, widest), -1)
    delta = like.new_full((count, widest, inputs.d), torch.nan)
    upper = None if worst[0].upper is None else torch.full_like(per_word, torch.nan)
    for k, one in enumerate(worst):
        places = options.places[k // (draws or 1)]
        per_word[k, places.column] = _values.fits("S", one.per_word, inputs.dtype)
        if upper is not None and one.upper is not None:
            upper[k, places.column] = _rounded_up(one.upper, inputs.dtype)
        known = ~one.per_word.isnan()
        if bool(known.any()):
            best = int(one.per_word.masked_fill(~known, -torch.inf).argmax())
            value[k] = per_word[k, places.column[best]]
            position[k] = places.column[best]
            site[k] = places.at[best]
            delta[k] = one.delta[best]
    if texts := texts_without_value(value, draws):
        warn(
            f"S is NaN for text {texts}: the features are zero, or not finite "
            "near X, or none of the positions asked for is a word of it"
        )
    lead = leading_axes(inputs, draws)
    shape = tuple(lead.values())
    delta_axes = delta.shape[1:] if sites else delta.shape[2:]
    search = {
        "starts": options.starts,
        "max_steps": options.max_steps,
        "tol": options.tol,
        "steps": max(one.steps for one in worst),
    }
    return SensitivityResult(
        value=inputs.give(value.reshape(shape)),
        per_word=inputs.give(per_word.reshape(*shape, -1)),
        position=inputs.give(position.reshape(shape)),
        delta=inputs.give((delta if sites else delta[:, 0]).reshape(*shape, *delta_axes)),
        radius=math.nan if asked.kind is not None else options.radius,
        info={
            **info,
            "dtype": str(inputs.dtype).removeprefix("torch."),
            "seed": options.seed,
            **(search if asked.kind is None else {}),
            **({} if sites is None or asked.kind is not None else {"ball": asked.ball}),
            **({"bound": _of_bound(worst, options, draws)} if asked.bound else {}),
            "versions": versions(),
        },
        axes=tuple(lead),
        site=None if sites is None else inputs.give(site.reshape(*shape, -1)),
        sites=sites,
        upper=None if upper is None else inputs.give(upper.reshape(*shape, -1)),
    )


def _rounded_up(values: Tensor, dtype: torch.dtype) -> Tensor:
    """`values` in a dtype that may hold less: no bound is lowered."""
    rounded = values.to(dtype)
    above = rounded.nextafter(torch.full_like(rounded, torch.inf))
    return torch.where(rounded < values, above, rounded)


def _of_bound(worst: list[WorstCase], options: SearchOptions, draws: int | None) -> dict[str, Any]:
    """What a result tells of its bounds: which took all steps, and why there are none."""
    refined = [
        options.places[k // (draws or 1)].column[one.refined].tolist()
        for k, one in enumerate(worst)
        if one.refined is not None
    ]
    reason = each_once(one.unbounded for one in worst)
    return {"refined": refined, **({"none": reason} if reason else {})}
