"""What is compiled runs at every instruction set."""

from __future__ import annotations

from native.conftest import level

__all__ = ["level"]
