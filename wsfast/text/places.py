"""Where in a text a word stands, and the text with another one there."""

from __future__ import annotations

from collections.abc import Callable

from wsfast import _checks
from wsfast.text import checks
from wsfast.text.embedded import Embedded

PIECE = "##"  # in front of the label of a token that continues a word, whatever the tokenizer


def positions(position: int | str | None, embedded: Embedded, index: int) -> list[int]:
    """Tokens of text number `index` that `position` stands for, ascending.

    Raises
    ------
    TypeError, ValueError
        If it is no position of the text, or a word that the text does not hold.
    """
    n = len(embedded)
    if position is None:
        return list(range(n))
    if not isinstance(position, str):
        return [_checks.integer("position", position, low=0, high=n - 1)]
    # As it stands in the text, or else in another case.
    found = _occurrences(position, embedded, str) or _occurrences(position, embedded, str.casefold)
    checks.check_word_occurs(index, position, embedded.words, found=bool(found))
    return found


def _occurrences(word: str, embedded: Embedded, as_read: Callable[[str], str]) -> list[int]:
    """Tokens of the words that are `word`; where there is none, the tokens that are."""
    wanted = as_read(word.strip())
    spans = zip(embedded.words, embedded.word_spans, strict=True)
    of_words = [i for one, span in spans if as_read(one) == wanted for i in range(*span)]
    # SentencePiece has "film," as one word.
    return of_words or [i for i, one in enumerate(_written(embedded)) if as_read(one) == wanted]


def labels(embedded: Embedded) -> list[str]:
    """Every token as the text writes it, with "##" in front of those that continue a word."""
    starts = _word_starts(embedded)
    return [one if i in starts else PIECE + one for i, one in enumerate(_written(embedded))]


def replaced(embedded: Embedded, position: int, new: str, *, whole: bool) -> str:
    """Write the text with `new` in place of a token; `whole`: `new` is no inside of a word.

    A blank keeps two words apart that would otherwise run together.
    """
    text = embedded.text
    start, stop = embedded.offsets[position]
    token = text[start:stop]
    start += len(token) - len(token.lstrip())  # some tokenizers count the blank before a word
    before, after = text[:start], text[max(start, stop) :]
    if whole and before[-1:].isalnum() and new[:1].isalnum():
        before += " "
    if position + 1 in _word_starts(embedded) and after[:1].isalnum() and new[-1:].isalnum():
        after = " " + after
    return before + new + after


def _written(embedded: Embedded) -> list[str]:
    """Every token as the text writes it; as the tokenizer does, where it stands for nothing."""
    parts = zip(embedded.tokens, embedded.offsets, strict=True)
    return [embedded.text[start:stop].strip() or token for token, (start, stop) in parts]


def _word_starts(embedded: Embedded) -> set[int]:
    return {start for start, _ in embedded.word_spans}
