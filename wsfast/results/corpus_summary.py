"""What :meth:`wsfast.corpus.Corpus.summary` returns."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from wsfast import _values
from wsfast._extras import import_extra
from wsfast._files import whole_file
from wsfast.results.shown import shown_by

if TYPE_CHECKING:
    from pandas import DataFrame


OF_LENGTH = 32
"""Tokens that make a class of length."""


@dataclass(frozen=True)
class Group:
    """Values of one word, position, length or label.

    Attributes
    ----------
    key : str or int
        Which one: a word in small letters; a position from 0; the least number of tokens of a class
        of 32; a label.
    texts : int
        How many texts have such values.
    count : int
        How many values there are.
    mean : float
        Mean over the texts of the mean within a text.
    low, high : float
        Ends of its 95 % interval over texts (Student t); NaN of one text.
    least, q05, median, q95, largest : float
        Of all the values: the smallest, three quantiles, the largest.
    """

    key: str | int
    texts: int
    count: int
    mean: float
    low: float
    high: float
    least: float
    q05: float
    median: float
    q95: float
    largest: float


@dataclass(frozen=True, eq=False, repr=False)
class CorpusSummary:
    """What :meth:`wsfast.corpus.Corpus.summary` found; ``print`` shows it.

    Attributes
    ----------
    of : {"S_i", "mask_i", "substitute_i"}
        The values: those lists of "word" and "position", and the largest of each text of the
        others.
    rows, errors : int
        How many texts the corpus has, and how many of them have an error.
    overall : Group, optional
        All texts; None where none has a value.
    groups : dict of str to list of Group
        By "word", "position", "length" and, where there are labels, "label".
    least_texts : int
        A word is listed among the most and the least sensitive ones if so many texts have it.
    """

    of: str
    rows: int
    errors: int
    overall: Group | None
    groups: dict[str, list[Group]]
    least_texts: int

    def extreme_words(self, count: int = 10) -> tuple[list[Group], list[Group]]:
        """Give the words of the largest mean, largest first, and of the smallest, smallest first.

        Of words in at least `least_texts` texts.
        """
        known = [one for one in self.groups["word"] if one.texts >= self.least_texts]
        order = sorted(known, key=lambda one: (-one.mean, str(one.key)))
        return order[:count], order[::-1][:count]

    def to_frame(self, by: str) -> DataFrame:
        """Give one of the groupings as a pandas DataFrame, a row for each group.

        Raises
        ------
        ImportError
            If pandas is not installed; the message has the pip command.
        ValueError
            If there is no such grouping.
        """
        _values.one_of("by", by, tuple(self.groups))
        pandas = import_extra("pandas", "tables")
        names = list(Group.__dataclass_fields__)
        rows = [[getattr(group, name) for name in names] for group in self.groups[by]]
        frame: DataFrame = pandas.DataFrame(rows, columns=[by, *names[1:]])
        return frame

    def save(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Write every grouping as Parquet, and pictures where matplotlib is installed.

        Returns
        -------
        list of Path
            What was written.

        Raises
        ------
        ImportError
            If pandas or pyarrow is not installed.
        OSError
            If the folder cannot be written.
        """
        out = Path(folder)
        out.mkdir(parents=True, exist_ok=True)
        written = []
        for by in self.groups:
            written.append(out / f"by_{by}.parquet")
            with whole_file(written[-1]) as file:
                self.to_frame(by).to_parquet(file)
        return written + shown_by("corpus_summary").save_pictures(self, out)

    def __str__(self) -> str:
        return shown_by("corpus_summary").to_text(self)

    def __repr__(self) -> str:
        return f"CorpusSummary of {self.of}: {self.rows} texts, {self.errors} with an error"
