"""Small models for the tests of real text."""

from __future__ import annotations

from typing import Any

import pytest
from text.small_models import encoder
from text.test_other_models import byte_level_tokenizer, unsplit_tokenizer


@pytest.fixture
def byte_level() -> tuple[Any, Any]:
    """A model whose tokenizer writes words as RoBERTa's does."""
    tokenizer = byte_level_tokenizer()
    return encoder(tokenizer), tokenizer


@pytest.fixture
def unsplit() -> tuple[Any, Any]:
    """A model whose tokenizer writes words as SentencePiece's do."""
    tokenizer = unsplit_tokenizer()
    return encoder(tokenizer), tokenizer
