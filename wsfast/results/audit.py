"""What :meth:`wsfast.corpus.Corpus.audit` returns."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from wsfast._files import write_whole
from wsfast.results.shown import shown_by


@dataclass(frozen=True)
class Verdict:
    """What became of one rule.

    Attributes
    ----------
    rule : str
        As it was given.
    passed : bool
    value : str
        What the left side of its comparison came to, or the rule where it is none.
    note : str
        What the rule does not show; "" where there is nothing to say.
    """

    rule: str
    passed: bool
    value: str
    note: str = ""


@dataclass(frozen=True)
class Paired:
    """A value of the texts in two runs, text by text.

    Attributes
    ----------
    name : str
        Column.
    texts : int
        How many texts have it in both.
    before, after : float
        Means.
    difference, low, high : float
        Mean of after - before, and its 95 % interval over texts (Student t; NaN of one text).
    rose, fell : int
        Texts where it is larger now, and smaller.
    layer, head : int, optional
        Of the value of a head.
    same : bool
        Whether it differs by no more than rounding in all texts.
    """

    name: str
    texts: int
    before: float
    after: float
    difference: float
    low: float
    high: float
    rose: int
    fell: int
    same: bool
    layer: int | None = None
    head: int | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Audit:
    """What :meth:`wsfast.corpus.Corpus.audit` found; ``print`` shows it.

    Attributes
    ----------
    path : Path
        The corpus.
    baseline : Path, optional
        The one that it was compared with.
    model, base_model : str
        Models of the two; "" without a baseline.
    rows, errors : int
        How many texts the corpus has, and how many of them have an error.
    verdicts : list of Verdict
        One for each rule.
    columns : list of Paired
        Values of texts in both runs.
    heads : list of Paired
        Values of the heads in both, by layer and head.
    """

    path: Path
    baseline: Path | None
    model: str
    base_model: str
    rows: int
    errors: int
    verdicts: list[Verdict]
    columns: list[Paired]
    heads: list[Paired]

    @property
    def passed(self) -> bool:
        """Whether every rule holds."""
        return all(verdict.passed for verdict in self.verdicts)

    @property
    def changed_heads(self) -> list[Paired]:
        """Heads that differ in the first layer where any does.

        Those of later layers read what these have changed, and tell nothing of their own weights.
        """
        changed = [head for head in self.heads if not head.same]
        first = min((head.layer or 0 for head in changed), default=None)
        return [head for head in changed if head.layer == first]

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write a page that shows it offline; it is replaced as a whole."""
        write_whole(Path(path), shown_by("audit").to_html(self).encode())

    def to_junit(self, path: str | os.PathLike[str]) -> None:
        """Write JUnit XML as Jenkins reads it, a test case for each rule; replaced as a whole."""
        write_whole(Path(path), shown_by("audit").to_junit(self))

    def __str__(self) -> str:
        return shown_by("audit").to_text(self)

    def __repr__(self) -> str:
        failed = sum(not verdict.passed for verdict in self.verdicts)
        return f"Audit of {str(self.path)!r}: {len(self.verdicts)} rules, {failed} failed"
