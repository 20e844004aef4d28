"""From what was found in each text, under each W, to one result."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from wsfast import _values
from wsfast._inputs import Inputs
from wsfast._warn import warn
from wsfast.results.substitution import LEADERS, SubstitutionResult
from wsfast.studies.assemble import leading_axes, texts_without_value
from wsfast.studies.substitution.options import SubstitutionOptions
from wsfast.studies.substitution.ranking import first_of, ranked
from wsfast.studies.substitution.screen import Pairs, Screen

# Candidates that a picture has room for, unless more pairs are asked for.
_MOST_SHOWN = 60


class Screened(NamedTuple):
    """Some positions of a text under one W, all candidates seen."""

    at: Tensor  # (p,) the positions in the user's text
    search: Screen
    verified: Pairs  # positions counted among `at`


class Columns(NamedTuple):
    """What the axes of a result count."""

    places: int  # n, or the number of sites
    size: int  # V, or the number of candidates for sites
    numbers: Tensor  # (C,) int64, those of the candidates that were tried


class Ranked(NamedTuple):
    """What a search found for one text and one W; positions are those of the user's text."""

    pairs: Pairs  # best first
    best: Tensor  # int64, which of them are the best of their positions
    norm: float  # ‖φ(X)‖
    at: Tensor  # (p,) positions searched
    candidates: Tensor  # (c,) int64, those to show
    at_positions: Tensor  # (p, c) norms of their changes at every position
    table: Tensor | None  # (p, C) relative changes


def rank(parts: list[Screened], options: SubstitutionOptions, candidates: int) -> Ranked:
    """The parts of one text and one W together."""
    norm = float(parts[0].search.norm)
    at = torch.cat([part.at for part in parts])
    table = None
    if options.full:
        table = torch.cat([part.search.table for part in parts if part.search.table is not None])
    pairs = Pairs(
        torch.cat([part.at[part.verified.position] for part in parts]),
        torch.cat([part.verified.candidate for part in parts]),
        torch.cat([part.verified.value for part in parts]),
    )
    if len(pairs.value) == 0:
        none = at.new_empty(0)
        nothing = pairs.value.new_empty(len(at), 0)
        return Ranked(pairs, none, norm, at, none, nothing, table)
    pairs, best, numbers = ranked_pairs(pairs, options)
    norms = []
    for part in parts:
        norms.append(part.search.values(numbers))
        part.search.release()
    at_positions = torch.cat(norms)
    # One pair, one number.
    column = {v: column for column, v in enumerate(numbers.tolist())}
    columns = [column.get(v, -1) for v in pairs.candidate.tolist()]
    columns_of_pairs = torch.tensor(columns, device=numbers.device)
    seen = columns_of_pairs >= 0
    rows = torch.searchsorted(at, pairs.position[seen])
    at_positions[rows, columns_of_pairs[seen]] = pairs.value[seen]
    return Ranked(pairs, best, norm, at, numbers, at_positions, table)


def ranked_pairs(pairs: Pairs, options: SubstitutionOptions) -> tuple[Pairs, Tensor, Tensor]:
    """The pairs, best first; which are the best of their positions; the candidates to show."""
    order = ranked(*pairs, largest=options.largest)
    pairs = Pairs(*(values[order] for values in pairs))
    best = _best_of_positions(pairs)
    return pairs, best, _shown(pairs, best, options.top_k)


def _best_of_positions(pairs: Pairs) -> Tensor:
    """Which of the ranked pairs are the best of their positions, in the order of the ranking."""
    best = []
    for i in pairs.position.unique():
        here = (pairs.position == i).nonzero()[:, 0]
        best.append(here[first_of(pairs.candidate[here], pairs.value[here])])
    return torch.stack(best).sort().values


def _shown(pairs: Pairs, best: Tensor, k: int) -> Tensor:
    """Candidates whose changes are given at every position, (c,) int64.

    Those of the k best pairs, then the best of each position as far as a picture has room, then the
    next best, where these are few. They depend on nothing but the ranking.
    """
    shown = dict.fromkeys(pairs.candidate[:k].tolist())
    for more, enough in ((pairs.candidate[best], _MOST_SHOWN), (pairs.candidate, LEADERS)):
        for v in more.tolist():
            if len(shown) >= enough:
                break
            shown[v] = None
    return torch.tensor(list(shown), device=pairs.candidate.device)


def assemble(
    found: list[Ranked],
    inputs: Inputs,
    options: SubstitutionOptions,
    table: Columns,
    info: dict[str, Any],
    draws: int | None,
) -> SubstitutionResult:
    """One result from what was found text by text and, within a text, draw by draw.

    `info` says what was searched; `draws` is None without an axis of draws.
    """
    count, n, k = len(found), table.places, options.top_k
    like = inputs.texts[0].detach()
    value = like.new_full((count,), torch.nan)
    best_value = like.new_full((count, n), torch.nan)
    best_candidate = like.new_full((count, n), -1, dtype=torch.int64)
    top_value = like.new_full((count, k), torch.nan)
    top_position = like.new_full((count, k), -1, dtype=torch.int64)
    top_candidate = like.new_full((count, k), -1, dtype=torch.int64)
    shown = max(len(one.candidates) for one in found)
    grid_candidate = like.new_full((count, shown), -1, dtype=torch.int64)
    grid_value = like.new_full((count, n, shown), torch.nan)
    values = like.new_full((count, n, table.size), torch.nan) if options.full else None
    for b, one in enumerate(found):
        position, candidate, norms = one.pairs
        if len(norms) == 0:
            continue
        relative = _values.fits("S", norms / one.norm, like.dtype)
        value[b] = relative[0]
        top_value[b] = relative[:k]
        top_position[b], top_candidate[b] = position[:k], candidate[:k]
        best_candidate[b, position[one.best]] = candidate[one.best]
        best_value[b, position[one.best]] = relative[one.best].to(like.dtype)
        grid_candidate[b, : len(one.candidates)] = one.candidates
        grid_value[b, one.at, : len(one.candidates)] = (one.at_positions / one.norm).to(like.dtype)
        if values is not None and one.table is not None:
            rows = values[b, one.at]
            rows[:, table.numbers] = _values.fits("table", one.table, like.dtype)
            values[b, one.at] = rows
    if texts := texts_without_value(value, draws):
        warn(
            f"values are NaN for text {texts}: the features are zero, or none "
            "of the positions asked for is a word of it"
        )
    lead = leading_axes(inputs, draws)
    shape = tuple(lead.values())

    def give(array: Tensor) -> Any:
        return inputs.give(array.reshape((*shape, *array.shape[1:])))

    return SubstitutionResult(
        value=give(value),
        best_candidate=give(best_candidate),
        best_value=give(best_value),
        top_position=give(top_position),
        top_candidate=give(top_candidate),
        top_value=give(top_value),
        grid_candidate=give(grid_candidate),
        grid_value=give(grid_value),
        table=None if values is None else give(values),
        largest=options.largest,
        info=info,
        axes=tuple(lead),
    )
