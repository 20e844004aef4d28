"""What :func:`wsfast.embed` returns for one text."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

PIECE = "##"  # in front of the label of a token that continues a word, whatever the tokenizer


@dataclass(frozen=True, eq=False)
class Embedded:
    """Tokens of one text, their vectors, and the words they belong to.

    Attributes
    ----------
    text : str
        The text as it was given.
    tokens : list of str, length n
        Subword tokens as the tokenizer writes them ("much", "##ness").
    X : torch.Tensor, (n, d), float32
        One row for each token; what :func:`wsfast.raf_sensitivity` takes.
    words : list of str, length m
        Whole words as the text writes them (case and accents kept), m <= n. Letters and digits
        hold together, also over an apostrophe ("I've"); punctuation stands alone.
    word_spans : list of (start, stop), length m
        Tokens of each word: rows ``X[start:stop]``. The spans follow one another and cover 0 to n.
    offsets : list of (start, stop), length n
        Characters of each token: ``text[start:stop]``, marks included. Empty for special tokens.
    model : str
        Model that the vectors come from.
    layer : int or "words"
        Layer that the vectors come from.
    token_ids : list of int, length n
        Rows of the model's table that the tokens stand for.
    cut : bool
        Whether the last word is not whole, as the text was cut inside it.
    """

    text: str = field(repr=False)
    tokens: list[str]
    X: torch.Tensor = field(repr=False)
    words: list[str]
    word_spans: list[tuple[int, int]] = field(repr=False)
    offsets: list[tuple[int, int]] = field(repr=False)
    model: str
    layer: int | str
    token_ids: list[int] = field(default_factory=list, repr=False)
    cut: bool = field(default=False, repr=False)

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def word_offsets(self) -> list[tuple[int, int]]:
        """Characters of each word, (start, stop) in ``text``; empty for special tokens."""
        return [span_of(self.offsets[start:stop]) for start, stop in self.word_spans]

    @property
    def word_numbers(self) -> list[int]:
        """The word that each token belongs to, a number among ``words``, length n."""
        return [word for word, span in enumerate(self.word_spans) for _ in range(*span)]

    @property
    def labels(self) -> list[str]:
        """Every token as the text writes it, length n; "##" in front of those in a word.

        As the tokenizer writes it, where it stands for no characters of the text.
        """
        starts = {start for start, _ in self.word_spans}
        begins = [i in starts for i in range(len(self.tokens))]
        return token_labels(self.text, self.tokens, self.offsets, begins)


def token_labels(
    text: str, tokens: list[str], offsets: list[tuple[int, int]], begins: list[bool]
) -> list[str]:
    """Labels of tokens, `begins` saying which begin a word; see `Embedded.labels`."""
    return [
        ("" if first else PIECE) + (text[start:stop].strip() or token)
        for token, (start, stop), first in zip(tokens, offsets, begins, strict=True)
    ]


def span_of(offsets: list[tuple[int, int]]) -> tuple[int, int]:
    """Return the smallest character span that holds all of `offsets` (at least one)."""
    if len(offsets) == 1:
        return offsets[0]
    return min(start for start, _ in offsets), max(stop for _, stop in offsets)
