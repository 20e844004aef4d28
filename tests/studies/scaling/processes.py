"""Run as a program: a study in child processes, which are killed, or work side by side.

Arguments: a folder for a study whose processes are killed, ten of them; one for a study that two
processes work on. Prints how many were killed.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
import traceback
from pathlib import Path

import torch

from wsfast.studies.scaling.study import scaling

STUDY = {"map": "raf", "ns": [2, 3, 5], "ds": [4, 6], "draws": 20, "max_steps": 10}


def start(folder: Path) -> int:
    """Fork a child that works on the study; its process id."""
    child = os.fork()
    if child == 0:
        try:
            scaling(**STUDY, path=folder)  # type: ignore[arg-type]
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return child


def files(folder: Path) -> int:
    return len(os.listdir(folder)) if folder.exists() else 0


def kill(folder: Path, moments: random.Random) -> bool:
    """Let a child work on until some files are new, and then kill it."""
    before = files(folder)
    child = start(folder)
    while files(folder) <= before:
        time.sleep(1e-4)
        if os.waitpid(child, os.WNOHANG)[0]:
            return False
    time.sleep(moments.uniform(0, 0.005))
    os.kill(child, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    torch.set_num_threads(1)
    killed, shared = map(Path, sys.argv[1:])
    moments = random.Random(0)
    print(sum(kill(killed, moments) for _ in range(10)))
    statuses = [os.waitpid(child, 0)[1] for child in [start(shared), start(shared)]]
    assert statuses == [0, 0]
