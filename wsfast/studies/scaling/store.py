"""The folder that keeps the cells of a scaling study."""

from __future__ import annotations

import hashlib
import json
import math
import os
from pathlib import Path
from typing import Any

from wsfast._files import write_whole
from wsfast._folder import keep_settings
from wsfast._warn import warn
from wsfast.results.cells import Cell, Key

_STUDY = "study.json"


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
        write_whole(self._file(cell.key), f"{json.dumps(content, allow_nan=False)}\n".encode())

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
        if cell.key != key:
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
