"""Real text: words, subword tokens and their embeddings in a transformers encoder."""

from __future__ import annotations

from wsfast.text.embed import embed
from wsfast.text.embedded import Embedded

__all__ = ["Embedded", "embed"]
