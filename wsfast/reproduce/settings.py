"""What each experiment is asked for, and the rows of its tables."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from wsfast.results.cells import Cell


@dataclass(frozen=True)
class SensitivitySettings:
    """Everything that the numbers of `sensitivity` depend on."""

    dataset: str  # "imdb" or "synthetic"
    model: str | None  # of imdb
    ds: tuple[int, ...]
    ns: tuple[int, ...]
    replicates: int  # texts, each with a draw of the weights of its own
    k: int  # features of rf and drf where their number is fixed
    depths: tuple[int, ...]  # of drf
    ns_wide: tuple[int, ...]  # for rf with k = n d, which costs n² d²
    replicates_wide: int
    seed: int = 0
    bound: bool = False  # whether S of attention is proved from above too

    def told(self) -> dict[str, Any]:
        """All of them by name; without bounds as they were told before there were any."""
        return {name: one for name, one in asdict(self).items() if name != "bound" or one}


class Series(NamedTuple):
    """One curve: a map with its options, S over n."""

    name: str
    map: str
    ns: tuple[int, ...]
    replicates: int
    options: dict[str, Any]

    def operations(self, n: int, d: int) -> float:
        """What a cell costs, in some unit of this series."""
        if self.map not in ("rf", "drf"):
            return n * n * (8 * d + 1700) + n * d * d + 6e6
        k = self.options["k"] or n * d
        layers = self.options.get("depth", 1) - 1
        return float(n * k * (d + layers * k)) + 1e6


class SeriesCell(NamedTuple):
    """One cell of a series; text and weights are those of its replicate."""

    series: str
    replicate: int
    cell: Cell


@dataclass(frozen=True)
class GeneralizationSettings:
    """Everything that the numbers of `generalization` depend on."""

    dataset: str  # "imdb" or "synthetic"
    model: str | None  # of imdb
    d: int
    ns: tuple[int, ...]
    N: int  # texts to learn from
    T: int  # texts of which a word changes
    draws: int
    maps: tuple[str, ...]
    quick: bool
    seed: int = 0
    position: int = 0  # of the word that changes, as in the paper


class Run(NamedTuple):
    """One draw of one map for texts of one length."""

    map: str
    n: int
    draw: int

    @property
    def kind(self) -> str:
        """What all of its draws are called."""
        return f"{self.map}, n = {self.n}"

    @property
    def file(self) -> str:
        """Name of the file that keeps it."""
        return f"{self.map}-n{self.n}-draw{self.draw}.npz"


@dataclass(frozen=True)
class MapSettings:
    """Everything that the numbers of `attention_map` depend on."""

    model: str
    draws: int  # of random weights
    seed: int = 0
    a: str = "I love her much"
    b: str = "I love her smile"


# Radii of the claims of `layers`, in units of the norm of a word: one saturates heads, one not.
SMALL, LARGE = 0.1, 1.0


@dataclass(frozen=True)
class LayersSettings:
    """Everything that the numbers of `layers` depend on."""

    model: str
    reviews: int
    n: int  # tokens of each
    radii: tuple[float, ...]  # in units of the norm of a word's vector; SMALL and LARGE among them
    draws: int  # of shuffled weights, other ones for each review
    words: int  # random words in place of each word of one token
    quick: bool
    seed: int = 0


class Part(NamedTuple):
    """A part of the work on one review, kept in a file of its own."""

    kind: str  # "ball", "mask" or "runs"
    review: int
    radius: float | None = None  # of "ball"

    @property
    def file(self) -> str:
        """Name of the file that keeps it."""
        at = "" if self.radius is None else f"-{self.radius:g}"
        return f"review{self.review}-{self.kind}{at}.npz"
