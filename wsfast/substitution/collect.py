"""From what was found in each text, under each W, to one result."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import torch
from torch import Tensor

from wsfast import _checks
from wsfast._checks import Inputs, SubstitutionOptions
from wsfast.sensitivity.collect import leading_axes, texts_without_value
from wsfast.substitution.ranking import first_of, ranked
from wsfast.substitution.result import SubstitutionResult
from wsfast.substitution.table import CandidateTable
from wsfast.substitution.text_search import Pairs, TextSearch


class Searched(NamedTuple):
    """Some positions of a text under one W, all candidates seen."""

    at: Tensor  # (p,) the positions in the user's text
    search: TextSearch
    verified: Pairs  # positions counted among `at`


class Found(NamedTuple):
    """What a search found for one text and one W; positions are those of the user's text."""

    pairs: Pairs  # best first
    norm: float  # ‖φ(X)‖
    at: Tensor  # (p,) positions searched
    at_positions: Tensor  # (p, k) norms of the best pairs' candidates at every position
    table: Tensor | None  # (p, C) relative changes


def rank(parts: list[Searched], options: SubstitutionOptions, candidates: int) -> Found:
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
        nothing = pairs.value.new_full((len(at), options.top_k), torch.nan)
        return Found(pairs, norm, at, nothing, table)
    order = ranked(*pairs, largest=options.largest)
    pairs = Pairs(*(values[order] for values in pairs))
    top = Pairs(*(values[: options.top_k] for values in pairs))
    numbers, which = top.candidate.unique(return_inverse=True)
    norms = []
    for part in parts:
        norms.append(part.search.values(numbers))
        part.search.release()
    at_positions = torch.cat(norms)[:, which]
    # One pair, one number.
    here = at[:, None] == top.position
    return Found(pairs, norm, at, torch.where(here, top.value, at_positions), table)


def assemble(
    found: list[Found],
    inputs: Inputs,
    options: SubstitutionOptions,
    table: CandidateTable,
    about: dict[str, Any],
    draws: int | None,
) -> SubstitutionResult:
    """One result from what was found text by text and, within a text, draw by draw.

    `about` says what was searched, for the result's info; `draws` is None without an axis of draws.
    """
    count, n, k = len(found), inputs.length, options.top_k
    like = inputs.texts[0].detach()
    value = like.new_full((count,), torch.nan)
    best_value = like.new_full((count, n), torch.nan)
    best_candidate = like.new_full((count, n), -1, dtype=torch.int64)
    top_value = like.new_full((count, k), torch.nan)
    top_position = like.new_full((count, k), -1, dtype=torch.int64)
    top_candidate = like.new_full((count, k), -1, dtype=torch.int64)
    at_positions = like.new_full((count, n, k), torch.nan)
    values = like.new_full((count, n, table.size), torch.nan) if options.full else None
    for b, one in enumerate(found):
        position, candidate, norms = one.pairs
        if len(norms) == 0:
            continue
        relative = _checks.fits("S", norms / one.norm, like.dtype)
        value[b] = relative[0]
        top_value[b] = relative[:k]
        top_position[b], top_candidate[b] = position[:k], candidate[:k]
        for i in position.unique():
            here = (position == i).nonzero()[:, 0]
            first = here[first_of(candidate[here], norms[here])]
            best_candidate[b, i], best_value[b, i] = candidate[first], relative[first]
        at_positions[b, one.at] = (one.at_positions / one.norm).to(like.dtype)
        if values is not None and one.table is not None:
            rows = values[b, one.at]
            rows[:, table.numbers] = _checks.fits("table", one.table, like.dtype)
            values[b, one.at] = rows
    if texts := texts_without_value(value, draws):
        warnings.warn(
            f"values are NaN for text {texts}: the features are zero, or none "
            "of the positions asked for is a word of it",
            RuntimeWarning,
            stacklevel=4,
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
        top_at_positions=give(at_positions),
        table=None if values is None else give(values),
        largest=options.largest,
        info=about,
        axes=tuple(lead),
    )
