"""A feature map that is a function of the user."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from wsfast._progress import Progress
from wsfast._values import finite, shape_of, size_of
from wsfast.engines.engine import Engine
from wsfast.maps.feature_map import FeatureMap, PreparedText


class FunctionMap(FeatureMap):
    """A function of texts (m, n, d), or an nn.Module, as a user gives it.

    Parameters
    ----------
    phi : callable or nn.Module
    hides : bool
        Whether it takes the keyword argument `mask` (m, n), bool, True where there is a word: a
        hidden word is one that the mask leaves out.
    """

    def __init__(self, phi: Callable[..., Tensor] | nn.Module, *, hides: bool = False) -> None:
        if not callable(phi):
            raise TypeError(f"phi must be a function or an nn.Module, got {type(phi).__name__}")
        self.phi = phi
        self.hides = hides

    def features(self, X: Tensor, hidden: Tensor | None = None) -> Tensor:
        value: Tensor = self.phi(X) if hidden is None else self.phi(X, mask=~hidden)
        return value

    def of_texts(self, texts: Tensor, budget: int) -> Tensor:
        features_of(self.phi, texts[0])
        return super().of_texts(texts, budget)

    def prepare(
        self, texts: Sequence[Tensor], engine: Engine, budget: int, bar: Progress | None = None
    ) -> Iterator[PreparedText]:
        for X in texts:
            base = features_of(self.phi, X)
            size_of("phi(X)", base.double(), X.dtype)
            yield PreparedText(self, X, engine, budget)

    @contextmanager
    def ready(self) -> Iterator[None]:
        """Eval mode for a module and all of its parts, each put back into its own afterwards."""
        modules = self.phi.modules() if isinstance(self.phi, nn.Module) else ()
        modes = [(module, module.training) for module in modules]
        for module, _ in modes:
            module.training = False
        try:
            yield
        finally:
            for module, training in modes:
                module.training = training


def features_of(phi: Any, X: Tensor) -> Tensor:
    """φ(X), flat, of a user's feature map; what it must be is checked here, once."""
    with torch.enable_grad():
        texts = X.expand(2, -1, -1).clone().requires_grad_()
        value = phi(texts)
    if not isinstance(value, Tensor) or not value.is_floating_point():
        got = value.dtype if isinstance(value, Tensor) else type(value).__name__
        raise TypeError(f"phi must return a real tensor, got {got}")
    if value.ndim < 2 or value.shape[0] != 2:
        raise ValueError(
            f"phi must map texts (m, n, d) to features (m, ...), got {shape_of(value)} "
            f"for {shape_of(texts)}"
        )
    gradient = None
    if value.requires_grad:
        (gradient,) = torch.autograd.grad(value, texts, torch.ones_like(value), allow_unused=True)
    if gradient is None:
        raise ValueError("phi must be differentiable, got a result without a gradient by the text")
    base = value.detach().flatten(1)[0]
    finite("phi(X)", base)
    return base
