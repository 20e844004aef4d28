"""Conflicts of a warp's lanes over the banks of shared memory, as cuxray reads them from SASS.

It follows addresses as far as they depend on the lane alone; those it loses are counted as unknown.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from cuxray.analyze.access import analyze_accesses
from cuxray.parse import sass

# Where its reading of addresses was compared with the sources. On sm_100 it takes some 16-byte rows
# for rows of 256.
ARCH = "sm_90"
# The others' shared memory holds a few numbers for each warp.
READ = re.compile(r"(features|rows|apart|attention|own_row|step)_kernel<")
# Copies of tiles, which tests/test_device_code.py computes.
UNRELIABLE = "LDGSTS"


@dataclass(frozen=True)
class Allowed:
    """A conflict that is known and worth its cost."""

    kernel: str
    opcode: str
    ways: int
    reason: str


ALLOWED = (
    Allowed(
        r"features_kernel<",
        r"STS(\.64)?$",
        2,
        "the one store of weights a tile, laid out for those who read them",
    ),
)


@dataclass(frozen=True)
class Reading:
    """What could be told of a kernel's accesses to shared memory."""

    known: int
    unknown: int
    faults: tuple[str, ...]


def read(text: str, threads: dict[str, int], names: dict[str, str]) -> dict[str, Reading]:
    """Reading of each kernel in the output of nvdisasm; `names` are short, `threads` of a block."""
    functions = sass.parse_gi(text).functions
    return {
        name: _read_kernel(functions[mangled], threads[name], name)
        for mangled, name in names.items()
        if name in threads and READ.match(name)
    }


def _read_kernel(function: sass.Function, threads: int, name: str) -> Reading:
    seen = analyze_accesses(function, (threads, 1, 1))
    if not seen["dataflow_converged"]:
        return Reading(0, 0, ("cuxray did not come to an end",))
    shared = [a for a in seen["accesses"] if a["space"] == "shared" and _reliable(a)]
    lost = [a for a in seen["unanalyzed"] if a["opcode"].startswith(("LDS", "STS"))]
    conflicts = {(a["opcode"], a["conflict_ways"]) for a in shared if a["conflict_ways"] > 1}
    faults = [
        f"{opcode} meets {ways} ways in a bank of shared memory"
        for opcode, ways in sorted(conflicts)
        if not _allowed(name, opcode, ways)
    ]
    return Reading(len(shared), len(lost), tuple(faults))


def _reliable(access: dict) -> bool:
    return not access["opcode"].startswith(UNRELIABLE)


def _allowed(kernel: str, opcode: str, ways: int) -> bool:
    return any(
        re.match(entry.kernel, kernel) and re.match(entry.opcode, opcode) and ways <= entry.ways
        for entry in ALLOWED
    )
