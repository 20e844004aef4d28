"""Where in a text a word stands, and the text with another one there.

A position is that of a whole word, as :class:`wsfast.text.Embedded` lists them; a row of X is a
token.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import NamedTuple
from unicodedata import normalize

from wsfast import _values
from wsfast.results.embedded import PIECE, Embedded, span_of
from wsfast.results.replacements import LeftOut
from wsfast.text import boundaries

CHOICES = ("words", "whole", "all")
OF_WORDS = ("several", "rewrite")  # whole words, whatever the number of their tokens


class Places(NamedTuple):
    """What of a text is to be replaced, ascending, and the words that are left out."""

    rows: list[int]  # tokens; or words, by their numbers
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
        hint = ""
        if replace != "all":
            hint = f': take replace="{"whole" if marks and not split else "all"}"'
        kinds_left = {"of several tokens": split, "punctuation": marks}
        raise _no_place(index, embedded.words, kinds_left, replace, hint)
    return Places(rows, LeftOut(len(split), len(marks)))


def replaceable_words(
    position: int | str | None,
    embedded: Embedded,
    index: int,
    replace: str,
    lengths: Container[int] | None,
) -> Places:
    """Words of text number `index`, of any number of tokens, among those that `position` names.

    Parameters
    ----------
    position : int or str, optional
        The number of a word, or a word; by default all.
    embedded : Embedded
    index : int
    replace : {"several", "rewrite"}
        For messages.
    lengths : container of int, optional
        The numbers of tokens that candidates have; None: any will do.

    Raises
    ------
    TypeError, ValueError
        If it is no position of the text, or a word that the text does not hold, or none of its
        words can be replaced.
    """
    numbers = embedded.word_numbers
    asked = sorted({numbers[i] for i in _asked(position, embedded, index, pieces=False)})
    kinds = {word: _kind_of_word(embedded, embedded.word_spans[word]) for word in asked}
    rows: list[int] = []
    unmatched: list[int] = []
    for word in asked:
        start, stop = embedded.word_spans[word]
        if kinds[word] == "words":
            fits = lengths is None or stop - start in lengths
            (rows if fits else unmatched).append(word)
    cut, marks = ([word for word in asked if kinds[word] == kind] for kind in ("cut", "whole"))
    if not rows:
        left = {
            "cut": cut,
            "punctuation": marks,
            "of as many tokens as no candidate": unmatched,
        }
        raise _no_place(index, embedded.words, left, replace)
    return Places(rows, LeftOut(len(cut), len(marks), len(unmatched)))


def _asked(
    position: int | str | None, embedded: Embedded, index: int, *, pieces: bool = True
) -> list[int]:
    if position is None:
        return list(range(len(embedded)))
    if not isinstance(position, str):
        word = _values.integer("position", position, low=0, high=len(embedded.words) - 1)
        return list(range(*embedded.word_spans[word]))
    found = _occurrences(position, embedded, pieces)
    if not found:
        raise ValueError(
            f"position must be a word of texts[{index}], got {position!r}; "
            f"its words: {_values.some(embedded.words)}"
        )
    return found


def _no_place(
    index: int, words: list[str], left: Mapping[str, Iterable[int]], replace: str, hint: str = ""
) -> ValueError:
    """The error for a text without a word to replace; `left` has those of each kind, by number."""
    reasons = [
        f"{_values.some([f'{words[i]!r} at position {i}' for i in sorted(numbers)], str)}: {kind}"
        for kind, numbers in left.items()
        if numbers
    ]
    return ValueError(
        f"replace must take a word of texts[{index}], got {replace!r}, which takes none "
        f"({'; '.join(reasons) or 'white space'}){hint}"
    )


def _occurrences(word: str, embedded: Embedded, pieces: bool) -> list[int]:
    """Tokens of the words that are `word`; where there is none, with `pieces` tokens that are."""
    spans = [range(*span) for span in embedded.word_spans]
    written = [label.removeprefix(PIECE) for label in embedded.labels]
    for whole in (True, False) if pieces else (True,):
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
        kind = _kind_of_word(embedded, (start, stop))
        if kind == "blank" or (len(spans) == 1 and kind != "cut"):
            kinds += [kind] * len(spans)
        else:
            # Tokens that share a character have no text of their own.
            kinds += [
                "all"
                if text[slice(*span)].strip() and spans.count(span) == 1 and inner.isdisjoint(span)
                else "part"
                for span in spans
            ]
    return kinds


def _kind_of_word(embedded: Embedded, span: tuple[int, int]) -> str:
    """Return "words" for letters and digits, "whole" for symbols; or why it is no whole word."""
    shown = "".join(embedded.text[slice(*each)].strip() for each in embedded.offsets[slice(*span)])
    if not shown:
        return "blank"
    if embedded.cut and span[1] == len(embedded):
        return "cut"
    return "words" if any(map(str.isalnum, shown)) else "whole"


def replaced(
    embedded: Embedded, rows: Sequence[int], new: str, *, whole: bool, before_whole: bool
) -> str:
    """Write the text with `new` in place of tokens that follow one another.

    A blank keeps two words apart that would otherwise run together: `new` and the text before it
    where `new` is `whole`, no inside of a word; `new` and what follows, where the next token is no
    inside of one (`before_whole`), or starts a word.
    """
    text = embedded.text
    start, stop = span_of([embedded.offsets[row] for row in rows])
    token = text[start:stop]
    start += len(token) - len(token.lstrip())  # some tokenizers count the blank before a word
    before, after = text[:start], text[max(start, stop) :]
    if whole and boundaries.touching(before + new, len(before)):
        before += " "
    apart = before_whole or rows[-1] + 1 in {start for start, _ in embedded.word_spans}
    if apart and boundaries.touching(new + after, len(new)):
        after = " " + after
    return before + new + after
