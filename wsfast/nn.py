"""Modules of wsfast."""

from wsfast.feature_maps.modules import RandomAttentionFeatures

__all__ = ["RandomAttentionFeatures"]
