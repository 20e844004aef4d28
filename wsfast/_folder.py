"""A folder of work that a later run takes over: all in it was made with one set of settings."""

from __future__ import annotations

import json
import os
import reprlib
from pathlib import Path
from typing import Any

from wsfast._files import write_whole

# How to have what is asked of the machine.
_WAYS = {
    "torch": "install that version",
    "instruction set": "take such a machine, or lower it by WSFAST_SIMD and ATEN_CPU_CAPABILITY",
    "threads": "set OMP_NUM_THREADS, or call torch.set_num_threads",
    "GPU": "take such a device",
}


def keep_settings(file: Path, settings: dict[str, Any], argument: str) -> dict[str, Any]:
    """Write to `file` what its folder is for, unless it says so already, and check it.

    Parameters
    ----------
    file : Path
        In the folder, which is made.
    settings : dict
        All that the numbers depend on; JSON can hold it.
    argument : str
        What the caller knows the folder as, for the message.

    Returns
    -------
    dict
        What the file holds, where the same numbers may be written otherwise.

    Raises
    ------
    OSError
        If the folder cannot be written.
    ValueError
        If it holds work with other settings.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    if not file.exists():
        write_whole(file, f"{json.dumps(settings, indent=2)}\n".encode())
    return check_settings(file, settings, argument)


def check_settings(file: Path, settings: dict[str, Any], argument: str) -> dict[str, Any]:
    """As `keep_settings`, of a file that is there."""
    try:
        found = json.loads(file.read_bytes())
        if not isinstance(found, dict) or not found:
            raise ValueError("it holds no settings")
    except ValueError as error:
        raise ValueError(
            f"{argument} must be a new folder or one of an earlier run, but "
            f"{os.fspath(file)!r} is not a file that wsfast wrote: {error}"
        ) from error
    asked = json.loads(json.dumps(settings))
    names = [name for name in {**asked, **found} if found.get(name) != asked.get(name)]
    if not names:
        return found
    differences = "; ".join(
        f"{name} {reprlib.repr(found.get(name))}, now {reprlib.repr(asked.get(name))}"
        for name in names
    )
    ways = "; ".join(f"{name}: {_WAYS[name]}" for name in names if name in _WAYS)
    raise ValueError(
        f"{argument}: {os.fspath(file.parent)!r} was begun with other settings ({differences}), "
        "and its numbers would not be those of one run: take another folder, or continue with the "
        f"same settings{f' ({ways})' if ways else ''}"
    )
