"""Modules of wsfast."""

from wsfast.maps.modules import RandomAttentionFeatures

__all__ = ["RandomAttentionFeatures"]
