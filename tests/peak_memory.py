"""Peak memory of code in a process of its own.

From /proc: `resource.getrusage` would not do, as a process inherits the peak of the one that
started it, and then nothing seems to grow.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

MIB = 2**20

# For `pytestmark`.
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")

_START = """
import sys, numpy as np, torch, wsfast
torch.set_num_threads(1)
def memory(what):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith(what))
def peak():
    return memory("VmHWM")
def text(n, d, dtype=torch.float32):
    return torch.nn.functional.normalize(torch.randn(n, d, dtype=dtype), dim=1) * d**0.5
"""


def growth(code: str, *arguments: str) -> int:
    """By how much the peak grows, in bytes, from where `code` sets `before` to its end."""
    done = subprocess.run(
        [sys.executable, "-c", f"{_START}{code}\nprint(peak() - before)", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        # glibc moves this limit as it goes, and what it keeps in its heap then varies by 60 MiB.
        env=os.environ | {"MALLOC_MMAP_THRESHOLD_": str(MIB)},
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)
