"""What kernels compute and what is reported when they run on the CPU (include/)."""

from __future__ import annotations

import functools
import re

import pytest
from cuda_on_cpu.build import HERE
from cuda_on_cpu.compile import ORDERS, SANITIZERS, compile_program, run_program

pytestmark = [pytest.mark.deep, pytest.mark.needs("cuda_on_cpu")]

GONE = "error 719: .*(left|leaves) the kernel.*"
REPORTS = {
    # barriers and collectives
    "two_barriers": (
        r"error 719: threads diverge: some wait at reports.cpp:\d+, others at reports.cpp:\d+ "
        r"\[block \(0, 0\), thread \d+\]"
    ),
    "barrier_in_branch": GONE,
    "leave_before_barrier": GONE,
    "left_lane": GONE,
    "awaited_lane": GONE,
    "two_collectives": "error 719: threads diverge: .*",
    "half_and_block": (
        r"error 719: deadlock: thread 0 waits at reports.cpp:\d+;.* thread \d+ waits at .*"
    ),
    # launches
    "no_threads": r"error 9: a grid of \(1, 1, 1\) blocks of \(0, 1, 1\) threads",
    "too_many_threads": r"error 9: .*\(1025, 1, 1\) threads",
    "block_too_deep": r"error 9: .*\(1, 1, 2\) threads",
    "no_blocks": r"error 9: a grid of \(0, 1, 1\) .*",
    "grid_too_high": r"error 9: a grid of \(1, 65536, 1\) .*",
    "within_limits": "ok",
    "not_opted_in": "error 1: 49153 bytes of dynamic shared memory, the kernel was allowed 49152",
    "opted_in": "ok",
    "opted_in_too_little": "error 1: 61440 bytes .* allowed 51200",
    "opt_in_too_much": "error 1: more shared memory than a block may have",
    "static_too_much": "error 719: 49153 bytes of static shared memory .*",
    "static_and_dynamic": "error 719: 50176 bytes .*, the limit is 49152 .*",
    "static_and_opted_in": "error 719: 233472 bytes .*, the limit is 232448 .*",
    # asynchronous copies
    "copy_destination": "error 719: misaligned .*: its destination is no multiple of 16 .*",
    "copy_source": "error 719: misaligned .*: its source is no multiple of 16 bytes .*",
    "copy_length": "error 719: .* takes 17 bytes of 16 .*",
    "copy_place": "error 719: .* to what is not shared memory .*",
    "copy_too_many": "error 719: .*: 128 are under way in this thread already .*",
    "copy_not_awaited": "error 719: .* without awaiting its asynchronous copies .*",
}
RACES = [
    "race_past_barrier",
    "race_past_array",
    "race_past_shuffle",
    "race_of_blocks",
    "race_of_copies",
    "race_of_sources",
]


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """``programs(name, sanitizer, *flags)`` compiles a program of shim/ the first time."""
    folder = tmp_path_factory.mktemp("programs")

    @functools.cache
    def program(name, sanitizer="plain", *flags):
        target = folder / "".join((name, sanitizer, *flags))
        return compile_program(HERE / "shim" / f"{name}.cpp", target, sanitizer, flags)

    return program


def said(program, *names, **settings):
    """What each case prints, by its name; all cases if none is named."""
    done = run_program(program, *names, **settings)
    assert done.returncode == 0, done.stdout
    return dict(line.split(": ", 1) for line in done.stdout.splitlines())


def right(cases):
    assert len(cases) >= 16
    return all(text.split()[-1] == "ok" for text in cases.values())


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("sanitizer", [*SANITIZERS])
def test_results(programs, sanitizer, order):
    assert right(said(programs("results", sanitizer), order=order))


def test_portable_switch(programs):
    """Of fibers, where there is no switch in assembly."""
    assert right(said(programs("results", "plain", "-DCUDA_ON_CPU_UCONTEXT")))


def test_same_bits_in_every_order(programs):
    outputs = {said(programs("results"), "reductions", order=o)["reductions"] for o in ORDERS}
    assert len(outputs) == 1
    assert len(outputs.pop().split()) == 4 * 4 + 1


def order_of_threads(program, **settings):
    """Of two blocks of two warps each."""
    *order, _ = said(program, "order_of_threads", **settings)["order_of_threads"].split()
    return [int(thread) for thread in order]


def test_orders(programs):
    program = programs("results")
    assert order_of_threads(program, order="up") == list(range(128))
    assert order_of_threads(program, order="down") == list(range(127, -1, -1))
    by_seed = [order_of_threads(program, order="random", seed=seed) for seed in (1, 1, 2)]
    assert by_seed[0] == by_seed[1] == order_of_threads(program)
    assert by_seed[0] != by_seed[2]
    assert sorted(by_seed[2]) == list(range(128))
    first_lanes = set()
    for seed in range(20):
        order = order_of_threads(program, order="warp", seed=seed)
        assert all(order[k] == order[k // 32 * 32] + k % 32 for k in range(128))
        first_lanes.add(tuple(order[::32]))
    assert len(first_lanes) == 8  # two blocks of two warps each


@pytest.mark.parametrize("order", ORDERS)
def test_reports(programs, order):
    found = said(programs("reports"), order=order)
    assert found.keys() == REPORTS.keys()
    for name, expected in REPORTS.items():
        assert re.fullmatch(expected, found[name]), name


def test_wrong_order(programs):
    found = said(programs("results"), "barrier_results", order="sideways")["barrier_results"]
    assert "error 1: CUDA_ON_CPU_ORDER is none of up, down, random, warp" in found


def test_shared_limit(programs):
    name = "limit_of_device"
    assert said(programs("results"), name) == {name: "232448 ok"}
    assert said(programs("results"), name, shared_limit=166912) == {name: "166912 ok"}
    found = said(programs("reports"), "opted_in", shared_limit=166912)
    assert found == {"opted_in": "error 1: more shared memory than a block may have"}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", RACES)
def test_races(programs, name, order):
    done = run_program(programs("races", "thread"), name, order=order)
    assert "WARNING: ThreadSanitizer: data race" in done.stdout
    assert done.returncode != 0
