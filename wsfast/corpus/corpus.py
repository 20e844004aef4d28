"""`Corpus`: a folder of measured texts, and what can be asked of it."""

from __future__ import annotations

from collections.abc import Sequence

from wsfast.corpus.audit import audited
from wsfast.corpus.folder import Folder
from wsfast.corpus.summary import summarized
from wsfast.results.audit import Audit
from wsfast.results.corpus_summary import CorpusSummary


class Corpus(Folder):
    """A folder that :func:`wsfast.corpus.score` has filled.

    Parameters
    ----------
    path : path
        The folder.

    Raises
    ------
    OSError
        If there is no such folder, or it cannot be read.
    ValueError
        If it is of something else, or not complete.
    """

    def summary(self, of: str | None = None, *, least_texts: int = 5) -> CorpusSummary:
        """Sum up the values of words: by word, position, length and label.

        Parameters
        ----------
        of : {"S_i", "mask_i", "substitute_i"}, optional
            Which list of values; by default the first that the corpus has.
        least_texts : int, default 5
            How many texts must have a word to be listed among the most and the least sensitive.

        Returns
        -------
        CorpusSummary

        Raises
        ------
        ImportError
            If duckdb (extra ``corpus``) is not installed.
        TypeError, ValueError
            For values that the corpus does not have.
        """
        return summarized(self, of, least_texts)

    def audit(self, rules: Sequence[str] = (), baseline: Corpus | None = None) -> Audit:
        """Hold rules against the corpus, and compare it with another run.

        Parameters
        ----------
        rules : sequence of str
            SQL conditions on aggregates over the texts, as DuckDB takes them:
            ``"quantile_cont(upper, 0.95) < 4.5"``. Columns are those of the shards; those of a
            baseline are called ``base_S`` and so on. A rule can neither read a file nor change an
            option.
        baseline : Corpus, optional
            The same texts, measured with the same settings by another model, checkpoint or version.

        Returns
        -------
        Audit

        Raises
        ------
        ImportError
            If duckdb (extra ``corpus``) is not installed.
        TypeError, ValueError
            For rules that are no such condition, and a baseline of other texts or settings.
        """
        return audited(self, rules, baseline)
