"""Compiled kernels between the matrix products, for CUDA devices."""

from __future__ import annotations

import torch
from torch import Tensor

from wsfast.engines.ascent_kernels import OfWordsByGram
from wsfast.engines.features import FeatureOptions, by_tiles, fused_columns, fused_features
from wsfast.engines.native import Native

# Below so many words, by number of dimensions, one kernel for all of the features in float32 is
# faster than two products and a kernel between: by estimate, until it is measured.
FUSED_BELOW = {128: 256, 384: 256, 768: 256, 1024: 256}

TILE_BYTES = 1 << 26
"""Of the scores of one tile: enough for all of a device, and little of its memory."""


class Cuda(Native):
    """Kernels of the module `_cuda`."""

    waits = False
    of_words = OfWordsByGram

    def features(self, X: Tensor, queries: Tensor, given: FeatureOptions) -> Tensor:
        n, d = X.shape[-2:]
        single = X.dtype == torch.float32
        words = next((words for most, words in FUSED_BELOW.items() if d <= most), 0)
        if single and not given.causal and n < words and d <= fused_columns(X.device):
            return fused_features(X, queries, given.weight_fn, given.mask, d**-0.5)
        return by_tiles(X.contiguous(), queries, given, TILE_BYTES // X.itemsize, split=single)


CUDA = Cuda()
