"""The steps of bench/gpu_check.sh, each in a process of its own. Needs neither PyTorch nor wsfast.

What a step prints goes straight into a log of its own, what it finds and its verdict into
records.jsonl: they are there whatever happens later.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from . import report

ROOT = Path(__file__).resolve().parents[2]
PYTHON = (sys.executable, "-m")
DRIVER = (*PYTHON, "bench.gpu_check.driver")
SECONDS = 555  # and some for the last to be stopped
# Lines of a step's output that say what is wrong.
TELLING = re.compile(r"SUMMARY: |^(FAILED|ERROR) |^\S*(Error|Fatal).*: |: error: |CMake Error")
GRACE = 5  # for what is stopped to say where it was


class Step(NamedTuple):
    """A process, the seconds it may take, and what tells that it passed."""

    name: str
    command: Sequence[str]
    limit: float
    env: Mapping[str, str] = {}
    finds: str = ""  # regular expression that its output must have; its status tells nothing then


class Runner:
    """Runs steps and keeps what they find in a folder."""

    def __init__(self, out: Path, seconds: float, cwd: Path = ROOT) -> None:
        self.out, self.cwd, self.end = out, cwd, time.monotonic() + seconds
        self.records = out / report.RECORDS
        out.mkdir(parents=True, exist_ok=True)
        for old in [*out.glob("*.log"), self.records, out / report.SUMMARY]:
            old.unlink(missing_ok=True)

    @property
    def left(self) -> float:
        return self.end - time.monotonic()

    def run(self, steps: Sequence[Step], at_once: int = 1) -> bool:
        """Whether all of them passed."""
        with ThreadPoolExecutor(at_once) as pool:
            return all(list(pool.map(self._run, steps)))

    def _run(self, step: Step) -> bool:
        start, log = time.monotonic(), self.out / f"{step.name}.log"
        try:
            verdict = self._process(step, min(step.limit, self.left), log)
        except OSError as error:
            verdict = f"failed: {error}"
        seconds = round(time.monotonic() - start, 1)
        said = log.read_text("utf-8", "replace")
        lines = [line for line in said.splitlines() if line.strip()]
        telling = [line for line in lines if TELLING.search(line)][:4] or lines[:1]
        told = {"verdict": verdict, "seconds": seconds, "telling": telling, "last": lines[-1:]}
        report.keep(self.records, "step", step=step.name, **told)
        print(f"{step.name}: {verdict}, {seconds:.0f} s", flush=True)
        return verdict == "passed"

    def _process(self, step: Step, limit: float, log: Path) -> str:
        with log.open("ab") as output:
            if limit <= 0:
                return "no time was left"
            process = subprocess.Popen(
                step.command,
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                cwd=self.cwd,
                env={**os.environ, **step.env, report.VARIABLE: str(self.records)},
                start_new_session=True,  # so that it is stopped with all that it started
            )
        status = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = process.wait(limit)
        # Python says where it was when it is told to abort.
        for number in (signal.SIGKILL,) if status is not None else (signal.SIGABRT, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.killpg(process.pid, number)
                process.wait(GRACE)
        if status is None:
            return f"stopped after {limit:.0f} s"
        if step.finds:
            found = re.search(step.finds, log.read_text("utf-8", "replace"))
            return "passed" if found else f"failed: no {step.finds!r} in its output"
        if status < 0:
            return f"crashed: {signal.Signals(-status).name}"
        return "passed" if status == 0 else f"failed: status {status}"


# -- the machine -----------------------------------------------------------------------------------


def said_by(*command: str) -> str:
    """The first line that holds a number, of what a command says."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "none"
    lines = (done.stdout + done.stderr).splitlines()
    return next((line.strip() for line in lines if re.search(r"\d\.\d", line)), "none")


def find_headers() -> str:
    """The folder of this Python's headers: its own, or that of another one of the same version."""
    own = sysconfig.get_path("include")
    if Path(own, "Python.h").is_file():
        return own
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    sought = ("-path", f"*/{version}/Python.h", "-print", "-quit")
    found = Path(said_by("find", "/", "-path", "/proc", "-prune", "-o", *sought))
    return str(found.parent) if found.is_file() else f"NOT FOUND for {version}"


def facts(*, dry_run: bool) -> dict[str, str]:
    tools = (sys.executable, "nvcc", "cmake", "ninja", "compute-sanitizer")
    query = ("nvidia-smi", "--format=csv,noheader", "--query-gpu=name,driver_version,compute_cap")
    card, driver, capability = (said_by(*query).split(", ") + ["none"] * 2)[:3]
    return {
        "card": "none: a dry run on the CPU" if dry_run else card,
        "driver": driver,
        "compute capability": capability,
        "torch": said_by(sys.executable, "-c", "import torch; print(torch.__version__)"),
        **{Path(tool).name: said_by(tool, "--version") for tool in tools},
        "Python.h": find_headers(),
    }


# -- steps -----------------------------------------------------------------------------------------


def copy_tree(source: Path) -> None:
    """All that is needed, and nothing built before."""
    ignored = shutil.ignore_patterns("*.so", "*_missing.txt", "__pycache__")
    for name in ("bench", "csrc", "tests", "wsfast"):
        shutil.copytree(ROOT / name, source / name, ignore=ignored)
    for name in ("CMakeLists.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, source)


def build(found: Mapping[str, str]) -> list[Step]:
    """Both modules, in a copy of the tree, by CMake itself: nothing need be installed."""
    architecture = found["compute capability"].replace(".", "").replace("none", "90")
    cuda = f"-DWSFAST_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES={architecture}-real"
    cuda += ' -DCMAKE_CUDA_COMPILER="$(command -v nvcc)"'
    interpreter, headers = shlex.quote(sys.executable), shlex.quote(found["Python.h"])
    steps = []
    for name, options in (("CUDA", cuda), ("CPU", "")):
        script = f"""
            cmake -S . -B build/{name} -G Ninja -DCMAKE_BUILD_TYPE=Release {options} \
              -DPython_EXECUTABLE={interpreter} -DPython_INCLUDE_DIR={headers} \
              -Dpybind11_DIR="$({interpreter} -m pybind11 --cmakedir)" \
              -DCMAKE_LIBRARY_OUTPUT_DIRECTORY="$PWD/wsfast"
            cmake --build build/{name} -j "${{MAX_JOBS:-16}}"
            {interpreter} -c "from wsfast.engines import compiled; compiled.{name}.require()"
        """
        steps.append(Step(f"build {name}", ["bash", "-ec", script], 150))
    return steps


def tests(*, dry_run: bool) -> list[Step]:
    """One for each file of tests/cuda, that of streams last."""
    # What some versions of PyTorch say about TF32 is no part of the tests.
    options = ["-W", "ignore:Please use the new API settings", *["--cuda-on-cpu"] * dry_run]
    options += ["-q", "-m", "", "-p", "no:cacheprovider", "--tb=short", "--durations=5"]
    needs = "cuda_on_cpu,native" if dry_run else "cuda,native"
    env = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "WSFAST_REQUIRE": needs}
    files = sorted((ROOT / "tests/cuda").glob("test_*.py"), key=lambda path: "streams" in path.name)
    limit, run = 300 if dry_run else 90, [*PYTHON, "pytest", *options]
    return [Step(path.stem, [*run, f"tests/cuda/{path.name}"], limit, env) for path in files]


def figures(*, dry_run: bool) -> list[Step]:
    """One for each, what single kernels take first; in a dry run one for all."""
    run = (*PYTHON, "bench.gpu_check.figures")
    names = ["features_kernels", "ascent_kernels", "tile_kernels", "small_basis", "products"]
    names += ["ball", "features", "substitution"]
    if dry_run:
        return [Step("figures", [*run, *names, "--dry-run"], 300)]
    return [Step(name, [*run, name], 25) for name in names]


def sanitizers(*tools: str) -> list[Step]:
    """compute-sanitizer over the driver; "planted": that memcheck finds what is there."""
    command = ["compute-sanitizer", "--report-api-errors", "no", "--print-limit", "100"]
    command += ["--error-exitcode", "9", "--kernel-name", "kns=wsfast", "--tool"]
    # Each tensor has an allocation of its own, whose ends are seen.
    env = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    fault = r"Invalid __global__ read.*\n.*wsfast"
    return [
        Step(tool, [*command, "memcheck", *DRIVER, "--planted"], 120, env, fault)
        if tool == "planted"
        else Step(tool, [*command, tool, *DRIVER], 120, env)
        for tool in tools
    ]


def run_all(runner: Runner, source: Path, *, dry_run: bool) -> None:
    """What teaches most comes first."""
    found = facts(dry_run=dry_run)
    report.keep(runner.records, "facts", **found)
    if dry_run:
        into = [sys.executable, "tests/cuda_on_cpu/build.py", "build/cuda_on_cpu"]
        built = runner.run([Step("build for the CPU", into, 300)])
    else:
        copy_tree(source)
        runner.cwd = source
        built = runner.run(build(found), 2)
    if not built:
        return
    timed = figures(dry_run=dry_run)
    *files, streams = tests(dry_run=dry_run)
    if dry_run:  # nothing is timed that others could disturb; the longest come first
        launches = Step("driver", [*DRIVER, "--dry-run"], 300)
        runner.run([*reversed(files), launches, *timed, streams], 2)
        return
    runner.run([Step("driver", DRIVER, 60, {"CUDA_LAUNCH_BLOCKING": "1"})])
    runner.run(files, 3)
    runner.run([streams, *timed])
    # All at once: most of their time is that of the host. Not initcheck, which has to watch kernels
    # of libraries as well: the tests poison memory.
    runner.run(sanitizers("memcheck", "planted", "racecheck"), 3)
    if runner.left > 60:
        runner.run(sanitizers("synccheck"))


def main() -> int:
    parser = argparse.ArgumentParser(prog="gpu_check.sh", description="All checks that need a GPU.")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "gpu_check")
    parser.add_argument("--dry-run", action="store_true", help="over the kernels for the CPU")
    given = parser.parse_args()
    runner = Runner(given.out.resolve(), SECONDS)
    with tempfile.TemporaryDirectory() as folder:
        run_all(runner, Path(folder), dry_run=given.dry_run)
    return report.main(runner.out)


if __name__ == "__main__":
    raise SystemExit(main())
