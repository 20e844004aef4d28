"""The heads of a trained attention layer on one text: what the softmax sees of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from wsfast.attention.softmax import capped


@dataclass(frozen=True)
class Heads:
    """softmax(cap(q·k) + bias | sink) v of H heads; all tensors may have leading axes.

    A row that sees no word is 0.
    """

    queries: Tensor  # (H, n, d_k), the scale in them
    keys: Tensor  # (H, n, d_k), those that heads share repeated
    values: Tensor  # (H, n, d_v)
    bias: Tensor | None = None  # (1 or H, n, n) added to the scores; -inf where a word is not seen
    cap: float | None = None  # scores are cap · tanh(s / cap)
    sinks: Tensor | None = None  # (H,) score of one word more, whose value is 0

    def scores(self) -> Tensor:
        """(H, n, n), -inf where a word is not seen."""
        scores = capped(self.cap, self.queries @ self.keys.mT)
        return scores if self.bias is None else scores + self.bias

    def attention(self, hidden: Tensor | None = None) -> Tensor:
        """Weights (H, n, n); nobody attends to the words where `hidden` (…, n) is True."""
        scores = self.scores()
        if hidden is not None:
            scores = scores.masked_fill(hidden[..., None, None, :], -torch.inf)
        if self.sinks is not None:
            sink = self.sinks.to(scores)[:, None, None].expand(*scores.shape[:-1], 1)
            return torch.cat([scores, sink], -1).softmax(-1)[..., :-1]
        empty = scores.isneginf().all(-1, keepdim=True)
        return scores.masked_fill(empty, 0.0).softmax(-1).masked_fill(empty, 0.0)

    def output(self, hidden: Tensor | None = None) -> Tensor:
        """(H, n, d_v)."""
        return self.attention(hidden) @ self.values

    def with_rows(self, queries: Tensor, keys: Tensor, values: Tensor) -> Heads:
        """The same attention of other rows (…, H, n, ·)."""
        return replace(self, queries=queries, keys=keys, values=values)

    def only(self, numbers: list[int]) -> Heads:
        """Some of the heads."""
        own = self.bias is not None and self.bias.shape[-3] > 1
        # One head is a view.
        first = numbers[0]
        some = slice(first, first + 1) if len(numbers) == 1 else numbers
        return replace(
            self,
            queries=self.queries[..., some, :, :],
            keys=self.keys[..., some, :, :],
            values=self.values[..., some, :, :],
            bias=self.bias[..., some, :, :] if own and self.bias is not None else self.bias,
            sinks=None if self.sinks is None else self.sinks[some],
        )
