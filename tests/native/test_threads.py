"""The pool of threads in a process that forks, and kernels in a thread with a small stack."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.needs("native")

_START = """
import os, signal, sys, threading, torch
from wsfast.engines import compiled
torch.set_num_threads(1)
"""

# Calls so short that some thread is nearly always where it takes or leaves the pool.
_FORK = """
kernel = compiled.CPU.require().random_block32
def block():
    out = torch.empty(64, 128)
    kernel(seed=1, draw=0, plane=0, first_row=0, rows=64, cols=128, scale=1.0,
           out=out.data_ptr(), threads=2)
    return out
expected, going = block(), True
def load():
    while going:
        block()
callers = [threading.Thread(target=load) for _ in range(2)]
for caller in callers:
    caller.start()
children = [os.fork()]
while children[-1] and len(children) < 60:
    children.append(os.fork())
if not children[-1]:
    signal.alarm(60)  # ends a child that hangs
    os._exit(0 if all(torch.equal(block(), expected) for _ in range(20)) else 1)
statuses = [os.waitpid(child, 0)[1] for child in children]
going = False
for caller in callers:
    caller.join()
print(set(statuses))
"""

_STACK = """
from wsfast.attention.weight_fn import WeightFn
from wsfast.engines.cpu import CPU
from wsfast.engines.substitution_kernels import NativeTiles, Workspace
from wsfast.maps.attention import Weights
from wsfast.maps.attention_text import AttentionMap, AttentionText
X, W = torch.randn(2, 2), torch.randn(2, 2)
text = AttentionText(AttentionMap(Weights(W), WeightFn("softmax")), X, CPU, 2**28)
def tiles_at(positions):
    state = text.substitution(torch.zeros(positions, dtype=torch.int64), X.dtype)
    return NativeTiles(state, 8, Workspace(X.device))
few, many = tiles_at(1), tiles_at(400_000)
def run():
    rows = torch.randn(8, 2)
    expected, found = (tiles.squares(rows, torch.zeros(8)).value.clone() for tiles in (few, many))
    print(torch.equal(found, expected.expand_as(found)))
threading.stack_size(2**17)
thread = threading.Thread(target=run)
thread.start()
thread.join()
"""


def output(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _START + code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.deep
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the test forks")
def test_a_child_forked_while_the_pool_is_at_work_computes():
    assert output(_FORK) == "{0}\n"


@pytest.mark.deep
def test_positions_take_no_stack():
    """400,000 of them had a byte each on it."""
    assert output(_STACK) == "True\n"
