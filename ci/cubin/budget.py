"""The budget of registers and shared memory, and what it means for a multiprocessor."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from .compiler import Resources

COLUMNS = ("kernel", "arch", "threads", "registers", "shared")
Key = tuple[str, str]  # kernel, architecture


@dataclass(frozen=True)
class Row:
    """At most these registers of a thread and static shared bytes of a block of `threads`."""

    threads: int
    resources: Resources


def load(path: Path) -> dict[Key, Row]:
    """Rows of the checked-in file; none where there is no file."""
    if not path.exists():
        return {}
    with path.open(newline="", encoding="utf-8") as file:
        return {
            (row["kernel"], row["arch"]): Row(
                int(row["threads"]), Resources(int(row["registers"]), int(row["shared"]))
            )
            for row in csv.DictReader(file)
        }


def save(path: Path, rows: dict[Key, Row]) -> None:
    """Write the file that `load` reads."""
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(COLUMNS)
        for (kernel, arch), row in sorted(rows.items(), key=lambda item: _order(item[0])):
            out.writerow([kernel, arch, row.threads, row.resources.registers, row.resources.shared])


def _order(key: Key) -> tuple[str, int]:
    return key[0], int(key[1].removeprefix("sm_"))


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


# -- what of it a multiprocessor can hold ----------------------------------------------------------


def dynamic_shared(kernel: str) -> int:
    """Bytes that a launch asks for besides: Layout::kBytes of features.cuh."""
    features = re.fullmatch(r"features_kernel<(\d+)>", kernel)
    if features is None:
        return 0
    tile = 16 * (8 * int(features[1]) * 16 + 8)
    return 4 * (2 * tile + 8 * 16 * 16)


def resident(kernel: str, arch: str, row: Row) -> tuple[int, int]:
    """Blocks, and warps, that a multiprocessor holds at once."""
    from cuxray.archspec import lookup
    from cuxray.occupancy import compute

    held = compute(
        lookup(arch),
        row.resources.registers,
        row.threads,
        row.resources.shared,
        dynamic_shared(kernel),
    )
    return held.blocks_per_sm, held.active_warps


def table(budget: dict[Key, Row], double: bool) -> str:
    """Markdown: kernels that differ in their weight function or width alone share a line, which
    gives the most that any of them may use."""
    archs = sorted({arch for _, arch in budget}, key=lambda arch: int(arch.removeprefix("sm_")))
    lines = [
        f"| kernel | threads | registers on {', '.join(archs)} | shared memory, static + dynamic "
        "| blocks at once | warps of 64 |",
        "|---|---|---|---|---|---|",
    ]
    families: dict[str, list[str]] = {}
    for kernel in sorted({kernel for kernel, _ in budget}):
        if ("double" in kernel) == double:
            families.setdefault(family(kernel), []).append(kernel)
    for name, kernels in families.items():
        worst = [_worst(budget, kernels, arch) for arch in archs]
        held = [resident(kernels[0], arch, row) for arch, row in zip(archs, worst, strict=True)]
        static = max(row.resources.shared for row in worst)
        shared = f"{static:,} + {dynamic_shared(kernels[0]):,}"
        lines.append(
            f"| `{name}` | {worst[0].threads} | {_each(row.resources.registers for row in worst)} "
            f"| {shared} | {_each(count for count, _ in held)} "
            f"| {_each(warps for _, warps in held)} |"
        )
    return "\n".join(lines) + "\n"


def _worst(budget: dict[Key, Row], kernels: list[str], arch: str) -> Row:
    rows = [budget[kernel, arch] for kernel in kernels]
    most = [max(getattr(row.resources, what) for row in rows) for what in ("registers", "shared")]
    return Row(max(row.threads for row in rows), Resources(*most))


def _each(values: Iterable[object]) -> str:
    """One value where all are equal."""
    texts = [str(value) for value in values]
    return texts[0] if len(set(texts)) == 1 else ", ".join(texts)


def family(kernel: str) -> str:
    """The name of what differs in weight function or width alone."""
    name, _, inside = kernel.removesuffix(">").partition("<")
    arguments = [_shown(argument) for argument in _split(inside)]
    if name in ("own_row_kernel", "gradient_kernel", "step_kernel"):
        arguments[1] = "…"
    return f"{name}<{', '.join(arguments)}>"


def _shown(argument: str) -> str:
    plain = re.fullmatch(r"\d+|true|false|float|double", argument)
    return argument if plain else "…"


def _split(inside: str) -> list[str]:
    """Template arguments at the outer level."""
    return re.findall(r"(?:[^,<>]|<[^<>]*(?:<[^<>]*>[^<>]*)*>)+", inside.replace(", ", ","))
