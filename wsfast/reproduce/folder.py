"""The folder of a reproduction: what is in it was made with one set of settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from wsfast._files import write_whole
from wsfast._version import __version__

_SETTINGS = "settings.json"


def cells_of(out: Path, experiment: str, settings: dict[str, Any]) -> Path:
    """Make `out` and its folder of cells, the parts of the work that a later run takes over.

    Parameters
    ----------
    out : Path
        Folder, there or not yet.
    experiment : str
        Which experiment.
    settings : dict
        Everything that the numbers depend on; JSON can hold it.

    Raises
    ------
    OSError
        If the folder cannot be written.
    ValueError
        If it holds cells of another experiment, of other settings or of another version.
    """
    cells = out / "cells"
    cells.mkdir(parents=True, exist_ok=True)
    path = cells / _SETTINGS
    asked = json.loads(json.dumps({"experiment": experiment, "wsfast": __version__, **settings}))
    if path.exists():
        _check_same(path, asked)
    else:
        write_whole(path, f"{json.dumps(asked, indent=2)}\n".encode())
    return cells


def _check_same(path: Path, asked: dict[str, Any]) -> None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"out: {str(path)!r} is not JSON: {error}") from error
    if found == asked:
        return
    names = [name for name in {**asked, **found} if found.get(name) != asked.get(name)]
    differences = "; ".join(
        f"{name} was {found.get(name)!r} and is {asked.get(name)!r}" for name in names
    )
    raise ValueError(
        f"out: {str(path.parent)!r} holds cells of other settings ({differences}): "
        "take another folder, or delete this one"
    )
