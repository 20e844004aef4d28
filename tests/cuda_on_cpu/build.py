"""Builds the module `_cuda` for the CPU: the kernels of csrc/cuda over the headers in include/.

``python tests/cuda_on_cpu/build.py FOLDER [--sanitize address,undefined]`` prints where the module
is; what is up to date there is not compiled again.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pybind11

HERE = Path(__file__).resolve().parent
CSRC = HERE.parents[1] / "csrc"
COMPILER = shlex.split(os.environ.get("CXX") or "g++")
PYTHON = {sysconfig.get_path("include"), sysconfig.get_path("platinclude")}
# Bindings are slow to compile and quick to run.
OPTIMIZE = {".cpp": "-O1", ".cu": "-O2"}
FLAGS = [
    *("-std=c++20", "-g0", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra"),
    "-Wno-unknown-pragmas",  # unroll
    "-DWSFAST_CUDA_ON_CPU",
    '-DWSFAST_CUDA_ARCHITECTURES="cpu"',
    f'-DWSFAST_CUDA_COMPILER="{COMPILER[-1]}"',
    f"-I{HERE / 'include'}",
    *(f"-isystem{path}" for path in (*PYTHON, pybind11.get_include())),
]


def build(folder: Path, sanitize: str | None = None) -> Path:
    """Path of the module, built in `folder`; `sanitize` is what -fsanitize= takes.

    Raises
    ------
    RuntimeError
        With what the compiler said.
    """
    sources = [CSRC / "cuda" / "bindings.cpp", *sorted((CSRC / "cuda").glob("*.cu"))]
    folder = folder / (sanitize or "plain")
    folder.mkdir(parents=True, exist_ok=True)
    more = [f"-fsanitize={sanitize}", "-fno-omit-frame-pointer", "-g1"] if sanitize else []
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        done = [pool.submit(_compile, source, folder, more) for source in sources]
    objects = [future.result() for future in done]
    module = folder / f"_cuda{sysconfig.get_config_var('EXT_SUFFIX')}"
    if not _newer(module, objects):
        linked = module.with_suffix(f".{os.getpid()}")
        _run([*COMPILER, "-shared", *more, *map(str, objects), "-o", str(linked)])
        linked.replace(module)
    return module


def _compile(source: Path, folder: Path, more: list[str]) -> Path:
    made = folder / f"{source.stem}.o"
    # Written by the compiler: "made: source header \ header ...".
    headers = made.with_suffix(".d")
    if not headers.is_file() or not _newer(made, _headers(headers)):
        # Other processes may build here too: they never see half a file.
        listed, compiled = (folder / f"{source.stem}.{os.getpid()}.{kind}" for kind in "do")
        flags = [OPTIMIZE[source.suffix], *FLAGS, *more, "-MMD", "-MF", str(listed)]
        _run([*COMPILER, *flags, "-x", "c++", "-c", str(source), "-o", str(compiled)])
        listed.replace(headers)
        compiled.replace(made)
    return made


def _headers(path: Path) -> list[Path]:
    names = path.read_text().partition(":")[2].replace("\\\n", " ").split()
    return [Path(__file__), *map(Path, names)]


def _newer(made: Path, sources: list[Path]) -> bool:
    if not made.is_file():
        return False
    time = made.stat().st_mtime_ns
    return all(source.is_file() and source.stat().st_mtime_ns <= time for source in sources)


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{shlex.join(command)}\n{done.stderr}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sanitize")
    arguments = parser.parse_args()
    print(build(arguments.folder, arguments.sanitize))
