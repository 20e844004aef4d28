"""Blocks of large random matrices: the same bits from PyTorch and from every instruction set."""

from __future__ import annotations

import math

import pytest
import torch
from native.conftest import LEVELS

from wsfast._counter_random import philox, random_block
from wsfast.engines import compiled

CPU = torch.device("cpu")
_MASK = 2**32 - 1


def words_of(counter: list[int], seed: int) -> list[int]:
    """One block of Philox4x32-10, from the paper that defines it (Salmon et al., SC 2011)."""
    (c0, c1, c2, c3), k0, k1 = counter, seed & _MASK, seed >> 32
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & _MASK, (p0 >> 32) ^ c3 ^ k1, p0 & _MASK
        k0, k1 = (k0 + 0x9E3779B9) & _MASK, (k1 + 0xBB67AE85) & _MASK
    return [c0, c1, c2, c3]


def normals_of(x: int, y: int) -> tuple[float, float]:
    """Box and Muller in float64: the angle is a quarter turn chosen by two bits, and a part."""
    radius = math.sqrt(-2 * math.log((x >> 1) * 2**-31 + 2**-32))
    angle = math.pi / 2 * ((y & 0x3FFFFFFF) / 2**30 - 0.5)
    cosine, sine = math.cos(angle) * (-1 if y >> 31 else 1), math.sin(angle)
    pair = (sine, cosine) if (y >> 30) & 1 else (cosine, sine)
    return radius * pair[0], radius * pair[1]


@pytest.mark.parametrize(
    ("counter", "seed", "expected"),
    [  # known answers of Random123
        ([0, 0, 0, 0], 0, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([_MASK] * 4, 2**64 - 1, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            0x299F31D0A4093822,
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ],
)
def test_known_answers(counter, seed, expected):
    assert words_of(counter, seed) == expected
    tensors = tuple(torch.tensor([word]) for word in counter)
    assert [int(word) for word in philox(tensors, seed)] == expected


@pytest.mark.parametrize("cols", [1, 2, 3, 4, 5, 127, 128, 129])
def test_entries_come_from_their_own_counter(cols):
    seed, draw, plane, first = (0xFEED << 32) | 77, 3, 2**31 + 2, 2**20
    block = random_block(seed, draw, plane, first, 2, cols, CPU)
    groups = -(-cols // 4)
    for row in range(2):
        for column in range(cols):
            quarter, group = divmod(column, groups)
            words = words_of([group, first + row, plane, draw], seed)
            pair = normals_of(*(words[:2] if quarter < 2 else words[2:]))
            assert float(block[row, column]) == pytest.approx(pair[quarter % 2], rel=1e-5, abs=1e-7)


def native_block(seed, draw, plane, first, rows, cols, dtype=torch.float32, threads=1, scale=1.0):
    out = torch.full((rows, cols), torch.nan, dtype=dtype)
    kernel = getattr(compiled.CPU.require(), f"random_block{out.element_size() * 8}")
    kernel(
        seed=seed, draw=draw, plane=plane, first_row=first, rows=rows, cols=cols, scale=scale,
        out=out.data_ptr(), threads=threads,
    )  # fmt: skip
    return out


@pytest.mark.needs("native")
@pytest.mark.parametrize("level", LEVELS)
def test_every_instruction_set_gives_the_same_bits(level, isa):
    isa(level)
    # Around a strip of 32 groups of four columns.
    for cols in [*range(1, 18), 127, 128, 129, 131, 770]:
        expected = random_block(2**63 + 5, 2, 9, 7, 61, cols, CPU)
        for threads in (1, 3):
            got = native_block(2**63 + 5, 2, 9, 7, 61, cols, threads=threads)
            assert torch.equal(got, expected)
        exact = native_block(2**63 + 5, 2, 9, 7, 61, cols, torch.float64, scale=0.25)
        assert torch.equal(exact, expected.double() / 4)


@pytest.mark.needs("native")
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_products_are_those_with_the_block(level, dtype, isa):
    isa(level)
    kernel = getattr(compiled.CPU.require(), f"random_product{torch.finfo(dtype).bits}")
    for texts, cols in ((1, 1), (2, 33), (4, 129), (3, 770)):
        x = torch.randn(texts, cols, dtype=dtype)
        before = torch.randn(texts, 300, dtype=dtype)
        block = random_block(3, 1, 4, 0, 300, cols, CPU).double()
        expected = before.double() + 0.5 * x.double() @ block.mT
        for threads in (1, 2):
            z = before.clone()
            for first, rows in ((0, 300),) if threads == 1 else ((0, 7), (7, 293)):
                kernel(
                    seed=3, draw=1, plane=4, first_row=first, rows=rows, all_rows=300, cols=cols,
                    texts=texts, scale=0.5, x=x.data_ptr(), z=z.data_ptr(), threads=threads,
                )  # fmt: skip
            tolerance = 30 * torch.finfo(dtype).eps * cols**0.5
            assert (z.double() - expected).abs().max() < tolerance


def test_normal_and_independent():
    count, cols = 4000, 130
    V = random_block(1, 0, 0, 0, count, cols, CPU).double()
    size = V.numel()
    assert abs(float(V.mean())) < 4 / size**0.5
    assert abs(float(V.var()) - 1) < 4 * (2 / size) ** 0.5
    assert abs(float((V**3).mean())) < 4 * (15 / size) ** 0.5
    assert abs(float((V**4).mean()) - 3) < 4 * (96 / size) ** 0.5
    sides = torch.special.ndtr(V.flatten().sort().values)
    steps = torch.arange(size, dtype=torch.float64) / size
    assert float((sides - steps).abs().max()) < 1.95 / size**0.5  # Kolmogorov, p = 1e-3
    for other in (
        random_block(2, 0, 0, 0, count, cols, CPU),
        random_block(1, 1, 0, 0, count, cols, CPU),
        random_block(1, 0, 1, 0, count, cols, CPU),
        random_block(1, 0, 0, count, count, cols, CPU),
    ):
        assert abs(float((V * other.double()).mean())) < 4 / size**0.5
    # Columns of one counter, above all: they share a radius or an angle's word.
    between = (V.mT @ V / count).fill_diagonal_(0)
    squares = ((V**2 - 1).mT @ (V**2 - 1) / count / 2).fill_diagonal_(0)
    assert float(between.abs().max()) < 5.5 / count**0.5
    assert float(squares.abs().max()) < 8 / count**0.5
