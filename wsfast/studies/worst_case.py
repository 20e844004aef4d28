"""The worst case of every text under every draw of any map: one loop for all of them."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from wsfast import _values
from wsfast._inputs import Inputs, words_among
from wsfast._progress import Progress, progress_bar
from wsfast.maps.draws import Draws
from wsfast.maps.feature_map import PreparedText
from wsfast.maps.measure import Norm
from wsfast.perturbation.ball import within
from wsfast.perturbation.change import Change, Kind, Sites
from wsfast.search.options import SearchOptions
from wsfast.search.search import Search


class WorstCase(NamedTuple):
    """What was found for one text and one draw, at p positions."""

    per_word: Tensor  # (p,) S_i, float64
    delta: Tensor  # (p, d)
    at: Tensor  # (p,) int64, where in the text
    steps: int
    upper: Tensor | None = None  # (p,) upper bounds of S_i, float64


class Asked(NamedTuple):
    """What is asked of each text."""

    options: SearchOptions
    kind: Kind | None = None  # None: every Δ of the ball is searched
    measure: Norm = Norm()


def worst_cases(inputs: Inputs, draws: Draws, asked: Asked, *, progress: bool) -> list[WorstCase]:
    """Text by text and, within a text, draw by draw."""
    options = asked.options
    found: list[list[WorstCase]] = [[] for _ in inputs.texts]
    words = [text[keep].detach() for text, keep in zip(inputs.texts, inputs.masks, strict=True)]
    total = len(draws.numbers) * sum(
        draws.work(len(text), inputs.d, len(at))
        for text, at in zip(words, options.positions, strict=True)
    )
    large = draws.unit == "number"
    with torch.no_grad(), progress_bar(total, draws.unit, progress, large=large) as bar:
        for draw in draws.numbers:
            map_ = draws.make(draw)
            with map_.ready():
                texts = map_.prepare(words, draws.engine, options.memory_budget, bar)
                for text, of_text, keep, at in zip(
                    texts, found, inputs.masks, options.positions, strict=True
                ):
                    of_text.append(worst_case(text, words_among(keep, at), at, asked, bar))
    return [one for of_text in found for one in of_text]


def worst_case(
    text: PreparedText, index: Tensor, at: Tensor, asked: Asked, bar: Progress
) -> WorstCase:
    """The words `index` of a text, which stand at `at` in the user's text."""
    options = asked.options
    if (unit := text.unit) != 1:
        inside = asked._replace(options=options._replace(radius=options.radius / unit))
        worst = worst_case(text.in_units(unit), index, at, inside, bar)
        delta = (worst.delta * unit).to(text.dtype)
        return worst._replace(delta=within(delta, options.radius) if asked.kind is None else delta)
    norm = text.norm
    searched = asked.kind is None
    if len(index) == 0 or float(norm) == 0 or (searched and options.radius == 0):
        bar.update(len(index) * text.work_of_place)
        none = torch.zeros(len(index), dtype=torch.float64, device=text.X.device) / norm
        delta = torch.zeros(len(index), text.d, dtype=text.dtype, device=text.X.device)
        return WorstCase(none, delta, at, 0, none if text.bounded and searched else None)
    sites = Sites.of_words(index)
    if asked.kind is None:
        return _searched(text, sites, at, asked, bar)
    change = checked_change(asked.kind(text.X, sites.at), sites, text)
    per_word = text.verified(sites, change, asked.measure) / norm
    bar.update(len(index) * text.work_of_place)
    return WorstCase(per_word, _delta(text, sites, change), at, 0)


def _searched(
    text: PreparedText, sites: Sites, at: Tensor, asked: Asked, bar: Progress
) -> WorstCase:
    """The worst Δ of the ball at each place."""
    options, radius = asked.options, asked.options.radius
    search = Search(options)
    # Into one array: small results kept between large temporaries fragment the heap.
    delta = torch.empty(len(sites), text.d, dtype=text.dtype, device=text.X.device)
    uppers, steps, first = [], 0, 0
    for part in text.parts(sites, search):
        point, taken = search.run(text.objective(part, asked.measure, radius))
        delta[first : first + len(part)] = point.delta
        first += len(part)
        if text.bounded:
            uppers.append(text.upper(part, radius))
        steps = max(steps, taken)
        bar.update(len(part) * text.work_of_place)
    delta = within(delta, radius)
    change = Change(add=delta[:, None, None].to(text.X.dtype))
    per_word = text.verified(sites, change, asked.measure) / text.norm
    upper = torch.cat(uppers) / text.norm if uppers else None
    return WorstCase(per_word, delta, at, steps, upper)


def _delta(text: PreparedText, sites: Sites, change: Change) -> Tensor:
    """Δ (P, d) that a known change is, in the dtype of the text; NaN for hidden words."""
    if change.add is not None:
        return change.add[:, 0, 0].to(text.dtype)
    if change.put is not None:
        return (change.put[:, 0, 0] - text.X[sites.index]).to(text.dtype)
    return torch.full((len(sites), text.d), math.nan, dtype=text.dtype, device=text.X.device)


def checked_change(change: object, sites: Sites, text: PreparedText) -> Change:
    """The change that a user's kind gives, which is one of each place."""
    if not isinstance(change, Change):
        raise TypeError(f"perturbation must return a Change, got {type(change).__name__}")
    if change.add is not None and change.put is not None:
        raise ValueError("perturbation must return a Change with `add` or `put`, got both")
    expected = (len(sites), 1, sites.at.shape[1], text.d)
    for name, by in zip(change._fields, change, strict=True):
        if by is None:
            continue
        if tuple(by.shape) != expected:
            raise ValueError(
                f"perturbation must return a Change whose {name} has shape {expected}, got "
                f"{_values.shape_of(by)}"
            )
        _values.finite(f"{name} of perturbation", by)
    if change.add is None and change.put is None and not text.map.hides:
        raise ValueError("perturbation must not hide words: this map cannot, got an empty Change")
    return Change(*(None if by is None else by.to(text.X.dtype) for by in change))
