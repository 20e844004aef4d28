"""One file with named arrays and JSON metadata: .npz, never a pickle."""

from __future__ import annotations

import json
import os
import uuid
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

_META = "meta.json"  # as an array of bytes: npz holds arrays only


def write(path: str | os.PathLike[str], arrays: dict[str, Any], meta: dict[str, Any]) -> None:
    """Write `arrays` and `meta` to exactly `path`: the whole file appears, or none of it.

    Raises
    ------
    TypeError
        If `meta` holds something that JSON cannot express.
    """
    target = Path(path)
    packed = np.frombuffer(json.dumps(meta).encode(), dtype=np.uint8)
    partial = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        with open(partial, "xb") as file:
            np.savez(file, **{**arrays, _META: packed})
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)


def read(path: str | os.PathLike[str]) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, Any]]:
    """Read what :func:`write` wrote.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If it is not such a file.
    """
    try:
        # Opened here: NumPy leaves the file open where it turns out to be a broken one.
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        meta = json.loads(arrays.pop(_META).tobytes().decode())
    except (KeyError, ValueError, AttributeError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"path: not a file that save() wrote: {os.fspath(path)!r}") from error
    return arrays, meta
