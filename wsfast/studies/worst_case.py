"""The worst case of every text under every draw of any map: one loop for all of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
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

# After a quick search a longer one follows where S_i is this share of the largest or more, at so
# many places at most: of so many times the starts and the steps asked for, which cost little there.
_LEADING, _MOST_LEADING = 0.99, 4
_LONGER_STARTS, _LONGER_STEPS = 4, 2


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
    # Those of one length follow one another.
    order = sorted(range(len(found)), key=lambda k: int(inputs.masks[k].sum()))
    words = [inputs.texts[k][inputs.masks[k]].detach() for k in order]
    total = (
        len(draws.numbers)
        * sum(
            draws.work(len(text), inputs.d, len(options.places[k].column))
            for text, k in zip(words, order, strict=True)
        )
        * (1 + asked.bound)
    )
    large = draws.unit == "number"
    with torch.no_grad(), progress_bar(total, draws.unit, progress, large=large) as bar:
        for draw in draws.numbers:
            map_ = draws.make(draw)
            with map_.ready():
                texts = map_.prepare(words, draws.engine, options.memory_budget, bar)
                for group in _alike(zip(order, texts, strict=True), inputs.masks, options.places):
                    first = group[0][0]
                    places, keep = options.places[first], inputs.masks[first]
                    worst = of_places([text for _, text in group], places, keep, asked, bar)
                    for (k, _), one in zip(group, worst, strict=True):
                        found[k].append(one)
    return [one for of_text in found for one in of_text]


def _alike(
    texts: Iterable[tuple[int, PreparedText]], masks: Sequence[Tensor], places: Sequence[Places]
) -> Iterator[list[tuple[int, PreparedText]]]:
    """Numbered texts in groups that follow one another and are searched together."""
    group: list[tuple[int, PreparedText]] = []
    for k, text in texts:
        if group:
            first, other = group[0]
            alike = text.n == other.n and all(
                torch.equal(one, another)
                for one, another in (
                    (masks[k], masks[first]),
                    (places[k].at, places[first].at),
                    (places[k].column, places[first].column),
                )
            )
            if not alike:
                yield group
                group = []
        group.append((k, text))
        if len(group) >= text.together:
            yield group
            group = []
    if group:
        yield group


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
    norms = [
        text.measured(sites, change, asked.measure, torch.float64)[:, 0]
        for text, change in zip(texts, changes, strict=True)
    ]
    texts[0].settle_each(texts, norms, sites, changes, asked.measure)
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
    all_found = _largest(texts, [sites] * len(texts), asked, bar)
    whole = asked._replace(options=asked.options._replace(quick=False))
    worst = []
    for text, found in zip(texts, all_found, strict=True):
        per_word, delta = _measured(text, sites, asked, found.delta)
        upper = None if found.upper is None else found.upper / text.norm
        worst.append(WorstCase(per_word, delta, found.steps, upper))
    if asked.options.quick:
        longer = whole.options._replace(
            starts=_LONGER_STARTS * whole.options.starts,
            max_steps=_LONGER_STEPS * whole.options.max_steps,
        )
        which = [_leading(one.per_word) for one in worst]
        worst = _again(texts, sites, asked._replace(options=longer), worst, which)
    worst = _settled(texts, sites, asked, worst)
    if not asked.bound:
        return worst
    return [
        _bracketed(text, sites, whole, one, bar) for text, one in zip(texts, worst, strict=True)
    ]


def _leading(per_word: Tensor) -> Tensor:
    """The places whose S_i is near the largest, ascending."""
    order = per_word.argsort(descending=True, stable=True)[:_MOST_LEADING]
    return order[per_word[order] >= _LEADING * per_word.max()].sort().values


def _again(
    texts: Sequence[PreparedText],
    sites: Sites,
    asked: Asked,
    worst: Sequence[WorstCase],
    which: Sequence[Tensor],
    starts: Sequence[Tensor] | None = None,
) -> list[WorstCase]:
    """The better of what was found of each text and a further search at its places `which`.

    From `starts` (P, l, m d) alone, where these are given. The largest is to be settled.
    """
    better = list(worst)
    some = [k for k, of_text in enumerate(which) if len(of_text) > 0]
    at = [Sites(sites.at[which[k]]) for k in some]
    own = None if starts is None else [starts[k] for k in some]
    with progress_bar(0, "word", False) as unseen:
        further = _largest([texts[k] for k in some], at, asked, unseen, own)
    for k, here, found in zip(some, at, further, strict=True):
        again, delta = _measured(texts[k], here, asked, found.delta)
        rose = again > worst[k].per_word[which[k]]
        where = which[k][rose]
        better[k] = worst[k]._replace(
            per_word=worst[k].per_word.index_copy(0, where, again[rose]),
            delta=worst[k].delta.index_copy(0, where, delta[rose]),
            steps=max(worst[k].steps, found.steps),
        )
    return better


def _measured(
    text: PreparedText, sites: Sites, asked: Asked, delta: Tensor
) -> tuple[Tensor, Tensor]:
    """S_i (P,) of a change that was found, and this change, which is inside of the ball."""
    inside = within(delta, asked.options.radius, asked.balls(sites))
    if asked.relative:
        inside = inside * asked.lengths(text, sites.at).to(inside.dtype)[:, None, None]
    norms = text.measured(sites, _change(text, inside), asked.measure, torch.float64)[:, 0]
    return norms / text.norm, inside


def _change(text: PreparedText, delta: Tensor) -> Change:
    """That adds Δ (P, m, d)."""
    return Change(add=delta[:, None].to(text.X.dtype))


def _settled(
    texts: Sequence[PreparedText], sites: Sites, asked: Asked, worst: Sequence[WorstCase]
) -> list[WorstCase]:
    """The largest S_i of each text by the definition itself."""
    before = [one.per_word * text.norm for text, one in zip(texts, worst, strict=True)]
    after = [norms.clone() for norms in before]
    changes = [_change(text, one.delta) for text, one in zip(texts, worst, strict=True)]
    texts[0].settle_each(texts, after, sites, changes, asked.measure)
    return [
        one._replace(per_word=torch.where(new == old, one.per_word, new / text.norm))
        for text, one, old, new in zip(texts, worst, before, after, strict=True)
    ]


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
    starts = radius * proved.starts[room]
    further = _again([text], sites, asked, [found], [room], [starts])
    return _settled([text], sites, asked, further)[0] if len(room) > 0 else found


def _largest(
    texts: Sequence[PreparedText],
    sites: Sequence[Sites],
    asked: Asked,
    bar: Progress,
    only: Sequence[Tensor] | None = None,
) -> list[_Found]:
    """The largest that is found of each text, of as many together as fit.

    From the points `only` (P, l, m d) alone, where these are given.
    """
    at_once = 1 if only is not None or len(texts) < 2 else _at_once(texts, sites, asked)
    if at_once < 2:
        own = [None] * len(texts) if only is None else only
        every = zip(texts, sites, own, strict=True)
        return [_part_by_part(text, here, asked, bar, starts) for text, here, starts in every]
    groups = math.ceil(len(texts) / at_once)
    at_once = math.ceil(len(texts) / groups)
    found = []
    for first in range(0, len(texts), at_once):
        some = list(zip(texts, sites, strict=True))[first : first + at_once]
        together = Together([_objective(text, here, asked) for text, here in some])
        point, steps = Search(asked.options).run(together)
        counts = [len(here) for _, here in some]
        each = zip(some, point.delta.split(counts), steps.split(counts), strict=True)
        for (text, here), delta, taken in each:
            upper = _upper(text, here, asked)
            found.append(_Found(delta[:, None].to(text.dtype), upper, int(taken.max())))
            bar.update(len(here) * text.work_of_place)
    return found


def _at_once(texts: Sequence[PreparedText], sites: Sequence[Sites], asked: Asked) -> int:
    """How many of some texts of one shape are best searched together."""
    if sites[0].words > 1:
        return 1
    most = max(len(of_text) for of_text in sites)
    every = Sites(torch.cat([of_text.at for of_text in sites]))
    fitting = len(next(texts[0].parts(every, Search(asked.options)))) // most
    return min(fitting, texts[0].joined(most))


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
        steps = max(steps, int(taken.max()))
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
