"""What the closed form sees of attention: one head on one text."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from wsfast.attention.softmax import capped
from wsfast.attention.weight_fn import WeightFn

NEVER = -1e30
"""A score that gives no weight under any Δ, and that float32 holds."""


@dataclass(frozen=True)
class Core:
    """Attention of the words of one text to one another, in float64.

    Row j gives every word l a score S_jl, and takes the mean of the values that its weights say.
    Here the value and the key of a word are the word itself: S_jl = q_j·x_l = x_j·k_l, the scale
    1/√d in `queries` and in `keys`.
    """

    weight_fn: WeightFn
    values: Tensor  # (n, d_v), here the words x_l
    queries: Tensor  # (n, d_k) q_j: S_ji moves by q_j · (change of the key of word i)
    keys: Tensor  # (n, d_k) k_l: S_il moves by k_l · (change of the query of word i)
    causal: bool = False  # row j sees the words up to j alone

    @property
    def n(self) -> int:
        return len(self.values)

    @property
    def centred(self) -> bool:
        """Whether a common shift of the values drops out of every change."""
        return self.weight_fn.exponential

    def scores(self, rows: Tensor) -> Tensor:
        """S_jl (m, n) of the rows numbered `rows` (m,); of unseen words any number."""
        return self.queries[rows] @ self.values.mT

    def scores_of(self, words: Tensor) -> Tensor:
        """S_jl (p, n) that every row gives to `words` (p,), likewise."""
        return self.values[words] @ self.queries.mT

    def seen(self, rows: Tensor, words: Tensor) -> Tensor | None:
        """Whether each of `rows` (m,) sees each of `words` (p,), (m, p); None: all see all."""
        return rows[:, None] >= words if self.causal else None

    def with_sink(self, rest: Tensor, mean: Tensor) -> tuple[Tensor, Tensor]:
        """Log-sum-exps (…) of words of rows and their means (…, d_v), a sink among the words."""
        return rest, mean


@dataclass(frozen=True)
class HeadCore(Core):
    """A softmax head of a trained layer: S_jl = cap(q_j·k_l) + b_jl."""

    bias: Tensor | None = None  # (n, n); -inf where a word is not seen
    cap: float | None = None  # cap(s) = cap · tanh(s / cap)
    sink: Tensor | None = None  # () score of one word more, whose value is 0

    @property
    def centred(self) -> bool:
        return self.sink is None

    def scores(self, rows: Tensor) -> Tensor:
        scores = capped(self.cap, self.raw(rows))
        return scores if self.bias is None else scores + self.bias[rows]

    def scores_of(self, words: Tensor) -> Tensor:
        scores = capped(self.cap, self.raw_of(words))
        return scores if self.bias is None else scores + self.bias[:, words].mT

    def raw(self, rows: Tensor) -> Tensor:
        """q_j·k_l (m, n) of the rows numbered `rows`."""
        return self.queries[rows] @ self.keys.mT

    def raw_of(self, words: Tensor) -> Tensor:
        """q_j·k_l (p, n) that every row gives to `words` (p,)."""
        return self.keys[words] @ self.queries.mT

    def with_sink(self, rest: Tensor, mean: Tensor) -> tuple[Tensor, Tensor]:
        if self.sink is None:
            return rest, mean
        both = torch.logaddexp(rest, self.sink)
        return both, mean * (rest - both).exp()[..., None]

    def seen(self, rows: Tensor, words: Tensor) -> Tensor | None:
        if self.bias is None or not self._hides:
            return None
        return ~self.bias[rows[:, None], words].isneginf()

    @cached_property
    def _hides(self) -> bool:
        return self.bias is not None and bool(self.bias.isneginf().any())


def core_of(X: Tensor, W: Tensor, weight_fn: WeightFn, *, causal: bool = False) -> Core:
    """The core of random attention: X (n, d) and W (d, d), float64."""
    scale = X.shape[1] ** -0.5
    return Core(weight_fn, X, X @ W * scale, X @ W.mT * scale, causal)


def numbers(values: Tensor) -> Tensor:
    """0, …, n - 1 on the device of values (n, d)."""
    return torch.arange(len(values), device=values.device)
