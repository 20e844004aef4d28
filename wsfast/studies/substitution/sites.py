"""Several words of a text replaced at once, by an explicit list of candidates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

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


class Tried(NamedTuple):
    """What is put at the sites, and what of the change is measured."""

    tuples: list[Site]  # rows of E
    fits: Tensor  # (S, C) bool, on the CPU: which of them each site takes
    rows: str = "all"  # of φ; "others": those of the words that stay, whose number is the same


def fitting(
    sites: list[Site], tuples: list[Site], own: Sequence[int] | None, rows: str = "all"
) -> Tensor:
    """Which candidates each site takes, (S, C) bool.

    They have as many rows as the site has words, unless the `rows` of the other words alone count;
    and they are not what stands there, the rows `own` (n,) of E.
    """
    words, sizes = (
        torch.tensor([len(one) for one in each], device="cpu") for each in (sites, tuples)
    )
    fits = (words[:, None] == sizes) | (rows == "others")
    if own is not None:
        numbers: dict[Site, list[int]] = {}
        for c, one in enumerate(tuples):
            numbers.setdefault(one, []).append(c)
        for row, site in zip(fits, sites, strict=True):
            row[numbers.get(tuple(own[i] for i in site), [])] = False
    return fits


def candidate_tuples(value: Any, V: int, sites: list[Site], rows: str = "all") -> list[Site]:
    """Rows of E that take the place of the words of a site, in their order.

    Raises
    ------
    TypeError, ValueError
        Unless each has as many rows as some site has words, and each site some candidate; of any
        number where the `rows` of the other words alone count.
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
        numbers = tuple(
            integer(f"candidates[{k}][{i}]", row, low=0, high=V - 1) for i, row in enumerate(one)
        )
        if rows == "all" and len(numbers) not in lengths:
            raise ValueError(
                f"candidates[{k}] must have as many rows as a site has words, got {len(numbers)}"
            )
        found.append(numbers)
    counts = {len(numbers) for numbers in found}
    for site in sites:
        if rows == "all" and len(site) not in counts:
            raise ValueError(
                f"candidates must hold one of {len(site)} rows, for the site {site}, got none"
            )
    return found


def search_sites(
    inputs: Inputs,
    table: CandidateTable,
    tried: Tried,
    places: list[Places],
    maps: Draws,
    options: SubstitutionOptions,
    shown: bool,
) -> list[Ranked]:
    """Text by text and, within a text, draw by draw; every value in float64."""
    pairs = [int(tried.fits[one.column.cpu()].sum()) for one in places if len(one.column)]
    enough_pairs(options.top_k, pairs)
    of_draws = [maps.make(draw) for draw in maps.numbers]
    total = len(of_draws) * sum(len(one.column) for one in places)
    found = []
    with progress_bar(total, "site", shown) as bar:
        for text, keep, one in zip(inputs.texts, inputs.masks, places, strict=True):
            for map_ in of_draws:
                words = [text[keep].detach()]
                (prepared,) = map_.prepare(words, maps.engine, options.memory_budget)
                _values.finite("φ(X)", prepared.norm)
                values = _values_of(prepared, table, tried, one, keep)
                found.append(_ranked(prepared, one, values, options))
                bar.update(len(one.column))
    return found


def _values_of(
    text: PreparedText, table: CandidateTable, tried: Tried, places: Places, keep: Tensor
) -> Tensor:
    """‖φ(X') - φ(X)‖ (P, C), float64; NaN for a candidate that a site does not take."""
    device = text.X.device
    fits = tried.fits[places.column.cpu()].to(device)
    values = torch.full(fits.shape, torch.nan, dtype=torch.float64, device=device)
    sizes = sorted({len(one) for one in tried.tuples})
    for which, at in places.alike(keep):
        for size in sizes if tried.rows == "others" else [at.shape[1]]:
            alike = [k for k, one in enumerate(tried.tuples) if len(one) == size]
            if len(which) == 0 or not alike:
                continue
            numbers = torch.tensor([tried.tuples[k] for k in alike], device=device)  # (C', m')
            # The words that come, and about six copies of the text for each.
            at_once = max(1, text.budget // (6 * 8 * text.X.numel() * size))
            columns = torch.tensor(alike, device=device)
            for part, column in zip(numbers.split(at_once), columns.split(at_once), strict=True):
                rows = table.rows(part.flatten())
                candidate_rows(part.flatten(), rows)
                put = rows.to(text.X.dtype).unflatten(0, part.shape)
                for row, site in zip(which, at.split(1), strict=True):
                    values[row, column] = _norms(text, site, put, tried.rows)
    return values.masked_fill_(~fits, torch.nan)


def _norms(text: PreparedText, site: Tensor, put: Tensor, rows: str) -> Tensor:
    """‖φ(X') - φ(X)‖ (C',) as `put` (C', m', d) comes at a site (1, m)."""
    if rows == "others":
        return text.rewritten(site[0], put)
    return text.measured(Sites(site), Change(put=put[None]), Norm(), torch.float64)[0]


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
