"""The budget of registers and shared memory, and what it means for a multiprocessor."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass
from pathlib import Path

from .compiler import Resources

Key = tuple[str, str]  # kernel, architecture


@dataclass(frozen=True)
class Row:
    """At most these registers of a thread and static shared bytes of a block of `threads`."""

    threads: int
    resources: Resources


def load(path: Path) -> dict[Key, Row]:
    """Rows of the checked-in file."""
    with path.open(newline="", encoding="utf-8") as file:
        return {
            (row["kernel"], column.removeprefix("registers ")): Row(
                int(row["threads"]), Resources(int(row[column]), int(row["static shared"]))
            )
            for row in csv.DictReader(file)
            for column in row
            if column.startswith("registers ")
        }


def text(rows: dict[Key, Row]) -> str:
    """The file that `load` reads, with what follows from the rows: warps that fit at once."""
    archs = sorted({arch for _, arch in rows}, key=lambda arch: int(arch.removeprefix("sm_")))
    file = io.StringIO()
    out = csv.writer(file, lineterminator="\n")
    columns = [f"{what} {arch}" for arch in archs for what in ("registers", "warps")]
    out.writerow(["kernel", "threads", "static shared", "dynamic shared", *columns])
    for kernel in sorted({kernel for kernel, _ in rows}):
        of_arch = [rows[kernel, arch] for arch in archs]
        static = max(row.resources.shared for row in of_arch)
        line = [kernel, of_arch[0].threads, static, dynamic_shared(kernel)]
        for arch, row in zip(archs, of_arch, strict=True):
            line += [row.resources.registers, warps(kernel, arch, row)]
        out.writerow(line)
    return file.getvalue()


def faults(budget: dict[Key, Row], measured: dict[Key, Row]) -> list[str]:
    """Where kernels need more than the budget gives, or the two do not name the same kernels."""
    wrong = [f"{kernel} on {arch}: not in the budget" for kernel, arch in measured.keys() - budget]
    wrong += [
        f"{kernel} on {arch}: only in the budget" for kernel, arch in budget.keys() - measured
    ]
    for key in measured.keys() & budget.keys():
        allowed, used = budget[key], measured[key]
        where = f"{key[0]} on {key[1]}"
        if used.threads != allowed.threads:
            wrong.append(f"{where}: blocks of {used.threads} threads, not {allowed.threads}")
        for what in ("registers", "shared"):
            got, most = getattr(used.resources, what), getattr(allowed.resources, what)
            if got > most:
                wrong.append(f"{where}: {what} {got}, more than {most}")
    return sorted(wrong)


def dynamic_shared(kernel: str) -> int:
    """Bytes that a launch asks for besides: Layout::kBytes of features.cuh."""
    features = re.fullmatch(r"features_kernel<(\d+)>", kernel)
    if features is None:
        return 0
    tile = 16 * (8 * int(features[1]) * 16 + 8)
    return 4 * (2 * tile + 8 * 16 * 16)


def warps(kernel: str, arch: str, row: Row) -> int:
    """How many of its 64 warps a multiprocessor can give to the kernel at once."""
    from cuxray.archspec import lookup
    from cuxray.occupancy import compute

    static, dynamic = row.resources.shared, dynamic_shared(kernel)
    held = compute(lookup(arch), row.resources.registers, row.threads, static, dynamic)
    return held.active_warps
