"""From a text to token ids, and from tokens to whole words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from wsfast.text.embedded import span_of


@dataclass(frozen=True)
class Encoding:
    """One tokenized text, special tokens included; every list has one entry for each token."""

    inputs: dict[str, list[int]]
    tokens: list[str]
    word_ids: list[int | None]
    offsets: list[tuple[int, int]]
    special: list[bool]

    def take(self, keep: list[int]) -> Encoding:
        """Return the encoding of the tokens at positions `keep` alone."""
        return Encoding(
            inputs={name: [ids[i] for i in keep] for name, ids in self.inputs.items()},
            tokens=[self.tokens[i] for i in keep],
            word_ids=[self.word_ids[i] for i in keep],
            offsets=[self.offsets[i] for i in keep],
            special=[self.special[i] for i in keep],
        )


def encode(tokenizer: Any, text: str, max_tokens: int | None) -> Encoding:
    """Tokenize one text with a fast tokenizer, cut to its first `max_tokens` tokens.

    Special tokens are kept and not counted. The cut is made here, not by the tokenizer: truncation
    there takes the last tokens in some models, and stays switched on in the tokenizer object.
    """
    # verbose=False: a text longer than the model allows is this package's error, not a warning
    encoded = tokenizer(
        text, return_offsets_mapping=True, return_special_tokens_mask=True, verbose=False
    )
    special = [bool(flag) for flag in encoded.pop("special_tokens_mask")]
    offsets = [(int(start), int(stop)) for start, stop in encoded.pop("offset_mapping")]
    full = Encoding(
        inputs={name: list(ids) for name, ids in encoded.items()},
        tokens=list(encoded.tokens()),
        word_ids=list(encoded.word_ids()),
        offsets=offsets,
        special=special,
    )
    if max_tokens is None:
        return full
    own = [i for i, flag in enumerate(special) if not flag][:max_tokens]
    added = [i for i, flag in enumerate(special) if flag]
    return full.take(sorted(own + added))


def word_spans(encoding: Encoding, text: str) -> list[tuple[int, int]]:
    """Token spans of whole words, from the tokenizer's word ids and character offsets.

    A word ends where the tokenizer's word id changes, and also at white space: tokenizers that
    treat a text as one run (SentencePiece without a splitter) give every token the same word id.
    A special token is a word of its own.
    """
    starts = [i for i in range(len(encoding.tokens)) if i == 0 or _starts_word(encoding, text, i)]
    return list(zip(starts, [*starts[1:], len(encoding.tokens)], strict=True))


def _starts_word(encoding: Encoding, text: str, i: int) -> bool:
    if encoding.special[i] or encoding.special[i - 1]:
        return True
    if encoding.word_ids[i] != encoding.word_ids[i - 1]:
        return True
    start, stop = encoding.offsets[i]
    gap = text[encoding.offsets[i - 1][1] : start]
    return any(map(str.isspace, gap)) or text[start:stop][:1].isspace()


def word_label(encoding: Encoding, span: tuple[int, int], text: str) -> str:
    """Return the word as the text writes it, or the token where the text has no characters."""
    start, stop = span_of(encoding.offsets[span[0] : span[1]])
    return text[start:stop].strip() or encoding.tokens[span[0]]
