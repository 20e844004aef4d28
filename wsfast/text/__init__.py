"""Real text: words, subword tokens and their embeddings in a transformers encoder."""

from __future__ import annotations

from wsfast.results.embedded import Embedded
from wsfast.text.compare import Comparison, compare
from wsfast.text.embed import embed
from wsfast.text.places import LeftOut
from wsfast.text.reviews import Review, imdb_reviews
from wsfast.text.substitute import Replacement, Replacements, substitute

__all__ = [
    "Comparison",
    "Embedded",
    "LeftOut",
    "Replacement",
    "Replacements",
    "Review",
    "compare",
    "embed",
    "imdb_reviews",
    "substitute",
]
