"""The steps of bench/gpu_check.sh, each in a process of its own. Needs neither PyTorch nor wsfast.

What a step prints goes line by line into a log of the output folder, its lines "record: {...}" and
its verdict into records.jsonl: they are there whatever happens later.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, NamedTuple

from . import report

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 555  # and some for the last to be stopped
# Lines of a step's output that say what is wrong.
TELLING = re.compile(r"SUMMARY: |^(FAILED|ERROR) |^\S*(Error|Fatal).*: |: error: |CMake Error")
GRACE = 5  # for what is stopped to say where it was


class Step(NamedTuple):
    """A process, the seconds it may take, and what tells that it passed."""

    name: str
    command: Sequence[str]
    limit: float
    log: str
    env: Mapping[str, str] = {}
    finds: str = ""  # regular expression that its output must have; its status tells nothing then


class Runner:
    """Runs steps and keeps what they find in a folder."""

    def __init__(self, out: Path, seconds: float, cwd: Path = ROOT) -> None:
        self.out, self.cwd, self.end = out, cwd, time.monotonic() + seconds
        self.lock = threading.Lock()
        out.mkdir(parents=True, exist_ok=True)
        for old in [*out.glob("*.log"), out / "records.jsonl", out / "summary.txt"]:
            old.unlink(missing_ok=True)

    @property
    def left(self) -> float:
        return self.end - time.monotonic()

    def run(self, steps: Sequence[Step], at_once: int = 1) -> bool:
        """Whether all of them passed."""
        with ThreadPoolExecutor(at_once) as pool:
            return all(list(pool.map(self._run, steps)))

    def keep(self, found: Mapping[str, Any]) -> None:
        with self.lock, (self.out / "records.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(found, ensure_ascii=False) + "\n")

    def _run(self, step: Step) -> bool:
        start, lines = time.monotonic(), list[str]()
        limit = min(step.limit, self.left)
        verdict = "no time was left"
        if limit > 0:
            try:
                verdict = self._process(step, limit, lines)
                if step.finds and not verdict.startswith("stopped"):
                    found = re.search(step.finds, "\n".join(lines))
                    verdict = "passed" if found else f"failed: no {step.finds!r} in its output"
            except OSError as error:
                verdict = f"failed: {error}"
        seconds = round(time.monotonic() - start, 1)
        telling = [line for line in lines if TELLING.search(line)][:4] or lines[:1]
        what = {"step": step.name, "verdict": verdict, "log": step.log, "seconds": seconds}
        self.keep({"kind": "step", **what, "telling": telling, "last": lines[-1:]})
        print(f"{step.name}: {verdict}, {seconds:.0f} s", flush=True)
        return verdict == "passed"

    def _process(self, step: Step, limit: float, lines: list[str]) -> str:
        process = subprocess.Popen(
            step.command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            cwd=self.cwd,
            env={**os.environ, **step.env},
            start_new_session=True,  # so that it is stopped with all that it started
        )
        reader = threading.Thread(
            target=self._read, args=(process.stdout, step, lines), daemon=True
        )
        reader.start()
        status = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = process.wait(limit)
        # Python says where it was when it is told to abort.
        for number in (signal.SIGKILL,) if status is not None else (signal.SIGABRT, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.killpg(process.pid, number)
                process.wait(GRACE)
        reader.join(GRACE)
        if status is None:
            return f"stopped after {limit:.0f} s"
        if status < 0:
            return f"crashed: {signal.Signals(-status).name}"
        return "passed" if status == 0 else f"failed: status {status}"

    def _read(self, output: IO[str], step: Step, lines: list[str]) -> None:
        with output:
            for line in filter(None, map(str.rstrip, output)):
                if line.startswith("record: "):
                    with contextlib.suppress(json.JSONDecodeError):  # of a line that was cut off
                        self.keep({"step": step.name, **json.loads(line[len("record: ") :])})
                    continue
                lines.append(line)
                with self.lock, (self.out / step.log).open("a", encoding="utf-8") as log:
                    log.write(f"{step.name} | {line}\n")


# -- the machine -----------------------------------------------------------------------------------


def said_by(*command: str) -> str:
    """The first line that holds a number, of what a command says."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "none"
    lines = (done.stdout + done.stderr).splitlines()
    return next((line.strip() for line in lines if re.search(r"\d\.\d", line)), "none")


def find_tool(name: str) -> str:
    """Where a tool of the CUDA toolkit is."""
    folders = (os.environ.get("CUDA_HOME", "/usr/local/cuda"), "/usr/local/cuda")
    places = os.pathsep.join(f"{folder}/bin" for folder in folders)
    return shutil.which(name) or shutil.which(name, path=places) or name


def find_headers() -> str:
    """The folder of this Python's headers: its own, or that of another one of the same version."""
    own = sysconfig.get_path("include")
    if Path(own, "Python.h").is_file():
        return own
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    command = ["find", "/", "-path", "/proc", "-prune", "-o", "-path", f"*/{version}/Python.h"]
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        found = subprocess.run([*command, "-print", "-quit"], capture_output=True, timeout=20)
        if path := found.stdout.decode().strip():
            return str(Path(path).parent)
    return f"NOT FOUND for {version}"


def facts(runner: Runner, *, dry_run: bool) -> dict[str, str]:
    query = ("nvidia-smi", "--format=csv,noheader", "--query-gpu=name,driver_version,compute_cap")
    card, driver, capability = (said_by(*query).split(", ") + ["none"] * 2)[:3]
    found = {
        "card": "none: a dry run on the CPU" if dry_run else card,
        "driver": driver,
        "compute capability": capability,
        "nvcc": said_by(find_tool("nvcc"), "--version"),
        "torch": said_by(sys.executable, "-c", "import torch; print(torch.__version__)"),
        "python": sys.version.split()[0],
        "cmake": said_by("cmake", "--version"),
        "ninja": said_by("ninja", "--version"),
        "compute-sanitizer": said_by(find_tool("compute-sanitizer"), "--version"),
        "Python.h": find_headers(),
    }
    runner.keep({"kind": "facts", **found})
    return found


# -- steps -----------------------------------------------------------------------------------------


def copy_tree(source: Path) -> None:
    """All that is needed, and nothing built before."""
    ignored = shutil.ignore_patterns("*.so", "*_missing.txt", "__pycache__")
    for name in ("bench", "csrc", "tests", "wsfast"):
        shutil.copytree(ROOT / name, source / name, ignore=ignored)
    for name in ("CMakeLists.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, source)


def build(source: Path, found: Mapping[str, str]) -> list[Step]:
    """Both modules, into a copy of the tree, by CMake itself: nothing need be installed."""
    architecture = found["compute capability"].replace(".", "").replace("none", "90")
    own = {
        "cuda": [
            *("-DWSFAST_CUDA=ON", f"-DCMAKE_CUDA_ARCHITECTURES={architecture}-real"),
            f"-DCMAKE_CUDA_COMPILER={find_tool('nvcc')}",
        ],
        "cpu": [],
    }
    steps = []
    for name, options in own.items():
        command = [
            *("cmake", "-S", str(source), "-B", f"{source}/{name}", "-G", "Ninja", *options),
            *("-DCMAKE_BUILD_TYPE=Release", f"-DPython_EXECUTABLE={sys.executable}"),
            f"-DPython_INCLUDE_DIR={found['Python.h']}",
            f"-DCMAKE_LIBRARY_OUTPUT_DIRECTORY={source / 'wsfast'}",
        ]
        script = (
            f'{shlex.join(command)} "-Dpybind11_DIR=$({sys.executable} -m pybind11 --cmakedir)"'
            f" && cmake --build {source}/{name} -j ${{MAX_JOBS:-16}}"
        )
        steps.append(Step(f"build {name}", ["bash", "-c", script], 150, "build.log"))
    return steps


def python(*arguments: str) -> list[str]:
    return [sys.executable, "-m", *arguments]


def tests(*, dry_run: bool) -> list[Step]:
    """One for each file of tests/cuda, that of streams last."""
    options = ["-q", "-m", "", "-p", "no:cacheprovider", "--tb=short", "--durations=5"]
    # What some versions of PyTorch say about TF32 is no part of the tests.
    options += ["-W", "ignore:Please use the new API settings"]
    env = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "WSFAST_REQUIRE": "cuda,native"}
    if dry_run:
        options, env["WSFAST_REQUIRE"] = [*options, "--cuda-on-cpu"], "cuda_on_cpu,native"
    files = sorted((ROOT / "tests/cuda").glob("test_*.py"), key=lambda path: "streams" in path.name)
    limit, run = 300 if dry_run else 90, python("pytest", *options)
    return [
        Step(path.stem, [*run, f"tests/cuda/{path.name}"], limit, "tests.log", env)
        for path in files
    ]


def figures(*, dry_run: bool) -> list[Step]:
    """One for each, what single kernels take first; in a dry run one for all."""
    run, log = "bench.gpu_check.figures", "figures.log"
    names = ["features_kernels", "ascent_kernels", "tile_kernels", "small_basis", "products"]
    names += ["ball", "features", "substitution"]
    if dry_run:
        return [Step("figures", python(run, *names, "--dry-run"), 300, log)]
    return [Step(name, python(run, name), 25, log) for name in names]


def driver(*options: str) -> list[str]:
    return python("bench.gpu_check.driver", *options)


def sanitizers(*tools: str) -> list[Step]:
    """compute-sanitizer over the driver; "planted": that memcheck finds what is there."""
    command = [find_tool("compute-sanitizer"), "--report-api-errors", "no", "--print-limit", "100"]
    command += ["--error-exitcode", "9", "--kernel-name", "kns=wsfast", "--tool"]
    own = {"planted": ["memcheck", *driver("--planted")]}
    # Each tensor has an allocation of its own, whose ends are seen.
    env = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    return [
        Step(
            tool,
            [*command, *own.get(tool, [tool, *driver()])],
            120,
            "sanitizers.log",
            env,
            r"Invalid __global__ read.*\n.*wsfast" if tool in own else "",
        )
        for tool in tools
    ]


def run_all(runner: Runner, source: Path, *, dry_run: bool) -> None:
    """What teaches most comes first."""
    found = facts(runner, dry_run=dry_run)
    if dry_run:
        into = [sys.executable, "tests/cuda_on_cpu/build.py", "build/cuda_on_cpu"]
        built = runner.run([Step("build for the CPU", into, 300, "build.log")])
    else:
        copy_tree(source)
        runner.cwd = source
        load = "from wsfast.engines.compiled import CPU, CUDA; CPU.require(); CUDA.require()"
        load = [sys.executable, "-c", f"{load}; import wsfast; wsfast.show_config()"]
        steps = build(source, found)
        built = runner.run(steps, 2) and runner.run([Step("load", load, 60, "build.log")])
    if not built:
        return
    timed = figures(dry_run=dry_run)
    *files, streams = tests(dry_run=dry_run)
    if dry_run:  # nothing is timed that others could disturb; the longest come first
        launches = Step("driver", driver("--dry-run"), 300, "driver.log")
        runner.run([*reversed(files), launches, *timed, streams], 2)
        return
    blocking = {"CUDA_LAUNCH_BLOCKING": "1"}
    runner.run([Step("driver", driver(), 60, "driver.log", blocking)])
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
