"""Texts of sizes that meet every edge of the kernels' tiles."""

from __future__ import annotations

# A tile has 16 rows and 16 words; a warp's columns come in blocks of 16, 128 to a block of threads,
# and kernels hold 128, 384, 768 or 1024 columns; rows are filled up to 4 columns.
WORDS = (1, 2, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 127, 128, 129, 255, 256, 257, 300)
DIMENSIONS = (1, 3, 8, 64, 96, 128, 129, 384, 385, 768, 769, 1000, 1024)


def sampled() -> list[tuple[int, int]]:
    """Pairs (n, d) in which every n and every d occurs; long texts with few dimensions."""
    small = [n for n in WORDS if n <= 33]
    pairs = [(small[k % len(small)], d) for k, d in enumerate(DIMENSIONS)]
    pairs += [(n, DIMENSIONS[k % 5]) for k, n in enumerate(WORDS)]
    return sorted({*pairs, (33, 768), (17, 1024)})
