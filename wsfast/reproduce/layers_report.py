"""Tables, picture, claims and report of the study of trained heads."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from wsfast.reproduce import claims, figures, report, tables
from wsfast.reproduce.claims import Claim, Interval
from wsfast.reproduce.settings import LARGE, SMALL, Part
from wsfast.reproduce.tables import Table
from wsfast.results.arrays import to_numpy
from wsfast.results.layers import LayerSensitivityResult
from wsfast.results.rank_correlation import rank_correlation

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from wsfast.reproduce.data import Beginnings
    from wsfast.reproduce.layers_runs import ChangedTexts
    from wsfast.reproduce.settings import LayersSettings

Array: TypeAlias = "NDArray[np.float64]"

TITLE = "Trained heads on reviews: how much one word can do"
SOURCE = "three reviews"
_ABOUT = (
    "Heads of a trained transformer, with the word sensitivity of {paper}, which is about random "
    "features. The claims are no one's but wsfast's own: what an earlier look at three reviews "
    "and one model (all-MiniLM-L6-v2) had shown."
)
_HALF = math.sqrt(0.5)  # a rank correlation that explains half of the variance of ranks
# Trained over shuffled, as it was in layers 1 to 5: the smallest and the largest.
_RATIOS = {LARGE: (1.5, 2.4), SMALL: (3.0, 5.1)}
# Spearman between the change of a layer and that of the embedding, as it was: layers, from, to.
_SPEARMAN = (((0, 1, 2), 0.2, 0.3), ((3, 4), 0.4, 0.7))


def write(
    out: Path,
    settings: LayersSettings,
    sample: Beginnings,
    results: Mapping[Part, Any],
    *,
    command: str,
    seconds: float,
) -> None:
    """Write everything that a run leaves behind."""
    found = Findings(settings, results)
    summary, correlations = _summary(found), _correlations(found)
    made = [_heads(found, sample), _words(found, sample), _runs(found, sample)]
    every = [summary, correlations, *made]
    files = [name for table in every for name in tables.write(table, out)]
    files += figures.save(out, "layers", (12.0, 4.0), lambda figure: _draw(found, figure))
    report.write(
        out,
        TITLE,
        claims=_claims(found),
        notes=[f"Texts: {sample.described(settings.n)}", *_notes(settings)],
        figure="layers.png",
        table="\n\n".join(
            report.markdown(tuple(one.columns), one.rows()) for one in (summary, correlations)
        ),
        files=files,
        settings=asdict(settings),
        command=command,
        seconds=seconds,
        about=_ABOUT.format(paper=report.PAPER),
    )


def _notes(settings: LayersSettings) -> list[str]:
    return [
        "S of a head is the largest relative change of its output as the vector of one word, where "
        "the attention reads it, moves by at most the radius; the radius is in units of the norm "
        "of that vector. Of a layer and a review the median over heads counts. A twin has the "
        "entries of each weight matrix shuffled, on the same hidden states; draws: "
        f"{settings.draws}, other ones for each review, so that intervals over reviews hold the "
        "spread of both (sd_reviews: of the ratio over reviews; sd_shuffles: over draws, within a "
        "review). typical is S_i of the median word over S. The share is that of √n σ_max(W_V) "
        "‖Δ‖ / ‖o‖, n rows that attend to the moved word alone.",
        f"Each word of one token gave way to {settings.words} random words. Changes of layers and "
        "of the embedding, the mean of the last hidden state, are those of the run of the changed "
        "text. Rank correlations (Spearman) are taken within a review; intervals are over reviews.",
        "Searches give lower bounds that are attained. A layer's sensitivity is not the model's: "
        "beyond layer 0 it is the vector of one row that moves, where another word would move all.",
    ]


# -- what was found --------------------------------------------------------------------------------


class Findings:
    """Figures of each review, (reviews, layers): a radius of None stands for masks."""

    def __init__(self, settings: LayersSettings, results: Mapping[Part, Any]) -> None:
        self.settings = settings
        self._results = results
        self.layers = self.result(0, None).layers
        self.changes = (*settings.radii, None)
        self._shares = {radius: self._share(radius) for radius in settings.radii}

    def result(self, review: int, radius: float | None) -> LayerSensitivityResult:
        """S of every head and word of a review."""
        kind = "mask" if radius is None else "ball"
        found: LayerSensitivityResult = self._results[Part(kind, review, radius)]
        return found

    def runs(self, review: int) -> ChangedTexts:
        """The runs of a review with other words in it."""
        found: ChangedTexts = self._results[Part("runs", review)]
        return found

    def trained(self, radius: float | None) -> Array:
        """Median over heads of S."""
        return self._each(lambda k: np.median(S_of(self.result(k, radius)), axis=1))

    def shuffled(self, radius: float | None) -> Array:
        """The same of every draw of the twins, (reviews, draws, layers)."""
        return self._each(lambda k: np.median(control_of(self.result(k, radius)), axis=2))

    def ratio(self, radius: float | None) -> Array:
        """Trained over shuffled, (reviews, draws, layers)."""
        ratios: Array = self.trained(radius)[:, None] / self.shuffled(radius)
        return ratios

    def typical(self, radius: float | None) -> Array:
        """Median over heads of S_i of the median word over that of the worst, S."""

        def of_review(k: int) -> Any:
            result = self.result(k, radius)
            middle = np.median(to_numpy(result.per_word)[:, :, 0], axis=2)
            return np.median(middle / S_of(result), axis=1)

        return self._each(of_review)

    def share(self, radius: float) -> Array:
        """Median over heads of the share of what values can do."""
        return self._shares[radius]

    def shares(self, review: int, radius: float) -> Array:
        """The same of every head (layers, heads)."""
        result = self.result(review, radius)
        at = to_numpy(result.position)[..., 0]
        found: Array = self.runs(review).share(S_of(result), at, radius)
        return found

    def spearman(self) -> Array:
        """Of the changes of a layer and of the embedding, over texts with another word."""

        def of_review(k: int) -> list[float]:
            runs = self.runs(k)
            changes = runs.embedding.tolist()
            return [rank_correlation(column, changes) for column in runs.layers.T.tolist()]

        return self._each(of_review)

    def spearman_of_words(self, radius: float | None) -> Array:
        """Of S_i, mean over heads, and the mean change of the embedding, over words."""

        def of_review(k: int) -> list[float]:
            places, embedding = self.words(k)
            per_word = self.per_word(k, radius)[:, places].tolist()
            return [rank_correlation(row, embedding.tolist()) for row in per_word]

        return self._each(of_review)

    def words(self, review: int) -> tuple[NDArray[np.int64], Array]:
        """Words that gave way, and the mean change of the embedding of each."""
        runs = self.runs(review)
        places, which = np.unique(runs.position, return_inverse=True)
        means: Array = np.bincount(which, runs.embedding) / np.bincount(which)
        return places, means

    def per_word(self, review: int, radius: float | None) -> Array:
        """S_i, mean over heads, (layers, words)."""
        found: Array = to_numpy(self.result(review, radius).per_word)[:, :, 0].mean(1)
        return found

    def _share(self, radius: float) -> Array:
        return self._each(lambda k: np.median(self.shares(k, radius), axis=1))

    def _each(self, of_review: Callable[[int], Any]) -> Array:
        return np.array([of_review(k) for k in range(self.settings.reviews)])


def S_of(result: LayerSensitivityResult) -> Array:  # noqa: N802
    """S (layers, heads) of a result with one radius."""
    values: Array = to_numpy(result.value)[..., 0]
    return values


def control_of(result: LayerSensitivityResult) -> Array:
    """S (draws, layers, heads) of its twins."""
    assert result.control is not None
    values: Array = to_numpy(result.control)[..., 0]
    return values


def intervals(of_reviews: Array) -> list[Interval]:
    """Mean and interval over reviews of each layer, from (reviews, layers)."""
    return [claims.mean_of(column.tolist()) for column in of_reviews.T]


# -- claims ----------------------------------------------------------------------------------------


def _claims(found: Findings) -> list[Claim]:
    listed = [
        *(_first_layer(found, radius) for radius in (LARGE, SMALL)),
        *_later_layers(found),
        *_ceiling(found),
        *_embedding(found),
    ]
    if found.settings.quick:
        settings = found.settings
        measured = f"{settings.reviews} reviews of {settings.n} tokens, draws: {settings.draws}"
        listed.append(
            Claim(
                SOURCE,
                "the same on 12 reviews of 64 tokens, with 3 draws of shuffled weights",
                measured,
                claims.UNTESTED,
            )
        )
    return listed


def _first_layer(found: Findings, radius: float) -> Claim:
    ratio = intervals(found.ratio(radius).mean(1))[0]
    return Claim(
        SOURCE,
        "heads of the first layer are no more sensitive than shuffled ones: ratio at most 1 "
        f"({_at(radius)})",
        f"ratio {ratio}",
        claims.at_most(ratio, 1.0),
    )


def _later_layers(found: Findings) -> list[Claim]:
    """Of the layer that speaks most against each claim."""
    later = found.layers[1:]
    if not later:
        return []
    listed = []
    ratios = {radius: found.ratio(radius).mean(1)[:, 1:] for radius in (LARGE, SMALL)}
    for radius, of_reviews in ratios.items():
        least, ratio = _smallest(intervals(of_reviews))
        listed.append(
            Claim(
                SOURCE,
                "heads of all later layers are more sensitive than shuffled ones: ratio above 1 "
                f"({_at(radius)})",
                f"smallest in layer {later[least]}: ratio {ratio}",
                claims.above(ratio, 1.0),
            )
        )
    for radius, (low, high) in _RATIOS.items():
        if later != [1, 2, 3, 4, 5]:
            break
        every = intervals(ratios[radius])
        listed.append(
            Claim(
                SOURCE,
                f"ratio {low} to {high} in layers 1 to 5 ({_at(radius)})",
                ", ".join(map(str, every)),
                claims.verdict(all(_within(one, low, high) == claims.AGREES for one in every)),
            )
        )
    least, more = _smallest(intervals(np.log(ratios[SMALL] / ratios[LARGE])))
    listed.append(
        Claim(
            SOURCE,
            "and more so at the small radius: ratio there over ratio at the large one above 1",
            f"smallest in layer {later[least]}: {_exponential(more)}",
            claims.above(more, 0.0),
        )
    )
    return listed


def _ceiling(found: Findings) -> list[Claim]:
    shares = found.share(LARGE)
    if np.isnan(shares).any():  # there is no W_V where rows are not linear
        return []
    listed = []
    parts = {"the first layer": found.layers[:1], "all later layers": found.layers[1:]}
    for where, layers in parts.items():
        if layers:
            places = [found.layers.index(layer) for layer in layers]
            least, share = _smallest(intervals(shares[:, places]))
            listed.append(
                Claim(
                    SOURCE,
                    f"heads of {where} reach 90 % of √n σ_max(W_V) ‖Δ‖ / ‖o‖ or more, where S says "
                    f"little else ({_at(LARGE)})",
                    f"smallest in layer {layers[least]}: share {share}",
                    claims.at_least(share, 0.9),
                )
            )
    return listed


def _embedding(found: Findings) -> list[Claim]:
    """What a layer's change, or sensitivity, tells of the embedding's change."""
    rho = intervals(found.spearman())
    listed = [
        Claim(
            SOURCE,
            "the change of a layer and that of the embedding: Spearman "
            f"{low} to {high} over random words (layer {layer})",
            f"{rho[found.layers.index(layer)]}",
            _within(rho[found.layers.index(layer)], low, high),
        )
        for layers, low, high in _SPEARMAN
        for layer in layers
        if layer in found.layers
    ]
    measured = {f"layer {layer}": one for layer, one in zip(found.layers, rho, strict=True)}
    listed.append(
        _tells_little("the change of a layer does not tell that of the embedding", measured)
    )
    measured = {
        f"layer {layer}, {_at(radius)}": one
        for radius in found.changes
        for layer, one in zip(found.layers, intervals(found.spearman_of_words(radius)), strict=True)
    }
    listed.append(
        _tells_little(
            "the words to which a layer is sensitive need not be those that move the embedding",
            measured,
        )
    )
    return listed


def _tells_little(claim: str, measured: Mapping[str, Interval]) -> Claim:
    """Of the largest of some rank correlations."""
    where = max(measured, key=lambda name: measured[name].value)
    return Claim(
        SOURCE,
        f"{claim}: Spearman below √½, less than half of the variance of ranks, in every layer",
        f"largest in {where}: {measured[where]}",
        claims.below(measured[where], _HALF),
    )


def _smallest(found: Sequence[Interval]) -> tuple[int, Interval]:
    place = min(range(len(found)), key=lambda k: found[k].value)
    return place, found[place]


def _within(found: Interval, low: float, high: float) -> str:
    """Whether the interval meets what was seen before, from `low` to `high`."""
    return claims.near(found, (low + high) / 2, (high - low) / 2)


def _exponential(found: Interval) -> Interval:
    return Interval(*map(math.exp, found))


def _at(radius: float | None) -> str:
    if radius is None:
        return "masks"
    return "radius ‖x‖" if radius == 1 else f"radius {radius:g} ‖x‖"


# -- tables ----------------------------------------------------------------------------------------


def _summary(found: Findings) -> Table:
    """A line for each layer and radius; the last radius stands for masks."""
    header = (
        "change", "layer", "S", "low", "high", "S_shuffled", "ratio", "ratio_low", "ratio_high",
        "sd_reviews", "sd_shuffles", "typical", "share", "share_low", "share_high",
    )  # fmt: skip
    rows: list[tuple[Any, ...]] = []
    for radius in found.changes:
        S, ratio = intervals(found.trained(radius)), found.ratio(radius)
        ratios, twins = intervals(ratio.mean(1)), found.shuffled(radius).mean((0, 1))
        between = ratio.mean(1).std(0, ddof=1).tolist()
        within: list[float | None] = [None] * len(found.layers)
        if found.settings.draws > 1:
            within = np.sqrt(ratio.var(1, ddof=1).mean(0)).tolist()
        typical = found.typical(radius).mean(0).tolist()
        shares: Sequence[tuple[Any, ...]] = [(None, None, None)] * len(found.layers)
        if radius is not None:
            shares = intervals(found.share(radius))
        for place, layer in enumerate(found.layers):
            spread = (between[place], within[place], typical[place])
            twin = float(twins[place])
            rows.append(
                (_at(radius), layer, *S[place], twin, *ratios[place], *spread, *shares[place])
            )
    return Table.of_rows("summary", header, rows)


def _correlations(found: Findings) -> Table:
    """Rank correlations with the change of the embedding."""
    of_words = {f"S_i of words, {_at(r)}": found.spearman_of_words(r) for r in found.changes}
    rows = [
        (what, layer, *one)
        for what, of_reviews in {"change of the layer": found.spearman(), **of_words}.items()
        for layer, one in zip(found.layers, intervals(of_reviews), strict=True)
    ]
    return Table.of_rows("correlations", ("with", "layer", "Spearman", "low", "high"), rows)


def _heads(found: Findings, sample: Beginnings) -> Table:
    header = (
        "review", "row", "radius", "layer", "head", "S", "position", "word", "S_shuffled", "share",
    )  # fmt: skip
    rows: list[tuple[Any, ...]] = []
    for k, row in enumerate(sample.rows):
        for radius in found.changes:
            result = found.result(k, radius)
            S, at = S_of(result), to_numpy(result.position)[..., 0]
            twins = np.median(control_of(result), axis=0)
            shares = None if radius is None else found.shares(k, radius)
            for layer, head in np.ndindex(S.shape):
                place = int(at[layer, head])
                rows.append(
                    (
                        *(k, row, radius, result.layers[layer], head, float(S[layer, head])),
                        *(place, result.words[0][place], float(twins[layer, head])),
                        None if shares is None else float(shares[layer, head]),
                    )
                )
    return Table.of_rows("heads", header, rows)


def _words(found: Findings, sample: Beginnings) -> Table:
    header = ("review", "row", "position", "word", "embedding", "radius", "layer", "S_i")
    rows: list[tuple[Any, ...]] = []
    for k, row in enumerate(sample.rows):
        places, embedding = found.words(k)
        words = found.result(k, None).words[0]
        for radius in found.changes:
            S_i = found.per_word(k, radius)
            for place, change in zip(places.tolist(), embedding.tolist(), strict=True):
                for layer, value in zip(found.layers, S_i[:, place].tolist(), strict=True):
                    rows.append((k, row, place, words[place], change, radius, layer, value))
    return Table.of_rows("words", header, rows)


def _runs(found: Findings, sample: Beginnings) -> Table:
    header = ("review", "row", "position", "word", "new", "embedding", "layer", "change")
    rows: list[tuple[Any, ...]] = []
    for k, row in enumerate(sample.rows):
        runs, words = found.runs(k), found.result(k, None).words[0]
        for text, place in enumerate(runs.position.tolist()):
            of_text = (k, row, place, words[place], runs.words[text], float(runs.embedding[text]))
            for layer, change in zip(found.layers, runs.layers[text].tolist(), strict=True):
                rows.append((*of_text, layer, change))
    return Table.of_rows("runs", header, rows)


# -- picture ---------------------------------------------------------------------------------------


def _draw(found: Findings, figure: Figure) -> None:
    left, middle, right = figure.subplots(1, 3)
    _line(right, found, found.spearman(), "change of the layer", "black")
    for number, radius in enumerate(found.changes):  # of one colour in all three
        name, colour = _at(radius), f"C{number}"
        _line(left, found, found.ratio(radius).mean(1), name, colour)
        if radius is not None:
            _line(middle, found, found.share(radius), name, colour)
        _line(right, found, found.spearman_of_words(radius), f"S_i, {name}", colour)
    left.axhline(1.0, color="black", linestyle="dotted")
    left.set_ylabel("S, trained over shuffled")
    middle.set_ylabel("share of √n σ_max(W_V) ‖Δ‖ / ‖o‖")
    right.axhline(0.0, color="black", linestyle="dotted")
    right.set_ylabel("Spearman with the change of the embedding")
    for ax in (left, middle, right):
        ax.set_xticks(found.layers)
        ax.set_xlabel("layer")
        ax.legend(fontsize="x-small")


def _line(ax: Axes, found: Findings, of_reviews: Array, label: str, colour: str) -> None:
    lines = intervals(of_reviews)
    means = [one.value for one in lines]
    spread = [[one.value - one.low for one in lines], [one.high - one.value for one in lines]]
    ax.errorbar(
        found.layers, means, spread, marker="o", markersize=3, capsize=2, color=colour, label=label
    )
