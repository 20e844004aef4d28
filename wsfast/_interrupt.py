"""How long Ctrl-C has to wait: as long as one call into PyTorch or into a kernel lasts."""

from __future__ import annotations

# Multiply-adds of one call: some tenths of a second of one core.
AT_ONCE = 1 << 32


def rows_at_once(each: int) -> int:
    """How many rows, or texts, of `each` multiply-adds one call should take at most."""
    return max(1, AT_ONCE // each)
