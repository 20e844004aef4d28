"""Seeds of independent draws."""

from __future__ import annotations

import numpy as np


def draw_seed(seed: int, draw: int) -> int:
    """Seed of draw number `draw`, unlike that of any other (seed, draw).

    Each draw is a computation of its own, which can be kept and taken over alone.
    """
    return int(np.random.SeedSequence([seed, draw]).generate_state(1, np.uint64)[0])
