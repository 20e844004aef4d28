"""The cells of a scaling study, and the folder that keeps them."""

from __future__ import annotations

import hashlib
import json
import math
import os
from pathlib import Path
from typing import Any, NamedTuple

from wsfast._files import write_whole
from wsfast._folder import keep_settings
from wsfast._warn import warn
from wsfast.maps.names import MAPS

_STUDY = "study.json"


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
        A bound that S cannot exceed, for "rf" and "drf".
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


def table_order(cell: Cell) -> tuple[int, Key]:
    """Sort key of the rows of a table; two cells with the same one are the same cell."""
    return MAPS.index(cell.map), Key(cell.d, cell.n, cell.text, cell.draw)


class Store:
    """Finished cells of one study, a file each in `folder`; nothing is kept where it is None.

    Parameters
    ----------
    folder : Path, optional
        Made when the first cell is written.
    settings : dict
        All that decides the value of a cell, in what JSON can hold.

    Raises
    ------
    ValueError
        If the folder holds a study with other settings.
    """

    def __init__(self, folder: Path | None, settings: dict[str, Any]) -> None:
        self.folder = folder
        self.settings = settings
        # In every cell, so that none of another study is ever taken for one of this.
        self.digest = _digest(settings)
        self.checked = False
        if folder is not None and (folder / _STUDY).exists():
            self._keep()

    def read(self, key: Key) -> Cell | None:
        """Give a finished cell; None where it is not there, or, with a warning, is not one."""
        if self.folder is None:
            return None
        file = self._file(key)
        try:
            content = file.read_bytes()
        except FileNotFoundError:
            return None
        try:
            return self._cell(key, json.loads(content))
        except ValueError as error:
            warn(f"path: {os.fspath(file)!r} is computed again, as it is no cell of this: {error}")
            return None

    def write(self, cell: Cell) -> None:
        """Keep a finished cell."""
        if self.folder is None:
            return
        if not self.checked:
            self._keep()
        content = {**cell._asdict(), "study": self.digest}
        content["S"] = None if math.isnan(cell.S) else cell.S
        key = Key(cell.d, cell.n, cell.text, cell.draw)
        write_whole(self._file(key), f"{json.dumps(content, allow_nan=False)}\n".encode())

    def _file(self, key: Key) -> Path:
        assert self.folder is not None
        return self.folder / f"d{key.d}-n{key.n}-text{key.text}-draw{key.draw}.json"

    def _cell(self, key: Key, content: Any) -> Cell:
        """The cell in a file's content; ValueError where it is not that of this study."""
        if not isinstance(content, dict) or set(content) != {*Cell._fields, "study"}:
            raise ValueError("it has other fields")
        if content.pop("study") != self.digest:
            raise ValueError("it is of a study with other settings")
        if content["S"] is None:
            content["S"] = math.nan
        cell = Cell(**content)
        if (cell.d, cell.n, cell.text, cell.draw) != key:
            raise ValueError("it is another cell")
        return cell

    def _keep(self) -> None:
        """See that the folder is for this study."""
        assert self.folder is not None
        # The same settings may be written otherwise: 5 and 5.0.
        self.digest = _digest(keep_settings(self.folder / _STUDY, self.settings, "path"))
        self.checked = True


def _digest(settings: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
