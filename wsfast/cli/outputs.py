"""Files that a command writes: what is wrong with the path of one is said before the work."""

from __future__ import annotations

import os
from pathlib import Path

from wsfast.cli.errors import InputError, check_utf_8

_PAGES = ("html", "htm")


def check_picture(flag: str, path: Path | None) -> None:
    """Refuse a path that no picture can be written to; None is no path.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    InputError
        If the path cannot be written, or its suffix is that of no picture.
    """
    if path is None:
        return
    from wsfast._extras import import_extra

    import_extra("matplotlib", "plots")
    canvas = import_extra("matplotlib.backend_bases", "plots").FigureCanvasBase
    _check_file(flag, path, sorted(canvas.get_supported_filetypes()))


def check_page(flag: str, path: Path | None) -> None:
    """Refuse a path that no page of HTML can be written to; None is no path."""
    if path is not None:
        _check_file(flag, path, () if _is_special(path) else _PAGES)


def check_xml(flag: str, path: Path | None) -> None:
    """Refuse a path that no XML can be written to; None is no path."""
    if path is not None:
        _check_file(flag, path, () if _is_special(path) else ("xml",))


def write_page(path: Path, page: str) -> None:
    """Write a page of HTML where `check_page` found that it can be."""
    from wsfast._files import write_whole

    write_whole(path, page.encode())


def check_folder(flag: str, path: Path) -> None:
    """Refuse a folder that cannot be made, or not be written into, or that no report can name."""
    check_utf_8(flag, str(path))
    _check_name(flag, path)
    there = path
    while not os.path.lexists(there) and there != there.parent:
        there = there.parent
    if not there.is_dir():
        raise InputError(f"{flag}: {str(there)!r} is not a folder")
    _check_access(flag, there)


def _check_file(flag: str, path: Path, suffixes: list[str] | tuple[str, ...]) -> None:
    _check_name(flag, path)
    if path.is_dir():
        raise InputError(f"{flag} must be the name of a file, got the folder {str(path)!r}")
    if suffixes and path.suffix[1:].lower() not in suffixes:
        known = ", ".join(f".{suffix}" for suffix in suffixes)
        raise InputError(f"{flag} must be a name that ends in {known}, got {str(path)!r}")
    if not path.parent.is_dir():
        raise InputError(f"{flag}: there is no folder {str(path.parent)!r}")
    _check_access(flag, path if path.exists() else path.parent)
    if not _is_special(path):
        _check_access(flag, path.parent)  # a file beside it takes its place


def _check_name(flag: str, path: Path) -> None:
    """Refuse names that the system does not take: too long, or behind a locked folder."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError) as error:
        raise InputError(f"{flag}: {error}") from error


def _check_access(flag: str, path: Path) -> None:
    if not os.access(path, os.W_OK):
        raise InputError(f"{flag}: no permission to write {str(path)!r}")


def _is_special(path: Path) -> bool:
    """Whether it is there and neither a file nor a folder: /dev/stdout, a named pipe."""
    return path.exists() and not (path.is_file() or path.is_dir())
