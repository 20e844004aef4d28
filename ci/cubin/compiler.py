"""nvcc as the build calls it, and what ptxas says of each kernel."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Resources:
    """Of one kernel on one architecture: registers of a thread, static shared bytes of a block."""

    registers: int
    shared: int


class CompileError(Exception):
    """What nvcc or ptxas has to say, kernels by their short names."""


def is_double(source: Path) -> bool:
    """Whether the kernels of a file compute in double precision, which those of others must not."""
    return source.stem.endswith("_f64")


def command(nvcc: str, source: Path, include: Path, arch: str, cubin: Path) -> list[str]:
    """Any warning is an error; the options that change code are those of CMakeLists.txt."""
    return [
        *(nvcc, "-std=c++17", "-cubin", f"-arch={arch}", f"-I{include}"),
        *([] if is_double(source) else ["-prec-div=false"]),
        *("-Xptxas", "-v,--warn-on-spills,--warn-on-local-memory-usage"),
        *("-Werror", "all-warnings", "-o", str(cubin), str(source)),
    ]


def compile_cubin(
    nvcc: str, source: Path, include: Path, arch: str, cubin: Path
) -> dict[str, Resources]:
    """Compile `source` to `cubin`; resources by mangled name."""
    to_cubin = command(nvcc, source, include, arch, cubin)
    done = subprocess.run(to_cubin, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    if done.returncode == 0:
        return parse_resources(said)
    lines = [line for line in said.splitlines() if line.strip() and not _INFORMATION.match(line)]
    raise CompileError(_NAMESPACES.sub("", _demangled("\n".join(dict.fromkeys(lines)))))


_NAMESPACES = re.compile(r"(wsfast|cuda|\(anonymous namespace\))::")
_INFORMATION = re.compile(r"ptxas info|\s+\d+ bytes stack frame")
_ENTRY = re.compile(r"Compiling entry function '(\S+)' for")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


def parse_resources(said: str) -> dict[str, Resources]:
    """Resources by mangled name, from what ``ptxas -v`` says."""
    found, entry = {}, None
    for line in said.splitlines():
        if started := _ENTRY.search(line):
            entry = started[1]
        elif (used := _USED.search(line)) and entry is not None:
            shared = _SHARED.search(line)
            found[entry] = Resources(int(used[1]), int(shared[1]) if shared else 0)
            entry = None
    return found


def short_names(mangled: list[str]) -> dict[str, str]:
    """``features_kernel<float, float, 3, false>`` of each mangled name."""
    return dict(zip(mangled, map(short, _demangled("\n".join(mangled)).splitlines()), strict=True))


def short(demangled: str) -> str:
    """A kernel's name without namespaces, result and arguments."""
    return _NAMESPACES.sub("", demangled).removeprefix("void ").partition("(")[0]


def _demangled(text: str) -> str:
    return subprocess.run(
        ["c++filt"], input=text, capture_output=True, text=True, check=True
    ).stdout
