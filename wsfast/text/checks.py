"""Errors in what a caller hands to the functions of real text."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from wsfast import _checks

if TYPE_CHECKING:
    from wsfast.results.embedded import Embedded
    from wsfast.text.compare import HeadAttention

TOKEN_CHOICES = ("words", "whole", "all")

_MOST_LISTED = 8  # words in a message


def check_texts(texts: object) -> list[str]:
    """Return the texts as a list; an error for anything but a text or a sequence of them.

    Columns of pandas and polars, and arrays of NumPy and pyarrow, are sequences too.
    """
    listed = [texts] if isinstance(texts, str) else _listed(texts)
    if not listed:
        raise ValueError(f"texts: expected at least one text, got an empty {type(texts).__name__}")
    for index, text in enumerate(listed):
        if _is_missing(text):
            raise TypeError(f"texts[{index}]: expected a str, got a missing value ({text!r})")
        if not isinstance(text, str):
            raise TypeError(f"texts[{index}]: expected a str, got {type(text).__name__}")
        if not text.strip():
            raise ValueError(f"texts[{index}]: expected words, got an empty text: {text!r}")
    return [str(text) for text in listed]


def _listed(texts: object) -> list[Any]:
    """The items of a sequence, as Python's own objects."""
    for method in ("to_pylist", "to_list", "tolist"):
        if callable(convert := getattr(texts, method, None)):
            found = convert()
            if isinstance(found, list):  # an array without axes has no items
                return found
    if isinstance(texts, Sequence) and not isinstance(texts, (bytes, bytearray, memoryview)):
        return list(texts)
    raise TypeError(f"texts: expected a str or a sequence of str, got {type(texts).__name__}")


def _is_missing(value: object) -> bool:
    """Whether it stands for no text where a column has a gap: None, NaN, pandas.NA."""
    if isinstance(value, float):
        return math.isnan(value)
    return type(value).__name__ in ("NoneType", "NAType", "NaTType")


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
    """Accept a name, or what `check_pair` accepts."""
    if not isinstance(model, str):
        check_pair(model)
    elif not model.strip():
        raise ValueError(f"model: expected 'minilm', a folder or a hub id, got {model!r}")


def check_pair(model: object) -> tuple[Any, Any]:
    """Return model and tokenizer of a pair of them or of a SentenceTransformer."""
    pair = model
    if not isinstance(model, (tuple, str)):
        first = _first_module(model)
        pair = getattr(first, "auto_model", None), getattr(first, "tokenizer", None)
    if isinstance(pair, tuple) and len(pair) == 2:
        encoder, tokenizer = pair
        if hasattr(encoder, "get_input_embeddings") and callable(tokenizer):
            return encoder, tokenizer
    raise TypeError(
        "model: expected a str, a pair (transformers model, its tokenizer) or a "
        f"SentenceTransformer, got {type(model).__name__}"
    )


def _first_module(model: Any) -> object:
    """The first part of a chain of modules; None where it is no chain."""
    try:
        return model[0]
    except (TypeError, LookupError, AttributeError):
        return None


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


class TooLongError(ValueError):
    """A text of `count` tokens for a model of `limit` positions, special tokens included."""

    def __init__(self, index: int, count: int, limit: int) -> None:
        self.count, self.limit = count, limit
        super().__init__(
            f"texts[{index}]: {count} tokens, special ones included, are more than the {limit} "
            'positions of the model: cut the text with max_tokens, or take layer="words"'
        )


def check_length(index: int, count: int, limit: int | None) -> None:
    """Refuse a text with more tokens than the model has positions."""
    if limit is not None and count > limit:
        raise TooLongError(index, count, limit)


def check_layer_exists(layer: int, last: int) -> None:
    """Refuse a layer beyond the last one."""
    if layer > last:
        raise ValueError(f'layer: expected "words" or 0 to {last} for this model, got {layer}')


def check_no_zero_row(index: int, tokens: list[str], rows: torch.Tensor) -> None:
    """Refuse a zero row: it has no direction to scale."""
    zero = (~rows.any(dim=1)).nonzero()
    if len(zero):
        position = int(zero[0])
        raise ValueError(
            f"texts[{index}]: the row of token {tokens[position]!r} (position {position}) is zero "
            "and cannot be scaled to norm sqrt(d): take scale=False"
        )


# -- compare ---------------------------------------------------------------------------------------


def check_one_text(name: str, text: object) -> None:
    """Refuse anything but a single text."""
    if not isinstance(text, str):
        raise TypeError(f"{name}: expected a str, got {type(text).__name__}")
    if not text.strip():
        raise ValueError(f"{name}: expected words, got an empty text: {text!r}")


def check_one_token_differs(a: Embedded, b: Embedded) -> int:
    """Return the row where two texts differ; an error unless they do in exactly one token."""
    expected = "a and b: expected texts that differ in one word of one token, got"
    if len(a) != len(b):
        raise ValueError(f"{expected} {_other_lengths(a, b)}")
    rows = [
        i for i, (old, new) in enumerate(zip(a.token_ids, b.token_ids, strict=True)) if old != new
    ]
    if not rows:
        raise ValueError(
            f"{expected} the same tokens twice, those of {_some(a.words)}: the tokenizer may not "
            "tell case or marks apart"
        )
    if len(rows) > 1:
        old, new, words = a.labels, b.labels, a.word_numbers
        changes = [f"{old[i]!r} -> {new[i]!r} at position {words[i]}" for i in rows]
        raise ValueError(f"{expected} {len(rows)} different tokens: {_some(changes, str)}")
    return rows[0]


def _other_lengths(a: Embedded, b: Embedded) -> str:
    """The words that differ in their numbers of tokens; where they cannot be told, the texts."""
    if len(a.words) != len(b.words):
        return " and ".join(f"{len(one.words)} words {_some(one.words)}" for one in (a, b))
    pieces = [[one.tokens[slice(*span)] for span in one.word_spans] for one in (a, b)]
    changes = [
        f"{old!r} -> {new!r} at position {word}, of {len(x)} -> {len(y)} tokens"
        for word, (old, new, x, y) in enumerate(zip(a.words, b.words, *pieces, strict=True))
        if x != y
    ]
    return f"{_some(changes, str)}: choose a word that the tokenizer does not split"


def check_has_heads(heads: HeadAttention | None, model: str) -> HeadAttention:
    """Refuse to speak of heads where the model returned no attention."""
    if heads is None:
        raise ValueError(
            f"model: {model} returns no attention maps of heads over all tokens; "
            "only the random features of this comparison are there"
        )
    return heads


def check_one_draw(draws: int) -> None:
    """Refuse several W where one is compared."""
    if draws != 1:
        raise ValueError(f"W: expected one W, of shape (d, d), got {draws} draws")


# -- substitute ------------------------------------------------------------------------------------


def check_position(position: object) -> None:
    """Accept None, a word or a number; the text tells later which there are."""
    if isinstance(position, str):
        if not position.strip():
            raise ValueError(f"position: expected a word, got {position!r}")
    elif position is not None:
        _checks.integer("position", position, low=0)


def check_word_occurs(index: int, word: str, words: list[str], *, found: bool) -> None:
    """Refuse a word that the text does not hold."""
    if not found:
        raise ValueError(f"position: no {word!r} in texts[{index}]; its words: {_some(words)}")


def check_any_place(
    index: int, words: list[str], split: list[int], punctuation: list[int], replace: str
) -> None:
    """Refuse a text without a word to replace; the words that are left out are given by number."""
    reasons = [
        f"{_some([f'{words[i]!r} at position {i}' for i in numbers], str)}: {kind}"
        for kind, numbers in (("of several tokens", split), ("punctuation", punctuation))
        if numbers
    ]
    more = ""
    if replace != "all":
        more = f'; take replace="{"whole" if punctuation and not split else "all"}"'
    raise ValueError(
        f"replace: no word of texts[{index}] can be replaced as {replace!r} "
        f"({'; '.join(reasons) or 'white space'}){more}"
    )


def check_token_choice(name: str, choice: object) -> None:
    """Accept one of the choices of tokens."""
    if choice not in TOKEN_CHOICES:
        raise ValueError(f"{name}: expected one of {TOKEN_CHOICES}, got {choice!r}")


def check_candidates(candidates: object) -> None:
    """Accept None or words; the vocabulary tells later whether it has them."""
    if candidates is None:
        return
    if isinstance(candidates, str) or not isinstance(candidates, Sequence):
        raise TypeError(
            f"candidates: expected a list of words, got {type(candidates).__name__}: {candidates!r}"
        )
    if not candidates:
        raise ValueError("candidates: expected at least one word, got none")
    for k, word in enumerate(candidates):
        if not isinstance(word, str):
            raise TypeError(f"candidates[{k}]: expected a str, got {type(word).__name__}")


def check_candidates_found(refused: list[str]) -> None:
    """Refuse words that are not one token each; `refused` has each with the reason."""
    if refused:
        raise ValueError(
            "candidates: expected words that are one token of the vocabulary each, got "
            f"{_some(refused, str)}"
        )


def check_any_candidate(index: int, found: int) -> None:
    """Refuse a text in which nothing can be replaced."""
    if found == 0:
        raise ValueError(
            f"candidates: none is left for texts[{index}], as no word is replaced by itself"
        )


def _some(items: list[str], show: Callable[[str], str] = repr) -> str:
    """The first few of a list, for a message."""
    rest = len(items) - _MOST_LISTED
    return ", ".join(map(show, items[:_MOST_LISTED])) + (f" and {rest} more" if rest > 0 else "")
