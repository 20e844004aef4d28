"""Encoders with random weights for tokenizers that are made in a test."""

from __future__ import annotations

from typing import Any

from text.test_other_models import SIZES


def encoder(tokenizer: Any, rows: int | None = None) -> Any:
    """A RoBERTa of a few numbers, with a row for each token or as many as are asked for."""
    from transformers import RobertaConfig, RobertaModel

    config = RobertaConfig(
        vocab_size=rows or len(tokenizer), max_position_embeddings=40, pad_token_id=1, **SIZES
    )
    return RobertaModel(config).eval()
