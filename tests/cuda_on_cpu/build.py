"""Builds the module `_cuda` for the CPU: the kernels of csrc/cuda over the headers in include/.

``python tests/cuda_on_cpu/build.py FOLDER`` prints where the module is; what is up to date there is
not compiled again. CUDA_ON_CPU_SANITIZE is what -fsanitize takes; such a module has a folder of its
own.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path

import ninja
import pybind11
from filelock import FileLock
from ninja.ninja_syntax import Writer

HERE = Path(__file__).resolve().parent
CSRC = HERE.parents[1] / "csrc"
COMPILER = shlex.split(os.environ.get("CXX") or "g++")
# Of all that is compiled over the headers.
FLAGS = [
    *("-std=c++20", "-Wall", "-Wextra", "-Wno-unknown-pragmas"),  # pragma unroll
    "-DWSFAST_CUDA_ON_CPU",
    f"-I{HERE / 'include'}",
    f"-I{CSRC}",
]
PYTHON = {sysconfig.get_path("include"), sysconfig.get_path("platinclude")}
OF_MODULE = [
    *("-g0", "-fPIC", "-fvisibility=hidden"),
    '-DWSFAST_CUDA_ARCHITECTURES="cpu"',
    f'-DWSFAST_CUDA_COMPILER="{COMPILER[-1]}"',
    *(f"-isystem{path}" for path in (*PYTHON, pybind11.get_include())),
]
# Bindings are slow to compile and quick to run.
OPTIMIZE = {".cpp": ["-O1"], ".cu": ["-O2"]}
SANITIZE = os.environ.get("CUDA_ON_CPU_SANITIZE", "")
if SANITIZE:
    OPTIMIZE[".cu"] = ["-O1", "-g1", f"-fsanitize={SANITIZE}", "-fno-sanitize-recover=all"]


def build(folder: Path) -> Path:
    """Path of the module, built in `folder`.

    Raises
    ------
    RuntimeError
        With what the compiler said.
    """
    folder = folder / SANITIZE
    module = folder / f"_cuda{sysconfig.get_config_var('EXT_SUFFIX')}"
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / "lock"):  # other processes may build here too
        with (folder / "build.ninja").open("w") as file:
            _rules(Writer(file, width=10**6), module.name)
        jobs = f"-j{len(os.sched_getaffinity(0))}"
        command = [str(Path(ninja.BIN_DIR) / "ninja"), jobs, "-C", str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stdout + done.stderr)
    return module


def _rules(out: Writer, module: str) -> None:
    compiler = shlex.join(COMPILER)
    compiled = f"{compiler} $flags -MMD -MF $out.d -x c++ -c $in -o $out"
    out.rule("compile", compiled, depfile="$out.d", deps="gcc")
    sanitize = f"-fsanitize={SANITIZE}" if SANITIZE else ""
    out.rule("link", f"{compiler} -shared {sanitize} $in -o $out")
    objects = []
    for source in (CSRC / "cuda" / "bindings.cpp", *sorted((CSRC / "cuda").glob("*.cu"))):
        flags = shlex.join([*FLAGS, *OF_MODULE, *OPTIMIZE[source.suffix]])
        objects += out.build(f"{source.stem}.o", "compile", str(source), variables={"flags": flags})
    out.build(module, "link", objects)


if __name__ == "__main__":
    print(build(Path(sys.argv[1])))
