"""Errors in what a caller hands to :func:`wsfast.embed`."""

from __future__ import annotations

from typing import Any

import torch


def check_texts(texts: object) -> list[str]:
    """Return the texts as a list; an error for anything but a text or a list of them."""
    if isinstance(texts, str):
        listed: list[Any] = [texts]
    elif isinstance(texts, (list, tuple)):
        listed = list(texts)
    else:
        raise TypeError(f"texts: expected a str or a list of str, got {type(texts).__name__}")
    if not listed:
        raise ValueError("texts: expected at least one text, got an empty list")
    for index, text in enumerate(listed):
        if not isinstance(text, str):
            raise TypeError(f"texts[{index}]: expected a str, got {type(text).__name__}")
        if not text.strip():
            raise ValueError(f"texts[{index}]: expected words, got an empty text: {text!r}")
    return listed


def check_layer(layer: object) -> None:
    """Accept "words" or a layer number; the model tells the highest later."""
    if layer == "words":
        return
    if isinstance(layer, bool) or not isinstance(layer, int):
        raise TypeError(f'layer: expected "words" or an int, got {layer!r}')
    if layer < 0:
        raise ValueError(f'layer: expected "words", 0 or a later layer, got {layer}')


def check_max_tokens(max_tokens: object) -> None:
    """Accept None or a positive number of tokens."""
    if max_tokens is None:
        return
    if isinstance(max_tokens, bool) or not isinstance(max_tokens, int):
        raise TypeError(f"max_tokens: expected None or an int, got {max_tokens!r}")
    if max_tokens < 1:
        raise ValueError(f"max_tokens: expected at least 1, got {max_tokens}")


def check_model(model: object) -> None:
    """Accept a name or a (model, tokenizer) pair."""
    if isinstance(model, str):
        if not model:
            raise ValueError("model: expected a hub id, a path or 'minilm', got an empty str")
        return
    pair = isinstance(model, tuple) and len(model) == 2
    if not (pair and hasattr(model[0], "get_input_embeddings") and callable(model[1])):  # type: ignore[index]
        raise TypeError(
            "model: expected a str or a pair (transformers model, its tokenizer), "
            f"got {type(model).__name__}"
        )


def check_tokenizer(tokenizer: Any) -> None:
    """Refuse a slow tokenizer: only a fast one tells the characters of a token."""
    if not getattr(tokenizer, "is_fast", False):
        raise ValueError(
            "model: its tokenizer must be a fast one (it gives the characters of each token), "
            f"got {type(tokenizer).__name__}"
        )


def check_has_tokens(index: int, text: str, count: int) -> None:
    """Refuse a text in which the tokenizer finds nothing."""
    if count == 0:
        raise ValueError(f"texts[{index}]: the tokenizer finds no token in {text!r}")


def check_length(index: int, count: int, limit: int | None) -> None:
    """Refuse a text with more tokens than the model has positions."""
    if limit is not None and count > limit:
        raise ValueError(
            f"texts[{index}]: {count} tokens, special ones included, are more than the {limit} "
            'positions of the model: cut the text with max_tokens, or take layer="words"'
        )


def check_layer_exists(layer: int, last: int) -> None:
    """Refuse a layer beyond the last one."""
    if layer > last:
        raise ValueError(f'layer: expected "words" or 0 to {last} for this model, got {layer}')


def check_no_zero_row(index: int, tokens: list[str], norms: torch.Tensor) -> None:
    """Refuse a zero row: it has no direction to scale."""
    zero = (norms == 0).nonzero()
    if len(zero):
        position = int(zero[0])
        raise ValueError(
            f"texts[{index}]: the row of token {tokens[position]!r} (position {position}) is zero "
            "and cannot be scaled to norm sqrt(d): take scale=False"
        )
