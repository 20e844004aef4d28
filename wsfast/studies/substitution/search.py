"""Which word, and to what: exact search over a whole vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from wsfast import _inputs, _values
from wsfast._inputs import Inputs, Places, Site, Texts, words_among
from wsfast._inputs import places as places_of
from wsfast._precision import at_full_precision
from wsfast._progress import Progress, progress_bar
from wsfast._values import Array
from wsfast.maps.attention import weight_function
from wsfast.maps.attention_text import AttentionMap, AttentionText
from wsfast.maps.candidates import Workspace
from wsfast.maps.draws import Draws, attention_draws
from wsfast.maps.feature_map import FeatureMap
from wsfast.results.axes import joined
from wsfast.results.substitution import SubstitutionResult
from wsfast.search.options import DEFAULT_BUDGET
from wsfast.studies.assemble import versions
from wsfast.studies.substitution.assemble import Columns, Ranked, Screened, assemble, rank
from wsfast.studies.substitution.device_screen import DeviceScreen
from wsfast.studies.substitution.options import (
    Candidates,
    SubstitutionOptions,
    candidate_rows,
    candidate_table,
    candidates_of,
    enough_pairs,
    given_scores,
    own_rows,
    substitution_options,
)
from wsfast.studies.substitution.screen import Plan, Screen, self_scores_of
from wsfast.studies.substitution.sites import Tried, candidate_tuples, fitting, search_sites
from wsfast.studies.substitution.table import CandidateTable, Tile

# Candidates at a time: enough for the products to run at full speed, few enough for the cache. A
# GPU wants more, to be full.
_COLUMNS = 1024
_COLUMNS_OF_GPU = 8192


@at_full_precision
def self_scores(E: Array, W: Array, *, memory_budget: int = DEFAULT_BUDGET) -> Any:
    """Score v·Wv/√d of every candidate v with itself: diag(E W Eᵀ)/√d.

    It depends on `E` and `W` alone: computed once, it serves any number of texts (`self_scores=`
    of `substitution_sensitivity`), and is the larger part of a search's arithmetic.

    Parameters
    ----------
    E : Tensor or ndarray, shape (V, d)
        Vocabulary; may be mapped from a file. float32 or float64 (float16 and bfloat16 are
        computed in float32).
    W : Tensor or ndarray, shape (d, d) or (R, d, d)
        Attention weights, in the dtype of `E`.
    memory_budget : int, default 256 MiB
        Bytes that temporaries may take.

    Returns
    -------
    Tensor or ndarray, shape (V,) or (R, V)

    Raises
    ------
    TypeError, ValueError
        For a wrong type, dtype, shape or device, NaN or infinity.
    """
    w = _values.real_tensor("W", W).detach()
    if w.ndim not in (2, 3) or 0 in w.shape or w.shape[-1] != w.shape[-2]:
        raise ValueError(f"W must have shape (d, d) or (R, d, d), got {tuple(w.shape)}")
    _values.finite("W", w)
    inputs = _inputs.texts(w.new_ones(1, w.shape[-1]))
    table = CandidateTable(candidate_table(E, inputs), None, w.dtype, w.device)
    budget = _values.integer("memory_budget", memory_budget, low=1)
    columns = _columns(w.device, budget // (3 * w.itemsize * inputs.d))
    draws = w if w.ndim == 3 else w[None]
    scores = w.new_empty(len(draws), len(table))
    with torch.no_grad():
        for tile in table.tiles(columns):
            candidate_rows(tile.number, tile.rows)
            for score, one in zip(scores, draws, strict=True):
                score[tile.place] = self_scores_of(tile.rows, one)
    scores = scores if w.ndim == 3 else scores[0]
    return scores if isinstance(E, Tensor) else scores.numpy()


@at_full_precision
def substitution_sensitivity(
    X: Texts,
    E: Array,
    W: Array | None = None,
    *,
    weight_fn: str = "softmax",
    mask: Any = None,
    normalize: bool = True,
    positions: Any = None,
    candidates: Any = None,
    own: Any = None,
    top_k: int = 10,
    largest: bool = True,
    full: bool = False,
    self_scores: Array | None = None,
    draws: int | None = None,
    seed: int = 0,
    memory_budget: int = DEFAULT_BUDGET,
    backend: str | None = None,
    progress: bool = False,
) -> SubstitutionResult:
    """Change of random attention features for every word of a text and every word of a vocabulary.

    Each position i of `X` is given each row v of `E`; the change is ‖φ(X') - φ(X)‖ / ‖φ(X)‖, X'
    being X with v in place of word i. The search is exhaustive. In float32 it screens with a bound
    of its rounding error and verifies in float64 whatever may be best, so that the order reported
    is the true order; values that differ by at most 1e-9 of themselves count as tied and stand in
    order of position, then candidate.

    Parameters
    ----------
    X : Tensor or ndarray, shape (n, d) or (B, n, d), or list of (n_b, d)
        Texts. float32 or float64 (float16 and bfloat16 are computed and returned in float32).
    E : Tensor or ndarray, shape (V, d)
        Vocabulary, in the dtype of `X` (float16 and bfloat16 go with float32). It is read tile by
        tile, and may be mapped from a file that is larger than memory.
    W : Tensor or ndarray, shape (d, d) or (R, d, d), optional
        Attention weights. By default random, as `random_weights` gives for `seed`.
    weight_fn, mask, normalize
        As in `raf_features`.
    positions : sequence of int, or of sites, optional
        Where a word may be replaced; by default everywhere. The words of a site, a tuple of
        positions, are replaced at once.
    candidates : sequence of int or bool array (V,), optional
        Rows of `E` that may be used, by default all; or one such choice for each of the n positions
        (bool (n, V), or a list of n). For sites a list of tuples of rows, each tried at every site
        of as many words, which it replaces in ascending order; every value is then computed in
        float64, and candidates are counted in this list.
    own : sequence of int, length n, optional
        The row of `E` that each word of a single text is, -1 for none: no word, and no site, is
        then substituted by itself.
    top_k : int, default 10
        How many of the best pairs (position, candidate) to report.
    largest : bool, default True
        Whether the best change is the largest, or the smallest: the most harmless substitutions.
        The word itself as a candidate changes nothing.
    full : bool, default False
        Whether to return every value as well, (n, V).
    self_scores : Tensor or ndarray, shape (V,) or (R, V), optional
        What `wsfast.self_scores` gives for `E` and `W`, kept from an earlier text.
    draws : int, optional
        Number R of independent random W; not together with `W`.
    seed : int, default 0
        Of the random W.
    memory_budget : int, default 256 MiB
        Bytes that temporaries may take, beyond copies of `X` and `W`, a few arrays of n² numbers
        for the longest text, and the result. `E` is read once for as many texts and draws as are
        held in half of it.
    backend : {"reference", "torch", "native"}, optional
        The definition, one attention layer for each pair; the closed form in PyTorch; or with
        compiled kernels. By default the fastest that can run.
    progress : bool, default False
        Whether to show a progress bar, in candidates.

    Returns
    -------
    SubstitutionResult
        NumPy arrays if `X` is NumPy, else tensors on the device of `X`. Leading axes (B, R), each
        only if `X` is batched and W or `draws` has draws. Values are NaN, with a warning, where
        ‖φ(X)‖ = 0.

    Raises
    ------
    TypeError, ValueError
        For a wrong type, dtype, shape or device, NaN or infinity (in `E` with the rows), no
        candidate, more `top_k` than pairs, `W` together with `draws`, or a mask without any word.
    RuntimeError
        For ``backend="native"`` where the compiled module is missing.

    Notes
    -----
    docs/design.md, section 4. Values in `table` and `grid_value` are within 1e-4 (float32) or
    1e-9 (float64) of the definition, relative to the larger of the change and 1e-3; all other
    values are computed in float64, where the word itself as a candidate gives exactly 0.

    Examples
    --------
    >>> import torch, wsfast
    >>> X, E = torch.randn(5, 8), torch.randn(100, 8)
    >>> result = wsfast.substitution_sensitivity(X, E, top_k=3)
    >>> result.best_candidate.shape, result.top_value.shape
    (torch.Size([5]), torch.Size([3]))
    """
    fn = weight_function(weight_fn, normalize)
    inputs = _inputs.texts(X, mask)
    seed = _values.seed(seed)
    memory_budget = _values.integer("memory_budget", memory_budget, low=1)
    return substitution_under(
        attention_draws(inputs, fn, W, draws, seed, backend, memory_budget),
        inputs,
        E,
        candidates=candidates,
        own=own,
        self_scores=self_scores,
        progress=progress,
        positions=positions,
        top_k=top_k,
        largest=largest,
        full=full,
        seed=seed,
        memory_budget=memory_budget,
    )


@at_full_precision
def substitution_under(
    maps: Draws,
    inputs: Inputs,
    E: Array,
    *,
    candidates: Any = None,
    own: Any = None,
    self_scores: Array | None = None,
    rows: str = "all",
    progress: bool = False,
    **given: Any,
) -> SubstitutionResult:
    """Under maps that are there already; `given` are options of `substitution_options`.

    With ``rows="others"`` candidates of any length come at a site; the change is then of the rows
    of the words that stay, by the definition.
    """
    E = candidate_table(E, inputs)
    places, sites = places_of(given.get("positions"), inputs)
    if sites is not None:
        given["positions"] = None
        options = substitution_options(inputs, **given)
        if self_scores is not None:
            raise ValueError("self_scores must be left out where positions are sites")
        tuples = candidate_tuples(candidates, len(E), sites, rows)
        known = None if own is None else own_rows(own, len(E), inputs).tolist()
        tried = Tried(tuples, fitting(sites, tuples, known, rows), rows)
        return _of_sites(maps, inputs, E, tried, places, sites, options, progress)
    options = substitution_options(inputs, **given)
    chosen = candidates_of(candidates, own, len(E), inputs)
    count = len(maps.numbers) if maps.has_axis else None
    kept = None
    if self_scores is not None:
        kept = given_scores(self_scores, count, len(E), inputs)
    shown = _values.flag("progress", progress)
    table = CandidateTable(E, chosen.numbers, inputs.dtype, inputs.device)
    enough_pairs(options.top_k, _pairs(options, chosen, table))
    with torch.no_grad():
        found = _search(inputs, table, chosen, maps, kept, options, shown)
    columns = Columns(inputs.length, len(E), table.numbers)
    return assemble(found, inputs, options, columns, _info(maps, inputs, options, len(E)), count)


def _info(
    maps: Draws, inputs: Inputs, options: SubstitutionOptions, candidates: int
) -> dict[str, Any]:
    return {
        **maps.info,
        "candidates": candidates,
        "dtype": str(inputs.dtype).removeprefix("torch."),
        "seed": options.seed,
        "versions": versions(),
    }


def _of_sites(
    maps: Draws,
    inputs: Inputs,
    E: Array,
    tried: Tried,
    places: list[Places],
    sites: list[Site],
    options: SubstitutionOptions,
    progress: bool,
) -> SubstitutionResult:
    """Sites of several words, replaced by an explicit list of candidates."""
    tuples = tried.tuples
    shown = _values.flag("progress", progress)
    table = CandidateTable(E, None, inputs.dtype, inputs.device)
    with torch.no_grad():
        found = search_sites(inputs, table, tried, places, maps, options, shown)
    numbers = torch.arange(len(tuples), device=inputs.device)
    count = len(maps.numbers) if maps.has_axis else None
    info = _info(maps, inputs, options, len(tuples))
    if tried.rows != "all":
        info |= {"rows": tried.rows, "backend": "definition"}
    result = assemble(
        found, inputs, options, Columns(len(sites), len(tuples), numbers), info, count
    )
    labelled: list[Any] = [joined(site) for site in sites]
    words = [labelled] * len(inputs.texts) if inputs.batched else labelled
    return replace(
        result, sites=sites, tuples=tuples, words=words, names=[joined(rows) for rows in tuples]
    )


def _pairs(options: SubstitutionOptions, chosen: Candidates, table: CandidateTable) -> list[int]:
    """Pairs of position and candidate of each text that has a word to replace."""
    searched = [at for at in options.positions if len(at)]
    if chosen.allowed is None:
        return [len(at) * len(table) for at in searched]
    return [chosen.allowed.count(at) for at in searched]


_Prepare = Callable[[list[Tensor]], Iterator[AttentionText]]


class _Text:
    """One text under one W, prepared where it is first asked for."""

    def __init__(self, number: int, draw: int, words: Tensor, prepare: _Prepare) -> None:
        self.number, self.draw, self.n = number, draw, len(words)
        self._words, self._prepare = words, prepare

    @cached_property
    def prepared(self) -> AttentionText:
        (prepared,) = self._prepare([self._words])
        _values.finite("φ(X)", prepared.norm)
        return prepared


class _Part(NamedTuple):
    """Some positions of one text under one W."""

    text: _Text
    words: Tensor  # int64, counted among the words
    at: Tensor  # the same, counted in the user's text


def _search(
    inputs: Inputs,
    table: CandidateTable,
    chosen: Candidates,
    maps: Draws,
    kept: Tensor | None,
    options: SubstitutionOptions,
    shown: bool,
) -> list[Ranked]:
    """Text by text and, within a text, draw by draw."""
    of_draws = {draw: _attention(maps.make(draw)) for draw in maps.numbers}
    parts = list(_parts(inputs, of_draws, maps, options))
    longest = max(part.text.n for part in parts)
    itemsize = inputs.texts[0].itemsize
    # A tile's columns: its copy, its product with W, the products with the text, their reduction.
    column = (3 * inputs.d + 8 * longest) * itemsize
    room = options.memory_budget // 2
    columns = _columns(inputs.device, room // column)
    plan = Plan(options.top_k, options.largest, options.full, columns)
    kind = _kind(plan, maps)
    by_run: dict[tuple[int, int], list[Screened]] = {}
    workspace = Workspace(inputs.device)
    groups = list(_groups(parts, room, itemsize, kind))

    def begun(part: _Part) -> Screen:
        allowed = None if chosen.allowed is None else chosen.allowed.at(part.at)
        return kind(part.text.prepared, part.words, allowed, plan, table, workspace)

    W = [] if kept is not None else [map_.weights.W.to(table.dtype) for map_ in of_draws.values()]

    def scores(tile: Tile, draw: int) -> Tensor:
        return kept[draw, tile.number] if kept is not None else self_scores_of(tile.rows, W[draw])

    with progress_bar(len(table) * len(parts), "candidate", shown) as bar:
        for group in groups:
            searches = _read(table.tiles(columns), group, begun, scores, bar)
            for part, search in zip(group, searches, strict=True):
                done = Screened(part.at, search, search.verified())
                by_run.setdefault((part.text.number, part.text.draw), []).append(done)
                if len(groups) > 1:
                    search.release()
    return [rank(by_run[run], options, len(table)) for run in sorted(by_run)]


def _attention(map_: FeatureMap) -> AttentionMap:
    assert isinstance(map_, AttentionMap)
    return map_


def _columns(device: torch.device, fitting: int) -> int:
    """Candidates at a time, of which `fitting` keep to the budget."""
    return max(1, min(_COLUMNS_OF_GPU if device.type == "cuda" else _COLUMNS, fitting))


def _kind(plan: Plan, maps: Draws) -> type[Screen]:
    """How each text is searched."""
    if plan.full or not plan.largest:
        return Screen
    return Screen if maps.engine.waits else DeviceScreen


def _parts(
    inputs: Inputs, of_draws: dict[int, AttentionMap], maps: Draws, options: SubstitutionOptions
) -> Iterator[_Part]:
    for b, (text, keep, at) in enumerate(
        zip(inputs.texts, inputs.masks, options.positions, strict=True)
    ):
        index, words = words_among(keep, at), text[keep].detach()
        alone, one = (Screen.memory(len(words), some, text.itemsize) for some in (0, 1))
        at_once = max(1, options.memory_budget // (2 * (one - alone)))
        for r, map_ in of_draws.items():
            prepare = partial(map_.prepare, engine=maps.engine, budget=options.memory_budget)
            under = _Text(b, r, words, prepare)
            for some, where in zip(index.split(at_once), at.split(at_once), strict=True):
                yield _Part(under, some, where)


def _groups(
    parts: list[_Part], room: int, itemsize: int, kind: type[Screen]
) -> Iterator[list[_Part]]:
    """Parts that are held together while E is read."""
    group: list[_Part] = []
    held = 0
    for part in parts:
        size = kind.memory(part.text.n, len(part.words), itemsize)
        if group and held + size > room:
            yield group
            group, held = [], 0
        group.append(part)
        held += size
    yield group


def _read(
    tiles: Iterator[Tile],
    group: list[_Part],
    begun: Callable[[_Part], Screen],
    scores: Callable[[Tile, int], Tensor],
    bar: Progress,
) -> list[Screen]:
    """All candidates, once, for every search of a group.

    A text is prepared behind what does not depend on it: a GPU meanwhile has the first tile's
    scores of words with themselves, or the first tile of the texts before.
    """
    searches: list[Screen] = []
    for tile in tiles:
        own = {draw: scores(tile, draw) for draw in sorted({part.text.draw for part in group})}
        for k, part in enumerate(group):
            if k == len(searches):
                searches.append(begun(part))
            if searches[k].live:
                searches[k].see(tile, own[part.text.draw])
        bar.update(len(tile.number) * len(group))
    return searches
