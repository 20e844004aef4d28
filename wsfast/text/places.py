"""Where in a text a word stands, and the text with another one there.

A position is that of a whole word, as :class:`wsfast.text.Embedded` lists them; a row of X is a
token.
"""

from __future__ import annotations

from typing import NamedTuple
from unicodedata import normalize

from wsfast import _values
from wsfast.results.embedded import PIECE, Embedded
from wsfast.results.replacements import LeftOut
from wsfast.text import boundaries

CHOICES = ("words", "whole", "all")


class Places(NamedTuple):
    """Tokens of a text that are to be replaced, ascending, and the words that are left out."""

    rows: list[int]
    left_out: LeftOut


def replaceable(position: int | str | None, embedded: Embedded, index: int, replace: str) -> Places:
    """Tokens of text number `index` that can be replaced, among the words that `position` names.

    Parameters
    ----------
    position : int or str, optional
        The number of a word, or a word (or, with all tokens, a piece of one); by default all.
    embedded : Embedded
    index : int
    replace : {"words", "whole", "all"}
        Words of one token, with letters or digits; also punctuation; or also pieces of words, where
        they are whole characters.

    Raises
    ------
    TypeError, ValueError
        If it is no position of the text, or a word that the text does not hold, or none of its
        tokens can be replaced.
    """
    asked = _asked(position, embedded, index)
    kinds = _kinds(embedded)
    taken = CHOICES[: CHOICES.index(replace) + 1]
    rows = [i for i in asked if kinds[i] in taken]
    words = embedded.word_numbers
    split = {words[i] for i in asked if kinds[i] in ("all", "part") and kinds[i] not in taken}
    marks = {words[i] for i in asked if kinds[i] == "whole" and "whole" not in taken}
    if not rows:
        raise _no_place(index, embedded.words, sorted(split), sorted(marks), replace)
    return Places(rows, LeftOut(len(split), len(marks)))


def _asked(position: int | str | None, embedded: Embedded, index: int) -> list[int]:
    if position is None:
        return list(range(len(embedded)))
    if not isinstance(position, str):
        word = _values.integer("position", position, low=0, high=len(embedded.words) - 1)
        return list(range(*embedded.word_spans[word]))
    found = _occurrences(position, embedded)
    if not found:
        raise ValueError(
            f"position must be a word of texts[{index}], got {position!r}; "
            f"its words: {_values.some(embedded.words)}"
        )
    return found


def _no_place(
    index: int, words: list[str], split: list[int], punctuation: list[int], replace: str
) -> ValueError:
    """The error for a text without a word to replace; words left out are given by number."""
    reasons = [
        f"{_values.some([f'{words[i]!r} at position {i}' for i in numbers], str)}: {kind}"
        for kind, numbers in (("of several tokens", split), ("punctuation", punctuation))
        if numbers
    ]
    more = ""
    if replace != "all":
        more = f': take replace="{"whole" if punctuation and not split else "all"}"'
    return ValueError(
        f"replace must take a word of texts[{index}], got {replace!r}, which takes none "
        f"({'; '.join(reasons) or 'white space'}){more}"
    )


def _occurrences(word: str, embedded: Embedded) -> list[int]:
    """Tokens of the words that are `word`; where there is none, the tokens that are."""
    spans = [range(*span) for span in embedded.word_spans]
    written = [label.removeprefix(PIECE) for label in embedded.labels]
    for whole in (True, False):
        names = embedded.words if whole else written
        rows = spans if whole else [range(i, i + 1) for i in range(len(embedded))]
        # As it stands in the text, or else in another case.
        for as_read in (_composed, _caseless):
            wanted = as_read(word.strip())
            found = [
                i
                for name, some in zip(names, rows, strict=True)
                if as_read(name) == wanted
                for i in some
            ]
            if found:
                return found
    return []


def _composed(text: str) -> str:
    return normalize("NFC", text)


def _caseless(text: str) -> str:
    """What canonical caseless matching of Unicode compares."""
    return normalize("NFD", normalize("NFD", text).casefold())


def _kinds(embedded: Embedded) -> list[str]:
    """The first choice of `replace` that takes each token; another name where none does."""
    text, inner = embedded.text, boundaries.inner_places(embedded.text)
    kinds = []
    for start, stop in embedded.word_spans:
        spans = embedded.offsets[start:stop]
        shown = [text[slice(*span)].strip() for span in spans]
        if not any(shown):
            kinds += ["blank"] * len(spans)
        elif len(spans) == 1 and not (embedded.cut and stop == len(embedded)):
            kinds.append("words" if any(map(str.isalnum, shown[0])) else "whole")
        else:
            # Tokens that share a character have no text of their own.
            kinds += [
                "all" if one and spans.count(span) == 1 and inner.isdisjoint(span) else "part"
                for span, one in zip(spans, shown, strict=True)
            ]
    return kinds


def replaced(embedded: Embedded, row: int, new: str, *, whole: bool, before_whole: bool) -> str:
    """Write the text with `new` in place of a token.

    A blank keeps two words apart that would otherwise run together: `new` and the text before it
    where `new` is `whole`, no inside of a word; `new` and what follows, where the next token is no
    inside of one (`before_whole`), or starts a word.
    """
    text = embedded.text
    start, stop = embedded.offsets[row]
    token = text[start:stop]
    start += len(token) - len(token.lstrip())  # some tokenizers count the blank before a word
    before, after = text[:start], text[max(start, stop) :]
    if whole and boundaries.touching(before + new, len(before)):
        before += " "
    apart = before_whole or row + 1 in {start for start, _ in embedded.word_spans}
    if apart and boundaries.touching(new + after, len(new)):
        after = " " + after
    return before + new + after
