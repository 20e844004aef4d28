"""The worst case of every text under every draw of any map: one loop for all of them."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from wsfast import _values
from wsfast._inputs import Inputs, Places
from wsfast._progress import Progress, progress_bar
from wsfast.maps.draws import Draws
from wsfast.maps.feature_map import PreparedText
from wsfast.maps.measure import ROWS, Norm
from wsfast.perturbation.ball import within
from wsfast.perturbation.change import Change, Kind, Sites
from wsfast.search.objective import Scaled
from wsfast.search.options import SearchOptions
from wsfast.search.search import Search


class WorstCase(NamedTuple):
    """What was found for one text and one draw, at P places."""

    per_word: Tensor  # (P,) S_i, float64
    delta: Tensor  # (P, m, d)
    steps: int
    upper: Tensor | None = None  # (P,) upper bounds of S_i, float64


class Asked(NamedTuple):
    """What is asked of each text."""

    options: SearchOptions
    kind: Kind | None = None  # None: every Δ of the ball is searched
    measure: Norm = Norm()
    ball: str = "joint"
    relative: bool = False  # whether the radius is in units of ‖x_i‖, or of the norm of the site

    def lengths(self, text: PreparedText, at: Tensor) -> Tensor:
        """Norms (P,) of the words at places (P, m)."""
        lengths: Tensor = text.X[at].flatten(1).norm(dim=1)
        return lengths

    def balls(self, sites: Sites) -> int:
        """How many balls a change of these sites is searched in."""
        return sites.words if self.ball == "each" else 1


def norm_of(kind: Kind | None, rows: Any) -> Norm:
    """The norm of the change of the rows that a user names.

    Raises
    ------
    ValueError
        For an unknown name, or other rows than all where the ball is searched.
    """
    measure = Norm(_values.one_of("rows", rows, ROWS))
    if kind is None and measure != Norm():
        raise ValueError(f"rows must be 'all' with perturbation='ball', got {rows!r}")
    return measure


def worst_cases(inputs: Inputs, draws: Draws, asked: Asked, *, progress: bool) -> list[WorstCase]:
    """Text by text and, within a text, draw by draw."""
    options = asked.options
    found: list[list[WorstCase]] = [[] for _ in inputs.texts]
    words = [text[keep].detach() for text, keep in zip(inputs.texts, inputs.masks, strict=True)]
    total = len(draws.numbers) * sum(
        draws.work(len(text), inputs.d, len(of_text.column))
        for text, of_text in zip(words, options.places, strict=True)
    )
    large = draws.unit == "number"
    with torch.no_grad(), progress_bar(total, draws.unit, progress, large=large) as bar:
        for draw in draws.numbers:
            map_ = draws.make(draw)
            with map_.ready():
                texts = map_.prepare(words, draws.engine, options.memory_budget, bar)
                for text, of_text, keep, places in zip(
                    texts, found, inputs.masks, options.places, strict=True
                ):
                    of_text.append(of_places(text, places, keep, asked, bar))
    return [one for of_text in found for one in of_text]


def of_places(
    text: PreparedText, places: Places, keep: Tensor, asked: Asked, bar: Progress
) -> WorstCase:
    """The places of a text whose mask is `keep`, those of as many words together."""
    found = [(which, worst_case(text, Sites(at), asked, bar)) for which, at in places.alike(keep)]
    widest = places.at.shape[1]
    if len(found) == 1 and found[0][1].delta.shape[1] == widest:
        return found[0][1]
    # Back into the order of the places; Δ of a site with fewer words ends with zeros.
    order = torch.cat([which for which, _ in found]).argsort()
    columns = zip(*(_padded(worst, widest) for _, worst in found), strict=True)
    per_word, delta, upper = (torch.cat(column)[order] for column in columns)
    steps = max(worst.steps for _, worst in found)
    return WorstCase(per_word, delta, steps, None if found[0][1].upper is None else upper)


def _padded(worst: WorstCase, m: int) -> tuple[Tensor, Tensor, Tensor]:
    """S_i, Δ of m words and the upper bounds, if there are any."""
    missing = m - worst.delta.shape[1]
    delta = torch.nn.functional.pad(worst.delta, (0, 0, 0, missing))
    return worst.per_word, delta, worst.per_word if worst.upper is None else worst.upper


def worst_case(text: PreparedText, sites: Sites, asked: Asked, bar: Progress) -> WorstCase:
    """What is worst at each of the sites of a text."""
    options = asked.options
    if (unit := text.unit) != 1:
        inside = asked._replace(options=options._replace(radius=options.radius / unit))
        worst = worst_case(text.in_units(unit), sites, inside, bar)
        delta = (worst.delta * unit).to(text.dtype)
        if asked.kind is None:
            delta = within(delta, options.radius, asked.balls(sites))
        return worst._replace(delta=delta)
    norm = text.norm
    searched = asked.kind is None
    if len(sites) == 0 or float(norm) == 0 or (searched and options.radius == 0):
        bar.update(len(sites) * text.work_of_place)
        none = torch.zeros(len(sites), dtype=torch.float64, device=text.X.device) / norm
        delta = torch.zeros(*sites.at.shape, text.d, dtype=text.dtype, device=text.X.device)
        return WorstCase(none, delta, 0, none if text.bounded and searched else None)
    if asked.kind is None:
        return _searched(text, sites, asked, bar)
    change = checked_change(asked.kind(text.X, sites.at), sites, text)
    per_word = text.verified(sites, change, asked.measure) / norm
    bar.update(len(sites) * text.work_of_place)
    return WorstCase(per_word, _delta(text, sites, change), 0)


def _searched(text: PreparedText, sites: Sites, asked: Asked, bar: Progress) -> WorstCase:
    """The worst Δ of the ball at each place."""
    radius, balls = asked.options.radius, asked.balls(sites)
    delta, upper, steps = _largest(text, sites, asked, bar)
    delta = within(delta, radius, balls)
    if asked.relative:
        delta = delta * asked.lengths(text, sites.at).to(delta.dtype)[:, None, None]
    change = Change(add=delta[:, None].to(text.X.dtype))
    per_word = text.verified(sites, change, asked.measure) / text.norm
    return WorstCase(per_word, delta, steps, None if upper is None else upper / text.norm)


def _largest(
    text: PreparedText, sites: Sites, asked: Asked, bar: Progress
) -> tuple[Tensor, Tensor | None, int]:
    """The Δ (P, m, d) found, upper bounds of the norm (P,) if there are any, and steps.

    Δ is in the units that the radius is in.
    """
    radius, balls = asked.options.radius, asked.balls(sites)
    search = Search(asked.options, balls)
    more = None if sites.words == 1 else _of_single_words(text, sites, asked)
    # Into one array: small results kept between large temporaries fragment the heap.
    delta = torch.empty(*sites.at.shape, text.d, dtype=text.dtype, device=text.X.device)
    uppers, steps, first = [], 0, 0
    for part in text.parts(sites, search):
        here = slice(first, first + len(part))
        objective = text.objective(part, asked.measure, radius)
        if asked.relative:
            objective = Scaled(objective, asked.lengths(text, part.at))
        own = None if more is None else more[here].to(objective.dtype)
        point, taken = search.run(objective, own)
        delta[here] = point.delta.unflatten(-1, (sites.words, -1))
        first += len(part)
        if text.bounded:
            uppers.append(text.upper(part, radius, balls))
        steps = max(steps, taken)
        bar.update(len(part) * text.work_of_place)
    return delta, torch.cat(uppers) if uppers else None, steps


def _of_single_words(text: PreparedText, sites: Sites, asked: Asked) -> Tensor:
    """What is worst of each word of a site alone, (P, m, m d): none of them is to be missed."""
    words, which = sites.at.unique(return_inverse=True)
    with progress_bar(0, "word", False) as bar:
        single, _, _ = _largest(text, Sites.of_words(words), asked, bar)
    single = single[which, 0]  # (P, m, d)
    if asked.relative:
        whole = asked.lengths(text, sites.at).clamp(min=torch.finfo(text.X.dtype).tiny)
        share = text.X[sites.at].norm(dim=-1) / whole[:, None]
        single = single * share.to(single.dtype)[..., None]
    each = torch.eye(sites.words, dtype=single.dtype, device=single.device)
    return (each[..., None] * single[:, None]).flatten(2)


def _delta(text: PreparedText, sites: Sites, change: Change) -> Tensor:
    """Δ (P, m, d) that a known change is, in the dtype of the text; NaN for hidden words."""
    if change.add is not None:
        return change.add[:, 0].to(text.dtype)
    if change.put is not None:
        return (change.put[:, 0] - text.X[sites.at]).to(text.dtype)
    shape = (*sites.at.shape, text.d)
    return torch.full(shape, math.nan, dtype=text.dtype, device=text.X.device)


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
