"""The report of a reproduction, in Markdown."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from wsfast._files import write_whole
from wsfast.reproduce.claims import Claim
from wsfast.studies.assemble import versions

PAPER = (
    "S. Bombari, M. Mondelli, *Towards Understanding the Word Sensitivity of Attention Layers: A "
    "Study via Random Features*, ICML 2024, [arXiv 2402.02969](https://arxiv.org/abs/2402.02969)"
)


def write(
    folder: Path,
    title: str,
    *,
    claims: Sequence[Claim],
    notes: Sequence[str],
    figure: str,
    table: str,
    files: Sequence[str],
    settings: dict[str, Any],
    command: str,
    seconds: float,
    about: str = f"Of: {PAPER}.",
) -> None:
    """Write report.md.

    `notes` are paragraphs, `figure` is the name of a PNG file, `table` a table in Markdown, `files`
    all that was written beside the report, `seconds` how long this run took, `about` a paragraph
    that says whose claims these are.
    """
    facts = {**settings, **versions(), "CPU": _cpu(), "threads": torch.get_num_threads()}
    parts = [
        f"# {title}",
        about,
        "## Claims",
        markdown(
            ("source", "claim", "measured, 95 % interval", "verdict"), [tuple(c) for c in claims]
        ),
        *notes,
        f"![{title}]({figure})",
        "## Figures in numbers",
        table,
        "## Settings",
        f"    {command}",
        markdown(("setting", "value"), list(facts.items())),
        f"Files: {', '.join(f'[{name}]({name})' for name in files)}.",
        f"This run took {seconds:.0f} s; cells that an earlier run had finished are not counted.",
    ]
    write_whole(folder / "report.md", ("\n\n".join(parts) + "\n").encode())


def markdown(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)


def _cell(value: object) -> str:
    if value is None:
        return ""
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return text.replace("|", "\\|").replace("\n", " ")


def _cpu() -> str:
    """Name of the processor, as the system gives it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
