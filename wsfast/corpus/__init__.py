"""Many texts: a function of batches for the engines that have them, and a command that lasts."""

from __future__ import annotations

from wsfast.corpus.corpus import Corpus
from wsfast.corpus.run import score
from wsfast.corpus.scorer import Scorer
from wsfast.results.audit import Audit, Paired, Verdict
from wsfast.results.corpus_summary import CorpusSummary, Group

__all__ = ["Audit", "Corpus", "CorpusSummary", "Group", "Paired", "Scorer", "Verdict", "score"]
