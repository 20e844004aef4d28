"""Tables, picture, claims and report of the word sensitivity against the number of words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from wsfast.reproduce import claims, figures, report, tables
from wsfast.reproduce.claims import Claim, Interval
from wsfast.reproduce.tables import Table
from wsfast.results.scaling import ScalingResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from wsfast.reproduce.data import Sample
    from wsfast.reproduce.settings import SensitivitySettings, Series, SeriesCell
    from wsfast.results.cells import Cell

TITLE = "Word sensitivity against the number of words"
_OF_BOUNDS = (
    " S is found by search, and the supremum is no less; U is proved to be no less than that (in "
    "the picture dotted). What is proved holds of every value between them, whatever the search "
    "has missed; the intervals are of the sample of texts alone."
)
TOLERANCE = 0.05  # of a slope: a law holds for large n, and these n are not
_MARKERS = "osD^vP*X"
_TICKS = (0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)


def write(
    out: Path,
    settings: SensitivitySettings,
    series: Sequence[Series],
    points: Sequence[SeriesCell],
    *,
    sample: Sample | None,
    command: str,
    seconds: float,
) -> None:
    """Write everything that a run leaves behind."""
    found = Findings(settings, series, points)
    made = [_cells(points), _means(found), _slopes(found)]
    if found.bounded:
        made.append(_brackets(found))
    files = [name for table in made for name in tables.write(table, out)]
    files += figures.save(
        out, "sensitivity", (5.2 * len(settings.ds), 6.0), lambda figure: _draw(found, figure)
    )
    source = (
        f"{settings.replicates} Gaussian texts for each d, rows scaled to norm √d."
        if sample is None
        else sample.described(settings.model)
    )
    report.write(
        out,
        TITLE,
        claims=_claims(found),
        notes=[
            f"Texts: {source} Each text has its own draw of the weights, the "
            "same for all n; S is the largest over all positions. A slope is that of log S over "
            f"log n, with its bootstrap interval over texts, which is narrow for so few; it agrees "
            f"with a claim if the interval comes within {TOLERANCE} of it."
            + (_OF_BOUNDS if found.bounded else "")
        ],
        figure="sensitivity.png",
        table="\n\n".join(
            report.markdown(tuple(table.columns), table.rows()) for table in made[2:]
        ),
        files=files,
        settings=settings.told(),
        command=command,
        seconds=seconds,
    )


class Findings:
    """Slopes, means and differences between series, from the cells."""

    def __init__(
        self, settings: SensitivitySettings, series: Sequence[Series], points: Sequence[SeriesCell]
    ) -> None:
        self.settings = settings
        self.series = list(series)
        # A replicate has its own text and weights, which scaling() counts as text 0 and draw 0.
        self.results = {
            one.name: ScalingResult(
                tuple(
                    point.cell._replace(text=point.replicate, draw=point.replicate)
                    for point in points
                    if point.series == one.name
                ),
                {},
            )
            for one in series
        }

    def named(self, feature_map: str, **options: int | None) -> Series:
        """The series of a map with these options."""
        return next(
            one
            for one in self.series
            if one.map == feature_map and options.items() <= one.options.items()
        )

    @property
    def bounded(self) -> bool:
        """Whether every S of attention has an upper bound."""
        of_attention = [self.results[self.named(name).name] for name in ("raf", "relu_raf")]
        return all(cell.upper is not None for result in of_attention for cell in result.rows)

    def slope(self, one: Series, at: int, along: str = "n") -> Interval:
        """Slope of log S over log n for d = `at`, or over log d for n = `at`."""
        return self._slope(self.results[one.name], at, along)

    def _slope(self, result: ScalingResult, at: int, along: str = "n") -> Interval:
        law = result.slope(along, at=at, seed=self.settings.seed)
        return Interval(law.value, law.low, law.high)

    def extreme_slopes(self, one: Series, d: int) -> tuple[Interval, Interval]:
        """The least and the largest slope over log n that values between S and its bound have."""
        cells = [cell for cell in self.results[one.name].rows if cell.d == d]
        # A value of few words pulls the slope down, one of many words up.
        middle = np.mean([math.log(n) for n in one.ns])
        least, largest = (
            [_raised(cell) if (math.log(cell.n) < middle) == few else cell for cell in cells]
            for few in (True, False)
        )
        low, high = (self._slope(ScalingResult(tuple(rows), {}), d) for rows in (least, largest))
        return low, high

    def logs(self, one: Series, n: int, d: int, *, upper: bool = False) -> list[float]:
        """Log S of each replicate, or that of its bound."""
        rows = [cell for cell in self.results[one.name].rows if (cell.n, cell.d) == (n, d)]
        return [math.log((_raised(cell) if upper else cell).S) for cell in rows]

    def log_ratio(
        self,
        one: Series,
        other: Series,
        d: int,
        ns: Sequence[int],
        *,
        upper: tuple[bool, bool] = (False, False),
    ) -> Interval:
        """Mean over replicates of log S of one less that of the other, averaged over `ns`.

        `upper` says of which of the two the bounds take the place of S.
        """
        differences = [
            np.subtract(
                self.logs(one, n, d, upper=upper[0]), self.logs(other, n, d, upper=upper[1])
            )
            for n in ns
        ]
        return claims.mean_of(np.mean(differences, axis=0).tolist())


def _raised(cell: Cell) -> Cell:
    """The cell with its bound in place of S."""
    return cell if cell.upper is None else cell._replace(S=cell.upper)


def finite_slope(ns: Sequence[int]) -> float:
    """Slope of (1 + 1/√n)/√n, fitted to log values at `ns` as that of S is."""
    n = np.array(ns, dtype=np.float64)
    return float(np.polyfit(np.log(n), np.log((1 + n**-0.5) / n**0.5), 1)[0])


def _claims(found: Findings) -> list[Claim]:
    listed = [claim for d in found.settings.ds for claim in _claims_at(found, d)]
    return listed + (_claims_along_d(found) if len(found.settings.ds) > 1 else [])


def _claims_at(found: Findings, d: int) -> list[Claim]:
    settings = found.settings
    raf, relu = found.named("raf"), found.named("relu_raf")
    rf, full = found.named("rf", k=settings.k), found.named("rf", k=None)
    deep = [found.named("drf", depth=depth) for depth in settings.depths]
    where = f"d = {d}, n from {settings.ns[0]} to {settings.ns[-1]}"
    listed = []

    slope = found.slope(rf, d)
    falls = "S = O(1/√n): slope at most -1/2"
    listed.append(
        Claim("Theorem 1", f"{rf.name}: {falls} ({where})", f"slope {slope}", _at_most_half(slope))
    )
    slope, expected = found.slope(full, d), finite_slope(full.ns)
    listed.append(
        Claim(
            "law at finite n",
            f"{full.name}: S ∝ (1 + 1/√n)/√n, whose slope is {expected:.3f} "
            f"(d = {d}, n from {full.ns[0]} to {full.ns[-1]})",
            f"slope {slope}",
            claims.near(slope, expected, TOLERANCE),
        )
    )
    for one in deep:
        slope = found.slope(one, d)
        listed.append(
            Claim(
                "Theorem 2",
                f"{one.name}: {falls} ({where})",
                f"slope {slope}",
                _at_most_half(slope),
            )
        )
    listed.append(_growth_with_depth(found, [rf, *deep], d))
    slope = found.slope(raf, d)
    listed.append(
        Claim(
            "Theorem 3",
            f"{raf.name}: S = Ω(1), slope at least 0 ({where})",
            f"slope {slope}",
            claims.at_least(slope, -TOLERANCE),
        )
    )
    last = settings.ns[-1]
    ratio = _exp(found.log_ratio(raf, rf, d, [last]))
    listed.append(
        Claim(
            "Theorems 1 and 3",
            f"RAF reacts more than RF: ratio above 1 (d = {d}, n = {last})",
            f"ratio {ratio}",
            claims.above(ratio, 1.0),
        )
    )
    ratio = _exp(found.log_ratio(relu, raf, d, settings.ns))
    listed.append(
        Claim(
            "ReLU attention",
            f"ReLU attention reacts less than softmax: ratio below 1 ({where})",
            f"ratio {ratio}",
            claims.below(ratio, 1.0),
        )
    )
    return listed + (_proved_at(found, d) if found.bounded else [])


def _proved_at(found: Findings, d: int) -> list[Claim]:
    """What holds of S wherever it lies between what was found and its bound U."""
    settings = found.settings
    raf, relu = found.named("raf"), found.named("relu_raf")
    rf = found.named("rf", k=settings.k)
    where, last = f"d = {d}, n from {settings.ns[0]} to {settings.ns[-1]}", settings.ns[-1]
    low, high = found.extreme_slopes(raf, d)
    over = _exp(found.log_ratio(raf, rf, d, [last], upper=(False, True)))
    under = _exp(found.log_ratio(relu, raf, d, settings.ns, upper=(True, False)))
    return [
        Claim(
            "Theorem 3, proved",
            f"{raf.name}: slope at least 0 of all values between S and U ({where})",
            f"slope from {low} to {high}",
            claims.at_least(low, -TOLERANCE),
        ),
        Claim(
            "Theorems 1 and 3, proved",
            f"RAF reacts more than RF: S of RAF over U of RF above 1 (d = {d}, n = {last})",
            f"ratio {over}",
            claims.above(over, 1.0),
        ),
        Claim(
            "ReLU attention, proved",
            f"ReLU attention reacts less than softmax: its U over S of softmax below 1 ({where})",
            f"ratio {under}",
            claims.below(under, 1.0),
        ),
    ]


def _at_most_half(slope: Interval) -> str:
    return claims.at_most(slope, -0.5 + TOLERANCE)


def _growth_with_depth(found: Findings, deep: Sequence[Series], d: int) -> Claim:
    """e^{CL}: log S grows with the depth at most linearly, by no more at each further layer."""
    n = found.settings.ns[-1]
    depths = [one.options.get("depth", 1) for one in deep]
    logs = np.array([found.logs(one, n, d) for one in deep])
    per_layer = np.diff(logs, axis=0) / np.diff(depths)[:, None]
    rise = claims.mean_of(np.diff(per_layer, axis=0).mean(0).tolist())
    factors = ", ".join(
        f"{math.exp(growth):.3f} from L = {first} to {last}"
        for growth, first, last in zip(per_layer.mean(1), depths, depths[1:], strict=False)
    )
    return Claim(
        "Theorem 2",
        "S grows with the depth at most as e^(C L): log S rises by no more for a further layer "
        f"than for one before (d = {d}, n = {n})",
        f"rise of the growth of log S {rise}; factor of S for each layer: {factors}",
        claims.at_most(rise, TOLERANCE),
    )


def _claims_along_d(found: Findings) -> list[Claim]:
    """Neither bound has to do with the dimension."""
    ds = found.settings.ds
    raf, rf = found.named("raf"), found.named("rf", k=None)
    where = f"d from {ds[0]} to {ds[-1]}"
    rises, falls = found.slope(raf, raf.ns[-1], "d"), found.slope(rf, rf.ns[-1], "d")
    return [
        Claim(
            "Theorem 1",
            f"{rf.name}: S = O(1/√n) whatever d is, slope at most 0 (n = {rf.ns[-1]}, {where})",
            f"slope in d {falls}",
            claims.at_most(falls, TOLERANCE),
        ),
        Claim(
            "Theorem 3",
            f"{raf.name}: S = Ω(1), slope at least 0 (n = {raf.ns[-1]}, {where})",
            f"slope in d {rises}",
            claims.at_least(rises, -TOLERANCE),
        ),
    ]


def _exp(interval: Interval) -> Interval:
    return Interval(*map(math.exp, interval))


# -- tables ----------------------------------------------------------------------------------------


def _cells(points: Sequence[SeriesCell]) -> Table:
    header = ("series", "map", "k", "n", "d", "replicate", "S", "position", "upper")
    rows = [
        (name, cell.map, cell.k, cell.n, cell.d, replicate, cell.S, cell.position, cell.upper)
        for name, replicate, cell in points
    ]
    return Table.of_rows("cells", header, rows)


def _means(found: Findings) -> Table:
    header = ("series", "n", "d", "mean", "low", "high", "replicates")
    rows = [
        (name, mean.n, mean.d, mean.mean, mean.low, mean.high, mean.replicates)
        for name, result in found.results.items()
        for mean in result.means()
    ]
    return Table.of_rows("means", header, rows)


def _brackets(found: Findings) -> Table:
    """Between what the mean S of each size lies."""
    header = ("series", "n", "d", "mean S", "mean U", "largest U/S")
    rows = []
    for name, result in found.results.items():
        for mean in result.means():
            cells = [cell for cell in result.rows if (cell.n, cell.d) == (mean.n, mean.d)]
            uppers = [cell.upper for cell in cells if cell.upper is not None]
            if len(uppers) == len(cells):
                ratio = max(_raised(cell).S / cell.S for cell in cells)
                rows.append((name, mean.n, mean.d, mean.mean, float(np.mean(uppers)), ratio))
    return Table.of_rows("brackets", header, rows)


def _slopes(found: Findings) -> Table:
    header = ("series", "along", "at", "slope", "low", "high", "claim")
    rows: list[tuple[Any, ...]] = []
    for one in found.series:
        rows += [
            (one.name, "n", f"d = {d}", *found.slope(one, d), _claimed(one))
            for d in found.settings.ds
        ]
        if len(found.settings.ds) > 1:
            n = one.ns[-1]
            rows.append((one.name, "d", f"n = {n}", *found.slope(one, n, "d"), None))
    return Table.of_rows("slopes", header, rows)


def _claimed(one: Series) -> str | None:
    """What is claimed of the slope along n."""
    if one.map == "raf":
        return ">= 0"
    if one.map == "relu_raf":
        return None
    return f"{finite_slope(one.ns):.3f}" if one.options["k"] is None else "<= -0.5"


# -- picture ---------------------------------------------------------------------------------------


def _draw(found: Findings, figure: Figure) -> None:
    axes = figure.subplots(1, len(found.settings.ds), squeeze=False, sharey=True)[0]
    sizes = [mean.mean for result in found.results.values() for mean in result.means()]
    for ax, d in zip(axes, found.settings.ds, strict=True):
        for one, marker in zip(found.series, _MARKERS, strict=False):
            _draw_series(found, one, d, marker, ax)
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xlabel("number of words n")
        ax.set_title(f"d = {d}")
        ax.set_xticks(found.settings.ns, labels=map(str, found.settings.ns))
        ax.minorticks_off()
        ax.set_yticks(_TICKS, labels=map(str, _TICKS))
        ax.set_ylim(0.8 * min(sizes), 1.25 * max(sizes))
        ax.legend(fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.12))
    axes[0].set_ylabel("word sensitivity S, mean and 95 % interval")


def _draw_series(found: Findings, one: Series, d: int, marker: str, ax: Axes) -> None:
    means = [mean for mean in found.results[one.name].means() if mean.d == d]
    ns = [mean.n for mean in means]
    slope = found.slope(one, d)
    label = f"{one.name}: slope {slope.value:.2f} [{slope.low:.2f}, {slope.high:.2f}]"
    (line,) = ax.plot(ns, [mean.mean for mean in means], marker=marker, markersize=4, label=label)
    low, high = ([getattr(mean, end) for mean in means] for end in ("low", "high"))
    ax.fill_between(ns, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
    if found.bounded and one.map in ("raf", "relu_raf"):
        logs = [np.mean(found.logs(one, n, d, upper=True)) for n in ns]
        ax.plot(ns, np.exp(logs), color=line.get_color(), linewidth=0.8, linestyle=":")
