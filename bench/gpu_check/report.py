"""The summary of what records.jsonl has, on one screen: ``python -m bench.gpu_check.report DIR``.

Needs neither PyTorch nor wsfast: they may not be there.
"""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from .floors import CARDS, ESTIMATES, OURS, Rates

LINES = 45
NEXT = 8  # of them, at most, for what to do
NEAR = (0.8, 1.25)  # measured time over the estimate, where the estimate holds
FLOOR_STICK = 0.5
STICK_CASES = ("features n=128", "features n=512", "substitution")

Found = dict[str, list[dict[str, Any]]]


def main(out: Path) -> int:
    found: Found = defaultdict(list)
    for line in (out / "records.jsonl").read_text("utf-8").splitlines():
        one = json.loads(line)
        found[one["kind"]].append(one)
    lines, to_do, passed = summary(found)
    text = "\n".join([*lines[: LINES - 1 - min(len(to_do), NEXT)], "== next", *to_do[:NEXT]])
    (out / "summary.txt").write_text(text + "\n", "utf-8")
    print(text)
    return 0 if passed else 1


def summary(found: Found) -> tuple[list[str], list[str], bool]:
    """Its lines, what is to be done next, the most urgent first, and whether all is well."""
    facts = {k: v for one in found["facts"] for k, v in one.items() if k != "kind"}
    dry_run = facts.get("card", "").startswith("none: ")
    lines = ["DRY RUN ON A CPU: NO FIGURE HERE IS ONE OF A GPU; no stick is checked."] * dry_run
    lines.append("; ".join(f"{name} {value}" for name, value in facts.items()))
    lines += [
        f"measured: copy {r['bytes'] / 1e12:.2f} TB/s, TF32 {r['tf32'] / 1e12:.0f}, "
        f"float32 {r['float32'] / 1e12:.0f} TFLOP/s"
        for r in found["rates"]
    ]
    steps, urgent = _steps(found)
    sticks, missed = _sticks(found, dry_run=dry_run)
    cases, slow = _cases(found, facts.get("card", ""))
    to_do = [*urgent, *missed, *([] if dry_run else slow)]
    return [*lines, *steps, *sticks, *cases], to_do or ["nothing"], not (urgent or missed)


def _steps(found: Found) -> tuple[list[str], list[str]]:
    lines, urgent, fine = ["== steps"], list[str](), list[str]()
    for step in found["step"]:
        name, verdict, last = step["step"], step["verdict"], " ".join(step["last"])
        if verdict == "passed":
            count = re.search(r"\d+ passed.*(?= in )", last)
            fine.append(f"{name} ({count[0]})" if count else name)
            continue
        told = "; ".join(step["telling"])[:110]
        lines.append(f"NOT {name}: {verdict} ({step['log']}); {last[:60]}")
        urgent.append(f"{name}: {verdict}; {told}")
    return [*lines, "passed: " + ", ".join(fine)], urgent


def _sticks(found: Found, *, dry_run: bool) -> tuple[list[str], list[str]]:
    """Figures that have a stick; floors are those of the rates that were measured."""
    figures = [one for one in found["figure"] if one["stick"]]
    times = {one["what"]: one["us"] for one in found["time"]}
    for case in STICK_CASES:
        us = times.get(f"{case}, in a graph")
        if us is None or not found["rates"]:
            continue
        rates = Rates(*(found["rates"][0][name] for name in Rates._fields))
        least = sum(one.work.floor(rates)[0] for one in ESTIMATES if one.case == case)
        share = least * 1e6 / us
        figures.append(
            {
                "what": f"{case} in a graph, of its floor at the measured rates",
                "figure": f"{share:.0%}",
                "stick": f"≥ {FLOOR_STICK:.0%}",
                "met": None if dry_run else share >= FLOOR_STICK,
            }
        )
    verdicts = {None: "not checked", True: "met", False: "MISSED"}
    lines = [f"{o['what']}: {o['figure']} ({o['stick']}) {verdicts[o['met']]}" for o in figures]
    return ["== sticks", *lines], [
        line for line, one in zip(lines, figures, strict=True) if one["met"] is False
    ]


def _cases(found: Found, card: str) -> tuple[list[str], list[str]]:
    """Times of each case, and the verdict on each estimate of csrc/cuda/README.md."""
    rates = next((rates for name, rates in CARDS.items() if name in card), CARDS["H200"])
    times = {one["what"]: one["us"] for one in found["time"]}
    lines, slow = ["== µs, and share of the floor: estimated (for an H200), measured"], []
    for case in dict.fromkeys(one.case for one in ESTIMATES):
        called, replayed = (times.pop(case + how, None) for how in ("", ", in a graph"))
        kernels = [one for one in found["kernel"] if one["case"] == case]
        if not kernels:
            lines.append(f"{case}: called {_us(called)}, in a graph {_us(replayed)}, not profiled")
            continue
        total, launches = (sum(one[name] for one in kernels) for name in ("us", "launches"))
        lines.append(
            f"{case}: called {_us(called)}, in a graph {_us(replayed)}, kernels {_us(total)} "
            f"in {launches:.1f} launches"
        )
        if called and replayed and called > 1.5 * replayed:
            slow.append((called - replayed, f"{case}: the host takes {called - replayed:.0f} µs"))
        known = set()
        for one in (one for one in ESTIMATES if one.case == case):
            own = [k for k in kernels if re.search(one.kernels, k["kernel"])]
            known |= {k["kernel"] for k in own}
            us, least = sum(k["us"] for k in own), one.work.floor(rates)[0] * 1e6
            text = f"{one.what}: {one.us:g} ({least / one.us:.0%})"
            if not own:
                lines.append(f"  {text}, no kernel {one.kernels!r} was seen")
                continue
            low, high = (limit * one.us for limit in NEAR)
            verdict = "holds" if low <= us <= high else f"×{us / one.us:.2f}"
            lines.append(f"  {text}, {_us(us)} ({least / us:.0%}): {verdict}")
            if us > high:
                slow.append((us - one.us, f"{case}, {one.what}: {us:.0f} µs, not {one.us:g}"))
        others = {k["kernel"] for k in kernels if re.search(OURS, k["kernel"])} - known
        if others:
            lines.append(f"  without an estimate: {', '.join(sorted(map(_short, others)))}")
    rest = "; ".join(f"{what} {_us(us)}" for what, us in times.items())
    return [*lines, f"others: {rest}"], [text for _, text in sorted(slow, reverse=True)]


def _us(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"


def _short(kernel: str) -> str:
    found = re.search(r"(\w+)(?=[<(])", kernel)
    return found[0] if found else kernel[:40]


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
