"""One word replaced: attention maps of random features and of trained heads (Figure 1)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from wsfast._progress import progress_bar
from wsfast.maps.random_features import rf_features
from wsfast.report.comparison import save_figure
from wsfast.reproduce import claims, estimate, report, tables
from wsfast.reproduce.claims import Claim
from wsfast.reproduce.estimate import Work
from wsfast.reproduce.folder import cells_of
from wsfast.reproduce.seeds import draw_seed
from wsfast.reproduce.settings import MapSettings
from wsfast.reproduce.tables import Table
from wsfast.results.comparison import Comparison
from wsfast.studies.sensitivity import raf_sensitivity, rf_sensitivity
from wsfast.text import compare, embed

TITLE = "Attention maps of two texts that differ in one word"


class Draw(NamedTuple):
    """Relative changes under one draw of the random weights, and how large they can be."""

    draw: int
    map_change: float  # of the attention map of random attention features
    raf_change: float  # of those features
    rf_change: float  # of random features that have no attention
    raf_worst: float  # word sensitivity of the first text
    rf_worst: float


def settings(model: str, seed: int, *, quick: bool) -> MapSettings:
    """Settings of the command; a quick run has fewer draws."""
    return MapSettings(model, draws=20 if quick else 100, seed=seed)


def run(settings: MapSettings, out: Path, command: str, *, progress: bool = False) -> None:
    """Write report.md, tables and pictures into `out`."""
    start = time.perf_counter()
    cells_of(out, "attention-map", asdict(settings))
    X_a, X_b = (one.X for one in embed([settings.a, settings.b], settings.model, "words"))

    def measure(draw: int) -> tuple[Draw, Comparison]:
        seed = draw_seed(settings.seed, draw)
        found = compare(settings.a, settings.b, settings.model, seed=seed)
        measured = Draw(
            draw,
            found.random.map_change,
            found.random.change,
            _relative_change(rf_features(X_a, seed=seed), rf_features(X_b, seed=seed)),
            float(raf_sensitivity(X_a, seed=seed)),
            float(rf_sensitivity(X_a, seed=seed)),
        )
        return measured, found

    work = Work("draws", settings.draws, [(1, partial(measure, 0))])
    estimate.announce(estimate.seconds([work]))
    draws, first = [], measure(0)[1]
    with progress_bar(settings.draws, "draw", progress) as bar:
        for draw in range(settings.draws):
            draws.append(measure(draw)[0])
            bar.update(1)
    files = [name for table in _tables(draws, first) for name in tables.write(table, out)]
    pictures = ["attention_maps.png", "attention_maps.svg"]
    for name in pictures:
        save_figure(first, out / name)
    report.write(
        out,
        TITLE,
        claims=_claims(draws, first),
        notes=[
            f"“{settings.a}” → “{settings.b}”: change of token {first.position}. Rows of the "
            "raw embedding table, scaled to norm √d, for the random features; the trained heads "
            "see the whole text with its special tokens. The picture shows the first draw, and "
            "the trained head whose map changes most."
        ],
        figure=pictures[0],
        table=_numbers(draws, first),
        files=[*files, *pictures],
        settings=asdict(settings),
        command=command,
        seconds=time.perf_counter() - start,
    )


def _relative_change(a: Tensor, b: Tensor) -> float:
    return float((b.double() - a.double()).norm() / a.double().norm())


def _claims(draws: Sequence[Draw], first: Comparison) -> list[Claim]:
    ratio = claims.mean_of([one.raf_worst / one.rf_worst for one in draws])
    attention = claims.mean_of([one.map_change for one in draws])
    listed = [
        Claim(
            "Theorems 1 and 3",
            "a word can change random attention features more than random features: ratio of the "
            "word sensitivities above 1",
            f"ratio {ratio}",
            claims.above(ratio, 1.0),
        )
    ]
    if first.trained is not None:
        change = first.trained.change
        heads = change.numel()
        as_much = int((change >= attention.low).sum())
        listed.append(
            Claim(
                "Figure 1",
                "trained heads react as well: some change their map as much as random attention",
                f"random maps {attention}; {as_much} of {heads} heads change as much, at most "
                f"{claims.written('{}', float(change.max()))}",
                claims.verdict(as_much > 0),
            )
        )
    return listed


def _numbers(draws: Sequence[Draw], first: Comparison) -> str:
    rows = [
        ("random attention features: map", claims.mean_of([one.map_change for one in draws])),
        ("random attention features", claims.mean_of([one.raf_change for one in draws])),
        ("random features", claims.mean_of([one.rf_change for one in draws])),
        ("random attention features, at most: S", claims.mean_of([one.raf_worst for one in draws])),
        ("random features, at most: S", claims.mean_of([one.rf_worst for one in draws])),
    ]
    header = ("relative change", f"mean of {len(draws)} draws, 95 % interval")
    if first.trained is None:
        return report.markdown(header, rows)
    low, median, high = (
        float(value) for value in (first.trained.change.flatten().quantile(q) for q in (0, 0.5, 1))
    )
    heads = (
        "maps of trained heads: smallest, median, largest",
        claims.written("{}, {}, {}", low, median, high),
    )
    return report.markdown(header, [*rows, heads])


def _tables(draws: Sequence[Draw], first: Comparison) -> list[Table]:
    """Changes of every draw and every head, and the maps of the picture."""
    maps = [("random", first.random.a, first.tokens_a), ("random", first.random.b, first.tokens_b)]
    made = [Table.of_rows("draws", Draw._fields, [tuple(one) for one in draws])]
    if first.trained is not None and first.head is not None:
        trained = first.trained
        heads = [
            (layer, head, change)
            for layer, row in enumerate(trained.change.tolist())
            for head, change in enumerate(row)
        ]
        made.append(Table.of_rows("heads", ("layer", "head", "map_change"), heads))
        name = f"layer {first.head[0]}, head {first.head[1]}"
        maps += [
            (name, trained.a[first.head], trained.tokens_a),
            (name, trained.b[first.head], trained.tokens_b),
        ]
    weights = [
        (name, "ab"[number % 2], i, tokens[i], j, tokens[j], weight)
        for number, (name, attention, tokens) in enumerate(maps)
        for i, row in enumerate(attention.tolist())
        for j, weight in enumerate(row)
    ]
    header = ("map", "text", "row", "row_token", "column", "column_token", "weight")
    return [*made, Table.of_rows("maps", header, weights)]
