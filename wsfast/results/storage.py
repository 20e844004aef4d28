"""One file with named arrays and JSON metadata: .npz, never a pickle."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import torch

from wsfast._files import whole_file
from wsfast.results.arrays import Array, to_numpy

_META = "meta.json"  # as an array of bytes: npz holds arrays only


def write(path: str | os.PathLike[str], arrays: dict[str, Any], meta: dict[str, Any]) -> None:
    """Write `arrays` and `meta` to exactly `path`: the whole file appears, or none of it.

    Raises
    ------
    TypeError
        If `meta` holds something that JSON cannot express.
    """
    packed = np.frombuffer(json.dumps(meta).encode(), dtype=np.uint8)
    with whole_file(Path(path)) as file:
        np.savez(file, **{**arrays, _META: packed})


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
        if not isinstance(meta, dict):
            raise TypeError(meta)
    except (KeyError, ValueError, AttributeError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"path must be a file that save() wrote, got {os.fspath(path)!r}"
        ) from error
    return arrays, meta


def save_result(
    path: str | os.PathLike[str],
    name: str,
    version: int,
    arrays: dict[str, Array],
    meta: dict[str, Any],
) -> None:
    """Write a result: `name` is that of its class, `version` that of its format.

    `arrays` are all tensors or all NumPy arrays.

    Raises
    ------
    TypeError
        If `meta` holds something that JSON cannot express.
    """
    torch_made = any(isinstance(array, torch.Tensor) for array in arrays.values())
    head = {"result": name, "format": version, "kind": "torch" if torch_made else "numpy"}
    write(path, {key: to_numpy(array) for key, array in arrays.items()}, {**head, **meta})


def tuples(meta: dict[str, Any], name: str) -> list[tuple[int, ...]] | None:
    """What JSON kept as lists; None where `meta` has none, as in files of earlier formats."""
    found = meta.get(name)
    return None if found is None else [tuple(one) for one in found]


def load_result(
    path: str | os.PathLike[str],
    name: str,
    version: int,
    required: Collection[str],
    optional: Collection[str] = (),
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read what :func:`save_result` wrote; tensors come back on the CPU.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If it is no such file, holds another result, or is of a later version.
    """
    arrays, meta = read(path)
    # SensitivityResult, the first of the results, once left its name out.
    found = meta.get("result", "SensitivityResult")
    if found != name:
        raise ValueError(f"path must hold a {name}, got a {found} in {os.fspath(path)!r}")
    # Later formats of a result only add to it.
    if meta.get("format") not in range(1, version + 1):
        raise ValueError(
            f"path must hold a {name} of format {version} or before, got format "
            f"{meta.get('format')!r} "
            f"in {os.fspath(path)!r}"
        )
    if not set(required) <= set(arrays) <= {*required, *optional}:
        raise ValueError(
            f"path must hold the arrays of a {name}, got {sorted(arrays)} in {os.fspath(path)!r}"
        )
    if meta["kind"] == "torch":
        return {key: torch.from_numpy(array) for key, array in arrays.items()}, meta
    return {**arrays}, meta
