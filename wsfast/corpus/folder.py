"""A folder of measured texts: its manifest and its shards."""

from __future__ import annotations

import json
import os
from functools import cached_property
from pathlib import Path
from typing import Any

SETTINGS = "settings.json"
"""What the folder is for: written first."""
MANIFEST = "manifest.json"
"""What is in it: written last."""
SHARDS = "shards"


class Folder:
    """What is in a folder of measured texts.

    Parameters
    ----------
    path : path
        The folder.

    Raises
    ------
    OSError
        If there is no such folder, or it cannot be read.
    ValueError
        If it is of something else, or not complete.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if not self.path.is_dir():
            raise FileNotFoundError(f"there is no folder {str(self.path)!r}")
        if not (self.path / SETTINGS).exists():
            raise ValueError(f"corpus must be a folder that wsfast wrote, got {str(path)!r}")
        if not (self.path / MANIFEST).exists():
            raise ValueError(
                f"corpus must be complete, but {str(path)!r} has no {MANIFEST}: run the same "
                "`score` again, which goes on where it was"
            )

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """Settings, versions and seed; files, rows, errors, and the shards with their digests."""
        return _read(self.path / MANIFEST)

    @property
    def settings(self) -> dict[str, Any]:
        """All that the numbers depend on."""
        found: dict[str, Any] = self.manifest["settings"]
        return found

    @property
    def rows(self) -> int:
        """How many texts there are, those with an error too."""
        return int(self.manifest["rows"])

    @property
    def errors(self) -> int:
        """How many of them have an error."""
        return int(self.manifest["errors"])

    @property
    def shards(self) -> list[Path]:
        """The Parquet files, in the order of their rows."""
        return [self.path / SHARDS / shard["name"] for shard in self.manifest["shards"]]

    def __repr__(self) -> str:
        counts = f"{self.rows} texts, {self.errors} with an error"
        return f"{type(self).__name__}({str(self.path)!r}): {counts}"


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{str(path)!r} is not a file that wsfast wrote: {error}") from error
    if not isinstance(found, dict):
        raise ValueError(f"{str(path)!r} is not a file that wsfast wrote")
    return found
