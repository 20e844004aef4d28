"""What the machine code of a kernel must and must not contain."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from pathlib import Path

# Instructions that a kernel is written for, by its short name. Every line must fit some kernel.
MEANT = {
    # Tensor cores; tiles copied and features written 16 bytes at a time, words read as pairs.
    r"features_kernel<float, ": ("HMMA.*TF32", "LDGSTS.*128", "STG.*128"),
    r"features_kernel<float, float, ": ("LDS.64",),
    r"features_kernel<double, ": ("DMMA", "LDGSTS.*128", "LDS.128", "STG.*128"),
    # Rows of d numbers, where they are aligned.
    r"forward_kernel<": ("LDG.*128",),
    r"(own_row|gradient|step)_kernel<\d+, [24], ": ("LDG.*128", "STG.*128"),
    # Pairs come 16 bytes at a time, what a row and a lane's two candidates share as two numbers.
    r"rows_kernel<.*float>": ("LDGSTS.*128", "LDS.128", "LDS.64"),
    r"rows_kernel<.*double>": ("LDGSTS.*128", "LDS.128"),
}
LOCAL_MEMORY = re.compile(r"(LDL|STL)\b")
DOUBLE_PRECISION = re.compile(r"(DADD|DMUL|DFMA|DMMA|DSETP|DMNMX)\b|.*\.F64\b|MUFU\..*64H\b")

_SECTION = re.compile(r"^\s*\.section\s+\.text\.([^,\s]+)")
_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)")


def disassemble(nvdisasm: str, cubin: Path) -> str:
    """The machine code of all kernels of a file."""
    done = subprocess.run([nvdisasm, "-c", str(cubin)], capture_output=True, text=True, check=True)
    return done.stdout


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
