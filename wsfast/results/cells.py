"""The cells of a scaling study."""

from __future__ import annotations

from typing import NamedTuple

MAPS = ("rf", "drf", "raf", "relu_raf", "relu_raf_unnormalized")
"""Random features, deep random features, random attention features: in the order of tables, where
any other map comes after them."""


class Key(NamedTuple):
    """Which cell of a study, in the order of the table."""

    d: int
    n: int
    text: int
    draw: int


class Cell(NamedTuple):
    """One row of the table of a scaling study.

    Attributes
    ----------
    map : str
        Name of the feature map.
    n, d : int
        Words of the text, and their dimension.
    text, draw : int
        Numbers of the text and of the draw of the weights. A Gaussian text is drawn anew with the
        weights, and has their number.
    S : float
        Word sensitivity; NaN where the features are zero.
    position : int
        Where S is attained; -1 where S is NaN.
    upper : float or None
        A bound that S cannot exceed: for "rf" and "drf", and for attention where it was asked for.
    k : int or None
        Number of random features, for "rf" and "drf".
    """

    map: str
    n: int
    d: int
    text: int
    draw: int
    S: float
    position: int
    upper: float | None = None
    k: int | None = None

    @property
    def key(self) -> Key:
        """Which cell of its map's study this is."""
        return Key(self.d, self.n, self.text, self.draw)


def table_order(cell: Cell) -> tuple[int, str, Key]:
    """Sort key of the rows of a table; two cells with the same one are the same cell."""
    place = MAPS.index(cell.map) if cell.map in MAPS else len(MAPS)
    return place, cell.map, cell.key
