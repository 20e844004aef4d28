"""The changes that results claim, by the definition and in float64."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from definition import features
from net.cases import Case
from net.running import inputs
from torch import Tensor

import wsfast

Phi = Callable[[Tensor], Tensor]


class Defined(NamedTuple):
    """A text (n, d), one of its feature maps, and the place of both in the arrays of a result."""

    place: tuple[int, ...]
    X: Tensor
    phi: Phi

    def change(self, position: int, delta: Tensor) -> float:
        """‖φ(X^i(Δ)) - φ(X)‖ / ‖φ(X)‖."""
        moved = self.X.clone()
        moved[position] += delta
        before = self.phi(self.X)
        return float((self.phi(moved) - before).norm() / before.norm())


def defined(case: Case) -> Iterator[Defined]:
    """Every text and map of a case of `..._sensitivity`."""
    given = inputs(case, exact=True)
    batched = case.texts is not None
    drawn = case.given_draws is not None or "draws" in case.options
    texts, masks = given["X"], given.get("mask")
    for b, text in enumerate(texts if batched else [texts]):
        X = torch.as_tensor(text)
        keep = torch.ones(len(X), dtype=torch.bool)
        if masks is not None:
            keep = torch.as_tensor(masks[b] if batched else masks)
        for r, phi in enumerate(maps(case, given, keep)):
            yield Defined((b,) * batched + (r,) * drawn, X, phi)


def maps(case: Case, given: dict[str, Any], keep: Tensor) -> Iterator[Phi]:
    """φ for each draw; `keep` has the words that are there."""
    if case.function == "word_sensitivity":
        yield lambda X: given["phi"](X[keep][None])
        return
    asked = {name: given[name] for name in ("k", "draws", "seed") if name in given}
    kind = {**asked, "dtype": torch.float64}
    if case.function == "raf_sensitivity":
        W = given["W"] if "W" in given else wsfast.random_weights(case.d, **kind)
        named = given.get("weight_fn", "softmax"), given.get("normalize", True)
        for w in torch.as_tensor(W).view(-1, case.d, case.d):
            yield lambda X, w=w: features(X, w, *named, keep)
        return
    if case.function == "drf_sensitivity":
        layers = wsfast.drf_weights(case.n, case.d, given["depth"], **kind)
    else:
        layers = [given["V"] if "V" in given else wsfast.rf_weights(case.n, case.d, **kind)]
    activation = getattr(torch, given.get("activation", "relu"))
    draws = zip(*(V.view(-1, *V.shape[-2:]) for V in layers), strict=True)
    for matrices in draws:

        def phi(X: Tensor, matrices: tuple[Tensor, ...] = matrices) -> Tensor:
            value = X.flatten()
            for V in matrices:
                value = activation(V @ value)
            return value

        yield phi
