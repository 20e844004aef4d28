"""One bug at a time is planted in a kernel that is right, and the check that is named finds it."""

from __future__ import annotations

import re
import shutil
from typing import NamedTuple

import pytest
from cuda_on_cpu.build import HERE
from cuda_on_cpu.compile import BUILDS, ORDERS, compile_program, run_program

pytestmark = [pytest.mark.deep, pytest.mark.needs("cuda_on_cpu")]

KERNEL = (HERE / "shim" / "row_lse.cuh").read_text()


class Found(NamedTuple):
    """The build that finds a bug, and what it prints then."""

    build: str
    output: str


def reported(text: str) -> Found:
    return Found("plain", f"error {text}.*\n")


WRONG = Found("plain", r"wrong: off by .*\n")
BEYOND = Found("address", r"(?s).*AddressSanitizer: heap-buffer-overflow.*row_lse\.cuh:\d+.*")
MISALIGNED = Found("address", r"(?s).*runtime error: .* misaligned address.*row_lse\.cuh:\d+.*")
RACE = Found("thread", r"(?s).*ThreadSanitizer: data race.*row_lse\.cuh:\d+.*")

# What is in the kernel, what it becomes, and how that is found.
BUGS = {
    # by results
    "wrong_fragment": ("b[2] = {q[0], q[4]}", "b[2] = {q[4], q[0]}", WRONG),
    "plain_tf32": ("round_to_tf32(a[i] - a_high[i])", "0", WRONG),
    "unset_shared": (
        "*reinterpret_cast<float4*>(xs +",
        "if (row != 3) *reinterpret_cast<float4*>(xs +",
        WRONG,
    ),
    "short_copy": ("there ? 16 : 0", "there ? 12 : 0", WRONG),
    "awaited_too_late": (
        "await_copies<1>();",
        "if (first + kTile < columns) await_copies<2>(); else await_copies<0>();",
        WRONG,
    ),
    # by the machine
    "not_awaited": (
        "await_copies<1>();",
        "",
        reported("719: a thread leaves the kernel without awaiting its asynchronous copies"),
    ),
    "misaligned_copy": (
        "copy_async(tile + column * kPitch + k,",
        "copy_async(tile + column * (kPitch - 1) + k,",
        reported("719: misaligned asynchronous copy at .*: its destination is no multiple of 16"),
    ),
    "misaligned_source": (
        "kWidth + k;",
        "kWidth + k + 1;",
        reported("719: misaligned asynchronous copy at .*: its source is no multiple of 16"),
    ),
    "long_copy": ("there ? 16 : 0", "there ? 17 : 0", reported("719: .* takes 17 bytes of 16")),
    "too_many_copies": (
        "copy_async(tile + column * kPitch + k,",
        "for (int again = 0; again < 13; ++again) copy_async(tile + column * kPitch + k,",
        reported("719: asynchronous copy at .*: 128 are under way in this thread already"),
    ),
    "copy_beyond": (
        "i < kTile * kWidth / 4;",
        "i < 3 * kTile * kWidth / 4;",
        reported("719: asynchronous copy at .* to what is not shared memory"),
    ),
    "divergent_barrier": (
        "__syncthreads();  // of_warp is there",
        "if (warp == 0) __syncthreads();",
        reported(r"719: threads diverge: .* at row_lse\.cuh:\d+"),
    ),
    "half_warp_shuffle": (
        "for (int bit = 1;",
        "if (lane < 16) for (int bit = 1;",
        reported(r"719: deadlock: .* waits at row_lse\.cuh:\d+"),
    ),
    "not_opted_in": (
        "return launch(",
        "cudaLaunchConfig_t config = {}; config.gridDim = 3; config.blockDim = kThreads;"
        "config.dynamicSmemBytes = kShared;"
        "return cudaLaunchKernelEx(&config, row_lse, x, y, bias, scale, rows, columns, lse, total);"
        "return launch(",
        reported(r"1: \d+ bytes of dynamic shared memory, the kernel was allowed 49152"),
    ),
    # by AddressSanitizer and UndefinedBehaviorSanitizer
    "beyond_dynamic_shared": (
        "i < kRows * kWidth / 4;",
        "i < (kRows + 1) * kWidth / 4;",
        BEYOND,
    ),
    "beyond_static_shared": ("of_warp, kParts", "of_warp, kParts - 1", BEYOND),
    "beyond_global": ("first_row + row < rows", "first_row + row <= rows", BEYOND),
    "no_zero_fill": ("first + column < columns", "first + column <= columns", BEYOND),
    "misaligned_load": (
        "(x + (first_row + row) * kWidth + k)",
        "(x + (first_row + row) * kWidth + k - (first_row + row == 2))",
        MISALIGNED,
    ),
    # by ThreadSanitizer
    "no_barrier_after_store": ("__syncthreads();  // X is there", "", RACE),
    "no_barrier_after_await": ("__syncthreads();  // Y is there", "", RACE),
    "no_barrier_before_reload": ("__syncthreads();  // Y is overwritten next", "", RACE),
    "no_barrier_before_reduction": ("__syncthreads();  // of_warp is there", "", RACE),
    "sum_not_atomic": ("atomicAdd(total, value[0])", "*total += value[0]", RACE),
    "shuffle_as_barrier": (
        "if (lane == 0) inverse_norm[row] = 1 / sqrtf(sum > 0 ? sum : 1);",
        "if (lane == 0) { inverse_norm[row] = sum; }"
        "sum = __shfl_sync(kWholeWarp, sum, 0);"
        "if (lane == 1) { inverse_norm[row] = 1 / sqrtf(sum > 0 ? sum : 1); }",
        RACE,
    ),
    "declaration_as_barrier": (
        "WSFAST_SHARED(float, scratch, kWarps);",
        "if (threadIdx.x == 0) { of_warp[0] = 0; }"
        "WSFAST_SHARED(float, scratch, kWarps);"
        "if (threadIdx.x == 1) { of_warp[0] = 1; }",
        RACE,
    ),
    "reloaded_before_barrier": (
        "__syncthreads();  // Y is overwritten next",
        "if (first + 2 * kTile < columns) {"
        "  start_tile(tiles + stage * kTile * kPitch, y, first + 2 * kTile, columns);"
        "}"
        "__syncthreads();",
        RACE,
    ),
    "source_overwritten": (
        "start_tile(tiles, y, 0, columns);",
        "start_tile(tiles, y, 0, columns);"
        "if (threadIdx.x == 0) { copy_async(tiles + kWidth, lse + first_row, 16); }"
        "if (threadIdx.x == 1) { lse[first_row] = 0; }",
        RACE,
    ),
}


@pytest.fixture
def program(tmp_path):
    """``program(kernel, build)`` compiles shim/row_lse.cpp over the text of a kernel."""

    def compiled(kernel, build):
        source = shutil.copy(HERE / "shim" / "row_lse.cpp", tmp_path)
        (tmp_path / "row_lse.cuh").write_text(kernel)
        return compile_program(tmp_path / source, tmp_path / "program", build)

    return compiled


@pytest.mark.parametrize("build", [*BUILDS])
def test_right(program, build):
    compiled = program(KERNEL, build)
    for order in ORDERS:
        done = run_program(compiled, order=order)
        assert re.fullmatch(r"right: off by .*\n", done.stdout)
        assert done.returncode == 0


@pytest.mark.parametrize("name", [*BUGS])
def test_found(program, name):
    text, planted, found = BUGS[name]
    assert KERNEL.count(text) == 1
    compiled = program(KERNEL.replace(text, planted), found.build)
    for order in ORDERS:
        done = run_program(compiled, order=order)
        assert re.fullmatch(found.output, done.stdout), order
        assert done.returncode != 0
