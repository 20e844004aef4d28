"""Feature maps, trainings and figures written again from their definitions, in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from definition import features
from torch import Tensor

Phi = Callable[[Tensor], Tensor]  # one text (n, d) to its features (D,)

TRAININGS = ("fine_tuning", "retraining")
LOSSES = ("feature", "alignment", "error")
ATTENTION = {
    "raf": ("softmax", True),
    "relu_raf": ("relu", True),
    "relu_raf_unnormalized": ("relu", False),
}


def phi_of(name: str, weights) -> Phi:
    """φ of one text with W (d, d), V (k, n d) or a list of V."""
    if name in ATTENTION:
        return lambda X: features(X, weights, *ATTENTION[name]).flatten()
    matrices = weights if isinstance(weights, (list, tuple)) else [weights]

    def phi(X: Tensor) -> Tensor:
        value = X.double().flatten()
        for V in matrices:
            value = torch.relu(V.double() @ value)
        return value

    return phi


class Problem(NamedTuple):
    texts: Tensor  # (N, n, d)
    labels: Tensor  # (N,)
    X: Tensor  # (n, d)
    y: float


def problem(
    N: int, n: int, d: int, seed: int = 0, dtype: torch.dtype = torch.float64, y: float = 1.0
) -> Problem:
    generator = torch.Generator().manual_seed(seed)
    texts = torch.randn(N + 1, n, d, generator=generator, dtype=torch.float64)
    texts *= d**0.5 / texts.norm(dim=-1, keepdim=True)
    labels = torch.randn(N, generator=generator).sign()
    texts = texts.to(dtype)
    return Problem(texts[:N], labels, texts[N], y)


def solution(rows: list[Tensor], labels: Tensor) -> Tensor:
    """The min-norm least-squares solution (D,), by the pseudo-inverse of all features."""
    return torch.linalg.pinv(torch.stack(rows)) @ labels.double()


class Model(NamedTuple):
    before: Tensor  # (D,) θ*
    after: Tensor  # (D,) θ
    along: Tensor  # (D,) φ(X) or P⊥φ(X)
    away: Tensor  # (D,) P⊥φ(X)


def learn(phi: Phi, known: Problem, training: str) -> Model:
    """θ* and θ, re-training from scratch on all N + 1 samples."""
    rows, one = [phi(text) for text in known.texts], phi(known.X)
    before = solution(rows, known.labels)
    span = torch.linalg.pinv(torch.stack(rows)) @ torch.stack(rows)  # onto the rows, D×D
    away = one - span @ one
    if training == "fine_tuning":
        step = (known.y - one @ before) / one.square().sum()
        return Model(before, before + step * one, one, away)
    labels = torch.cat([known.labels.double(), torch.tensor([known.y]).double()])
    return Model(before, solution([*rows, one], labels), away, away)


def loss(name: str, phi: Phi, known: Problem, model: Model, changed: Tensor) -> float:
    one = phi(known.X)
    if name == "feature":
        return float((changed @ one / (one @ one) + 1) ** 2)
    if name == "alignment":
        return float((changed @ model.away / model.away.square().sum() + 1) ** 2)
    return float((changed @ model.after + known.y) ** 2)


def moved(X: Tensor, position: int, delta: Tensor) -> Tensor:
    text = X.double().clone()
    text[position] += delta.double()
    return text


def figures(
    phi: Phi, known: Problem, training: str, name: str, position: int, delta: Tensor
) -> dict[str, float]:
    """Every figure of the result, at a Δ."""
    model, one = learn(phi, known, training), phi(known.X)
    changed = phi(moved(known.X, position, delta))
    gamma = abs(float(changed @ model.before - one @ model.before))
    return {
        "output_before": float(one @ model.before),
        "output_after": float(one @ model.after),
        "changed_before": float(changed @ model.before),
        "changed_after": float(changed @ model.after),
        "loss": loss(name, phi, known, model, changed),
        "error": float((changed @ model.after + known.y) ** 2),
        "alignment": float(changed @ model.along) / float(one @ model.along),
        "gamma": gamma,
        "lower_bound": max(0.0, 2 - gamma) ** 2,
    }
