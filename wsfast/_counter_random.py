"""Blocks of large random matrices, in PyTorch: the same bits as ``csrc/cpu/random.inl`` gives.

Every normal is a function of (seed, draw, plane, row, column) alone: Philox4x32-10 (Salmon et al.,
SC 2011), a counter-based generator, and the transform of Box and Muller in float32, built from IEEE
additions, multiplications and square roots.
"""

from __future__ import annotations

import torch
from torch import Tensor

_LOW = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)

_LOG = (
    7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
    -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
)  # fmt: skip
_SIN = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
_COS = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)


def philox(counter: tuple[Tensor, Tensor, Tensor, Tensor], seed: int) -> list[Tensor]:
    """Four words of 32 bits, in int64, for each counter of four such words."""
    a, b, c, d = counter
    key = [seed & _LOW, seed >> 32]
    for _ in range(10):
        # The factors' product can pass 2^63: wrapped around, its 64 bits are still right.
        p, q = a * _MULTIPLIERS[0], c * _MULTIPLIERS[1]
        a, b = ((q >> 32) & _LOW) ^ b ^ key[0], q & _LOW
        c, d = ((p >> 32) & _LOW) ^ d ^ key[1], p & _LOW
        key = [(word + step) & _LOW for word, step in zip(key, _KEY_STEPS, strict=True)]
    return [a, b, c, d]


def two_normals(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Two normals, float32, from two words of 32 bits: a radius and an angle."""
    u = (x >> 1).float() * 2.0**-31 + 2.0**-32
    square = _log(u) * -2.0
    # PyTorch's root of a float32 is not always the nearest one; rounded from float64 it is.
    radius = torch.where(square > 0, square, 0.0).double().sqrt().float()
    a = ((y & 0x3FFFFFFF) - 0x20000000).float() * 1.4629180792671596e-9  # π 2⁻³¹
    a2 = a * a
    s = _polynomial(a2, _SIN) * a2 * a + a
    c = _polynomial(a2, _COS) * (a2 * a2) - a2 * 0.5 + 1.0
    c = torch.where(y >> 31 == 1, -c, c)
    swapped = (y >> 30) & 1 == 1
    return radius * torch.where(swapped, s, c), radius * torch.where(swapped, c, s)


def _polynomial(x: Tensor, coefficients: tuple[float, ...]) -> Tensor:
    value = torch.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        value = value * x + coefficient
    return value


def _log(u: Tensor) -> Tensor:
    above = u.view(torch.int32) - 0x3F3504F3
    exponent = (above >> 23).float()
    t = ((above & 0x7FFFFF) + 0x3F3504F3).view(torch.float32) - 1.0
    t2 = t * t
    p = t * t2 * _polynomial(t, _LOG)
    p = p - exponent * 2.12194440e-4
    p = p - t2 * 0.5
    p = t + p
    return p + exponent * 0.693359375


def random_block(
    seed: int, draw: int, plane: int, first_row: int, rows: int, cols: int, device: torch.device
) -> Tensor:
    """Standard normals (rows, cols), float32, of one plane of the matrix of a draw."""
    groups = (cols + 3) // 4
    group = torch.arange(groups, device=device).expand(rows, -1)
    row = torch.arange(first_row, first_row + rows, device=device)[:, None].expand(-1, groups)
    a, b, c, d = philox(
        (group, row, torch.full_like(group, plane), torch.full_like(group, draw)), seed
    )
    quarters = torch.stack([*two_normals(a, b), *two_normals(c, d)], 1)
    return quarters.flatten(1)[:, :cols]
