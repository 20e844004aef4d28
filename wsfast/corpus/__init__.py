"""Many texts: a function of batches for the engines that have them, and a command that lasts."""

from __future__ import annotations

from wsfast.corpus.folder import Corpus
from wsfast.corpus.run import score
from wsfast.corpus.scorer import Scorer

__all__ = ["Corpus", "Scorer", "score"]
