"""What kernels compute and what is reported when they run on the CPU (include/)."""

from __future__ import annotations

import re

import pytest
from cuda_on_cpu.compile import HERE, SANITIZERS, compile_program, run_program

pytestmark = [pytest.mark.deep, pytest.mark.needs("cuda_on_cpu")]

ORDERS = ["up", "down", "random", "warp"]
RESULTS = [
    "shuffle_results",
    "vote_results",
    "block_vote_results",
    "barrier_results",
    "index_results",
    "atomic_results",
    "poison",
    "arrays_of_templates",
    "copy_results",
    "products",
    "rounding",
    "reductions",
    "intrinsics",
    "after_failure",
    "host_threads",
    "no_race",
]
LAUNCH_FAILURE = "error 719: "
REPORTS = {
    # barriers and collectives
    "two_barriers": (
        LAUNCH_FAILURE
        + r"divergent barrier: some threads at reports.cpp:\d+, others at reports.cpp:\d+ \[block "
        r"\(0, 0, 0\), thread \(\d+, 0, 0\)\]"
    ),
    "barrier_in_branch": LAUNCH_FAILURE + r".*(left the kernel|leaves the kernel).*",
    "leave_before_barrier": LAUNCH_FAILURE + r".*(left the kernel|leaves the kernel).*",
    "not_in_mask": LAUNCH_FAILURE + ".*: lane 4 is not in its own mask .*",
    "lane_outside": LAUNCH_FAILURE + ".* reads lane 20, which is not in the mask 0xffff .*",
    "left_lane": LAUNCH_FAILURE + ".*(names lanes that have left|leaves the kernel).*",
    "awaited_lane": LAUNCH_FAILURE + ".*(names lanes that have left|leaves the kernel).*",
    "two_collectives": LAUNCH_FAILURE + "divergent warp collective: .*",
    "half_and_block": (
        LAUNCH_FAILURE
        + r"deadlock: thread 0 waits in a warp at reports.cpp:\d+;.* thread \d+ waits.*"
    ),
    # launches
    "no_threads": r"error 9: a grid of \(1, 1, 1\) blocks of \(0, 1, 1\) threads",
    "too_many_threads": r"error 9: .*\(1025, 1, 1\) threads",
    "block_too_deep": r"error 9: .*\(1, 1, 65\) threads",
    "no_blocks": r"error 9: a grid of \(0, 1, 1\) .*",
    "grid_too_high": r"error 9: a grid of \(1, 65536, 1\) .*",
    "within_limits": "within_limits ok",
    "not_opted_in": "error 1: 49153 bytes of dynamic shared memory, the kernel was allowed 49152",
    "opted_in": "opted_in ok",
    "opted_in_too_little": "error 1: 61440 bytes .* allowed 51200",
    "opt_in_too_much": "error 1: more shared memory than a block may have",
    "static_too_much": LAUNCH_FAILURE + "49153 bytes of static shared memory .*",
    "static_and_dynamic": LAUNCH_FAILURE + "50176 bytes .*, the limit is 49152 .*",
    "static_and_opted_in": LAUNCH_FAILURE + "233472 bytes .*, the limit is 232448 .*",
    # asynchronous copies
    "copy_destination": LAUNCH_FAILURE + "misaligned .*: its destination is no multiple of 16 .*",
    "copy_source": LAUNCH_FAILURE + "misaligned .*: its source is no multiple of 16 bytes .*",
    "copy_length": LAUNCH_FAILURE + ".* takes 17 bytes of 16 .*",
    "copy_place": LAUNCH_FAILURE + ".* to what is not shared memory .*",
    "copy_too_many": LAUNCH_FAILURE + ".*: 128 are under way in this thread already .*",
    "copy_not_awaited": LAUNCH_FAILURE + ".* without awaiting its asynchronous copies .*",
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
    made = {}

    def program(name, sanitizer="plain", *flags):
        key = (name, sanitizer, *flags)
        if key not in made:
            target = folder / f"{len(made)}"
            made[key] = compile_program(HERE / "shim" / f"{name}.cpp", target, sanitizer, flags)
        return made[key]

    return program


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("sanitizer", [*SANITIZERS])
def test_results(programs, sanitizer, order):
    done = run_program(programs("results", sanitizer), *RESULTS, order=order)
    lines = done.stdout.splitlines()
    assert [line.split()[-2:] for line in lines] == [[name, "ok"] for name in RESULTS]
    assert done.returncode == 0


def test_portable_switch(programs):
    """Of fibers, where there is no switch in assembly."""
    program = programs("results", "plain", "-DCUDA_ON_CPU_UCONTEXT")
    done = run_program(program, *RESULTS)
    assert [line.split()[-1] for line in done.stdout.splitlines()] == ["ok"] * len(RESULTS)


def test_same_bits_in_every_order(programs):
    program = programs("results")
    outputs = {run_program(program, "reductions", order=order).stdout for order in ORDERS}
    assert len(outputs) == 1
    assert len(outputs.pop().split()) == 4 * 4 + 2


def order_of_threads(program, **settings):
    """Of two blocks of two warps each."""
    done = run_program(program, "order_of_threads", **settings)
    order = [int(word) for word in done.stdout.split()[:-2]]
    assert sorted(order) == list(range(128))
    return order


def test_orders(programs):
    program = programs("results")
    assert order_of_threads(program, order="up") == list(range(128))
    assert order_of_threads(program, order="down") == list(range(127, -1, -1))
    by_seed = [order_of_threads(program, order="random", seed=seed) for seed in (1, 1, 2)]
    assert by_seed[0] == by_seed[1] != by_seed[2]
    assert by_seed[0] == order_of_threads(program)
    warps = {tuple(order_of_threads(program, order="warp", seed=seed)) for seed in range(20)}
    first_lanes = set()
    for order in warps:
        assert all(order[k + 1] == order[k] + 1 for k in range(127) if k % 32 != 31)
        first_lanes.add(order[::32])
    assert len(first_lanes) == 8  # two blocks of two warps each


@pytest.mark.parametrize("order", ORDERS)
def test_reports(programs, order):
    lines = run_program(programs("reports"), *REPORTS, order=order).stdout.splitlines()
    assert len(lines) == len(REPORTS)
    for line, (name, expected) in zip(lines, REPORTS.items(), strict=True):
        assert re.fullmatch(expected, line), name


def test_lax(programs):
    """Threads may leave before the others meet at a barrier, as CUDA allows them to."""
    names = ["leave_before_barrier", "barrier_in_branch", "copy_not_awaited"]
    lines = run_program(programs("reports"), *names, lax=1).stdout.splitlines()
    assert lines == [f"{name} ok" for name in names]


def test_wrong_order(programs):
    done = run_program(programs("results"), "rounding", "barrier_results", order="sideways")
    assert "error 1: CUDA_ON_CPU_ORDER is none of up, down, random, warp" in done.stdout


def test_shared_limit(programs):
    names = ["limit_of_device"]
    assert run_program(programs("results"), *names).stdout == "232448 limit_of_device ok\n"
    done = run_program(programs("results"), *names, shared_limit=166912)
    assert done.stdout == "166912 limit_of_device ok\n"
    done = run_program(programs("reports"), "opted_in", shared_limit=166912)
    assert done.stdout == "error 1: more shared memory than a block may have\n"


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", RACES)
def test_races(programs, name, order):
    done = run_program(programs("races", "thread"), name, order=order)
    assert "WARNING: ThreadSanitizer: data race" in done.stdout
    assert done.returncode != 0
