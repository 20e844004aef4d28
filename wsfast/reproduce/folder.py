"""The folder of a reproduction: what is in it was made with one set of settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from wsfast._config import machine
from wsfast._folder import keep_settings
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
        If it holds cells of another experiment, of other settings, or of a machine whose numbers
        differ in the last digits.
    """
    cells = out / "cells"
    asked = {"experiment": experiment, "wsfast": __version__, **settings}
    keep_settings(cells / _SETTINGS, asked | machine(torch.device("cpu")), "out")
    return cells
