"""Results of generalisation experiments that nobody ran."""

from __future__ import annotations

import math

import numpy as np
import torch

from wsfast.results.generalization import FIGURES, GeneralizationResult

AXES = {(): (), ("trials",): (3,), ("draws",): (2,), ("trials", "draws"): (3, 2)}
TRAININGS, LOSSES = ("fine_tuning", "retraining"), ("feature", "error")


def make(axes=(), *, kind="torch", **changes) -> GeneralizationResult:
    """Figure number k counts up from 100 k along all of its axes."""
    shape = (*AXES[axes], 2, 2)
    count = math.prod(shape)
    parts = {
        name: 100.0 * k + np.arange(count, dtype=np.float64).reshape(shape)
        for k, name in enumerate(FIGURES)
    }
    parts["position"] = np.arange(count, dtype=np.int64).reshape(shape)
    parts["delta"] = np.tile(np.array([3, 4], dtype=np.float32), (*shape, 1))
    parts["condition"] = np.arange(2.0) + 7 if "draws" in axes else np.array(7.0)
    if kind == "torch":
        parts = {name: torch.from_numpy(np.array(part)) for name, part in parts.items()}
    about = {"map": "raf", "N": 9, "D": 8, "versions": {"torch": "2"}}
    known = {"trainings": TRAININGS, "losses": LOSSES, "radius": 2.5, "info": about, "axes": axes}
    return GeneralizationResult(**{**parts, **known, **changes})
