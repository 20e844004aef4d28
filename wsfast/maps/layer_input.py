"""Where the words of a trained layer are changed, and what that does to the rows of its heads."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from wsfast.engines import choose
from wsfast.engines.engine import Engine
from wsfast.maps.attention_layer import AttentionLayer

AT = ("attention", "residual")
"""Where a word of a layer may be changed."""


class LayerInput:
    """The vectors of one text that a layer reads, and the way from them to its heads.

    Parameters
    ----------
    layer : AttentionLayer
    at : {"attention", "residual"}
        At the input of the attention module, or in the residual stream.
    """

    def __init__(self, layer: AttentionLayer, at: str = "attention") -> None:
        own = at == "attention"
        self.layer = layer
        self.X = layer.X if own else layer.residual
        self.rows = layer.rows if own else layer.rows_of_residual
        # Where nothing stands between the two, they are one.
        self.linear = layer.linear and (own or torch.equal(layer.X, layer.residual))

    def engine(self, backend: str | None) -> Engine:
        """What computes where the layer lies."""
        return choose.engine(backend, self.X.device)

    @cached_property
    def matrix(self) -> Tensor:
        """What a change of a word is multiplied with, (d, H, D), where the rows are `linear`.

        D = 2 d_k + d_v numbers are those of the key, of the value and of the query.
        """
        n, d = self.X.shape
        units = torch.eye(d, dtype=self.X.dtype, device=self.X.device)
        texts = torch.nn.functional.pad(units, (0, 0, 0, -d % n)).unflatten(0, (-1, n))
        with torch.no_grad():
            moved = self._of(texts) - self._of(torch.zeros_like(texts[:1]))
        matrix: Tensor = moved.flatten(0, 1)[:d]
        return matrix

    def moves(self, at: Tensor, delta: Tensor) -> Tensor:
        """Changes (P, s, m, H, D) of the rows, for changes (P, s, m, d) of the words `at` (P, m).

        By the model's own code, linear or not, and differentiable.
        """
        s, (n, d) = delta.shape[1], self.X.shape
        text = _shared_texts(at)
        point = torch.arange(s, device=at.device)[:, None, None]
        where = (point, text, at)
        texts = self.X.expand(s, int(text.max()) + 1, n, d)
        texts = texts.index_put(where, delta.transpose(0, 1), accumulate=True)
        after = self._of(texts.flatten(0, 1)).unflatten(0, (s, -1))
        moved: Tensor = (after[where] - self._before[at]).transpose(0, 1)
        return moved

    @cached_property
    def _before(self) -> Tensor:
        with torch.no_grad():
            return self._of(self.X[None])[0]

    def _of(self, texts: Tensor) -> Tensor:
        """Keys, values and queries of texts (s, n, d), side by side, (s, n, H, D)."""
        queries, keys, values = self.rows(texts)
        return torch.cat([keys, values, queries], -1).transpose(1, 2)


def _shared_texts(at: Tensor) -> Tensor:
    """Numbers (P, 1) of texts for changes of the words `at` (P, m), which no two of a text share.

    A row is made of its own word alone: places without a common word can stand in one text.
    """
    if at.shape[1] > 1:
        apart = at.unique().numel() == at.numel()
        each = torch.arange(len(at), device=at.device)[:, None]
        return torch.zeros_like(each) if apart else each
    # The k-th place of a word stands in text k.
    word = at[:, 0]
    order = word.argsort(stable=True)
    first = torch.searchsorted(word[order], word[order])
    number = torch.empty_like(word)
    number[order] = torch.arange(len(word), device=at.device) - first
    return number[:, None]
