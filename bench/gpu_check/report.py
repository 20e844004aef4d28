"""Completes figures.json with how the stages went, and prints the short table.

``python report.py OUT STAGES``: STAGES has a line "stage<TAB>verdict<TAB>seconds" for each. Exits
with 1 where a stage or a stick failed. Needs neither PyTorch nor wsfast: they may not be there.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

FINE = ("passed", "left out")  # the latter was asked for


def main(out: Path, stages: Path) -> int:
    path = out / "figures.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    rows = [line.split("\t") for line in stages.read_text().splitlines()]
    found["stages"] = [
        {"stage": stage, "verdict": verdict, "seconds": int(seconds)}
        for stage, verdict, seconds in rows
    ]
    failed = [f"stage {stage}: {verdict}" for stage, verdict, _ in rows if verdict not in FINE]
    # On the CPU a stick says nothing, and none is checked.
    failed += [
        f"{row['operation']}, {row['case']}, against {row['against']}: {row['figure']}"
        f" ({row['stick']})"
        for row in found.get("figures", [])
        if row["met"] is False
    ]
    failed += [f"{name}: {error}" for name, error in found.get("errors", {}).items()]
    found["failed"] = failed
    path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")

    print("\n== stages")
    for stage, verdict, seconds in rows:
        print(f"{stage:<12} {seconds:>4} s  {verdict}")
    if "facts" in found:
        print("\n== figures: time of wsfast / time of the other, medians; share of the floor")
        if found["dry_run"]:
            print("DRY RUN ON A CPU: NO FIGURE HERE IS ONE OF A GPU; no stick is checked.")
        print(", ".join(f"{name} {value}" for name, value in found["facts"].items()))
        print(", ".join(f"{name} {value:.4g}" for name, value in found["rates"].items()))
        for row in found["figures"]:
            verdict = {None: "", True: "met", False: "NOT MET"}[row["met"]]
            cells = [row["operation"], row["case"], row["against"], row["figure"], row["stick"]]
            print(" | ".join([*cells, verdict]))
    print(f"\n== {len(failed)} failed")
    for line in failed:
        print(line)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
