"""The functions that turn attention scores into weights."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from wsfast._kinks import at_most, relu

_CODES = {
    ("softmax", True): 0,
    ("relu", True): 1,
    ("relu", False): 2,
    ("squareplus", True): 3,
    ("squareplus", False): 4,
}


@dataclass(frozen=True)
class WeightFn:
    """How a score becomes an attention weight.

    ``softmax`` (always normalised), ``relu``, or ``squareplus``: ``(s + sqrt(s² + curve)) / 2``, a
    smooth ReLU that only the search uses, to start where ReLU has no slope. At a score of 0 the
    slope of ReLU is 0, and that of squareplus 1/2.
    """

    name: str
    normalize: bool = True
    curve: float = 0.0

    @property
    def code(self) -> int:
        """Number of this function in ``csrc/arguments.h``."""
        return _CODES[self.name, self.normalize]

    @property
    def exponential(self) -> bool:
        return self.name == "softmax"

    def value(self, score: Tensor) -> Tensor:
        """g(score) of the weight functions other than softmax."""
        if self.name == "relu":
            return relu(score)
        root = (score * score + self.curve).sqrt()
        # With the slope 1 at 0, from where the quotient has its slope 1/2.
        size = -at_most(score, 0.0)
        return torch.where(score > 0, 0.5 * (score + root), 0.5 * self.curve / (root + size))

    def change(self, score: Tensor, by: Tensor) -> Tensor:
        """g(score + by) - g(score), without cancellation for ReLU."""
        if self.name == "relu":
            # Not torch.maximum: at equal arguments it would give half the slope, and ReLU 0.
            falling = torch.where(by > -score, by, -score)
            return torch.where(score > 0, falling, relu(score + by))
        return self.value(score + by) - self.value(score)
