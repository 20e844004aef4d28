"""The least time that the kernels can take, and what they are expected to take.

``python -m bench.gpu_check.floors`` writes the table of csrc/cuda/README.md, which report.py
confronts with what was measured. Bytes count each array that has to be there once in and once out.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

README = Path(__file__).resolve().parents[2] / "csrc" / "cuda" / "README.md"
MARKS = ("<!-- floors: python -m bench.gpu_check.floors -->\n", "<!-- end -->")


class Rates(NamedTuple):
    """Ceilings, per second."""

    bytes: float
    tf32: float  # operations of dense products
    float32: float


# By the data sheets.
CARDS = {"H100": Rates(3.35e12, 495e12, 67e12), "H200": Rates(4.8e12, 495e12, 67e12)}


class Work(NamedTuple):
    """What has to be done."""

    numbers: float  # of 4 bytes, read or written
    tf32: float = 0  # operations of products
    float32: float = 0
    instructions: float = 0

    def floor(self, rates: Rates) -> tuple[float, str]:
        """Microseconds, and the ceiling that they come from."""
        return max(
            (4e6 * self.numbers / rates.bytes, "bytes"),
            (1e6 * self.tf32 / rates.tf32, "TF32"),
            (1e6 * self.float32 / rates.float32, "FP32"),
            # Of single lanes: one is two operations where it multiplies and adds.
            (2e6 * self.instructions / rates.float32, "instructions"),
        )


class Estimate(NamedTuple):
    """What some kernels of one case of figures.py should take on an H200."""

    case: str
    what: str
    us: float
    work: Work
    kernels: str = ""  # regular expression of their names


B, D = 8, 768  # texts of features; columns of everything
TILE = 8192  # candidates
OURS, LIBRARY = "wsfast", "^(?!.*wsfast)"
# Of each of eight warps for 16 rows and 16 words of D columns, on sm_90; 456 split floats in two.
TILE_INSTRUCTIONS = 1025


def features(n: int, us: float) -> Estimate:
    """Of φ from queries: words and queries are read, φ is written; a product is three of TF32."""
    # Short texts take one kernel, others two products of a library.
    instructions = TILE_INSTRUCTIONS * 8 * 32 * B * (n / 16) ** 2 if n < 256 else 0.0
    work = Work(3 * B * n * D, tf32=12 * B * n * n * D, instructions=instructions)
    return Estimate(f"features n={n}", "all", us, work)


def ascent(M: int, products: float, forward: float, backward: float, step: float) -> list[Estimate]:
    """A step of M points: three products, three kernels."""
    n, d, case = 128, D, f"ascent M={M}"
    moved = M * (3 * d + 10 * n) + d * (8 * n + d) + n * n
    of_products = Work(moved, float32=2 * M * (8 * n * d + d * d + n * n))
    of_forward = Work(n * (7 * n + d) + M * (8 * n + 2 * d), instructions=M * (150 * n + 6 * d))
    of_backward = Work(4 * M * n, instructions=6 * M * n)
    of_step = Work(n * d + 7 * M * d, instructions=10 * M * d)
    return [
        Estimate(case, "three products", products, of_products, LIBRARY),
        Estimate(case, "forward", forward, of_forward, r"\bforward_kernel"),
        Estimate(case, "backward", backward, of_backward, r"\bbackward_kernel"),
        Estimate(case, "gradient and step", step, of_step, r"\bstep_kernel"),
    ]


def tile(n: int = 128, d: int = D, m: int = TILE) -> list[Estimate]:
    """m candidates at all n positions."""
    between = m * d + 4 * n * d + 4 * n * n + 7 * n * m
    works = {
        "centring": (12, Work(2 * m * d, instructions=3 * m * d), "centre"),
        "products": (140, Work(between, float32=2 * m * (4 * n * d + 2 * n * n)), ""),
        "attention": (16, Work(2 * n * m, instructions=50 * n * m), "attention"),
        "own row and top word": (27, Work(6 * n * m, instructions=170 * n * m), "apart"),
        "all other rows": (54, Work(3 * n * m, instructions=8 * n * n * m), "rows"),
    }
    return [
        Estimate("substitution", what, us, work, rf"\b{kernel}_kernel" if kernel else LIBRARY)
        for what, (us, work, kernel) in works.items()
    ]


ESTIMATES = [
    *(features(64, 7), features(128, 12), features(256, 35), features(512, 88)),
    *(*ascent(128, 14, 3, 3, 3), *ascent(512, 26, 4, 3, 4), *tile()),
]


def table() -> str:
    """The lines of the README."""
    lines = [
        "| case | kernels | MB | 10⁶ operations | H100: µs | H200: µs | binds | estimate | share |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for case, what, us, work, _ in ESTIMATES:
        (h100, _), (h200, binding) = (work.floor(rates) for rates in CARDS.values())
        operations = work.tf32 or work.float32 or work.instructions
        lines.append(
            f"| {case} | {what} | {4 * work.numbers / 1e6:.3g} | {operations / 1e6:,.1f} "
            f"| {h100:.3g} | {h200:.3g} | {binding} | {us:g} | {h200 / us:.0%} |"
        )
    return "\n".join(lines) + "\n"


def with_table(text: str) -> str:
    """A README with the table made anew."""
    before, mark, rest = text.partition(MARKS[0])
    return before + mark + table() + MARKS[1] + rest.partition(MARKS[1])[2]


if __name__ == "__main__":
    README.write_text(with_table(README.read_text("utf-8")), "utf-8")
