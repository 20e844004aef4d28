"""What the machine code of a kernel must and must not contain."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from pathlib import Path

# Instructions that a kernel is written for, by its short name. Every line must fit some kernel.
MEANT = {
    # Tensor cores; tiles copied and features written 16 bytes at a time, words read as pairs.
    r"features_kernel<": ("HMMA.*TF32", "LDGSTS.*128", "STG.*128", "LDS.64"),
    # Rows of d numbers.
    r"(forward|own_row)_kernel<": ("LDG.*128",),
    r"step_kernel<": ("LDG.*128", "STG.*128"),
    # Pairs come 16 bytes at a time, what a row and a lane's two candidates share as two numbers.
    r"rows_kernel<.*float>": ("LDGSTS.*128", "LDS.128", "LDS.64"),
    r"rows_kernel<.*double>": ("LDGSTS.*128", "LDS.128"),
}
# The most instructions of a warp for the products of one tile of words: of scores and of values.
MOST_FOR_A_TILE = {"features_kernel<6>": 850}
LOCAL_MEMORY = re.compile(r"(LDL|STL)\b")
DOUBLE_PRECISION = re.compile(r"(DADD|DMUL|DFMA|DMMA|DSETP|DMNMX)\b|.*\.F64\b|MUFU\..*64H\b")

_SECTION = re.compile(r"^\s*\.section\s+\.text\.([^,\s]+)")
_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)(.*)")
_LABEL = re.compile(r"^(\.L\w+):")
_PRODUCT = "HMMA"


def disassemble(nvdisasm: str, cubin: Path) -> str:
    """The machine code of all kernels of a file."""
    done = subprocess.run([nvdisasm, "-c", str(cubin)], capture_output=True, text=True, check=True)
    return done.stdout


def products_of_a_tile(text: str) -> dict[str, int]:
    """Instructions for the products of one turn of the loop that has them, by mangled name.

    Those from one label or branch to the next count where tensor cores are among them; the loop is
    what lies between a branch backwards and its target.
    """
    found = {}
    for section in re.split(r"(?m)^(?=\s*\.section\s+\.text\.)", text)[1:]:
        stretches, labels, loop = [0], {}, None
        with_products: set[int] = set()
        for line in section.splitlines():
            if label := _LABEL.match(line):
                labels[label[1]] = len(stretches)
                stretches.append(0)
            elif instruction := _INSTRUCTION.match(line):
                stretches[-1] += 1
                if instruction[1].startswith(_PRODUCT):
                    with_products.add(len(stretches) - 1)
                if instruction[1].startswith("BRA"):
                    target = re.search(r"\.L\w+", instruction[2])
                    first = labels.get(target[0]) if target else None
                    inside = range(first or len(stretches), len(stretches))
                    if loop is None and with_products.intersection(inside):
                        loop = inside
                    stretches.append(0)
        if loop is not None:
            mangled = _SECTION.match(section)
            assert mangled is not None
            found[mangled[1]] = sum(stretches[k] for k in with_products.intersection(loop))
    return found


def too_many_for_a_tile(kernels: set[str], products: dict[str, int]) -> list[str]:
    """Faults of kernels whose loop has no products, or more instructions for them than it may."""
    return [
        f"{name}: {products.get(name, 0)} instructions for the products of a tile, not 1 to {most}"
        for name, most in MOST_FOR_A_TILE.items()
        if name in kernels and not 0 < products.get(name, 0) <= most
    ]


def opcodes(text: str) -> dict[str, Counter[str]]:
    """How often each kernel, by its mangled name, has each instruction."""
    found: dict[str, Counter[str]] = {}
    kernel: Counter[str] = Counter()
    for line in text.splitlines():
        if section := _SECTION.match(line):
            kernel = found.setdefault(section[1], Counter())
        elif instruction := _INSTRUCTION.match(line):
            kernel[instruction[1]] += 1
    return found


def faults(kernel: str, codes: Counter[str], double: bool) -> list[str]:
    """What is wrong with the instructions of a kernel."""
    if not codes:
        return ["no instructions were found"]
    banned = {"local memory": LOCAL_MEMORY}
    if not double:
        banned["double precision"] = DOUBLE_PRECISION
    wrong = []
    for what, pattern in banned.items():
        if there := sorted(code for code in codes if pattern.match(code)):
            wrong.append(f"{what}: {', '.join(there)}")
    meant = [code for fits, wanted in MEANT.items() if re.match(fits, kernel) for code in wanted]
    wrong += [
        f"no instruction {code}" for code in meant if not any(re.match(code, c) for c in codes)
    ]
    return wrong
