"""Settings of runs that take a second, and reading what they leave behind."""

from __future__ import annotations

import csv
from pathlib import Path

from wsfast.reproduce.settings import GeneralizationSettings, LayersSettings, SensitivitySettings

SENSITIVITY = SensitivitySettings(
    dataset="synthetic",
    model=None,
    ds=(6, 8),
    ns=(2, 3, 4),
    replicates=2,
    k=12,
    depths=(2, 3),
    ns_wide=(2, 4),
    replicates_wide=2,
    seed=3,
)
GENERALIZATION = GeneralizationSettings(
    dataset="synthetic",
    model=None,
    d=8,
    ns=(4, 5),
    N=10,
    T=2,
    draws=3,
    maps=("raf", "rf"),
    quick=True,
    seed=3,
)

LAYERS = LayersSettings(
    model="",  # a folder that a test makes
    reviews=3,
    n=9,
    radii=(0.1, 1.0),
    draws=2,
    words=2,
    quick=True,
    seed=3,
)


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def tables(folder: Path) -> dict[str, bytes]:
    """Bytes of every table, by name."""
    kinds = (".csv", ".parquet")
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix in kinds}


def verdicts(folder: Path) -> list[tuple[str, str]]:
    """(claim, verdict) of each line of the first table of a report."""
    report = (folder / "report.md").read_text(encoding="utf-8")
    lines = report.split("## Claims")[1].split("\n\n")[1].splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [(line[1], line[3]) for line in cells]
