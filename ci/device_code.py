"""Checks of the CUDA kernels that need nvcc but no GPU: ``python ci/device_code.py [--require]``.

Each file is compiled for each architecture with all warnings as errors; spills and local memory
are some. Registers and shared memory must keep to csrc/cuda/resources.csv (``--update`` writes it).
Machine code must have the instructions that the kernels are written for, and none of double
precision in a float kernel; the lanes of a warp may not meet in a bank of shared memory.

Needs ``nvidia-cuda-nvdisasm >= 13.2`` and ``cuxray`` of PyPI, and c++filt. What is not there makes
``--require`` fail; without it, nothing is checked then.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shutil
import sys
import sysconfig
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CUDA = ROOT / "csrc" / "cuda"
BUDGET = CUDA / "resources.csv"
# Of the accesses to shared memory, how many cuxray must be able to follow.
LEAST_KNOWN = 0.7


@dataclass
class Report:
    """Of one file on one architecture."""

    source: str
    arch: str
    faults: list[str] = field(default_factory=list)
    rows: dict[tuple[str, str], Any] = field(default_factory=dict)
    products: dict[str, int] = field(default_factory=dict)
    known: int = 0
    unknown: int = 0


def examine(nvcc: str, nvdisasm: str, source: Path, arch: str) -> Report:
    """All that one compilation tells."""
    from cubin import banks, budget, compiler, sass
    from cuxray.parse import elf

    report = Report(source.name, arch)
    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder) / f"{source.stem}.cubin"
        try:
            resources = compiler.compile_cubin(nvcc, source, ROOT / "csrc", arch, cubin)
        except compiler.CompileError as error:
            report.faults.append(str(error))
            return report
        names = compiler.short_names(list(resources))
        bounds = elf.launch_dims(cubin.read_bytes())
        text = sass.disassemble(nvdisasm, cubin) if names else ""
    threads = {}
    for mangled, name in names.items():
        if bound := bounds.get(mangled, {}).get("maxntid"):
            threads[name] = bound[0]
            report.rows[name, arch] = budget.Row(bound[0], resources[mangled])
        else:
            report.faults.append(f"{name}: has no __launch_bounds__")
    codes = sass.opcodes(text)
    report.products = {names[name]: count for name, count in sass.products_of_a_tile(text).items()}
    report.faults += sass.too_many_for_a_tile(set(names.values()), report.products)
    double = compiler.is_double(source)
    for mangled, name in names.items():
        wrong = sass.faults(name, codes.get(mangled, Counter()), double)
        report.faults += [f"{name}: {fault}" for fault in wrong]
    if arch == banks.ARCH:
        for name, reading in banks.read(text, threads, names).items():
            report.faults += [f"{name}: {fault}" for fault in reading.faults]
            report.known += reading.known
            report.unknown += reading.unknown
    return report


@dataclass(frozen=True)
class Tools:
    """What the checks need besides Python."""

    nvcc: str
    nvdisasm: str
    archs: tuple[str, ...]


class MissingError(Exception):
    """One of the tools is not there."""


def _load(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def find_tools() -> Tools:
    """Paths of the tools; nvcc, and the architectures, are those of the build."""
    try:
        setup = _load(ROOT / "setup.py", "wsfast_setup")
    except ImportError as error:
        raise MissingError(str(error)) from error
    try:
        nvcc = setup.find_nvcc()
    except setup.NvccMissingError as error:
        raise MissingError(str(error)) from error
    beside = Path(sysconfig.get_path("purelib"), "nvidia", "cu13", "bin")
    nvdisasm = shutil.which("nvdisasm", path=str(beside)) or shutil.which("nvdisasm")
    if nvdisasm is None:
        raise MissingError("nvdisasm was not found: pip install 'nvidia-cuda-nvdisasm>=13.2'")
    if importlib.util.find_spec("cuxray") is None:
        raise MissingError("cuxray was not found: pip install cuxray==0.6.0")
    if shutil.which("c++filt") is None:
        raise MissingError("c++filt was not found: it comes with binutils")
    return Tools(nvcc, nvdisasm, tuple(f"sm_{number}" for number in setup.DEFAULT_ARCHITECTURES))


def examine_all(tools: Tools) -> list[Report]:
    """Reports of all files and architectures, as many at a time as there are cores."""
    sources = sorted(CUDA.glob("*.cu"), key=lambda path: -path.stat().st_size)
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        waiting = [
            pool.submit(examine, tools.nvcc, tools.nvdisasm, source, arch)
            for arch in sorted(tools.archs, key=lambda arch: arch != "sm_90")  # the longest first
            for source in sources
        ]
        return [future.result() for future in waiting]


def unused_rules(names: set[str]) -> list[str]:
    """Of the machine code that is meant, what no kernel fits."""
    from cubin import sass

    return [
        f"ci/cubin/sass.py: no kernel fits {fits}"
        for fits in sass.MEANT
        if not any(re.match(fits, name) for name in names)
    ]


def unknown_accesses(reports: list[Report]) -> list[str]:
    """A fault where cuxray loses too many addresses to be of use."""
    known = sum(report.known for report in reports)
    seen = known + sum(report.unknown for report in reports)
    print(f"{known} of {seen} accesses to shared memory could be followed")
    return [] if known >= LEAST_KNOWN * seen else ["too few of them"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--require", action="store_true", help="fail where a tool is missing")
    parser.add_argument("--update", action="store_true", help="write the budget")
    options = parser.parse_args()
    try:
        tools = find_tools()
    except MissingError as error:
        print(f"device code NOT checked: {error}")
        return 1 if options.require else 0
    from cubin import budget

    start = time.perf_counter()
    reports = examine_all(tools)
    faults = [f"{r.source} on {r.arch}: {fault}" for r in reports for fault in r.faults]
    rows = {key: row for report in reports for key, row in report.rows.items()}
    faults += unused_rules({kernel for kernel, _ in rows})
    faults += unknown_accesses(reports)
    for report in reports:
        for name, count in sorted(report.products.items()):
            print(f"{name} on {report.arch}: {count} instructions for the products of a tile")
    if options.update and not faults:
        BUDGET.write_text(budget.text(rows), "utf-8")
    budgeted = budget.load(BUDGET)
    faults += budget.faults(budgeted, rows)
    if BUDGET.read_text("utf-8") != budget.text(budgeted):
        faults.append(f"{BUDGET.name}: warps are not those of the registers: --update")
    print(f"{len(rows)} kernels in {time.perf_counter() - start:.0f} s")
    for fault in faults:
        print(f"FAILED: {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
