"""Names of the feature maps that are studied."""

from __future__ import annotations

from wsfast.attention.weight_fn import WeightFn

ATTENTION = {
    "raf": WeightFn("softmax"),
    "relu_raf": WeightFn("relu"),
    "relu_raf_unnormalized": WeightFn("relu", normalize=False),
}
"""Random attention features, and what makes weights of their scores."""

MAPS = ("rf", "drf", *ATTENTION)
"""Random features, deep random features, random attention features."""
