"""Feature maps as modules: thin over the functions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from wsfast import _values
from wsfast._random import random_weights
from wsfast.engines import choose
from wsfast.maps.attention import weight_function
from wsfast.maps.attention_features import raf_features


class RandomAttentionFeatures(nn.Module):
    """Random attention features φ(X) = g(X W Xᵀ/√d) X, with W a buffer.

    Parameters
    ----------
    d : int
        Dimension of the words.
    draws : int, optional
        Number R of independent W; without it W is (d, d).
    weight_fn, normalize, backend
        As in `raf_features`.
    seed : int, default 0
        Of W, as in `random_weights`.
    dtype : torch.dtype, optional
        Of W, float32 or float64; by default PyTorch's default dtype, or float32 where that is half
        precision, in which nothing is computed.
    device : torch.device or str, optional
        Of W; by default PyTorch's default device.

    Attributes
    ----------
    W : Tensor, shape (d, d) or (R, d, d)
        A buffer: in the state_dict, moved by ``.to``, not trained.

    Notes
    -----
    Equation (4) of Bombari & Mondelli (arXiv 2402.02969).

    Examples
    --------
    >>> import torch, wsfast
    >>> wsfast.nn.RandomAttentionFeatures(8)(torch.randn(2, 5, 8)).shape
    torch.Size([2, 5, 8])
    """

    W: Tensor

    def __init__(
        self,
        d: int,
        *,
        draws: int | None = None,
        weight_fn: str = "softmax",
        normalize: bool = True,
        seed: int = 0,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        backend: str | None = None,
    ) -> None:
        super().__init__()
        weight_function(weight_fn, normalize)
        choose.check_name(backend)
        self.d = d
        self.weight_fn = weight_fn
        self.normalize = normalize
        self.backend = backend
        if dtype is None:
            default = torch.get_default_dtype()
            dtype = torch.float32 if default in _values.HALF else default
        # Older PyTorch's get_default_device does not see a device used as a context.
        where = torch.empty(0).device if device is None else device
        W = random_weights(d, draws=draws, seed=seed, dtype=dtype, device=where)
        self.register_buffer("W", W)

    def forward(self, X: Tensor, mask: Tensor | None = None) -> Any:
        """φ(X) (B, R, n, d) of X (n, d) or (B, n, d), as `raf_features` gives it."""
        return raf_features(
            X,
            self.W,
            weight_fn=self.weight_fn,
            normalize=self.normalize,
            mask=mask,
            backend=self.backend,
        )

    def extra_repr(self) -> str:
        return f"d={self.d}, weight_fn={self.weight_fn!r}, normalize={self.normalize}"
