"""V flat(X), the first product of random features, without ever holding all of V."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import torch
from torch import Tensor

from wsfast._counter_random import random_block
from wsfast._precision import full_precision
from wsfast._progress import Progress
from wsfast._transforms import transformed
from wsfast.engines.engine import RANDOM_BLOCK, Engine, RandomPlane

# Planes from here on are the weights of deeper layers.
_LAYERS = 1 << 31


class Projection(Protocol):
    """V (k, n d), seen as one matrix V_i (k, d) for each word."""

    k: int
    n: int
    d: int

    def block(self, position: int, dtype: torch.dtype) -> Tensor:
        """V_i (k, d), contiguous."""

    def parts(self, position: int, dtype: torch.dtype) -> Iterator[Tensor]:
        """V_i in parts of some rows each."""

    def add_product(self, z: Tensor, position: int, words: Tensor) -> None:
        """Add V_i x (B, k) to `z`, for words x (B, d)."""

    def matrix(self, dtype: torch.dtype) -> Tensor:
        """V as a whole, (k, n d)."""


class GivenProjection:
    """V (k, n d) as the user gave it."""

    def __init__(self, V: Tensor, n: int) -> None:
        self.V, self.n = V, n
        self.k, self.d = V.shape[0], V.shape[1] // n

    def block(self, position: int, dtype: torch.dtype) -> Tensor:
        return self._of(position).to(dtype).contiguous()

    def parts(self, position: int, dtype: torch.dtype) -> Iterator[Tensor]:
        for part in self._of(position).split(_rows(self.d)):
            yield part.to(dtype)

    def add_product(self, z: Tensor, position: int, words: Tensor) -> None:
        _multiply(z, words, self.parts(position, words.dtype))

    def matrix(self, dtype: torch.dtype) -> Tensor:
        return self.V.to(dtype)

    def of_texts(self, X: Tensor, bar: Progress | None) -> Tensor:
        """V flat(X) (B, k) by PyTorch's own operations: differentiable in V too."""
        flat = X.flatten(1)
        # In another dtype some rows at a time, so that V is not copied as a whole.
        rows = self.k if self.V.dtype == X.dtype else _rows(self.n * self.d)
        parts = [flat @ part.to(X.dtype).mT for part in self.V.split(rows)]
        if bar is not None:
            bar.update(self.V.numel())
        return parts[0] if len(parts) == 1 else torch.cat(parts, 1)

    def _of(self, position: int) -> Tensor:
        return self.V[:, position * self.d : (position + 1) * self.d]


class RandomProjection:
    """V with entries N(0, gain/(n d)) of one draw, made from a counter when it is needed.

    An entry, times √(n d/gain), depends on (seed, draw, position, row, column) alone: not on n, k
    or how V is cut into blocks.

    Parameters
    ----------
    n, d, k : int
    seed, draw : int
    device : torch.device
    engine : Engine
        Makes V; all make the same bits.
    gain : float
        1, or 2 for layers scaled after He et al.
    """

    def __init__(
        self,
        n: int,
        d: int,
        k: int,
        *,
        seed: int,
        draw: int,
        device: torch.device,
        engine: Engine,
        gain: float = 1.0,
    ) -> None:
        self.n, self.d, self.k = n, d, k
        self._engine, self._device = engine, device
        self._seed, self._draw, self._scale = seed, draw, (gain / (n * d)) ** 0.5

    def block(self, position: int, dtype: torch.dtype) -> Tensor:
        return self._rows_of(position, 0, self.k, dtype)

    def parts(self, position: int, dtype: torch.dtype) -> Iterator[Tensor]:
        rows = _rows(self.d)
        for first in range(0, self.k, rows):
            yield self._rows_of(position, first, min(rows, self.k - first), dtype)

    def add_product(self, z: Tensor, position: int, words: Tensor) -> None:
        if not self._engine.random_product(z, self._plane(position), words):
            _multiply(z, words, self.parts(position, words.dtype))

    def matrix(self, dtype: torch.dtype) -> Tensor:
        V = torch.empty(self.k, self.n * self.d, dtype=dtype, device=self._device)
        for i, block in enumerate(V.split(self.d, 1)):
            block.copy_(self.block(i, dtype))
        return V

    def _plane(self, position: int) -> RandomPlane:
        return RandomPlane(self._seed, self._draw, position, self._scale)

    def _rows_of(self, position: int, first: int, rows: int, dtype: torch.dtype) -> Tensor:
        plane = self._plane(position)
        return _matrix(self._engine, plane, first, (rows, self.d), dtype, self._device)


def random_layer(
    number: int, k: int, *, seed: int, draw: int, dtype: torch.dtype, device: Any, engine: Engine
) -> Tensor:
    """V (k, k) of layer `number` ≥ 2 of a deep random network, entries N(0, 2/k)."""
    plane = RandomPlane(seed, draw, _LAYERS + number, (2 / k) ** 0.5)
    return _matrix(engine, plane, 0, (k, k), dtype, torch.device(device))


def _matrix(
    engine: Engine,
    plane: RandomPlane,
    first: int,
    shape: tuple[int, int],
    dtype: torch.dtype,
    device: torch.device,
) -> Tensor:
    """The rows of a plane from number `first`, of `shape`."""
    if transformed():  # no writing into what exists
        normals = random_block(plane.seed, plane.draw, plane.plane, first, *shape, device)
        return normals.to(dtype).mul_(plane.scale)
    out = torch.empty(shape, dtype=dtype, device=device)
    engine.fill_random(out, plane, first)
    return out


def project_word(projection: Projection, position: int, words: Tensor) -> Tensor:
    """V_i x (B, k) for words x (B, d)."""
    z = words.new_zeros(len(words), projection.k)
    projection.add_product(z, position, words)
    return z


def project(projection: Projection, X: Tensor, bar: Progress | None = None) -> Tensor:
    """V flat(X) (B, k) for texts (B, n, d); `bar` is told of every number of V."""
    if isinstance(projection, GivenProjection):
        return projection.of_texts(X, bar)
    z: Tensor = _Project.apply(X, projection, bar)  # type: ignore[no-untyped-call]
    return z


def _rows(d: int) -> int:
    return max(1, RANDOM_BLOCK // d)


def _multiply(z: Tensor, words: Tensor, parts: Iterator[Tensor]) -> None:
    first = 0
    for part in parts:
        z[:, first : first + len(part)].addmm_(words, part.mT)
        first += len(part)


def _merged(function: Any, batch: int, dim: int | None, value: Tensor, *others: Any) -> Any:
    """A map of rows (B, …) under `torch.vmap`: its result, and the dimension of the batch."""
    if dim is None:
        return function(value, *others), None
    rows = value.movedim(dim, 0)
    return function(rows.flatten(0, 1), *others).unflatten(0, (batch, -1)), 0


class _Project(torch.autograd.Function):
    """V flat(X) (B, k), of which V is made anew in each pass; linear in X."""

    @staticmethod
    @full_precision()
    def forward(X: Tensor, projection: Projection, bar: Progress | None) -> Tensor:
        z = X.new_zeros(len(X), projection.k)
        for i in range(projection.n):
            projection.add_product(z, i, X[:, i])
            if bar is not None:
                bar.update(projection.k * projection.d)
        return z

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.projection = inputs[1]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return _Transposed.apply(grad, ctx.projection), None, None  # type: ignore[no-untyped-call]

    @staticmethod
    def jvp(ctx: Any, X: Tensor, *_: Any) -> Tensor:
        z: Tensor = _Project.apply(X, ctx.projection, None)  # type: ignore[no-untyped-call]
        return z

    @staticmethod
    def vmap(info: Any, dims: tuple[int | None, ...], X: Tensor, *others: Any) -> Any:
        return _merged(_Project.apply, info.batch_size, dims[0], X, *others)


class _Transposed(torch.autograd.Function):
    """Vᵀz (B, n, d) for z (B, k), likewise."""

    @staticmethod
    @full_precision()
    def forward(z: Tensor, projection: Projection) -> Tensor:
        X = z.new_zeros(len(z), projection.n, projection.d)
        for i in range(projection.n):
            first = 0
            for part in projection.parts(i, z.dtype):
                X[:, i].addmm_(z[:, first : first + len(part)], part)
                first += len(part)
        return X

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.projection = inputs[1]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _Project.apply(grad, ctx.projection, None), None  # type: ignore[no-untyped-call]

    @staticmethod
    def jvp(ctx: Any, z: Tensor, *_: Any) -> Tensor:
        X: Tensor = _Transposed.apply(z, ctx.projection)  # type: ignore[no-untyped-call]
        return X

    @staticmethod
    def vmap(info: Any, dims: tuple[int | None, ...], z: Tensor, *others: Any) -> Any:
        return _merged(_Transposed.apply, info.batch_size, dims[0], z, *others)
