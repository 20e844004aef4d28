"""What wsfast is measured against, written once and without wsfast's engine.

Only `ClosedFormSearch` uses wsfast, namely its closed form in PyTorch operations, differentiated by
autograd. `X` is (n, d), `W` (d, d) throughout.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from wsfast.attention import closed_form
from wsfast.attention.state import PositionState
from wsfast.engines.engine import TORCH

from .inputs import prepared

# -- the definition -------------------------------------------------------------------------------


def layer(X: Tensor, W: Tensor) -> Tensor:
    """φ(X) = softmax(X W Xᵀ/√d) X of texts (..., n, d)."""
    scores = (X @ W) @ X.mT / X.shape[-1] ** 0.5
    return scores.softmax(-1) @ X


def perturbed_texts(X: Tensor, positions: Tensor, delta: Tensor) -> Tensor:
    """One text (m, n, d) for each position (m,) and its Δ (m, d)."""
    rows = torch.arange(len(positions), device=positions.device)
    return X.expand(len(positions), -1, -1).index_put((rows, positions), X[positions] + delta)


def batched_norms(X: Tensor, W: Tensor, phi: Tensor, positions: Tensor, delta: Tensor) -> Tensor:
    """‖φ(X^i(Δ)) - φ(X)‖ (m,), all perturbed texts as one batch; `phi` is φ(X)."""
    return (layer(perturbed_texts(X, positions, delta), W) - phi).norm(dim=(1, 2))


def batched_norms_and_gradient(
    X: Tensor, W: Tensor, phi: Tensor, positions: Tensor, delta: Tensor, norms=batched_norms
) -> tuple[Tensor, Tensor]:
    """The squared norms (m,) and their gradient (m, d), by autograd."""
    delta = delta.detach().requires_grad_()
    squared = norms(X, W, phi, positions, delta).square()
    (gradient,) = torch.autograd.grad(squared.sum(), delta)
    return squared.detach(), gradient


def descend_at_position(X: Tensor, W: Tensor, position: int, steps: int, start: Tensor) -> float:
    """The paper's procedure, 50·n steps long there: gradient descent on Δ (d,) at one position.

    In float64; each step computes the layer of the perturbed text and differentiates it. Returns S.
    """
    X, W, delta = X.double(), W.double(), start.double()
    radius = X.shape[1] ** 0.5
    phi = layer(X, W)
    size = phi.norm()
    best = 0.0
    for _ in range(steps):
        delta = delta.detach().requires_grad_()
        moved = torch.cat([X[:position], (X[position] + delta)[None], X[position + 1 :]])
        loss = -(layer(moved, W) - phi).norm() / size
        (gradient,) = torch.autograd.grad(loss, delta)
        best = max(best, -loss.item())
        with torch.no_grad():
            delta = delta - 0.1 * radius * gradient / gradient.norm()
            delta = delta * (radius / delta.norm()).clamp(max=1)
    return best


def descend_random_features(
    X: Tensor, V: Tensor, position: int, steps: int, start: Tensor
) -> float:
    """As `descend_at_position` for random features relu(V flat(X)), V (k, n d) in memory."""
    X, V, delta = X.double(), V.double(), start.double()
    radius = X.shape[1] ** 0.5
    phi = torch.relu(V @ X.flatten())
    size = phi.norm()
    best = 0.0
    for _ in range(steps):
        delta = delta.detach().requires_grad_()
        moved = torch.cat([X[:position], (X[position] + delta)[None], X[position + 1 :]])
        loss = -(torch.relu(V @ moved.flatten()) - phi).norm() / size
        (gradient,) = torch.autograd.grad(loss, delta)
        best = max(best, -loss.item())
        with torch.no_grad():
            delta = delta - 0.1 * radius * gradient / gradient.norm()
            delta = delta * (radius / delta.norm()).clamp(max=1)
    return best


# -- the closed form in PyTorch autograd ----------------------------------------------------------


class ClosedFormSearch:
    """Worst case at all positions by autograd of the closed form, in full d, all starts at once."""

    def __init__(self, X: Tensor, W: Tensor, starts: int) -> None:
        self.X, self.W = X, W
        self.starts = starts
        self.radius = X.shape[1] ** 0.5

    def prepare(self) -> tuple[PositionState, Tensor]:
        """The state of all positions in the dtype of X, and ‖φ(X)‖."""
        text = prepared(self.X, self.W, TORCH)
        state = text.state(torch.arange(len(self.X), device=self.X.device))
        return text.in_dtype(state, self.X.dtype), text.norm

    def first(self) -> Tensor:
        """Starts (n, s, d) at the sphere: the direction that raises all scores, and random ones."""
        n, d = self.X.shape
        generator = torch.Generator().manual_seed(0)
        starts = torch.randn(self.starts, d, generator=generator, dtype=self.X.dtype)
        starts[0] = (self.X @ self.W).sum(0)
        return self._onto_sphere(starts).expand(n, -1, -1).contiguous()

    def step(
        self, state: PositionState, delta: Tensor, best: tuple[Tensor, ...] | None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """From trials (n, s, d) to the next, and the best so far: Δ, value, gradient, step size."""
        moving = delta.detach().requires_grad_()
        value = closed_form.squared_norms(state, moving)[0]
        (gradient,) = torch.autograd.grad(value.sum(), moving)
        value = value.detach()
        if best is None:
            best = (delta, value, gradient, torch.ones_like(value))
        else:
            rose = value > best[1]
            keep = rose[..., None]
            best = (
                torch.where(keep, delta, best[0]),
                torch.where(rose, value, best[1]),
                torch.where(keep, gradient, best[2]),
                torch.where(rose, (2 * best[3]).clamp(max=1), best[3] / 2),
            )
        at, _, slope, beta = best
        pull = self.radius * slope / slope.norm(dim=-1, keepdim=True)
        return self._onto_sphere(at + beta[..., None] * (pull - at)), best

    def run(self, steps: int) -> float:
        """S after `steps` steps from every start."""
        state, norm = self.prepare()
        delta, best = self.first(), None
        for _ in range(steps):
            delta, best = self.step(state, delta, best)
        return float(best[1].max().sqrt() / norm)

    def _onto_sphere(self, delta: Tensor) -> Tensor:
        return delta * (self.radius / delta.norm(dim=-1, keepdim=True))


# -- products and attention -----------------------------------------------------------------------


class MatrixProducts:
    """The matrix products of one ascent step and nothing else, into memory allocated before."""

    def __init__(self, n: int, d: int, starts: int, dtype: torch.dtype = torch.float32) -> None:
        m = n * starts
        self.delta = torch.randn(m, d, dtype=dtype)
        self.rows = torch.randn(3 * n, d, dtype=dtype)  # queries, features and keys
        self.bilinear = torch.randn(d, d, dtype=dtype)
        self.words = torch.randn(n, d, dtype=dtype)
        self.own_attention = torch.randn(m, n, dtype=dtype)
        self.by_rows, self.by_bilinear = torch.empty(m, 3 * n + d, dtype=dtype).split((3 * n, d), 1)
        self.own_delta = torch.empty(m, d, dtype=dtype)
        self.own_products = torch.empty(m, n, dtype=dtype)
        self.gradient = torch.empty(m, d, dtype=dtype)

    def run(self) -> None:
        torch.mm(self.delta, self.rows.mT, out=self.by_rows)
        torch.mm(self.delta, self.bilinear, out=self.by_bilinear)
        torch.mm(self.own_attention, self.words, out=self.own_delta)
        torch.mm(self.own_delta, self.words.mT, out=self.own_products)
        torch.mm(self.by_rows, self.rows, out=self.gradient)


class HeadProducts:
    """Likewise of a head, whose changes have 3 d_k dimensions."""

    def __init__(self, n: int, d_k: int, starts: int) -> None:
        m = n * starts
        self.delta = torch.randn(m, 3 * d_k)
        self.factors = torch.randn(3 * d_k, 3 * d_k)
        self.moved = torch.empty(m, 3 * d_k)
        self.rows = torch.randn(3, n, d_k)  # queries, features and keys
        self.words = torch.randn(n, d_k)
        self.own_attention = torch.randn(m, n)
        self.products = torch.empty(3, m, n)
        self.own_delta = torch.empty(m, d_k)
        self.own_products = torch.empty(m, n)
        self.gradient = torch.empty(m, 3 * d_k)

    def run(self) -> None:
        torch.mm(self.delta, self.factors, out=self.moved)
        parts = self.moved.chunk(3, 1)
        for rows, part, out in zip(self.rows, parts, self.products, strict=True):
            torch.mm(part, rows.mT, out=out)
        torch.mm(self.own_attention, self.words, out=self.own_delta)
        torch.mm(self.own_delta, self.words.mT, out=self.own_products)
        for rows, part, out in zip(self.rows, parts, self.products, strict=True):
            torch.mm(out, rows, out=part)
        torch.mm(self.moved, self.factors.mT, out=self.gradient)


class SubstitutionProducts:
    """The matrix products of a search through E (V, d), into memory allocated before.

    Those of the text in float64, one that the search takes twice only once; then, tile by tile,
    those of the candidates, for `self_scores` with W as well.
    """

    TILE = 1024

    def __init__(self, X: Tensor, E: Tensor, W: Tensor, *, self_scores: bool) -> None:
        (n, d), m, dtype = X.shape, min(self.TILE, len(E)), E.dtype
        self.E = E
        self.X, self.W = X.double(), W.double()
        self.queries, self.keys, self.means = (torch.empty_like(self.X) for _ in range(3))
        self.scores = torch.empty(n, n, dtype=torch.float64)
        self.attention = torch.rand(n, n, dtype=torch.float64)
        self.words_and_features = torch.randn(2 * n, d, dtype=torch.float64)
        self.by_words = torch.empty(2 * n, n, dtype=torch.float64)
        self.rows = torch.randn(4 * n, d, dtype=dtype)  # queries, features, words and keys
        self.by_rows = torch.empty(4 * n, m, dtype=dtype)
        self.mean_rows = torch.randn(2 * n, n, dtype=dtype)  # words by words, features by words
        self.own_attention = torch.rand(n, m, dtype=dtype)
        self.mean_products = torch.empty(2 * n, m, dtype=dtype)
        self.weights = W if self_scores else None
        self.by_weights = torch.empty(m, d, dtype=dtype)

    def run(self) -> None:
        torch.mm(self.X, self.W, out=self.queries)
        torch.mm(self.X, self.W.mT, out=self.keys)
        torch.mm(self.queries, self.X.mT, out=self.scores)
        torch.mm(self.attention, self.X, out=self.means)
        torch.mm(self.words_and_features, self.X.mT, out=self.by_words)
        for tile in self.E.split(self.TILE):
            m = len(tile)
            if self.weights is not None:
                torch.mm(tile, self.weights, out=self.by_weights[:m])
            torch.mm(self.rows, tile.mT, out=self.by_rows[:, :m])
            torch.mm(self.mean_rows, self.own_attention[:, :m], out=self.mean_products[:, :m])


def sdpa_features(X: Tensor, W: Tensor) -> Tensor:
    """φ(X) of texts (..., n, d) by PyTorch's fused attention, the product X W included."""
    words = X.view(-1, 1, *X.shape[-2:])
    return scaled_dot_product_attention(words @ W, words, words).view(X.shape)


class Statistics(NamedTuple):
    """φ (n, d); of each row its largest word, its score, the others' log-sum-exp and mean."""

    phi: Tensor
    top: Tensor
    top_score: Tensor
    others: Tensor
    others_mean: Tensor


def sdpa_features_and_statistics(X: Tensor, W: Tensor) -> Statistics:
    """Features by PyTorch's fused attention, then the statistics of each row by PyTorch operations.

    Fused attention keeps no scores, so that the statistics compute them again.
    """
    queries = X @ W
    words = X[None, None]
    phi = scaled_dot_product_attention(queries[None, None], words, words)[0, 0]
    scores = queries @ X.mT * X.shape[1] ** -0.5
    top_score, top = scores.max(-1)
    rest = scores.scatter(-1, top[:, None], -torch.inf)
    return Statistics(phi, top, top_score, rest.logsumexp(-1), rest.softmax(-1) @ X)
