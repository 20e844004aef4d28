"""Compiles a program that launches kernels on the CPU, and runs it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from cuda_on_cpu.build import COMPILER, FLAGS

ORDERS = ("up", "down", "random", "warp")
BUILDS = {
    "plain": [],
    "portable": ["-DCUDA_ON_CPU_UCONTEXT"],  # where fibers have no switch in assembly
    "address": ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
    "thread": ["-fsanitize=thread"],
}


def compile_program(source: Path, target: Path, build: str) -> Path:
    flags = [*FLAGS, "-O1", "-g1", "-Werror", *BUILDS[build]]
    command = [*COMPILER, *flags, "-x", "c++", str(source), "-o", str(target)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target


def run_program(program: Path, **settings: object) -> subprocess.CompletedProcess[str]:
    """Run with settings such as ``order="up"``, and what a sanitizer says at the end of stdout."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("CUDA_ON_CPU_")}
    environment |= {f"CUDA_ON_CPU_{name.upper()}": str(value) for name, value in settings.items()}
    environment["ASAN_OPTIONS"] = "detect_leaks=0"  # kernels allocate nothing
    environment["UBSAN_OPTIONS"] = "print_stacktrace=1"
    environment["TSAN_OPTIONS"] = "atexit_sleep_ms=0"
    return subprocess.run(
        [program],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        timeout=120,
        check=False,
    )
