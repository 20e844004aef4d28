"""From a text to token ids, and from tokens to whole words."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from wsfast.results.embedded import span_of
from wsfast.text import boundaries


@dataclass(frozen=True)
class Encoding:
    """One tokenized text, special tokens included; every list has one entry for each token.

    `offsets` reach the ends of characters as a reader sees them; `starts_word` says where a whole
    word begins.
    """

    inputs: dict[str, list[int]]
    tokens: list[str]
    starts_word: list[bool]
    offsets: list[tuple[int, int]]
    special: list[bool]
    cut: bool = False

    def take(self, keep: list[int]) -> Encoding:
        """Return the encoding of the tokens at positions `keep` alone."""
        return Encoding(
            inputs={name: [ids[i] for i in keep] for name, ids in self.inputs.items()},
            tokens=[self.tokens[i] for i in keep],
            starts_word=[self.starts_word[i] for i in keep],
            offsets=[self.offsets[i] for i in keep],
            special=[self.special[i] for i in keep],
            cut=self.cut,
        )

    def first(self, count: int | None) -> Encoding:
        """Return the encoding of the first `count` tokens, of all where it is None.

        Special tokens are kept and not counted. The tokenizer does not cut: its truncation takes
        the last tokens in some models, and stays switched on in the tokenizer object.
        """
        if count is None:
            return self
        own = [i for i, flag in enumerate(self.special) if not flag]
        added = [i for i, flag in enumerate(self.special) if flag]
        kept = self.take(sorted(own[:count] + added))
        return replace(kept, cut=not all(self.starts_word[i] for i in own[count:][:1]))

    @property
    def count(self) -> int:
        """How many tokens there are, special ones not counted."""
        return self.special.count(False)


def encode(tokenizer: Any, text: str) -> Encoding:
    """Tokenize one text with a fast tokenizer."""
    # verbose=False: a text longer than the model allows is this package's error, not a warning
    encoded = tokenizer(
        text, return_offsets_mapping=True, return_special_tokens_mask=True, verbose=False
    )
    special = [bool(flag) for flag in encoded.pop("special_tokens_mask")]
    found = [(int(start), int(stop)) for start, stop in encoded.pop("offset_mapping")]
    inner = boundaries.inner_places(text)
    offsets = boundaries.whole_characters(found, inner)
    return Encoding(
        inputs={name: list(ids) for name, ids in encoded.items()},
        tokens=list(encoded.tokens()),
        starts_word=_starts(text, offsets, special, encoded.word_ids(), inner),
        offsets=offsets,
        special=special,
    )


def _starts(
    text: str,
    offsets: list[tuple[int, int]],
    special: list[bool],
    word_ids: list[int | None],
    inner: set[int],
) -> list[bool]:
    """Which tokens start a whole word.

    A word starts after white space, where the tokenizer's word id changes, and where punctuation
    meets letters: tokenizers that treat a text as one run (SentencePiece) give "film," the same
    word id. It does not start inside a character, nor where letters hold together: BERT's tokenizer
    gives "I've" three word ids. A special token is a word of its own.
    """
    starts = [True]
    for i in range(1, len(offsets)):
        (_, end), (start, stop) = offsets[i - 1], offsets[i]
        shared = start in inner or start < min(end, stop)
        blank = any(map(str.isspace, text[end:start])) or text[start:stop][:1].isspace()
        if special[i] or special[i - 1]:
            starts.append(True)
        elif shared or blank:
            starts.append(not shared)
        elif word_ids[i] != word_ids[i - 1]:
            starts.append(not boundaries.joined(text, start))
        else:
            starts.append(boundaries.parted(text, start))
    return starts


def word_spans(encoding: Encoding) -> list[tuple[int, int]]:
    """Token spans of whole words."""
    starts = [i for i, first in enumerate(encoding.starts_word) if first or i == 0]
    return list(zip(starts, [*starts[1:], len(encoding.tokens)], strict=True))


def word_label(encoding: Encoding, span: tuple[int, int], text: str) -> str:
    """Return the word as the text writes it, or the token where the text has no characters."""
    start, stop = span_of(encoding.offsets[span[0] : span[1]])
    return text[start:stop].strip() or encoding.tokens[span[0]]


# -- what may be given ----------------------------------------------------------------------------


class UnfitTextError(ValueError):
    """One of the texts cannot be done; the others may be.

    Attributes
    ----------
    reason : str
        What the text must be, and is not; the message has its name in front.
    """

    def __init__(self, name: str, reason: str) -> None:
        self.reason = reason
        super().__init__(f"{name} {reason}")


class TooLongError(UnfitTextError):
    """A text of `count` tokens where there is room for `limit`."""

    def __init__(self, name: str, reason: str, count: int, limit: int) -> None:
        self.count, self.limit = count, limit
        super().__init__(name, reason)


def check_some(name: str, text: str, encoding: Encoding) -> None:
    """Refuse a text in which the tokenizer finds nothing."""
    if encoding.count == 0:
        reason = f"must have a token, got {text!r}, in which the tokenizer finds none"
        raise UnfitTextError(name, reason)


def check_length(name: str, count: int, limit: int | None, *, instead: str = "") -> None:
    """Refuse a text with more tokens, special ones included, than the model has positions."""
    if limit is not None and count > limit:
        reason = (
            f"must have at most {limit} tokens, special ones included, as the model has positions, "
            f"got {count}: cut the text with max_tokens{instead}"
        )
        raise TooLongError(name, reason, count, limit)


def check_room(index: int, count: int, room: int) -> None:
    """Refuse a text with more tokens than there is room for, and that is not to be cut."""
    if count > room:
        reason = f'must have at most {room} tokens, got {count}: long="cut" keeps the first {room}'
        raise TooLongError(f"texts[{index}]", reason, count, room)
