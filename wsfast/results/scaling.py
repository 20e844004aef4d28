"""The result of a scaling study: a table of cells, and the laws fitted to it."""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from wsfast import _values
from wsfast._extras import import_extra
from wsfast._files import write_whole
from wsfast.results import storage
from wsfast.results.cells import Cell, table_order
from wsfast.results.intervals import summarize
from wsfast.results.shown import shown_by
from wsfast.results.slope import Slope, fit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

_NAME = "ScalingResult"
_FORMAT = 1
_INTEGERS = ("n", "d", "text", "draw", "position")
_COLUMNS = (*_INTEGERS, "S", "upper", "k")


class Mean(NamedTuple):
    """S of one map and size, over its replicates.

    Attributes
    ----------
    map : str
        Name of the feature map.
    n, d : int
        Words of the texts, and their dimension.
    mean : float
        NaN where S of a replicate is.
    low, high : float
        Ends of the Student t interval of the mean; NaN with a single replicate.
    replicates : int
        How many texts and draws were averaged.
    """

    map: str
    n: int
    d: int
    mean: float
    low: float
    high: float
    replicates: int


@dataclass(frozen=True, eq=False, repr=False)
class ScalingResult:
    """Word sensitivity S of texts of many sizes.

    Attributes
    ----------
    rows : tuple of Cell
        One for each map, size, text and draw, with the attributes map, n, d, text, draw, S,
        position, upper and k; sorted by map, d, n, text and draw. A text and a draw together are a
        replicate.
    info : dict
        For each map, the settings that its numbers come from. JSON can hold it.

    Raises
    ------
    ValueError
        For two rows of one map, size, text and draw.
    """

    rows: tuple[Cell, ...]
    info: dict[str, Any]

    def __post_init__(self) -> None:
        ordered = sorted(self.rows, key=table_order)
        for one, other in pairwise(ordered):
            if table_order(one) == table_order(other):
                raise ValueError(
                    f"rows must hold each cell once, got two of map {one.map!r}, n = {one.n}, "
                    f"d = {one.d}, text {one.text}, draw {one.draw}"
                )
        object.__setattr__(self, "rows", tuple(ordered))

    @classmethod
    def concat(cls, results: Iterable[ScalingResult]) -> ScalingResult:
        """Join the tables of several results: of different maps, or of other sizes of one map.

        Raises
        ------
        ValueError
            If a map has different settings in two of them, or a cell is in two of them.
        """
        rows: list[Cell] = []
        info: dict[str, Any] = {}
        for result in results:
            rows += result.rows
            for name, settings in result.info.items():
                if info.setdefault(name, settings) != settings:
                    raise ValueError(
                        f"results must have one set of settings for the map {name!r}, got "
                        f"{info[name]} and {settings}"
                    )
        return cls(tuple(rows), info)

    def slope(
        self,
        along: str = "n",
        *,
        confidence: float = 0.95,
        resamples: int = 2000,
        seed: int = 0,
        at: int | None = None,
        map: str | None = None,  # noqa: A002
    ) -> Slope:
        """Fit the law S ∝ nˢˡᵒᵖᵉ: least squares of log S over log n, with a bootstrap interval.

        The interval holds the middle share `confidence` of the slopes of resampled tables. Whole
        replicates are resampled, with all their sizes, as one text and one draw serve them all; it
        is somewhat narrow for fewer than 20 of them. Replicates count as independent, as those with
        Gaussian texts are; given texts share the weights of a draw.

        Parameters
        ----------
        along : {"n", "d"}
            The variable of the law.
        confidence : float
            Coverage of the interval, between 0 and 1.
        resamples : int, default 2000
        seed : int, default 0
            Of the resampling.
        at : int, optional
            The value of the other variable; needed where the table has several.
        map : str, optional
            The feature map; needed where the table has several.

        Returns
        -------
        Slope
            Its low and high are NaN where there is one replicate alone.

        Raises
        ------
        ValueError
            For fewer than two values of the variable, an S that is NaN or zero, or options outside
            of these.
        """
        along = _values.one_of("along", along, ("n", "d"))
        confidence = _values.confidence(confidence)
        resamples = _values.integer("resamples", resamples, low=1)
        seed = _values.seed(seed)
        name = _asked("map", map, {cell.map: None for cell in self.rows})
        rows = [cell for cell in self.rows if cell.map == name]
        other = "d" if along == "n" else "n"
        fixed = _asked("at", at, sorted({getattr(cell, other) for cell in rows}))
        return fit(
            [cell for cell in rows if getattr(cell, other) == fixed],
            along,
            confidence=confidence,
            resamples=resamples,
            seed=seed,
        )

    def means(self, confidence: float = 0.95) -> list[Mean]:
        """Mean of S over the replicates of each map and size, with its Student t interval.

        Raises
        ------
        ValueError
            If `confidence` is not between 0 and 1.
        """
        confidence = _values.confidence(confidence)
        return [
            _mean(list(cells), confidence)
            for _, cells in groupby(self.rows, key=lambda cell: (cell.map, cell.n, cell.d))
        ]

    def plot(self, ax: Axes | None = None, *, along: str = "n") -> Axes:
        """Draw S over n, or over d, both axes logarithmic: a line for each map and other size.

        Points are means with their 95 % t interval; the legend has the slopes.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; pyplot is then not touched. Without it a new pyplot figure is made, which
            a notebook shows by itself, as pandas does.
        along : {"n", "d"}
            What the horizontal axis has.

        Returns
        -------
        matplotlib Axes

        Raises
        ------
        ImportError
            If matplotlib is not installed; the message has the pip command.
        ValueError
            For any other `along`.
        """
        along = _values.one_of("along", along, ("n", "d"))
        drawn: Axes = shown_by("scaling").plot(self, ax, along=along)
        return drawn

    def to_frame(self) -> DataFrame:
        """Give the table as a pandas DataFrame; `upper` is NaN and `k` missing where there is none.

        Raises
        ------
        ImportError
            If pandas is not installed; the message has the pip command.
        """
        pandas = import_extra("pandas", "tables")
        frame: DataFrame = pandas.DataFrame(list(self.rows), columns=list(Cell._fields))
        kinds = dict.fromkeys(_INTEGERS, "int64")
        return frame.astype({"map": str, **kinds, "S": float, "upper": float, "k": "Int64"})

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write the table as CSV, in full precision; NaN is an empty cell.

        The file is replaced as a whole: a reader never sees half of it.
        """
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(Cell._fields)
        for cell in self.rows:
            writer.writerow([None if value != value else value for value in cell])
        write_whole(Path(path), text.getvalue().encode())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to `path`, a .npz file with JSON metadata and no pickle.

        The file is replaced as a whole: a reader never sees half of it.
        """
        columns = dict(zip(Cell._fields, zip(*self.rows, strict=True), strict=False))
        arrays: dict[str, Any] = {
            name: np.array(columns.get(name, ()), dtype=np.int64) for name in _INTEGERS
        }
        arrays["S"] = np.array(columns.get("S", ()), dtype=float)
        arrays["upper"] = np.array(columns.get("upper", ()), dtype=float)  # None becomes NaN
        arrays["k"] = np.array([k or 0 for k in columns.get("k", ())], dtype=np.int64)
        meta = {"maps": list(columns.get("map", ())), "info": self.info}
        storage.save_result(path, _NAME, _FORMAT, arrays, meta)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ScalingResult:
        """Read a file of :meth:`save`.

        Raises
        ------
        OSError
            If the file cannot be read.
        ValueError
            If it is not such a file, or of a later version.
        """
        arrays, meta = storage.load_result(path, _NAME, _FORMAT, _COLUMNS)
        columns = {name: array.tolist() for name, array in arrays.items()}
        columns["map"] = meta["maps"]
        columns["upper"] = [None if math.isnan(value) else value for value in columns["upper"]]
        columns["k"] = [k or None for k in columns["k"]]
        rows = zip(*(columns[name] for name in Cell._fields), strict=True)
        return cls(tuple(Cell(*row) for row in rows), meta["info"])

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return shown_by("scaling").describe(self)


def _asked(name: str, value: Any, there: Collection[Any]) -> Any:
    """`value`, one of those that are `there`; None stands for the only one."""
    if not there:
        raise ValueError("rows must hold at least one cell, got none")
    if value is None and len(there) == 1:
        return next(iter(there))
    return _values.one_of(name, value, there)


def _mean(cells: Sequence[Cell], confidence: float) -> Mean:
    """Mean and t interval over the replicates of one map and size."""
    values = np.array([cell.S for cell in cells], dtype=np.float64)
    mean, low, high = float(values[0]), math.nan, math.nan
    if len(values) > 1:
        summary = summarize(values, 0, confidence)
        mean, low, high = (float(value) for value in (summary.mean, summary.low, summary.high))
    first = cells[0]
    return Mean(first.map, first.n, first.d, mean, low, high, len(values))
