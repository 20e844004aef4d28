"""Run an experiment, again and again, killed at random moments until it ends; see test_kill.py.

A process of its own: it forks, for which there must be no threads.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import matplotlib.backends.backend_svg
import matplotlib.figure  # noqa: F401
import torch
from reproduce import tiny

from wsfast.reproduce import generalization, sensitivity

# Enough cells for all kills, as more than one may end before a kill.
RUNS = {
    "sensitivity": (sensitivity.run, tiny.SENSITIVITY),
    "generalization": (generalization.run, replace(tiny.GENERALIZATION, ns=(4,), T=1, draws=12)),
}
KILLS = 10


def add_layers(model: str) -> None:
    """The study of trained heads, of a model in a folder; what is imported is so before a fork."""
    from reproduce import tiny_model

    from wsfast.reproduce import data, layers
    from wsfast.text import models

    data.imdb_reviews = lambda: tiny_model.REVIEWS
    layers._estimate = lambda _, __, left: {part.kind: 1.0 for part in left}
    models.load(model)
    settings = replace(tiny.LAYERS, model=model, radii=(0.1, 1.0, 2.0))
    RUNS["layers"] = layers.run, settings


# Nothing is written while the time is estimated.
generalization._estimate = lambda _, __, left: {cell.kind: 1.0 for cell in left}
sensitivity.estimate.seconds = lambda work: {one.name: 1.0 for one in work}


def started(name: str, out: Path) -> int:
    """Process number of a run that has begun."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            run, settings = RUNS[name]
            run(settings, out, "")
            status = 0
        finally:
            os._exit(status)
    return child


def files(folder: Path) -> int:
    return sum(len(names) for _, _, names in os.walk(folder))


def killed(name: str, out: Path, chance: random.Random) -> bool:
    """Start a run, kill it a random moment after its next cell; whether that was in time."""
    before = files(out)
    child = started(name, out)
    while files(out) <= before:
        if os.waitpid(child, os.WNOHANG)[0]:
            return False
        time.sleep(0.0005)
    time.sleep(chance.uniform(0, 0.015))
    os.kill(child, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def main(name: str, undisturbed: Path, disturbed: Path) -> None:
    """Print how often the disturbed run was killed; its last run and the other one have ended."""
    torch.set_num_threads(1)
    if name == "layers":
        add_layers(str(undisturbed.with_name("model")))
    assert os.waitpid(started(name, undisturbed), 0)[1] == 0
    chance = random.Random(7)
    kills = sum(killed(name, disturbed, chance) for _ in range(KILLS))
    assert not (disturbed / "report.md").exists()
    assert os.waitpid(started(name, disturbed), 0)[1] == 0
    print(kills)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
