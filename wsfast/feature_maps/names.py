"""Names of the feature maps that are studied."""

from __future__ import annotations

MAPS = ("rf", "drf", "raf", "relu_raf", "relu_raf_unnormalized")
"""Random features, deep random features, random attention features (softmax, ReLU)."""
