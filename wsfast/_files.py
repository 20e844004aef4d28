"""Files that appear as a whole."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

_PARTIAL = ".wsfast-"  # how names of files begin that are being written


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write: when it is closed all of it is at `path`; after an error, none of it.

    An error of the system names `path`. What is there and no ordinary file (``/dev/stdout``, a
    named pipe) is written as it is: it cannot be replaced.
    """
    special = path.exists() and not (path.is_file() or path.is_dir())
    # No name of its own that would be too long where that of `path` is just short enough.
    partial = path if special else path.with_name(f"{_PARTIAL}{uuid.uuid4().hex}")
    try:
        with partial.open("wb" if special else "xb") as file:
            yield file
        if not special:
            os.replace(partial, path)
    except OSError as error:
        if error.errno is not None and error.filename in (None, str(partial)):
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
    finally:
        if not special:
            partial.unlink(missing_ok=True)


def discard_partial(folder: Path) -> None:
    """Delete what processes that were killed have left of files; none is being written there."""
    for path in folder.glob(f"{_PARTIAL}*"):
        path.unlink(missing_ok=True)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that, whenever the process is killed, all of it is there or none."""
    with whole_file(path) as file:
        file.write(content)
