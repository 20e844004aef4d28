"""The least time that a kernel can take: bytes over bandwidth, operations over matrix rate.

Both ceilings are measured in the same run. Bytes count each array that has to be there once in and
once out; operations are those of matrix products alone.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from .machine import Clock, product_precision

# float32 by tensor cores is three products in TF32; words in bfloat16 need no second part.
TF32_PRODUCTS = {torch.float32: 3, torch.bfloat16: 2}
_REPEATS = 9


@dataclass(frozen=True)
class Rates:
    """Ceilings, per second."""

    copy: float  # bytes, read and written together
    tf32: float  # operations of matrix products
    float32: float


@dataclass(frozen=True)
class Work:
    """What a kernel has to do."""

    bytes: int
    tf32: int = 0  # operations
    float32: int = 0

    def floor(self, rates: Rates) -> tuple[float, str]:
        """Seconds, and which of the two ceilings they come from."""
        moving = self.bytes / rates.copy
        computing = self.tf32 / rates.tf32 + self.float32 / rates.float32
        return max((moving, "bytes"), (computing, "operations"))


def measure_rates(clock: Clock, device: torch.device, *, small: bool) -> Rates:
    source = torch.randn(2**16 if small else 2**29, device=device)
    target = torch.empty_like(source)
    copy = _median(clock, lambda: target.copy_(source))
    size = 128 if small else 8192
    a, b = (torch.randn(size, size, device=device) for _ in range(2))
    out = torch.empty_like(a)
    products = {}
    for precision in ("tf32", "ieee"):
        with product_precision(precision):
            products[precision] = _median(clock, lambda: torch.mm(a, b, out=out))
    operations = 2 * size**3
    return Rates(
        2 * source.nbytes / copy, operations / products["tf32"], operations / products["ieee"]
    )


def _median(clock: Clock, run: Callable[[], object]) -> float:
    for _ in range(3):
        run()
    return statistics.median(clock.seconds(run) for _ in range(_REPEATS))


def features_work(words: Tensor, queries: Tensor) -> Work:
    """Of φ from queries (B, R, n, d): scores and their product with the words."""
    B, R, n, d = queries.shape
    products = TF32_PRODUCTS[words.dtype] * 4 * B * R * n * n * d
    return Work(words.nbytes + 2 * queries.nbytes, tf32=products)


def substitution_work(n: int, d: int, m: int) -> Work:
    """Of a tile of m candidates at all n positions, in float32.

    Products belong to a library, so that what lies between two of them goes through memory: the
    centred candidates, their products with the rows of the text (4n), their attention (n), its
    products (2n) are written and read; candidates, the rows (4n, d), (2n, n) and four numbers of
    each pair are read; n squares for each candidate are written.
    """
    between = 2 * (m * d + 4 * n * m + n * m + 2 * n * m)
    read = m * d + 4 * n * d + 2 * n * n + 4 * n * n
    return Work(4 * (between + read + n * m), float32=2 * m * (4 * n * d + 2 * n * n))
