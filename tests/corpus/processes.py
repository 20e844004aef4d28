"""Processes of a run, and the shards that it leaves."""

from __future__ import annotations

from pathlib import Path


def content(folder):
    return {path.name: path.read_bytes() for path in Path(folder, "shards").iterdir()}


def children(process):
    """Processes of the pool of `process`, from the youngest on."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes()
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has ended
            continue
        if parent == process and b"spawn_main" in words:
            found.append(int(path.name))
    return sorted(found, reverse=True)


def alive(process):
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
