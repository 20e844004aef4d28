"""Texts and vocabularies of numbers that both dtypes hold, with the changes by definition."""

from __future__ import annotations

import functools
import math

import torch
from definition import random_text
from studies.substitution.truth import changes, exact_changes


def problem(n=5, d=6, count=40, seed=0, dtype=torch.float64):
    """X, E, W of which no row is without weight."""
    X, W = random_text(n, d, seed)
    E = random_text(count, d, seed + 1)[0]
    return X.to(dtype), E.to(dtype), (W + torch.eye(d)).to(dtype)


def single(*arrays):
    """The nearest numbers that both dtypes hold, so that both have one truth."""
    return tuple(array.float().double() for array in arrays)


def table_for(X, count, seed=0):
    """E: random rows, a word itself, nearly a word, zero, a long and a short row."""
    E = random_text(count, X.shape[1], 1000 + seed)[0]
    E[0], E[1], E[2], E[3], E[4] = X[0], X[-1] * (1 + 2.0**-10), 0.0, 5 * E[3], 1e-3 * E[4]
    return E


@functools.cache
def random_case(n, d, weight_fn, normalize):
    X, W = random_text(n, d, 10 * n + d)
    W = W + torch.eye(d)  # no text without weight
    X, W, E = single(X, W, table_for(X, 19, n))
    return X, W, E, changes(X, W, E, weight_fn, normalize)


@functools.cache
def hard_text(kind, weight_fn, normalize):
    """X (5, 3), W and E (V, 3) that a closed form may break on, and the truth."""
    X, W = random_text(5, 3, 2)
    if weight_fn == "relu":
        W = W + 2 * torch.eye(3)
    E = table_for(X, 9)
    if kind == "duplicates":
        X[3], X[4] = X[0], X[0]
        E[5] = E[6]
    elif kind == "zero":
        X[1] = 0
    elif kind in ("sink", "strong sink"):
        # Word 2 is what every row looks at; row 1 looks at nothing else.
        X[:, 0], X[2, 1] = 1.0, 10.0
        E[5:, 0] = 1.0
        W = 0.05 * W
        W[0] = 0.0
        W[0, 1] = {"sink": 4.0, "strong sink": 60.0}[kind]
        X[1, 0] = 2.0
    elif kind == "dwarfs":
        # Candidate 5 draws the attention of all rows, candidate 6 of none: scores of ±1000.
        X[:, 0] = 1.0
        W = 0.1 * W
        W[0, 1] = 990 * math.sqrt(3) / 30
        E[:, 0] = E[:, 0].clamp(-0.1, 0.1)
        E[5], E[6] = torch.tensor([0.1, 30.0, 0.1]), torch.tensor([0.1, -30.0, 0.1])
    elif kind == "looks at one":
        # Candidates look at word 2 alone, as others do not.
        X[:, 1] = X[:, 1].clamp(-0.5, 0.5)
        X[2, 1] = 3.0
        W = 0.1 * W
        E[5:, 2] = torch.tensor([30.0, 100.0, 300.0, 400.0])
        W[2, 1] = 1.0
        X[:, 2] *= 0.01
    elif kind == "faint":
        # Row 1 has next to no weight for ReLU, until a candidate comes.
        X[:, 2], X[1] = -1e-20, torch.tensor([0.0, 0.0, 1.0])
        W[2], W[:, 2], W[2, 2] = 0.0, 0.0, -1.0
        E[5:7, 2] = -30.0
    elif kind == "same":
        E[:] = E[5]
    elif kind == "near":
        E = torch.stack([X[1] + size * E[5] for size in (1e-3, 1e-4, 1e-5, 1e-6)])
    elif kind == "shift":
        # Of a thousand: the words are nearly the same; scores stay moderate.
        X, E = X + 1e3, E + 1e3
        E[0], E[2] = X[0], 1e3
    X, W, E = single(X, W, E)
    largest = float((torch.cat([X, E]) @ W @ torch.cat([X, E]).T).abs().max()) / math.sqrt(3)
    if largest > 1e3:
        (W,) = single(W * (1e3 / largest))
    return X, W, E, exact_changes(X, W, E, weight_fn, normalize)


KINDS = ["duplicates", "zero", "same", "near", "shift"]
KINDS += ["sink", "strong sink", "dwarfs", "looks at one", "faint"]
