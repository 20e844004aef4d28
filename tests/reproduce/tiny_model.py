"""Small trained-like models in folders, and reviews that their tokenizer was made for."""

from __future__ import annotations

from pathlib import Path

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
# Four heads: the median of two would be their mean.
_SIZES = {**SIZES, "num_attention_heads": 4}
REVIEWS = [Review(text, 1 if row % 2 else -1, row) for row, text in enumerate(TEXTS)]


def save(folder: Path, kind: str = "Roberta") -> str:
    """Write a model with large random weights: no flat attention, no vectors of one length."""
    import torch
    from transformers import LlamaConfig, LlamaModel, RobertaConfig, RobertaModel

    tokenizer = byte_level_tokenizer()
    if kind == "Roberta":
        config = RobertaConfig(
            vocab_size=len(tokenizer), max_position_embeddings=40, pad_token_id=1, **_SIZES
        )
        model = RobertaModel(config)
    else:
        model = LlamaModel(LlamaConfig(vocab_size=len(tokenizer), **_SIZES))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            generator = torch.Generator().manual_seed(weight.numel())
            if name.endswith("weight"):  # those of norms are about 1
                weight.normal_(float(weight.dim() == 1), 0.6, generator=generator)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)
