"""bench/gpu_check.sh tells of each step what became of it, runs the rest, and sums it up."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
floors = importlib.import_module("bench.gpu_check.floors")
report = importlib.import_module("bench.gpu_check.report")
run = importlib.import_module("bench.gpu_check.run")
Step = run.Step


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def steps_in(out: Path) -> dict[str, dict]:
    lines = (out / "records.jsonl").read_text("utf-8").splitlines()
    return {one["step"]: one for one in map(json.loads, lines) if one["kind"] == "step"}


KEEP = """
import json, os
with open(os.environ["GPU_CHECK_RECORDS"], "a") as records:
    print(json.dumps({"kind": "time", "what": "it", "us": 3}), file=records)
"""
# What a step may do, and how it is told.
PLANTED = {
    "aborts": (python("import os; print('begun', flush=True); os.abort()"), "crashed: SIGABRT"),
    "reads beyond": (python("import ctypes; ctypes.string_at(0)"), "crashed: SIGSEGV"),
    "hangs": (["flock", "held", "bash", "-c", "echo begun; sleep 9 & wait"], "stopped after 1 s"),
    "fails": (python("print('begun'); raise ValueError('wrong')"), "failed: status 1"),
    "is missing": (["./nothing"], "failed: [Errno 2]"),
    "passes": (python(KEEP), "passed"),
}


@pytest.mark.parametrize("at_once", [1, 3])
def test_each_failure_is_told_and_the_rest_runs(tmp_path, capsys, at_once):
    runner = run.Runner(tmp_path, 60, tmp_path)
    assert not runner.run(
        [
            Step(name, command, 1 if name == "hangs" else 30)
            for name, (command, _) in PLANTED.items()
        ],
        at_once,
    )
    told = steps_in(tmp_path)
    for name, (_, verdict) in PLANTED.items():
        assert told[name]["verdict"].startswith(verdict)
    assert told["hangs"]["seconds"] < run.GRACE
    # Nothing that it started holds the lock.
    subprocess.run(["flock", "--timeout", "3", tmp_path / "held", "true"], check=True)
    for name in ("aborts", "hangs", "fails"):
        assert (tmp_path / f"{name}.log").read_text().startswith("begun\n")
    assert report.main(tmp_path) == 1
    shown = capsys.readouterr().out
    assert "NOT hangs: stopped after 1 s; begun\n" in shown
    assert "NOT fails: failed: status 1; ValueError: wrong\n" in shown
    assert "not passed: 5; passed: passes\n" in shown
    assert "others: it 3" in shown
    assert shown.endswith((tmp_path / "summary.txt").read_text())


def test_no_step_begins_after_the_end(tmp_path):
    runner = run.Runner(tmp_path, 0)
    assert not runner.run([Step("late", python("open('there', 'w')"), 9)])
    assert steps_in(tmp_path)["late"]["verdict"] == "no time was left"


def test_nothing_runs_on_a_failed_build(tmp_path, monkeypatch):
    steps = [Step("build CUDA", ["false"], 9), Step("build CPU", ["true"], 9)]
    monkeypatch.setattr(run, "build", lambda *_: steps)
    monkeypatch.setattr(run, "copy_tree", lambda _: None)
    monkeypatch.setattr(run, "facts", lambda **_: {})
    run.run_all(run.Runner(tmp_path, 60), tmp_path, dry_run=False)
    verdicts = {name: step["verdict"] for name, step in steps_in(tmp_path).items()}
    assert verdicts == {"build CUDA": "failed: status 1", "build CPU": "passed"}


FAULT = """\
========= Invalid __global__ read of size 4 bytes
=========     at void wsfast::cuda::features_kernel<float>()
========= ERROR SUMMARY: 1 error"""


@pytest.mark.parametrize(
    ("said", "status", "passed"),
    [
        ("driver: done\n========= ERROR SUMMARY: 0 errors", 0, {"memcheck"}),
        (FAULT, 9, {"planted"}),
        ("========= Error: Device not supported", 1, set()),
    ],
)
def test_what_compute_sanitizer_says(tmp_path, monkeypatch, said, status, passed):
    tool = tmp_path / "compute-sanitizer"
    tool.write_text(f"#!/bin/sh\ncat <<'END'\n{said}\nEND\nexit {status}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    runner = run.Runner(tmp_path / "out", 60)
    runner.run(run.sanitizers("memcheck", "planted"))
    told = steps_in(tmp_path / "out")
    assert {name for name, step in told.items() if step["verdict"] == "passed"} == passed


# -- estimates -------------------------------------------------------------------------------------


def test_readme_has_the_estimates():
    text = floors.README.read_text("utf-8")
    assert floors.with_table(text) == text


def test_estimated_kernels_are_there():
    sources = "".join(path.read_text("utf-8") for path in floors.README.parent.glob("*.cuh"))
    names = {one.kernels for one in floors.ESTIMATES} - {"", floors.LIBRARY}
    assert [name for name in names if not re.search(name, sources)] == []


def test_verdict_on_each_estimate(tmp_path, capsys):
    """As estimated, but for one kernel twice as slow and features that miss their stick."""
    records = tmp_path / report.RECORDS
    report.keep(records, "facts", card="NVIDIA H200")
    report.keep(records, "rates", **floors.CARDS["H200"]._asdict())
    new = {"kernel": "wsfast::new_kernel<float>", "us": 1, "launches": 1}
    report.keep(records, "kernel", case="ascent M=128", **new)
    for one in floors.ESTIMATES:
        name = "gemm"
        if one.kernels != floors.LIBRARY:
            name = "wsfast::" + one.kernels.replace(r"\b", "")
        us = one.us * (2 if one.what == "attention" else 1)
        report.keep(records, "kernel", case=one.case, kernel=name, us=us, launches=1)
        called, replayed = (150, 30) if one.case == "ascent M=128" else (one.us, one.us)
        report.keep(records, "time", what=one.case, us=called)
        report.keep(records, "time", what=f"{one.case}, in a graph", us=replayed)
    assert report.main(tmp_path) == 1
    shown = capsys.readouterr().out
    assert len(shown.splitlines()) <= report.LINES
    assert shown.count(": holds") == len(floors.ESTIMATES) - 1
    assert shown.count(": ×2.00") == 1
    assert "without an estimate: new_kernel" in shown
    to_do = shown.partition("== next\n")[2].splitlines()
    missed = {line.partition(" in a graph")[0] for line in to_do if line.endswith("MISSED")}
    assert missed == {"features n=128", "features n=512"}
    assert to_do[len(missed) :] == [
        "ascent M=128: the host takes 120 µs",
        "substitution, attention: 32 µs, not 16",
    ]
