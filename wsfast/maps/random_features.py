"""Random features and deep random features of texts, and their weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from wsfast import _inputs, _values
from wsfast._inputs import Inputs, Texts
from wsfast._precision import full_precision, untraced
from wsfast._values import Array
from wsfast.engines import choose
from wsfast.maps.network import Network, checked_activation, layers_of, network_of
from wsfast.maps.random import random_features

# The most features that deep random features have by default: their layers are k × k.
DEEP_FEATURES = 2048

DEFAULT_DEPTH = 3


@untraced
def rf_features(
    X: Texts,
    V: Array | None = None,
    *,
    activation: str | Callable[[Tensor], Tensor] = "relu",
    k: int | None = None,
    draws: int | None = None,
    seed: int = 0,
    backend: str | None = None,
) -> Any:
    """Random features φ(X) = ϕ(V flat(X)).

    Differentiable in `X`, and in `V` where it is given. Random V is never held as a whole: it is
    made in blocks from a counter, used and dropped.

    Parameters
    ----------
    X : Tensor or ndarray, shape (n, d) or (B, n, d), or list of (n_b, d)
        Texts of n words of dimension d. float32 or float64; float16 and bfloat16 are computed and
        returned in float32. Texts of different lengths are a list, and `k` is then needed.
    V : Tensor or ndarray, shape (k, n d) or (R, k, n d), optional
        Weights, in the dtype of `X`. By default random, as `rf_weights` gives for `seed`.
    activation : {"relu", "tanh", "gelu"} or callable, default "relu"
        ϕ, ReLU with the slope 0 at 0; a callable takes and returns tensors of any shape,
        elementwise, with a derivative.
    k : int, optional
        Number of features of random V; by default n d, as in the paper's runs.
    draws : int, optional
        Number R of independent random V; not together with `V`.
    seed : int, default 0
        Of random V, from 0 to 2⁶⁴ - 1.
    backend : {"reference", "torch", "native"}, optional
        V held as a whole; made in blocks by PyTorch; or made in blocks by compiled code. The bits
        of V are the same. By default the fastest that can run.

    Returns
    -------
    Tensor or ndarray, shape (B, R, k)
        The axes B and R only where `X` and `V` or `draws` have them.

    Raises
    ------
    TypeError, ValueError
        For a wrong type, dtype, shape or device, NaN or infinity, an unknown activation, or `V`
        together with `k` or `draws`.

    Notes
    -----
    Equation (3) of Bombari & Mondelli (arXiv 2402.02969); V has entries N(0, 1/(n d)).

    Examples
    --------
    >>> import torch, wsfast
    >>> wsfast.rf_features(torch.randn(5, 8), k=100).shape
    torch.Size([100])
    """
    inputs = _inputs.texts(X)
    network = rf_network(V, inputs, activation, k, draws)
    return _features(inputs, network, seed, backend)


@untraced
def drf_features(
    X: Texts,
    V: Sequence[Array] | None = None,
    *,
    depth: int | None = None,
    activation: str | Callable[[Tensor], Tensor] = "relu",
    k: int | None = None,
    draws: int | None = None,
    seed: int = 0,
    backend: str | None = None,
) -> Any:
    """Deep random features φ(X) = ϕ(V_L ϕ(… V_1 flat(X))), weights scaled after He et al.

    Parameters
    ----------
    X, activation, draws, seed, backend
        As in `rf_features`.
    V : sequence of Tensor or ndarray, optional
        V_1 (k, n d), V_2, …, V_L (k, k), each with a leading axis R or none. By default random, as
        `drf_weights` gives for `seed`.
    depth : int, optional
        L, by default 3; not together with `V`. With 1, `rf_features` times √2 for ReLU.
    k : int, optional
        Width of the layers of random V; by default n d, but at most 2,048.

    Returns
    -------
    Tensor or ndarray, shape (B, R, k)
        The axes B and R only where `X` and `V` or `draws` have them.

    Raises
    ------
    TypeError, ValueError
        As in `rf_features`.

    Notes
    -----
    Section 4 of Bombari & Mondelli (arXiv 2402.02969); entries of V_l are N(0, 2/fan_in).

    Examples
    --------
    >>> import torch, wsfast
    >>> wsfast.drf_features(torch.randn(5, 8), depth=2).shape
    torch.Size([40])
    """
    inputs = _inputs.texts(X)
    network = drf_network(V, inputs, depth, activation, k, draws)
    return _features(inputs, network, seed, backend)


def rf_network(V: Any, inputs: Inputs, activation: Any, k: Any, draws: Any) -> Network:
    """Random features as the user describes them, checked."""
    return network_of(
        None if V is None else [V],
        inputs,
        activation=checked_activation(activation, inputs.device),
        depth=1,
        gain=1.0,
        k=k,
        most=None,
        draws=draws,
    )


def drf_network(V: Any, inputs: Inputs, depth: Any, activation: Any, k: Any, draws: Any) -> Network:
    """Deep random features as the user describes them, checked."""
    if V is not None:
        V = layers_of(V, depth)
        depth = len(V)
    return network_of(
        V,
        inputs,
        activation=checked_activation(activation, inputs.device),
        depth=DEFAULT_DEPTH if depth is None else depth,
        gain=2.0,
        k=k,
        most=DEEP_FEATURES,
        draws=draws,
    )


@full_precision()
def _features(inputs: Inputs, network: Network, seed: Any, backend: str | None) -> Any:
    seed = _values.seed(seed)
    engine = choose.engine(backend, inputs.device, cpu_only=True)
    lengths = [len(text) for text in inputs.texts]
    widths = {network.features(n, inputs.d) for n in lengths}
    if len(widths) > 1:
        raise ValueError(
            f"k must be given for texts of different lengths, got texts of {sorted(set(lengths))} "
            "words and no k"
        )
    rows: dict[int, Tensor] = {}
    for n in sorted(set(lengths)):
        where = [b for b, length in enumerate(lengths) if length == n]
        texts = torch.stack([inputs.texts[b] for b in where])
        if not engine.closed_form:
            texts = texts.double()
        phi = torch.stack(
            [
                random_features(
                    network, n, inputs.d, r, seed=seed, device=inputs.device, engine=engine
                ).features(texts)
                for r in range(network.draws)
            ],
            1,
        ).to(inputs.dtype)
        rows |= dict(zip(where, phi, strict=True))
    out = torch.stack([rows[b] for b in range(len(lengths))])
    out = out if network.has_draws else out[:, 0]
    return inputs.give(out if inputs.batched else out[0])


@untraced
def rf_weights(
    n: int,
    d: int,
    k: int | None = None,
    *,
    draws: int | None = None,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> Tensor:
    """V of random features as one matrix: entries N(0, 1/(n d)), the same bits on every machine.

    Parameters
    ----------
    n, d : int
        Number of words and their dimension.
    k : int, optional
        Number of features; by default n d.
    draws : int, optional
        Number R of independent V; without it, the first alone.
    seed : int, default 0
        From 0 to 2⁶⁴ - 1.
    dtype : torch.dtype, default torch.float32
        float32 or float64: the same normals, drawn in float32, scaled in `dtype`.
    device : torch.device or str, default "cpu"

    Returns
    -------
    Tensor, shape (k, n d) or (R, k, n d)

    Raises
    ------
    TypeError, ValueError
        For a size below 1, or a wrong seed or dtype.

    Examples
    --------
    >>> import wsfast
    >>> wsfast.rf_weights(3, 4, k=10).shape
    torch.Size([10, 12])
    """
    return _weights(n, d, k, 1, 1.0, None, draws, seed, dtype, device)[0]


@untraced
def drf_weights(
    n: int,
    d: int,
    depth: int = DEFAULT_DEPTH,
    k: int | None = None,
    *,
    draws: int | None = None,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> list[Tensor]:
    """V_1, …, V_L of deep random features: entries N(0, 2/fan_in).

    Parameters
    ----------
    n, d, draws, seed, dtype, device
        As in `rf_weights`.
    depth : int, default 3
        L.
    k : int, optional
        Width of the layers; by default n d, but at most 2,048.

    Returns
    -------
    list of Tensor, shapes (k, n d), (k, k), … or (R, k, n d), (R, k, k), …

    Raises
    ------
    TypeError, ValueError
        As in `rf_weights`.

    Examples
    --------
    >>> import wsfast
    >>> [tuple(V.shape) for V in wsfast.drf_weights(3, 4, depth=2)]
    [(12, 12), (12, 12)]
    """
    return _weights(n, d, k, depth, 2.0, DEEP_FEATURES, draws, seed, dtype, device)


def _weights(
    n: Any,
    d: Any,
    k: Any,
    depth: Any,
    gain: float,
    most: int | None,
    draws: Any,
    seed: Any,
    dtype: Any,
    device: Any,
) -> list[Tensor]:
    n, d = _values.integer("n", n, low=1), _values.integer("d", d, low=1)
    seed = _values.seed(seed)
    _values.real_dtype("dtype", dtype)
    network = network_of(
        None,
        None,
        activation=checked_activation("relu", torch.device(device)),
        depth=depth,
        gain=gain,
        k=k,
        most=most,
        draws=draws,
    )
    device = torch.device(device)
    engine = choose.engine(None, device, cpu_only=True)
    of_draws: list[list[Tensor]] = []
    for r in range(network.draws):
        drawn = random_features(network, n, d, r, seed=seed, device=device, engine=engine)
        of_draws.append([drawn.projection.matrix(dtype), *drawn.layers(dtype)])
    layers = [torch.stack(layer) for layer in zip(*of_draws, strict=True)]
    return layers if network.has_draws else [layer[0] for layer in layers]
