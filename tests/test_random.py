"""random_weights: the same bits on every machine, and normal."""

from __future__ import annotations

import hashlib
import math

import numpy as np
import pytest
import torch

from wsfast import _random, random_weights
from wsfast._random import START_STREAM, normals

_MASK = 2**64 - 1


def philox(counter: list[int], key: list[int]) -> list[int]:
    """One block of Philox4x64-10, from the paper that defines it (Salmon et al., SC 2011)."""
    (c0, c1, c2, c3), (k0, k1) = counter, key
    for _ in range(10):
        p0, p1 = 0xD2E7470EE14C6C93 * c0, 0xCA5A826395121157 * c2
        c0, c1, c2, c3 = (p1 >> 64) ^ c1 ^ k0, p1 & _MASK, (p0 >> 64) ^ c3 ^ k1, p0 & _MASK
        k0, k1 = (k0 + 0x9E3779B97F4A7C15) & _MASK, (k1 + 0xBB67AE8584CAA73B) & _MASK
    return [c0, c1, c2, c3]


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        (
            [0, 0, 0, 0],
            [0, 0],
            [0x16554D9ECA36314C, 0xDB20FE9D672D0FDC, 0xD7E772CEE186176B, 0x7E68B68AEC7BA23B],
        ),
        (
            [0x243F6A8885A308D3, 0x13198A2E03707344, 0xA4093822299F31D0, 0x082EFA98EC4E6C89],
            [0x452821E638D01377, 0xBE5466CF34E90C6C],
            [0xA528F45403E61D95, 0x38C72DBD566E9788, 0xA5A1610E72FD18B5, 0x57BD43B5E52B7FE6],
        ),
    ],
)
def test_known_answers_of_random123(counter, key, expected):
    assert philox(counter, key) == expected
    # NumPy counts up before a block, so counter c is its c - 1.
    before = (sum(word << (64 * k) for k, word in enumerate(counter)) - 1) % 2**256
    generator = np.random.Philox(key=np.array(key, dtype=np.uint64), counter=before)
    assert generator.random_raw(4).tolist() == expected


@pytest.mark.parametrize("seed", [0, 12345, 2**64 - 1])
@pytest.mark.parametrize("stream", [0, 7, START_STREAM])
def test_normals_are_those_of_the_blocks_from_counter_one(seed, stream):
    bits = [word for block in range(1, 4) for word in philox([block, 0, 0, 0], [seed, stream])]
    # The upper 52 bits are a cell of (0, 1), whose middle is the probability of less than x.
    for word, x in zip(bits, normals(seed, stream, 12), strict=True):
        assert 0.5 * math.erfc(-x / math.sqrt(2)) == pytest.approx(
            ((word >> 12) + 0.5) / 2**52, rel=1e-13, abs=0
        )


def test_first_values():
    expected = [
        "-0x1.22cd198aad6f0p+1",
        "-0x1.67147405be6f1p-1",
        "-0x1.380f15f728cdfp+0",
        "0x1.4c209a0cbd7dap-3",
    ]
    assert [float.hex(x) for x in normals(0, 0, 4).tolist()] == expected
    W = random_weights(4, dtype=torch.float64)
    assert (2 * W[0]).tolist() == [float.fromhex(x) for x in expected]


@pytest.mark.parametrize(
    ("options", "digest"),
    [
        (
            {"dtype": torch.float64},
            "da1237e103616058d1455e87c67909bb3a875be06861526737ff3dddf0b833de",
        ),
        (
            {"dtype": torch.float32},
            "ad19b82d555d78a81077036d782ee740d4d105d316c4d1f55a321a5a9345a489",
        ),
        (
            {"dtype": torch.float64, "draws": 3, "seed": 2**64 - 1},
            "8a4944937920c0d75627c2ad93c0b3bfa33f1657adcf6e1ab901e90d34a923cb",
        ),
    ],
)
def test_every_bit(options, digest):
    values = random_weights(64, **options).numpy()
    little_endian = values.astype(values.dtype.newbyteorder("<"))
    assert hashlib.sha256(little_endian.tobytes()).hexdigest() == digest


@pytest.mark.parametrize(
    ("u", "x"),
    [
        (0.5, 0.0),
        (0.75, 0.6744897501960817),
        (0.9, 1.2815515655446004),
        (0.975, 1.959963984540054),
        (0.001, -3.090232306167813),
        (1e-10, -6.361340902404056),
        (2.0**-53, -8.209536151601387),
    ],
)
def test_normal_quantiles(u, x):
    got = float(_random._inverse_normal(np.array([u]))[0])
    assert got == pytest.approx(x, rel=2e-15, abs=1e-16)


def test_quantile_is_the_inverse_of_the_distribution_and_odd():
    u = np.concatenate([10.0 ** -np.arange(1, 16), np.linspace(1e-3, 0.5, 500)])
    x = _random._inverse_normal(u)
    back = [0.5 * math.erfc(-value / math.sqrt(2)) for value in x]
    np.testing.assert_allclose(back, u, rtol=4e-14)
    assert bool((np.diff(_random._inverse_normal(np.linspace(1e-9, 1 - 1e-9, 9999))) > 0).all())
    half = u[u > 1e-12]
    np.testing.assert_allclose(
        _random._inverse_normal(1 - half), -_random._inverse_normal(half), rtol=1e-4
    )


def test_logarithm():
    x = np.concatenate([2.0 ** -np.arange(1, 60), np.linspace(1e-6, 2, 999)])
    expected = np.array([math.log(value) for value in x])
    assert float(np.abs(_random._log(x) - expected).max()) <= 1e-14
    near = np.abs(expected) < 2
    assert float(np.abs(_random._log(x) - expected)[near].max()) <= 5e-16


@pytest.mark.needs("native")
def test_compiled_normals_have_the_bits_of_numpy():
    bits = np.random.Philox(key=np.array([3, 5], dtype=np.uint64)).random_raw(200_000)
    ends = [0, 1 << 12, 1 << 25, 1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]
    bits = np.concatenate([bits, np.array(ends, dtype=np.uint64)])
    cells = ((bits >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
    assert np.array_equal(_random._normals_of(bits), _random._inverse_normal(cells))


def test_distribution():
    d = 200
    W = random_weights(d, draws=3, seed=1, dtype=torch.float64)
    x = (W * math.sqrt(d)).flatten()
    n = len(x)
    assert abs(float(x.mean())) < 4 / math.sqrt(n)
    assert abs(float(x.var()) - 1) < 4 * math.sqrt(2 / n)
    assert abs(float((x**3).mean())) < 4 * math.sqrt(15 / n)
    assert abs(float((x**4).mean()) - 3) < 4 * math.sqrt(96 / n)
    # Kolmogorov-Smirnov, at a level of 1 in 1000.
    below = 0.5 * torch.special.erfc(-x.sort().values / math.sqrt(2))
    steps = torch.arange(n + 1, dtype=torch.float64) / n
    distance = max(float((steps[1:] - below).max()), float((below - steps[:-1]).max()))
    assert distance * math.sqrt(n) < 1.95
    # Neighbours, rows, draws and seeds know nothing of one another.
    other = random_weights(d, draws=3, seed=2, dtype=torch.float64)
    pairs = [(x[:-1], x[1:]), (x[:-d], x[d:]), (W[0], W[1]), (W[0], W[0].T.triu(1)), (W, other)]
    for one, two in pairs:
        one, two = one.flatten(), two.flatten()
        limit = 4.5 / math.sqrt(int((two != 0).sum()))
        correlation = float((one * two).sum() / (one.norm() * two.norm()))
        assert abs(correlation) < limit


def test_draws_do_not_depend_on_how_many_there_are():
    three = random_weights(5, draws=3, seed=8)
    assert three.shape == (3, 5, 5)
    assert torch.equal(random_weights(5, draws=1, seed=8), three[:1])
    assert torch.equal(random_weights(5, seed=8), three[0])
    assert not torch.equal(three[0], three[1])
    assert not torch.equal(random_weights(5, seed=9), three[0])


def test_dtypes():
    W = random_weights(6, dtype=torch.float64)
    assert W.dtype == torch.float64
    assert random_weights(6).dtype == torch.float32
    assert torch.equal(random_weights(6), W.float())
    assert random_weights(1).shape == (1, 1)
    assert random_weights(3, device="meta").device.type == "meta"


def test_global_generators_are_untouched(untouched):
    with untouched():
        random_weights(7, draws=2)
        normals(0, START_STREAM, 10)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"d": 0}, ValueError, "d must be at least 1, got 0"),
        ({"d": 2.0}, TypeError, "d must be an integer, got 2.0"),
        ({"d": True}, TypeError, "d must be an integer, got True"),
        ({"d": 2, "draws": 0}, ValueError, "draws must be at least 1, got 0"),
        ({"d": 2, "seed": -1}, ValueError, "seed must be from 0 to 18446744073709551615, got -1"),
        ({"d": 2, "seed": 2**64}, ValueError, "seed must be from 0 to"),
        ({"d": 2, "seed": None}, TypeError, "seed must be an integer, got None"),
        ({"d": 2, "dtype": torch.float16}, TypeError, "dtype must be torch.float32 or torch.fl"),
        ({"d": 2, "dtype": "float32"}, TypeError, "dtype must be .*, got 'float32'"),
    ],
)
def test_wrong_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        random_weights(**arguments)
