"""Texts of a reproduction: IMDb reviews, or random ones."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from wsfast._progress import progress_bar
from wsfast.text import embed, imdb_reviews
from wsfast.text.scale import to_norm_sqrt_d


class Sample(NamedTuple):
    """Texts of n words each, rows of norm √d, with their labels."""

    X: Tensor  # (count, n, d), float32
    labels: list[int]  # 1 or -1
    short: int  # reviews met that have fewer than n tokens, and were left out
    repeated: int  # reviews met whose first n tokens are those of another, and were left out

    def described(self, model: str | None) -> str:
        """Where the texts come from, in a sentence."""
        count, n, d = self.X.shape
        if model is None:
            return f"{count} Gaussian texts of n = {n} words, d = {d}, rows scaled to norm √d."
        return (
            f"the first {n} tokens of {count} IMDb reviews, embedded by {model} (hidden state 0, "
            f"d = {d}), rows scaled to norm √d; of the reviews met, {self.short} shorter ones and "
            f"{self.repeated} that begin like another were left out."
        )


def reviews(model: str, count: int, n: int, seed: int, *, progress: bool = False) -> Sample:
    """The first n tokens of `count` reviews, in an order that `seed` shuffles.

    Hidden state 0 of the model, as in the paper. Shorter reviews are left out, and so are those
    that begin like one that is taken: features of equal texts are not independent.

    Raises
    ------
    ValueError
        If there are not so many reviews of n tokens.
    """
    pool = imdb_reviews()
    order = np.random.default_rng(seed).permutation(len(pool)).tolist()
    texts: list[Tensor] = []
    labels: list[int] = []
    beginnings: set[tuple[str, ...]] = set()
    short = repeated = 0
    with progress_bar(count, "review", progress) as bar:
        for row in order:
            if len(texts) == count:
                break
            embedded = embed(pool[row].text, model, 0, max_tokens=n)
            beginning = tuple(embedded.tokens)
            if len(beginning) < n:
                short += 1
                continue
            if beginning in beginnings:
                repeated += 1
                continue
            beginnings.add(beginning)
            texts.append(embedded.X)
            labels.append(pool[row].label)
            bar.update(1)
    if len(texts) < count:
        raise ValueError(
            f"dataset must have {count} reviews of at least {n} tokens, got {len(texts)}"
        )
    return Sample(torch.stack(texts), labels, short, repeated)


def synthetic(count: int, n: int, d: int, seed: int) -> Sample:
    """Gaussian texts, labelled by the side of a random hyperplane that they lie on."""
    rng = np.random.default_rng(seed)
    side = rng.standard_normal(n * d)
    X = to_norm_sqrt_d(torch.from_numpy(rng.standard_normal((count * n, d))))
    flat = X.double().view(count, n * d).numpy()
    return Sample(X.view(count, n, d), [1 if value > 0 else -1 for value in flat @ side], 0, 0)


def dimension(model: str) -> int:
    """Length of a model's vectors."""
    return int(embed("a", model, 0).X.shape[1])
