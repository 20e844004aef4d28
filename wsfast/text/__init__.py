"""Real text: words, subword tokens and their embeddings in a transformers encoder."""

from __future__ import annotations

from wsfast.results.comparison import Comparison
from wsfast.results.embedded import Embedded
from wsfast.results.replacements import LeftOut, Replacement, Replacements
from wsfast.results.scores import Cut, Scores
from wsfast.text.attention_layers import attention_layers
from wsfast.text.compare import compare
from wsfast.text.embed import embed
from wsfast.text.layer_sensitivity import layer_sensitivity
from wsfast.text.reviews import Review, imdb_reviews
from wsfast.text.score import score
from wsfast.text.substitute import substitute

__all__ = [
    "Comparison",
    "Cut",
    "Embedded",
    "LeftOut",
    "Replacement",
    "Replacements",
    "Review",
    "Scores",
    "attention_layers",
    "compare",
    "embed",
    "imdb_reviews",
    "layer_sensitivity",
    "score",
    "substitute",
]
