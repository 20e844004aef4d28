"""Several words of a text replaced at once, by an explicit list of candidates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from wsfast import _values
from wsfast._inputs import Inputs, Places, Site
from wsfast._progress import progress_bar
from wsfast._values import host_array, integer
from wsfast.maps.draws import Draws
from wsfast.maps.feature_map import PreparedText
from wsfast.maps.measure import Norm
from wsfast.perturbation.change import Change, Sites
from wsfast.studies.substitution.assemble import Ranked, ranked_pairs
from wsfast.studies.substitution.options import SubstitutionOptions, candidate_rows, enough_pairs
from wsfast.studies.substitution.screen import Pairs
from wsfast.studies.substitution.table import CandidateTable


def candidate_tuples(value: Any, V: int, sites: list[Site]) -> list[Site]:
    """Rows of E that take the place of the words of a site, in their order.

    Raises
    ------
    TypeError, ValueError
        Unless each has as many rows as some site has words, and each site some candidate.
    """
    expected = "candidates must be a list of tuples of rows of E where positions are sites"
    if isinstance(value, Tensor):
        value = host_array("candidates", value)
    if not isinstance(value, (list, tuple, np.ndarray)):
        raise TypeError(f"{expected}, got {type(value).__name__}")
    found = []
    lengths = {len(site) for site in sites}
    for k, one in enumerate(value):
        if not isinstance(one, (Sequence, np.ndarray)) or isinstance(one, str):
            raise TypeError(f"{expected}, got {one!r} in candidates[{k}]")
        rows = tuple(
            integer(f"candidates[{k}][{i}]", row, low=0, high=V - 1) for i, row in enumerate(one)
        )
        if len(rows) not in lengths:
            raise ValueError(
                f"candidates[{k}] must have as many rows as a site has words, got {len(rows)}"
            )
        found.append(rows)
    for site in sites:
        if not any(len(rows) == len(site) for rows in found):
            raise ValueError(
                f"candidates must hold one of {len(site)} rows, for the site {site}, got none"
            )
    return found


def search_sites(
    inputs: Inputs,
    table: CandidateTable,
    candidates: list[Site],
    places: list[Places],
    maps: Draws,
    options: SubstitutionOptions,
    shown: bool,
) -> list[Ranked]:
    """Text by text and, within a text, draw by draw; every value in float64."""
    sizes = torch.tensor([len(rows) for rows in candidates], device="cpu")
    enough_pairs(options.top_k, [_count(one, sizes) for one in places if len(one.column)])
    of_draws = [maps.make(draw) for draw in maps.numbers]
    total = len(of_draws) * sum(len(one.column) for one in places)
    found = []
    with progress_bar(total, "site", shown) as bar:
        for text, keep, one in zip(inputs.texts, inputs.masks, places, strict=True):
            for map_ in of_draws:
                words = [text[keep].detach()]
                (prepared,) = map_.prepare(words, maps.engine, options.memory_budget)
                _values.finite("φ(X)", prepared.norm)
                values = _values_of(prepared, table, candidates, one, keep)
                found.append(_ranked(prepared, one, values, options))
                bar.update(len(one.column))
    return found


def _count(places: Places, sizes: Tensor) -> int:
    """Pairs of a site and a candidate of as many words."""
    words = (places.at >= 0).sum(1).cpu()
    return int((words[:, None] == sizes).sum())


def _values_of(
    text: PreparedText,
    table: CandidateTable,
    candidates: list[Site],
    places: Places,
    keep: Tensor,
) -> Tensor:
    """‖φ(X') - φ(X)‖ (P, C), float64; NaN where the numbers of words differ."""
    device = text.X.device
    shape = (len(places.column), len(candidates))
    values = torch.full(shape, torch.nan, dtype=torch.float64, device=device)
    for which, at in places.alike(keep):
        fitting = [k for k, rows in enumerate(candidates) if len(rows) == at.shape[1]]
        if len(which) == 0 or not fitting:
            continue
        numbers = torch.tensor([candidates[k] for k in fitting], device=device)  # (C', m)
        # The words that come, and about six copies of the text for each.
        at_once = max(1, text.budget // (6 * 8 * text.X.numel() * at.shape[1]))
        columns = torch.tensor(fitting, device=device)
        for part, column in zip(numbers.split(at_once), columns.split(at_once), strict=True):
            rows = table.rows(part.flatten())
            candidate_rows(part.flatten(), rows)
            change = Change(put=rows.to(text.X.dtype).unflatten(0, part.shape)[None])
            for row, site in zip(which, at.split(1), strict=True):
                norms = text.measured(Sites(site), change, Norm(), torch.float64)[0]
                values[row, column] = norms
    return values


def _ranked(
    text: PreparedText, places: Places, values: Tensor, options: SubstitutionOptions
) -> Ranked:
    norm = float(text.norm)
    at, (p, c) = places.column, (~values.isnan()).nonzero(as_tuple=True)
    table = values / norm if options.full else None
    if norm == 0 or len(p) == 0:
        none = at.new_empty(0)
        pairs = Pairs(none, none, values.new_empty(0))
        return Ranked(pairs, none, norm, at, none, values.new_empty(len(at), 0), table)
    pairs, best, numbers = ranked_pairs(Pairs(at[p], c, values[p, c]), options)
    return Ranked(pairs, best, norm, at, numbers, values[:, numbers], table)
