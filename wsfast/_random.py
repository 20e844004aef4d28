"""Random numbers that are the same bits on every machine and device.

Bits come from Philox4x64-10 (Salmon et al., SC 2011), a counter-based generator, keyed by (seed,
stream); normals by Wichura's AS 241 inverse of the normal distribution, of which every operation,
the logarithm included, is built from IEEE additions, multiplications, divisions and square roots.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wsfast import _values
from wsfast._precision import untraced
from wsfast.engines import compiled

# Streams below 2^63 are the draws of W; the search has its own.
START_STREAM = 1 << 63
NORM_STREAM = START_STREAM + 1
# And from here on one for each draw of a Gaussian text.
TEXT_STREAM = START_STREAM + (1 << 62)

# Numbers made at a time: their arrays stay in the cache, and Ctrl-C is answered between blocks.
_BLOCK = 1 << 16

_CENTRAL = (
    (2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4,
     4.5921953931549871457e4, 1.3731693765509461125e4, 1.9715909503065514427e3,
     1.3314166789178437745e2, 3.3871328727963666080e0),
    (5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4,
     2.1213794301586595867e4, 5.3941960214247511077e3, 6.8718700749205790830e2,
     4.2313330701600911252e1, 1.0),
)  # fmt: skip
_MIDDLE = (
    (7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1,
     1.27045825245236838258e0, 3.64784832476320460504e0, 5.76949722146069140550e0,
     4.63033784615654529590e0, 1.42343711074968357734e0),
    (1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2,
     1.48103976427480074590e-1, 6.89767334985100004550e-1, 1.67638483018380384940e0,
     2.05319162663775882187e0, 1.0),
)  # fmt: skip
_FAR = (
    (2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3,
     2.65321895265761230930e-2, 2.96560571828504891230e-1, 1.78482653991729133580e0,
     5.46378491116411436990e0, 6.65790464350110377720e0),
    (2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5,
     7.86869131145613259100e-4, 1.48753612908506148525e-2, 1.36929880922735805310e-1,
     5.99832206555887937690e-1, 1.0),
)  # fmt: skip


def _ratio(
    x: NDArray[np.float64], coefficients: tuple[tuple[float, ...], tuple[float, ...]]
) -> NDArray[np.float64]:
    sides: list[NDArray[np.float64]] = []
    for side in coefficients:
        value = np.full_like(x, side[0])
        for c in side[1:]:
            value = value * x + c
        sides.append(value)
    quotient: NDArray[np.float64] = sides[0] / sides[1]
    return quotient


def _log(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Natural logarithm; the C library's differs between machines in the last bit."""
    mantissa, exponent = np.frexp(x)
    low = mantissa < 0.7071067811865476
    mantissa, exponent = np.where(low, 2 * mantissa, mantissa), exponent - low
    z = (mantissa - 1) / (mantissa + 1)
    z2 = z * z
    series = np.zeros_like(z)
    for k in range(23, 0, -2):
        series = series * z2 + 1.0 / k
    value: NDArray[np.float64] = exponent * 0.6931471805599453 + 2 * (z * series)
    return value


def _inverse_normal(u: NDArray[np.float64]) -> NDArray[np.float64]:
    q = u - 0.5
    out = q * _ratio(0.180625 - q * q, _CENTRAL)
    tail = np.abs(q) > 0.425
    qt = q[tail]
    r = np.sqrt(-_log(np.where(qt < 0, u[tail], 1.0 - u[tail])))
    value = np.where(r <= 5.0, _ratio(r - 1.6, _MIDDLE), _ratio(r - 5.0, _FAR))
    out[tail] = np.where(qt < 0, -value, value)
    return out


def normals(seed: int, stream: int, count: int) -> NDArray[np.float64]:
    """The first `count` normals of the stream (seed, stream)."""
    out = np.empty(count)
    for first, values in _in_blocks(seed, stream, count):
        out[first : first + len(values)] = values
    return out


def _in_blocks(seed: int, stream: int, count: int) -> Iterator[tuple[int, NDArray[np.float64]]]:
    """The normals of a stream in blocks, each with the number of its first."""
    source = np.random.Philox(key=np.array([seed, stream], dtype=np.uint64))
    for first in range(0, count, _BLOCK):
        yield first, _normals_of(source.random_raw(min(_BLOCK, count - first)))


def _normals_of(bits: NDArray[np.uint64]) -> NDArray[np.float64]:
    """A normal of each 64 bits; ``csrc/cpu/random.inl`` computes the same, sooner."""
    if compiled.CPU.module is None:
        # The middle of one of 2^52 cells of (0, 1): neither end, and symmetric about 1/2.
        return _inverse_normal(((bits >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52)
    out = np.empty(len(bits))
    compiled.CPU.module.inverse_normals(
        count=len(bits),
        bits=bits.ctypes.data,
        out=out.ctypes.data,
        threads=torch.get_num_threads(),
    )
    return out


def weights_of_draw(
    d: int,
    *,
    seed: int,
    draw: int,
    dtype: torch.dtype,
    device: torch.device | str,
    out: Tensor | None = None,
) -> Tensor:
    """W (d, d) of one draw, as `random_weights` gives it; in `out`, if that is given."""
    W = torch.empty(d, d, dtype=dtype, device=device) if out is None else out
    flat = W.view(-1)
    for first, values in _in_blocks(seed, draw, d * d):
        flat[first : first + len(values)] = torch.from_numpy(values / np.sqrt(d)).to(dtype)
    return W


@untraced
def random_weights(
    d: int,
    *,
    draws: int | None = None,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> Tensor:
    """Random attention weights: entries N(0, 1/d), the same bits on every machine and device.

    Draw r is the stream (seed, r) of Philox4x64-10, so it does not depend on how many draws are
    asked for.

    Parameters
    ----------
    d : int
        Dimension of the words, at least 1.
    draws : int, optional
        Number of independent draws R; without it, the first draw alone.
    seed : int, default 0
        From 0 to 2⁶⁴ - 1.
    dtype : torch.dtype, default torch.float32
        float32 or float64; float32 is the float64 draw, rounded.
    device : torch.device or str, default "cpu"

    Returns
    -------
    Tensor, shape (d, d) or (R, d, d)

    Raises
    ------
    TypeError, ValueError
        For a `d`, `draws`, `seed` or `dtype` outside of these.

    Notes
    -----
    The law of W in Bombari & Mondelli (arXiv 2402.02969), section 3.

    Examples
    --------
    >>> import wsfast
    >>> wsfast.random_weights(4, draws=3).shape
    torch.Size([3, 4, 4])
    """
    d = _values.integer("d", d, low=1)
    seed = _values.seed(seed)
    _values.real_dtype("dtype", dtype)
    count = 1 if draws is None else _values.integer("draws", draws, low=1)
    W = torch.empty(count, d, d, dtype=dtype, device=device)
    for r, one in enumerate(W):
        weights_of_draw(d, seed=seed, draw=r, dtype=dtype, device=device, out=one)
    return W[0] if draws is None else W
