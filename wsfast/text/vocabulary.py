"""Which tokens of a model's vocabulary can stand for a word of a text, and their vectors."""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from wsfast import _values
from wsfast._inputs import Site
from wsfast._random import random_weights
from wsfast.results.embedded import PIECE
from wsfast.studies.substitution.search import self_scores
from wsfast.text import models
from wsfast.text.scale import to_norm_sqrt_d

_UNUSED = re.compile(r"\[unused\d+\]")  # rows that BERT never trained
_ROWS = 4096  # scaled at a time
_MOST_KEPT = 4  # self-scores of so many random W


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Rows of the raw input-embedding table of a model, and what they stand for.

    Attributes
    ----------
    E : torch.Tensor, (V, d), float32
        Row v is the vector of token v, scaled to norm √d just as :func:`wsfast.embed` scales the
        same row. A zero row stays zero.
    texts : list of str, length V
        What each token writes, without the mark of its tokenizer; "" for a row without a token.
    whole : torch.Tensor, (V,), bool
        Whether the token is a word, a number or punctuation of its own, not the inside of a word.
    usable : torch.Tensor, (V,), bool
        Whether the token can stand in a text: it is no special one, and its row is not zero.
    names : list of str, length V
        `texts`, with "##" in front of those that continue a word.
    """

    E: Tensor = field(repr=False)
    texts: list[str] = field(repr=False)
    whole: Tensor = field(repr=False)
    usable: Tensor = field(repr=False)
    names: list[str] = field(repr=False)
    _scores: OrderedDict[tuple[int, int | None], Tensor] = field(
        default_factory=OrderedDict, repr=False
    )
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def allowed(self, tokens: str) -> Tensor:
        """Which rows are candidates for a choice of `substitute`, (V,) bool.

        "words" are whole and alphabetic, "whole" are numbers and punctuation as well, "all" are
        pieces of words as well.
        """
        if tokens == "all":
            return self.usable
        whole = self.usable & self.whole
        if tokens == "whole":
            return whole
        return whole & torch.tensor([text.isalpha() for text in self.texts], device=whole.device)

    def find(self, words: Sequence[str], tokenizer: Any) -> Tensor:
        """Which rows are those of the given words, (V,) bool.

        Raises
        ------
        ValueError
            If some of them are not one usable token each; the message names them.
        """
        found = torch.zeros_like(self.usable)
        found[[row for (row,) in self._cut(words, tokenizer, single=True)]] = True
        return found

    def cut(self, words: Sequence[str], tokenizer: Any) -> dict[Site, str]:
        """Rows of the tokens that each of the given words is cut into, and the word as given.

        Of words that are cut alike, the first.

        Raises
        ------
        ValueError
            If some of them have a token that is not usable; the message names them.
        """
        found: dict[Site, str] = {}
        for rows, word in zip(self._cut(words, tokenizer, single=False), words, strict=True):
            found.setdefault(rows, word.strip())
        return found

    def _cut(self, words: Sequence[str], tokenizer: Any, *, single: bool) -> list[Site]:
        """Rows of each word; with `single`, of words that are one token."""
        cut, refused = [], []
        for word in words:
            rows, reason = self._rows(word, tokenizer, single)
            if reason:
                refused.append(f"{word!r} {reason}")
            cut.append(rows)
        if refused:
            expected = "one token of the vocabulary each" if single else "words of the vocabulary"
            raise ValueError(f"candidates must be {expected}, got {_values.some(refused, str)}")
        return cut

    def _rows(self, word: str, tokenizer: Any, single: bool) -> tuple[Site, str]:
        """Rows of a word, or why it has none."""
        # With a blank first, which marks a word for some tokenizers; others add it themselves.
        tried = [
            tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
            for text in (f" {word.strip()}", word.strip())
        ]
        known = [
            tuple(ids)
            for ids in tried
            if ids and max(ids) < len(self.texts) and (len(ids) == 1 or not single)
        ]
        if not known:
            pieces = ", ".join(map(repr, tokenizer.convert_ids_to_tokens(tried[-1])))
            return (), f"(its tokens: {pieces or 'none'})"
        if usable := [rows for rows in known if bool(self.usable[list(rows)].all())]:
            return min(usable, key=len), ""
        zero = not bool(self.E[list(known[0])].any(1).all())
        row = "its row" if len(known[0]) == 1 else "a row of it"
        return (), f"({row} is zero)" if zero else "(unknown, or a special token)"

    def self_scores(self, seed: int, draws: int | None) -> Tensor:
        """Self-scores of all rows at the random W of `seed`, (V,) or (R, V); the last are kept."""
        key = (seed, draws)
        with self._lock:
            if key in self._scores:
                self._scores.move_to_end(key)
                return self._scores[key]
        W = random_weights(self.E.shape[1], draws=draws, seed=seed, device=self.E.device)
        scores: Tensor = self_scores(self.E, W)
        with self._lock:
            self._scores[key] = scores
            while len(self._scores) > _MOST_KEPT:
                self._scores.popitem(last=False)
        return scores


_prepared: WeakKeyDictionary[Any, Vocabulary] = WeakKeyDictionary()
_preparing = threading.Lock()


def vocabulary_of(model: models.Model) -> Vocabulary:
    """Vocabulary of a model; that of a model given by name is kept as long as the model itself.

    A (model, tokenizer) pair is read anew each time: its owner may train it.
    """
    source, _ = models.source(model, "words")
    if not isinstance(model, str):
        return _read(source)
    # One at a time: two threads that need the same table would hold it twice.
    with _preparing:
        if source not in _prepared:
            _prepared[source] = _read(source)
        return _prepared[source]


def _read(source: models.Source) -> Vocabulary:
    tokenizer = source.tokenizer
    E = _scaled(source.table)
    count = len(E)
    texts, whole, known = [""] * count, [False] * count, [False] * count
    special = {i for i, token in tokenizer.added_tokens_decoder.items() if token.special}
    special.update(tokenizer.all_special_ids)
    read = _reader(tokenizer)
    for token, i in tokenizer.get_vocab().items():
        if i < count:
            texts[i], whole[i] = read(token)
            known[i] = i not in special and not _UNUSED.fullmatch(token)
    return Vocabulary(
        E=E,
        texts=texts,
        whole=torch.tensor(whole, device=E.device),
        usable=torch.tensor(known, device=E.device) & (E != 0).any(1),
        names=[
            text if alone or not text else PIECE + text
            for text, alone in zip(texts, whole, strict=True)
        ],
    )


def _scaled(table: Tensor) -> Tensor:
    """Rows scaled as `embed` scales them, some at a time: they pass through float64."""
    E = torch.empty(table.shape, dtype=torch.float32, device=table.device)
    for start in range(0, len(table), _ROWS):
        E[start : start + _ROWS] = to_norm_sqrt_d(table[start : start + _ROWS])
    return E


# -- what a token writes ---------------------------------------------------------------------------


def _reader(tokenizer: Any) -> Callable[[str], tuple[str, bool]]:
    """Return the function from a token to (what it writes, whether it stands alone)."""
    core = tokenizer.backend_tokenizer
    prefix = getattr(core.model, "continuing_subword_prefix", None)
    if prefix:
        return lambda token: _after_prefix(token, prefix)
    parts = [part for part in (core.pre_tokenizer, core.decoder) if part is not None]
    if any(b'"ByteLevel"' in part.__getstate__() for part in parts):
        from tokenizers.decoders import ByteLevel

        decoder = ByteLevel()
        return lambda token: _after_blank(token, decoder.decode([token]))
    if any(token.startswith("▁") for token in tokenizer.get_vocab()):
        return lambda token: _after_blank(token, token.replace("▁", " "))
    return lambda token: (token, True)


def _after_prefix(token: str, prefix: str) -> tuple[str, bool]:
    """As WordPiece writes: a token inside a word has a prefix."""
    inside = token.startswith(prefix) and token != prefix
    return token[len(prefix) :] if inside else token, not inside


def _after_blank(token: str, text: str) -> tuple[str, bool]:
    """As byte-level BPE and SentencePiece write: a token that starts a word starts with its blank.

    Punctuation follows a word without one, and yet stands alone.
    """
    stripped = text.strip()
    # A blank, a control character, a part of a character: shown as the tokenizer writes it.
    if not stripped or not stripped.isprintable() or "\N{REPLACEMENT CHARACTER}" in stripped:
        return token, False
    return stripped, text[0].isspace() or not any(map(str.isalnum, stripped))
