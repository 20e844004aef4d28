"""A run that is killed at ten random moments, worker or driver, ends with the same shards."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from corpus.processes import alive, children, content
from reproduce import tiny_model

from wsfast import corpus
from wsfast.corpus import Scorer

pytestmark = [
    pytest.mark.deep,
    pytest.mark.needs("text", "parquet"),
    pytest.mark.skipif(not Path("/proc").is_dir(), reason="the test finds processes in /proc"),
]

KILLS = 10


def test_killed_ten_times(tiny, tmp_path, measured_here):
    table, out = tmp_path / "many.txt", tmp_path / "out"
    table.write_text("\n".join(f"{tiny_model.TEXTS[k % 6]} {k}" for k in range(800)))
    with measured_here():
        whole = corpus.score(table, tmp_path / "whole", Scorer(tiny), shard_rows=8)
    command = [
        sys.executable,
        "-c",
        "import sys; from wsfast.cli import main; sys.exit(main())",
        *("corpus", "score", str(table), "--out", str(out), "--model", tiny),
        *("--shard-rows", "8", "--workers", "2"),
    ]
    chance, victims, seen = random.Random(7), [], set()
    while True:
        run = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        while run.poll() is None and len(victims) < KILLS:
            before = len(list(out.glob("shards/*.parquet")))
            while run.poll() is None and len(list(out.glob("shards/*.parquet"))) <= before:
                time.sleep(0.001)
            time.sleep(chance.uniform(0, 0.1))
            workers = children(run.pid)
            seen.update(workers)
            # Every other time, each: the driver, or one of the workers.
            victim = run.pid if len(victims) % 2 else chance.choice([*workers, run.pid])
            if run.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(victim, signal.SIGKILL)
                    victims.append("driver" if victim == run.pid else "worker")
        if run.wait() == 0:
            break
    assert len(victims) == KILLS
    assert set(victims) == {"driver", "worker"}
    assert content(out) == content(whole.path)
    assert (out / "manifest.json").read_text() == (whole.path / "manifest.json").read_text()
    until = time.monotonic() + 10  # those of a driver that was killed end by themselves
    while any(map(alive, seen)) and time.monotonic() < until:
        time.sleep(0.1)
    assert not any(map(alive, seen))
