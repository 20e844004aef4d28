"""Word sensitivity as the number of words or their dimension grows."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from wsfast import _values
from wsfast._config import machine
from wsfast._progress import progress_bar
from wsfast._values import Array
from wsfast._version import __version__
from wsfast._warn import warn
from wsfast.maps.draws import BUILDERS
from wsfast.results.cells import Cell, Key
from wsfast.results.scaling import ScalingResult
from wsfast.search.options import DEFAULT_BUDGET
from wsfast.studies.scaling.measure import Measure, resolve_options
from wsfast.studies.scaling.options import sizes, study_folder, texts_of_study
from wsfast.studies.scaling.store import Store
from wsfast.studies.scaling.texts import digest, gaussian_text

if TYPE_CHECKING:
    from wsfast.results.embedded import Embedded

_PARTS = 1000  # of the progress bar


def scaling(
    map: str,  # noqa: A002
    ns: int | Sequence[int],
    ds: int | Sequence[int] | None = None,
    *,
    texts: Sequence[Array | Embedded] | None = None,
    draws: int = 10,
    seed: int = 0,
    path: str | os.PathLike[str] | None = None,
    memory_budget: int = DEFAULT_BUDGET,
    progress: bool = False,
    **options: Any,
) -> ScalingResult:
    """Word sensitivity S for texts of many lengths n and dimensions d.

    A cell of the study is S of one text of n words under one draw of the weights. All n of a
    replicate (a text and a draw) share the text, of which they take the first n words, and for
    attention the weights, so that n varies alone.

    Parameters
    ----------
    map : {"rf", "drf", "raf", "relu_raf", "relu_raf_unnormalized"}
        The feature map. "relu_raf" is ReLU attention with normalised rows.
    ns : int or sequence of int
        Numbers of words.
    ds : int or sequence of int, optional
        Dimensions of Gaussian texts; not together with `texts`, which have theirs.
    texts : list of Tensor, ndarray or Embedded, shape (m, d) each, m >= max(ns), optional
        Texts to take the first words of. By default Gaussian ones, float32, with rows of norm √d,
        one for each draw.
    draws : int, default 10
        Draws of the weights, for each text and size; draw r is that of `random_weights`.
    seed : int, default 0
        Of the weights, the Gaussian texts and the starts of the search.
    path : str or PathLike, optional
        A folder that keeps each cell as soon as it is finished. Called again with the same folder
        and settings, finished cells are read from it, so that a run that was killed goes on; `ns`,
        `ds` and `draws` may differ between calls. The table is the same, bit for bit, as that of
        one undisturbed run; hence another version of PyTorch, instruction set, number of threads or
        GPU is refused as other settings are. Several processes may work on one folder.
    memory_budget : int, default 256 MiB
        Bytes that temporaries may take, beyond copies of the texts and weights.
    progress : bool, default False
        Whether to show a progress bar; its parts stand for equal times, not for equal cells.
    **options
        Of `raf_sensitivity`, `rf_sensitivity` or `drf_sensitivity`: radius, positions, starts,
        max_steps, tol, backend; bound and quick for attention; k, activation, depth for the random
        features.

    Returns
    -------
    ScalingResult
        A row for each cell, with slopes, means and pictures of them.

    Raises
    ------
    TypeError, ValueError
        For an unknown map or option, a wrong type, shape or size, or a folder that holds a study
        with other settings; the message names those that differ.
    OSError
        If the folder cannot be written to.

    Warns
    -----
    RuntimeWarning
        Where S is NaN, because the features are zero, and where a file in the folder that has the
        name of a cell is not one.

    Notes
    -----
    Bombari & Mondelli (arXiv 2402.02969): S = O(1/√n) for "rf" (Theorem 1) and "drf" (Theorem 2),
    S = Ω(1) whatever n is for "raf" with d ≳ n (Theorem 3).

    Examples
    --------
    >>> import wsfast
    >>> result = wsfast.scaling("raf", [4, 8, 16], 32, draws=3)
    >>> len(result)
    9
    >>> law = result.slope()
    >>> abs(law.value) < 0.5
    True
    """
    feature_map = _values.one_of("map", map, BUILDERS)
    lengths = sizes("ns", ns)
    draws = _values.integer("draws", draws, low=1)
    seed = _values.seed(seed)
    memory_budget = _values.integer("memory_budget", memory_budget, low=1)
    shown = _values.flag("progress", progress)
    folder = study_folder(path)
    given = None if texts is None else texts_of_study(texts, lengths[-1])
    if (ds is None) == (given is None):
        raise ValueError("ds must be given for Gaussian texts, and not together with texts")
    dimensions = sizes("ds", ds) if given is None else [given[0].shape[1]]

    device = torch.device("cpu") if given is None else given[0].device
    options = resolve_options(feature_map, options, device)
    settings = {
        "map": feature_map,
        "texts": "gaussian" if given is None else [digest(text) for text in given],
        "device": device.type,
        "seed": seed,
        **{name: _described(name, value, path is not None) for name, value in options.items()},
        "version": __version__,
    }
    store = Store(folder, settings | machine(device))
    keys = list(_in_order_of_work(lengths, dimensions, draws, given))
    measure = Measure(feature_map, seed=seed, memory_budget=memory_budget, options=options)

    @lru_cache(maxsize=1)
    def longest(d: int, draw: int) -> Tensor:
        return gaussian_text(lengths[-1], d, seed=seed, draw=draw)

    cells = {key: cell for key in keys if (cell := store.read(key)) is not None}
    missing = [key for key in keys if key not in cells]
    bar_parts = _parts([measure.cost(key.n, key.d) for key in missing])
    with warnings.catch_warnings(), progress_bar(sum(bar_parts), "part", shown) as bar:
        # Cell by cell; the one warning below says more.
        warnings.filterwarnings("ignore", "S is NaN", RuntimeWarning)
        for key, parts in zip(missing, bar_parts, strict=True):
            # Another process may have been faster.
            cell = store.read(key)
            if cell is None:
                text = longest(key.d, key.draw) if given is None else given[key.text]
                # A copy: its place in memory, hence rounding, is that of any other run.
                cell = measure.cell(text[: key.n].clone(), key.text, key.draw)
                store.write(cell)
            cells[key] = cell
            bar.update(parts)
    result = ScalingResult(tuple(cells.values()), {feature_map: settings})
    _warn_of_nan(result.rows)
    return result


def _in_order_of_work(
    lengths: list[int], dimensions: list[int], draws: int, texts: list[Tensor] | None
) -> Iterator[Key]:
    """All n of a replicate one after the other, short ones first."""
    for d in dimensions:
        for draw in range(draws):
            for text in [draw] if texts is None else range(len(texts)):
                for n in lengths:
                    yield Key(d, n, text, draw)


def _parts(costs: list[float]) -> list[int]:
    """Parts of the progress bar for cells of these costs."""
    done = np.cumsum(costs)
    ends = np.rint(_PARTS * done / done[-1]).astype(int) if costs else done
    return [int(parts) for parts in np.diff(ends, prepend=0)]


def _described(name: str, value: Any, kept: bool) -> Any:
    """An option as JSON can hold it; where the study is `kept`, it must tell all of it."""
    if isinstance(value, (Tensor, np.ndarray, np.generic)):
        value = value.tolist()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple, range)):
        return [_described(name, one, kept) for one in value]
    if kept:
        raise TypeError(
            f"{name} must be numbers or a name where path is given, so that another run can tell "
            f"whether it is the same, got {type(value).__name__}"
        )
    return _values.name_of(value)


def _warn_of_nan(cells: Sequence[Cell]) -> None:
    broken = [cell for cell in cells if math.isnan(cell.S)]
    if broken:
        first = broken[0]
        warn(
            f"S is NaN in {len(broken)} of {len(cells)} cells, the first with n = {first.n}, "
            f"d = {first.d}, text {first.text}, draw {first.draw}: the features are zero there"
        )
