"""One self-attention sublayer of a trained transformer on one text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from wsfast.attention.heads import Heads

__all__ = ["AttentionLayer", "Heads", "RowMap"]


class RowMap(Protocol):
    """From texts to the rows that attention sees of them: the model's own code, differentiable."""

    def __call__(self, X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q, k, v (s, H, n, ·), as in `Heads`, of texts X (s, n, d)."""


@dataclass(frozen=True, eq=False)
class AttentionLayer:
    """One self-attention sublayer of a model on one text, float64.

    Attributes
    ----------
    number : int
        Of the layer, from 0.
    name : str
        Of the attention module in the model.
    X : Tensor, shape (n, d)
        What the attention module is given: normalised, where the model normalises before.
    residual : Tensor, shape (n, d)
        The residual stream where the block of the layer begins.
    heads : Heads
        Queries, keys, values (H, n, ·), biases, cap and sinks.
    W_O : Tensor, shape (H d_v, d)
        From the heads, side by side, to the output of the sublayer, but for its bias.
    rows : RowMap
        From texts in place of `X` to queries, keys and values.
    rows_of_residual : RowMap
        The same from texts in place of `residual`.
    linear : bool
        Whether `rows` is linear but for a constant, the same for every position.
    """

    number: int
    name: str
    X: Tensor
    residual: Tensor
    heads: Heads
    W_O: Tensor
    rows: RowMap
    rows_of_residual: RowMap
    linear: bool
