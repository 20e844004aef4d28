"""Small trained-like models in folders, and reviews that their tokenizer was made for."""

from __future__ import annotations

from pathlib import Path

from text.small_models import encoder
from text.test_other_models import SIZES, byte_level_tokenizer

from wsfast.text import Review

TEXTS = [
    "so short",
    "the fine film, a finer film of the finest films",
    "not the finest of films, a film the film the fine",
    "a fine film of the finer films, not the film",
    "the fine film, a finer film of the finest films, so alike",
    "films of films, not a finer film the film a fine film",
]
REVIEWS = [Review(text, 1 if row % 2 else -1, row) for row, text in enumerate(TEXTS)]


def save(folder: Path, kind: str = "Roberta") -> str:
    """Write a model with large random weights, so that its attention is not flat."""
    import torch
    from transformers import LlamaConfig, LlamaModel

    tokenizer = byte_level_tokenizer()
    if kind == "Roberta":
        model = encoder(tokenizer)
    else:
        model = LlamaModel(LlamaConfig(vocab_size=len(tokenizer), **SIZES))
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() == 2:
                weight.normal_(generator=torch.Generator().manual_seed(weight.numel()), std=0.6)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)
