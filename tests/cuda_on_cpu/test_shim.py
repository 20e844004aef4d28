"""What the machine of include/ does where no kernel's result depends on it."""

from __future__ import annotations

import functools
import re

import pytest
from cuda_on_cpu.build import HERE
from cuda_on_cpu.compile import BUILDS, ORDERS, compile_program, run_program

pytestmark = [pytest.mark.deep, pytest.mark.needs("cuda_on_cpu")]

# What the cases of shim/machine.cpp print. The other reports are in test_planted_bugs.py.
CASES = {
    "one_leaves": (
        r"error 719: a thread leaves the kernel while others wait for it at machine.cpp:\d+ "
        r"\[block \(0, 0\), thread 7\]"
    ),
    "one_stays": r"error 719: \d+ threads left the kernel before the others met at .*",
    "beyond_limits": r"error 9: a grid of \(1, 1, 1\) blocks of \(1025, 1, 1\) threads",
    "opt_in_too_much": "error 1: more shared memory than a block may have",
    "static_too_much": "error 719: 49153 bytes of static shared memory .*",
    "static_and_dynamic": "error 719: 50176 bytes .*, the limit is 49152 .*",
    "static_and_opted_in": "error 719: 233472 bytes .*, the limit is 232448 .*",
    "order_of_threads": r"(\d+ ){128}ok",
    **dict.fromkeys(("within_limits", "products", "after_failure", "host_threads"), "ok"),
}


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    """``machine(build, **settings)`` is what each case prints, by its name."""
    folder = tmp_path_factory.mktemp("machine")

    @functools.cache
    def program(build):
        return compile_program(HERE / "shim" / "machine.cpp", folder / build, build)

    def said(build="plain", **settings):
        done = run_program(program(build), **settings)
        assert done.returncode == 0, done.stdout
        return dict(line.split(": ", 1) for line in done.stdout.splitlines())

    return said


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("build", [*BUILDS])
def test_cases(machine, build, order):
    found = machine(build, order=order)
    assert found.keys() == CASES.keys()
    for name, expected in CASES.items():
        assert re.fullmatch(expected, found[name]), name


def test_orders(machine):
    def threads(**settings):
        """Of two blocks of two warps each, as they begin."""
        *order, _ = machine(**settings)["order_of_threads"].split()
        return [int(thread) for thread in order]

    assert threads(order="up") == list(range(128))
    assert threads(order="down") == list(range(127, -1, -1))
    by_seed = [threads(order="random", seed=seed) for seed in (1, 1, 2)]
    assert by_seed[0] == by_seed[1] == threads()
    assert by_seed[0] != by_seed[2]
    assert sorted(by_seed[2]) == list(range(128))
    first_lanes = set()
    for seed in range(20):
        order = threads(order="warp", seed=seed)
        assert all(order[k] == order[k // 32 * 32] + k % 32 for k in range(128))
        first_lanes.add(tuple(order[::32]))
    assert len(first_lanes) == 8  # two blocks of two warps each


def test_wrong_order(machine):
    found = machine(order="sideways")["products"]
    assert "error 1: CUDA_ON_CPU_ORDER is none of up, down, random, warp" in found
