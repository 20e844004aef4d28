"""Texts of a reproduction: IMDb reviews, or random ones."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from wsfast._progress import progress_bar
from wsfast.results.embedded import Embedded
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


class Beginnings(NamedTuple):
    """Reviews of which the first n tokens are taken."""

    taken: list[Embedded]
    rows: list[int]  # their numbers among all reviews
    labels: list[int]  # 1 or -1
    short: int  # as in `Sample`
    repeated: int

    def described(self, n: int) -> str:
        """Where they come from, in a sentence."""
        return (
            f"the first {n} tokens of {len(self.taken)} IMDb reviews, special tokens not counted; "
            f"of the reviews met, {self.short} shorter ones and {self.repeated} that begin like "
            "another were left out."
        )


def reviews(model: str, count: int, n: int, seed: int, *, progress: bool = False) -> Sample:
    """The first n tokens of `count` reviews, in an order that `seed` shuffles.

    Hidden state 0 of the model, as in the paper. See `beginnings`.
    """
    found = beginnings(model, count, n, seed, progress=progress)
    X = torch.stack([one.X for one in found.taken])
    return Sample(X, found.labels, found.short, found.repeated)


def beginnings(
    model: str, count: int, n: int, seed: int, layer: int | str = 0, *, progress: bool = False
) -> Beginnings:
    """The first n tokens of `count` reviews, in an order that `seed` shuffles.

    Shorter reviews are left out, and so are those that begin like one that is taken: figures of
    equal texts are not independent.

    Raises
    ------
    ValueError
        If there are not so many reviews of n tokens.
    """
    pool = imdb_reviews()
    order = np.random.default_rng(seed).permutation(len(pool)).tolist()
    found = Beginnings([], [], [], 0, 0)
    seen: set[tuple[str, ...]] = set()
    with progress_bar(count, "review", progress) as bar:
        for row in order:
            if len(found.taken) == count:
                break
            embedded = embed(pool[row].text, model, layer, max_tokens=n)
            beginning = tuple(embedded.tokens)
            if len(beginning) < n:
                found = found._replace(short=found.short + 1)
                continue
            if beginning in seen:
                found = found._replace(repeated=found.repeated + 1)
                continue
            seen.add(beginning)
            found.taken.append(embedded)
            found.rows.append(row)
            found.labels.append(pool[row].label)
            bar.update(1)
    if len(found.taken) < count:
        raise ValueError(
            f"dataset must have {count} reviews of at least {n} tokens, got {len(found.taken)}"
        )
    return found


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
