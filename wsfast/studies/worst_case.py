"""The worst case of every text under every draw of any map: one loop for all of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
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
from wsfast.search.objective import Objective, Scaled, Together
from wsfast.search.options import SearchOptions
from wsfast.search.search import Search

# A bound that is above S, or above the S_i of its word, by these factors leaves room for a further
# search.
_ROOM, _ROOM_OF_WORD = 1.045, 1.15

# After a quick search the whole one is made where S_i is this share of the largest or more, at so
# many places at most.
_LEADING, _MOST_LEADING = 0.99, 4


class WorstCase(NamedTuple):
    """What was found for one text and one draw, at P places."""

    per_word: Tensor  # (P,) S_i, float64
    delta: Tensor  # (P, m, d)
    steps: int
    upper: Tensor | None = None  # (P,) upper bounds of S_i, float64
    # Of bounds that are proved: where they took all steps (P,) bool, or why there are none.
    refined: Tensor | None = None
    unbounded: str = ""


class Asked(NamedTuple):
    """What is asked of each text."""

    options: SearchOptions
    kind: Kind | None = None  # None: every Δ of the ball is searched
    measure: Norm = Norm()
    ball: str = "joint"
    bound: bool = False  # whether a proof from above is sought beside each norm
    relative: bool = False  # whether the radius is in units of ‖x_i‖, or of the norm of the site

    def lengths(self, text: PreparedText, at: Tensor) -> Tensor:
        """Norms (P,) of the words at places (P, m)."""
        lengths: Tensor = text.X[at].flatten(1).norm(dim=1)
        return lengths

    def work(self, text: PreparedText, sites: Sites) -> int:
        """What all of it costs, in the units of the bar: a bound counts as much as a search."""
        return len(sites) * text.work_of_place * (1 + self.bound)

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
    total = (
        len(draws.numbers)
        * sum(
            draws.work(len(text), inputs.d, len(of_text.column))
            for text, of_text in zip(words, options.places, strict=True)
        )
        * (1 + asked.bound)
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
                    of_text += of_places([text], places, keep, asked, bar)
    return [one for of_text in found for one in of_text]


def of_places(
    texts: Sequence[PreparedText], places: Places, keep: Tensor, asked: Asked, bar: Progress
) -> list[WorstCase]:
    """The places of texts of one shape whose mask is `keep`, those of as many words together."""
    found = [
        (which, worst_cases_at(texts, Sites(at), asked, bar)) for which, at in places.alike(keep)
    ]
    widest = places.at.shape[1]
    return [
        _in_order([(which, of_texts[k]) for which, of_texts in found], widest)
        for k in range(len(texts))
    ]


def _in_order(found: list[tuple[Tensor, WorstCase]], widest: int) -> WorstCase:
    """What was found for some of the places, and which they are, in the order of the places.

    Δ of a site with fewer words than the widest ends with zeros.
    """
    if len(found) == 1 and found[0][1].delta.shape[1] == widest:
        return found[0][1]
    order = torch.cat([which for which, _ in found]).argsort()
    every = [worst for _, worst in found]

    def merged(columns: list[Tensor | None]) -> Tensor | None:
        known = [column for column in columns if column is not None]
        return torch.cat(known)[order] if len(known) == len(columns) else None

    per_word = torch.cat([worst.per_word for worst in every])[order]
    delta = torch.cat([_padded(worst.delta, widest) for worst in every])[order]
    return WorstCase(
        per_word,
        delta,
        max(worst.steps for worst in every),
        merged([worst.upper for worst in every]),
        merged([worst.refined for worst in every]),
        each_once(worst.unbounded for worst in every),
    )


def each_once(reasons: Iterable[str]) -> str:
    """Reasons why there are no bounds, each once; "" where there are none."""
    return "; ".join(sorted(set(reasons) - {""}))


def _padded(delta: Tensor, m: int) -> Tensor:
    """Δ of m words."""
    return torch.nn.functional.pad(delta, (0, 0, 0, m - delta.shape[1]))


def worst_cases_at(
    texts: Sequence[PreparedText], sites: Sites, asked: Asked, bar: Progress
) -> list[WorstCase]:
    """What is worst at each of the sites, for each of some texts of one shape."""
    known = [_apart(text, sites, asked, bar) for text in texts]
    left = [text for text, one in zip(texts, known, strict=True) if one is None]
    if not left:
        return [one for one in known if one is not None]
    together = _searched if asked.kind is None else _known
    found = iter(together(left, sites, asked, bar))
    return [next(found) if one is None else one for one in known]


def _apart(text: PreparedText, sites: Sites, asked: Asked, bar: Progress) -> WorstCase | None:
    """What is worst of one text, where that is 0 or found in other units."""
    options = asked.options
    if (unit := text.unit) != 1:
        inside = asked._replace(options=options._replace(radius=options.radius / unit))
        (worst,) = worst_cases_at([text.in_units(unit)], sites, inside, bar)
        delta = (worst.delta * unit).to(text.dtype)
        if asked.kind is None:
            delta = within(delta, options.radius, asked.balls(sites))
        return worst._replace(delta=delta)
    norm = text.norm
    searched = asked.kind is None
    if len(sites) == 0 or float(norm) == 0 or (searched and options.radius == 0):
        bar.update(asked.work(text, sites))
        none = torch.zeros(len(sites), dtype=torch.float64, device=text.X.device) / norm
        delta = torch.zeros(*sites.at.shape, text.d, dtype=text.dtype, device=text.X.device)
        known = searched and (text.bounded or asked.bound)
        return WorstCase(none, delta, 0, none if known else None, none > 0)
    return None


def _known(
    texts: Sequence[PreparedText], sites: Sites, asked: Asked, bar: Progress
) -> list[WorstCase]:
    """What a change that is known does at each place of each text."""
    assert asked.kind is not None
    changes = [checked_change(asked.kind(text.X, sites.at), sites, text) for text in texts]
    norms = texts[0].verified_of_each(texts, sites, changes, asked.measure)
    found = []
    for text, norm, change in zip(texts, norms, changes, strict=True):
        found.append(WorstCase(norm / text.norm, _delta(text, sites, change), 0))
        bar.update(len(sites) * text.work_of_place)
    return found


class _Found(NamedTuple):
    """What a search of one text has led to."""

    delta: Tensor  # (P, m, d), in the units that the radius is in
    upper: Tensor | None  # (P,) bounds of the norm, if there are any
    steps: int


def _searched(
    texts: Sequence[PreparedText], sites: Sites, asked: Asked, bar: Progress
) -> list[WorstCase]:
    """The worst Δ of the ball at each place of each text."""
    all_found = _largest(texts, sites, asked, bar)
    verified = _verified(texts, sites, asked, [found.delta for found in all_found])
    whole = asked._replace(options=asked.options._replace(quick=False))
    worst = []
    for text, found, (norm, delta) in zip(texts, all_found, verified, strict=True):
        upper = None if found.upper is None else found.upper / text.norm
        one = WorstCase(norm / text.norm, delta, found.steps, upper)
        if asked.options.quick:
            one = _again(text, sites, whole, one, _leading(one.per_word))
        worst.append(_bracketed(text, sites, whole, one, bar) if asked.bound else one)
    return worst


def _leading(per_word: Tensor) -> Tensor:
    """The places whose S_i is near the largest, ascending."""
    order = per_word.argsort(descending=True, stable=True)[:_MOST_LEADING]
    return order[per_word[order] >= _LEADING * per_word.max()].sort().values


def _again(
    text: PreparedText,
    sites: Sites,
    asked: Asked,
    worst: WorstCase,
    which: Tensor,
    starts: Tensor | None = None,
) -> WorstCase:
    """The better of what was found and a further search at places `which`.

    From `starts` (P, l, m d) alone, where these are given.
    """
    if len(which) == 0:
        return worst
    at = Sites(sites.at[which])
    with progress_bar(0, "word", False) as unseen:
        further = _part_by_part(text, at, asked, unseen, starts)
    ((norm, delta),) = _verified([text], at, asked, [further.delta])
    again = norm / text.norm
    rose = again > worst.per_word[which]
    better = which[rose]
    return worst._replace(
        per_word=worst.per_word.index_copy(0, better, again[rose]),
        delta=worst.delta.index_copy(0, better, delta[rose]),
        steps=max(worst.steps, further.steps),
    )


def _verified(
    texts: Sequence[PreparedText], sites: Sites, asked: Asked, deltas: list[Tensor]
) -> list[tuple[Tensor, Tensor]]:
    """The norms (P,) of the changes that were found of each text, and these, inside of the ball."""
    inside = [within(delta, asked.options.radius, asked.balls(sites)) for delta in deltas]
    if asked.relative:
        inside = [
            delta * asked.lengths(text, sites.at).to(delta.dtype)[:, None, None]
            for text, delta in zip(texts, inside, strict=True)
        ]
    changes = [
        Change(add=delta[:, None].to(text.X.dtype))
        for text, delta in zip(texts, inside, strict=True)
    ]
    norms = texts[0].verified_of_each(texts, sites, changes, asked.measure)
    return list(zip(norms, inside, strict=True))


def _bracketed(
    text: PreparedText, sites: Sites, asked: Asked, worst: WorstCase, bar: Progress
) -> WorstCase:
    """What was found with a proof from above beside it, and what the proof's starts add to it."""
    per_word, delta, reason = worst.per_word, worst.delta, text.unbounded(sites)
    if reason:
        bar.update(len(sites) * text.work_of_place)
        upper = torch.full_like(per_word, torch.nan)
        return worst._replace(upper=upper, refined=torch.zeros_like(upper) > 0, unbounded=reason)
    radius, norm = asked.options.radius, per_word * text.norm
    lengths = asked.lengths(text, sites.at) if asked.relative else torch.ones_like(norm)
    proved = text.bracket(sites, delta.double(), norm, radius * lengths)
    bar.update(len(sites) * text.work_of_place)
    found = WorstCase(per_word, delta, worst.steps, proved.upper / text.norm, proved.refined)
    reached = torch.minimum(_ROOM * norm.max(), _ROOM_OF_WORD * norm)
    room = (proved.upper > reached).nonzero()[:, 0]
    return _again(text, sites, asked, found, room, radius * proved.starts[room])


def _largest(
    texts: Sequence[PreparedText], sites: Sites, asked: Asked, bar: Progress
) -> list[_Found]:
    """The largest that is found, of as many texts together as fit."""
    search = Search(asked.options, asked.balls(sites))
    at_once = 1
    if sites.words == 1 and len(texts) > 1:
        every = Sites(sites.at.repeat(len(texts), 1))
        at_once = len(next(texts[0].parts(every, search))) // len(sites)
    if at_once < 2:
        return [_part_by_part(text, sites, asked, bar) for text in texts]
    groups = math.ceil(len(texts) / at_once)
    at_once = math.ceil(len(texts) / groups)
    found = []
    for first in range(0, len(texts), at_once):
        some = texts[first : first + at_once]
        objectives = [_objective(text, sites, asked) for text in some]
        point, steps = search.run(Together(objectives))
        for text, delta in zip(some, point.delta.split(len(sites)), strict=True):
            found.append(_Found(delta[:, None].to(text.dtype), _upper(text, sites, asked), steps))
            bar.update(len(sites) * text.work_of_place)
    return found


def _objective(text: PreparedText, sites: Sites, asked: Asked) -> Objective:
    objective = text.objective(sites, asked.measure, asked.options.radius)
    return Scaled(objective, asked.lengths(text, sites.at)) if asked.relative else objective


def _upper(text: PreparedText, sites: Sites, asked: Asked) -> Tensor | None:
    if not text.bounded:
        return None
    return text.upper(sites, asked.options.radius, asked.balls(sites))


def _part_by_part(
    text: PreparedText, sites: Sites, asked: Asked, bar: Progress, only: Tensor | None = None
) -> _Found:
    """The same for one text, as many places at once as fit; from the points `only` (P, l, d)."""
    search = Search(asked.options, asked.balls(sites))
    more = only
    if sites.words > 1:
        more = _of_single_words(text, sites, asked)
    # Into one array: small results kept between large temporaries fragment the heap.
    delta = torch.empty(*sites.at.shape, text.d, dtype=text.dtype, device=text.X.device)
    uppers, steps, first = [], 0, 0
    for part in text.parts(sites, search):
        here = slice(first, first + len(part))
        objective = _objective(text, part, asked)
        own = None if more is None else more[here].to(objective.dtype)
        point, taken = search.run(objective, own, own=None if only is None else 0)
        delta[here] = point.delta.unflatten(-1, (sites.words, -1))
        first += len(part)
        if (upper := _upper(text, part, asked)) is not None:
            uppers.append(upper)
        steps = max(steps, taken)
        bar.update(len(part) * text.work_of_place)
    return _Found(delta, torch.cat(uppers) if uppers else None, steps)


def _of_single_words(text: PreparedText, sites: Sites, asked: Asked) -> Tensor:
    """What is worst of each word of a site alone, (P, m, m d): none of them is to be missed."""
    words, which = sites.at.unique(return_inverse=True)
    with progress_bar(0, "word", False) as bar:
        found = _part_by_part(text, Sites.of_words(words), asked, bar)
    single = found.delta[which, 0]  # (P, m, d)
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
