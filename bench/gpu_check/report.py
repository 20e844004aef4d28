"""What records.jsonl has, on one screen: ``python -m bench.gpu_check.report DIR``.

Needs neither PyTorch nor wsfast: they may not be there.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from .floors import CARDS, ESTIMATES, OURS, Rates

RECORDS, SUMMARY = "records.jsonl", "summary.txt"
VARIABLE = "GPU_CHECK_RECORDS"  # tells a step where they are
LINES = 45
NEXT = 8  # of them for what to do, or more where there is room
NEAR = (0.8, 1.25)  # measured time over the estimate, where the estimate holds
FLOOR_STICK = 0.5
STICK_CASES = ("features n=128", "features n=512", "substitution")

Found = dict[str, list[dict[str, Any]]]


def keep(records: Path, kind: str, **values: Any) -> None:
    """Add a finding in one write: other processes add theirs."""
    with records.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"kind": kind, **values}, ensure_ascii=False) + "\n")


def record(kind: str, **values: Any) -> None:
    """Keep a finding of a step; one that is run by hand prints it."""
    keep(Path(os.environ.get(VARIABLE, "/dev/stdout")), kind, **values)


def main(out: Path) -> int:
    found: Found = defaultdict(list)
    for line in (out / RECORDS).read_text("utf-8").splitlines():
        with contextlib.suppress(json.JSONDecodeError):  # of a line that was cut off
            values = json.loads(line)
            found[values.pop("kind")].append(values)
    facts = next(iter(found["facts"]), {})
    dry_run = facts.get("card", "").startswith("none: ")
    lines = ["DRY RUN ON A CPU: NO FIGURE HERE IS ONE OF A GPU; no stick is checked."] * dry_run
    lines.append("; ".join(f"{name} {value}" for name, value in facts.items()))
    rates = CARDS["H200"]
    for measured in found["rates"]:
        rates = Rates(**measured)
        copy, tf32, float32 = (rate / 1e12 for rate in rates)
        lines.append(f"measured: {copy:.2f} TB/s, TF32 {tf32:.0f}, float32 {float32:.0f} TFLOP/s")
    passed, failed = _steps(found["step"])
    sticks = _sticks(found, rates, dry_run=dry_run)
    missed = [line for line in sticks if line.endswith("MISSED")]
    cases, slow = _cases(found, rates)
    lines += [f"not passed: {len(failed)}; passed: {', '.join(passed)}", "== sticks", *sticks]
    lines += ["== µs: estimated for an H200, measured (share of the floor)", *cases]
    # The most urgent first.
    to_do = [*failed, *missed, *([] if dry_run else slow)] or ["nothing"]
    to_do = to_do[: max(NEXT, LINES - 1 - len(lines))]
    text = "\n".join([*lines[: LINES - 1 - len(to_do)], "== next", *to_do])
    (out / SUMMARY).write_text(text + "\n", "utf-8")
    print(text)
    return 1 if failed or missed else 0


def _steps(steps: list[dict[str, Any]]) -> tuple[list[str], list[str]]:
    """Which passed, and what became of the others."""
    passed, failed = [], []
    for step in steps:
        name, last = step["step"], " ".join(step["last"])
        if step["verdict"] == "passed":
            count = re.search(r"\d+ passed.*(?= in )", last)
            passed.append(f"{name} ({count[0]})" if count else name)
        else:
            told = dict.fromkeys((step["verdict"], "; ".join(step["telling"])[:110], last[:60]))
            failed.append(f"NOT {name}: {'; '.join(filter(None, told))}")
    return passed, failed


def _sticks(found: Found, rates: Rates, *, dry_run: bool) -> list[str]:
    """Figures that have a stick, and whether they meet it."""
    judged = [
        (f"{one['what']}: {one['figure']} ({one['stick']})", one["met"])
        for one in found["figure"]
        if one["stick"]
    ]
    for one in found["time"]:
        case, _, how = one["what"].partition(", ")
        if case in STICK_CASES and how == "in a graph":
            least = sum(one.work.floor(rates)[0] for one in ESTIMATES if one.case == case)
            share = least / one["us"]
            text = f"{case} in a graph: {share:.0%} of its floor (≥ {FLOOR_STICK:.0%})"
            judged.append((text, share >= FLOOR_STICK))
    verdicts = {True: "met", False: "MISSED"}
    return [f"{text} {'not checked' if dry_run else verdicts[met]}" for text, met in judged]


def _cases(found: Found, rates: Rates) -> tuple[list[str], list[str]]:
    """Times of each case, with the verdict on each estimate of csrc/cuda/README.md; the slow."""
    times = {one["what"]: one["us"] for one in found["time"]}
    lines, slow = list[str](), list[tuple[float, str]]()
    for case in dict.fromkeys(one.case for one in ESTIMATES):
        called, replayed = (times.pop(case + how, math.nan) for how in ("", ", in a graph"))
        if called > 1.5 * replayed:
            slow.append((called - replayed, f"{case}: the host takes {called - replayed:.0f} µs"))
        kernels = [one for one in found["kernel"] if one["case"] == case]
        total, launches = (sum(one[name] for one in kernels) for name in ("us", "launches"))
        lines.append(
            f"{case}: called {called:.3g}, in a graph {replayed:.3g}, kernels {total:.3g} "
            f"in {launches:.1f} launches"
        )
        others = {one["kernel"] for one in kernels if re.search(OURS, one["kernel"])}
        for one in (one for one in ESTIMATES if one.case == case and kernels):
            own = [k for k in kernels if re.search(one.kernels, k["kernel"])]
            others -= {k["kernel"] for k in own}
            us = sum(k["us"] for k in own)
            if not us:
                lines.append(f"  {one.what}: {one.us:g}, no kernel {one.kernels!r} was seen")
                continue
            low, high = (limit * one.us for limit in NEAR)
            verdict = "holds" if low <= us <= high else f"×{us / one.us:.2f}"
            share = one.work.floor(rates)[0] / us
            lines.append(f"  {one.what}: {one.us:g}, {us:.3g} ({share:.0%}): {verdict}")
            if us > high:
                slow.append((us - one.us, f"{case}, {one.what}: {us:.0f} µs, not {one.us:g}"))
        if others:
            names = {(re.findall(r"\w+(?=[<(])", name) or [name])[0] for name in others}
            lines.append(f"  without an estimate: {', '.join(sorted(names))}")
    rest = "; ".join(f"{what} {us:.3g}" for what, us in times.items())
    return [*lines, f"others: {rest}"], [text for _, text in sorted(slow, reverse=True)]


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
