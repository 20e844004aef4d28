"""`compare`: attention of two texts that differ in one word."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from wsfast import _inputs, _values
from wsfast._precision import at_full_precision
from wsfast._random import random_weights
from wsfast._values import Array, some
from wsfast.maps.attention import WeightFn, Weights, weights_of
from wsfast.maps.attention_features import raf_features
from wsfast.maps.attention_text import AttentionMap
from wsfast.results.comparison import Comparison, HeadAttention, RandomAttention, existing
from wsfast.results.embedded import Embedded
from wsfast.text import models, tokens
from wsfast.text.attention import attention_maps
from wsfast.text.embed import embed, text_of


@at_full_precision
def compare(
    a: str,
    b: str,
    model: models.Model = models.PACKAGED,
    *,
    layer: int | None = None,
    head: int | None = None,
    W: Array | None = None,
    seed: int = 0,
    backend: str | None = None,
) -> Comparison:
    """Attention maps of two texts that differ in one word, side by side.

    Of random attention features softmax(X W Xᵀ/√d) X, where X holds rows of the raw input-embedding
    table scaled to norm √d, as in :func:`wsfast.substitute`; and of every trained head.

    Parameters
    ----------
    a, b : str
        Texts with as many tokens as one another, of which exactly one differs: "I love her much"
        and "I love her smile".
    model : str, (model, tokenizer) or SentenceTransformer
        As in :func:`wsfast.embed`. It is left as it was: mode, configuration, hooks.
    layer, head : int, optional
        Trained head to show, by layer and number from 0. By default, and among all heads of a layer
        or all layers of a head number if one of them is given, the head whose map changes most.
    W : Tensor or ndarray, shape (d, d), optional
        Attention weights of the random features, in float32. By default random, as
        `random_weights` gives for `seed`.
    seed : int, default 0
        Of the random W.
    backend : {"reference", "torch", "native"}, optional
        What computes the random features, as in :func:`wsfast.raf_features`.

    Returns
    -------
    Comparison
        For a model that returns no attention, of the random features alone.

    Raises
    ------
    ImportError
        If the extra ``text`` is not installed.
    TypeError, ValueError
        For texts that do not differ in exactly one token (the message says in what they do), a
        head that the model does not have or return, and what :func:`wsfast.embed` and
        :func:`wsfast.raf_features` refuse.

    Notes
    -----
    The question and the random features are those of Bombari & Mondelli (arXiv 2402.02969). Both
    changes are relative Frobenius norms: ‖A_b - A_a‖ / ‖A_a‖ of maps, and the same of features.

    Examples
    --------
    >>> love = compare("I love her much", "I love her smile")  # doctest: +SKIP
    >>> love.position, love.head_change.shape  # doctest: +SKIP
    (3, torch.Size([6, 12]))
    """
    for name, text in (("a", a), ("b", b)):
        text_of(name, text)
    embedded = embed([a, b], model, "words")
    row = _differing_row(*embedded)
    encoder, tokenizer = models.load(model)
    trained = _trained(encoder, tokenizer, [a, b])
    shown = None
    if trained is not None or layer is not None or head is not None:
        change = existing(trained, embedded[0].model).change
        shown = _most_changed(change, layer, head)
    weights = _weights(W, seed, embedded[0].X)
    return Comparison(
        text_a=a,
        text_b=b,
        tokens_a=embedded[0].tokens,
        tokens_b=embedded[1].tokens,
        position=embedded[0].word_numbers[row],
        row=row,
        old=embedded[0].labels[row],
        new=embedded[1].labels[row],
        random=_random(embedded[0].X, embedded[1].X, weights, backend),
        trained=trained,
        head=shown,
        info={
            "model": embedded[0].model,
            "layer": "words",
            "weights": "random" if W is None else "given",
            "seed": seed,
        },
    )


def _weights(W: Array | None, seed: int, X: Tensor) -> Tensor:
    """W (d, d) in the dtype of X, so that a seed stands for the same W as in `substitute`."""
    if W is None:
        return random_weights(X.shape[1], seed=seed, dtype=X.dtype, device=X.device)
    weights = weights_of(W, _inputs.texts(X))
    if len(weights) != 1:
        raise ValueError(f"W must be one W, of shape (d, d), got {len(weights)} draws")
    return weights[0].detach()


def _differing_row(a: Embedded, b: Embedded) -> int:
    """Return the row where two texts differ; an error unless they do in exactly one token."""
    expected = "a and b must differ in one word of one token, got"
    if len(a) != len(b):
        raise ValueError(f"{expected} {_other_lengths(a, b)}")
    rows = [
        i for i, (old, new) in enumerate(zip(a.token_ids, b.token_ids, strict=True)) if old != new
    ]
    if not rows:
        raise ValueError(
            f"{expected} the same tokens twice, those of {some(a.words)}: the tokenizer may not "
            "tell case or marks apart"
        )
    if len(rows) > 1:
        old, new, words = a.labels, b.labels, a.word_numbers
        changes = [f"{old[i]!r} -> {new[i]!r} at position {words[i]}" for i in rows]
        raise ValueError(f"{expected} {len(rows)} different tokens: {some(changes, str)}")
    return rows[0]


def _other_lengths(a: Embedded, b: Embedded) -> str:
    """The words that differ in their numbers of tokens; where they cannot be told, the texts."""
    if len(a.words) != len(b.words):
        return " and ".join(f"{len(one.words)} words {some(one.words)}" for one in (a, b))
    pieces = [[one.tokens[slice(*span)] for span in one.word_spans] for one in (a, b)]
    changes = [
        f"{old!r} -> {new!r} at position {word}, of {len(x)} -> {len(y)} tokens"
        for word, (old, new, x, y) in enumerate(zip(a.words, b.words, *pieces, strict=True))
        if x != y
    ]
    return f"{some(changes, str)}: choose a word that the tokenizer does not split"


def _random(X_a: Tensor, X_b: Tensor, W: Tensor, backend: str | None) -> RandomAttention:
    """In float64: scores of words of norm √d are large, and the texts are short."""
    W = W.double()
    attention = AttentionMap(Weights(W), WeightFn("softmax"))
    maps, features = [], []
    with torch.no_grad():
        for X in (X_a.double(), X_b.double()):
            maps.append(attention.attend(X))
            features.append(raf_features(X, W, backend=backend))
    map_change, change = float(_change(*maps)), float(_change(*features))
    return RandomAttention(maps[0], maps[1], map_change, change)


def _trained(encoder: Any, tokenizer: Any, texts: list[str]) -> HeadAttention | None:
    encodings = [tokens.encode(tokenizer, text) for text in texts]
    limit = models.position_limit(encoder, tokenizer)
    for index, encoding in enumerate(encodings):
        tokens.check_length(f"texts[{index}]", len(encoding.tokens), limit)
    maps = attention_maps(encoder, encodings)
    if maps is None:
        return None
    a, b = maps
    return HeadAttention(a, b, _change(a, b), encodings[0].tokens, encodings[1].tokens)


def _most_changed(change: Tensor, layer: int | None, head: int | None) -> tuple[int, int]:
    """Layer and number of the head that changes most among those asked for."""
    layers, heads = (
        range(size) if chosen is None else [_values.integer(name, chosen, low=0, high=size - 1)]
        for name, chosen, size in zip(("layer", "head"), (layer, head), change.shape, strict=True)
    )
    return max(((i, j) for i in layers for j in heads), key=lambda at: float(change[at]))


def _change(a: Tensor, b: Tensor) -> Tensor:
    """‖b - a‖ / ‖a‖ over the last two axes."""
    a, b = a.double(), b.double()
    change: Tensor = torch.linalg.matrix_norm(b - a) / torch.linalg.matrix_norm(a)
    return change
