"""The cells of a scaling study, and the folder that keeps them."""

from __future__ import annotations

import hashlib
import json
import math
import os
from pathlib import Path
from typing import Any, NamedTuple

from wsfast._files import write_whole
from wsfast.feature_maps.names import MAPS

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
            self._check()

    def read(self, key: Key) -> Cell | None:
        """Give a finished cell; None where it is not there."""
        if self.folder is None:
            return None
        try:
            return self._cell(key, json.loads(self._file(key).read_bytes()))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, cell: Cell) -> None:
        """Keep a finished cell."""
        if self.folder is None:
            return
        if not self.checked:
            self._begin()
        content = {**cell._asdict(), "study": self.digest}
        content["S"] = None if math.isnan(cell.S) else cell.S
        key = Key(cell.d, cell.n, cell.text, cell.draw)
        write_whole(self._file(key), f"{json.dumps(content, allow_nan=False)}\n".encode())

    def _file(self, key: Key) -> Path:
        assert self.folder is not None
        return self.folder / f"d{key.d}-n{key.n}-text{key.text}-draw{key.draw}.json"

    def _cell(self, key: Key, content: Any) -> Cell | None:
        """The cell in a file's content; None or an error where it is not one of this study."""
        if not isinstance(content, dict) or content.pop("study", None) != self.digest:
            return None
        if content["S"] is None:
            content["S"] = math.nan
        cell = Cell(**content)
        return cell if (cell.d, cell.n, cell.text, cell.draw) == key else None

    def _begin(self) -> None:
        """Write what the folder is for, unless it says so already."""
        assert self.folder is not None
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self.folder / _STUDY
        if not file.exists():
            write_whole(file, f"{json.dumps(self.settings, indent=2)}\n".encode())
        self._check()

    def _check(self) -> None:
        """Compare with the study that is in the folder."""
        assert self.folder is not None
        file = self.folder / _STUDY
        try:
            found = json.loads(file.read_bytes())
            if not isinstance(found, dict) or "map" not in found:
                raise ValueError(found)
        except ValueError as error:
            raise ValueError(
                f"path: expected a folder of a scaling study or a new one, but {os.fspath(file)!r} "
                "is not a file that scaling() wrote"
            ) from error
        for name in {**self.settings, **found}:
            here, there = self.settings.get(name), found.get(name)
            if here != there:
                raise ValueError(
                    f"path: the study in {os.fspath(self.folder)!r} has {_setting(name, there)}, "
                    f"this one has {_setting(name, here)}: continue it with the same settings, or "
                    "take another folder"
                )
        # The same settings may be written otherwise: 5 and 5.0.
        self.digest = _digest(found)
        self.checked = True


def _digest(settings: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def _setting(name: str, value: Any) -> str:
    if name == "texts":
        return "Gaussian texts" if value == "gaussian" else "other texts"
    return f"{name} {value!r}"
