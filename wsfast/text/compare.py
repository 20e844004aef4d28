"""`compare`: attention of two texts that differ in one word."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from wsfast import _checks
from wsfast._checks import Array
from wsfast._precision import plain
from wsfast._random import random_weights
from wsfast.attention.definition import attention_weights
from wsfast.attention.weight_fn import WeightFn
from wsfast.maps.attention_features import raf_features
from wsfast.text import checks, models, tokens
from wsfast.text.attention import attention_maps
from wsfast.text.embed import embed

if TYPE_CHECKING:
    import numpy as np


class RandomAttention(NamedTuple):
    """Random attention features of two texts a and b of n tokens.

    Attributes
    ----------
    a, b : torch.Tensor, (n, n), float64
        Attention maps softmax(X W Xᵀ/√d); row j holds what token j attends to.
    map_change : float
        ‖A_b - A_a‖ / ‖A_a‖ of the two maps A, Frobenius norms.
    change : float
        ‖φ(X_b) - φ(X_a)‖ / ‖φ(X_a)‖ of the features φ(X) = softmax(X W Xᵀ/√d) X.
    """

    a: Tensor
    b: Tensor
    map_change: float
    change: float


class HeadAttention(NamedTuple):
    """Attention of the L × H trained heads on two texts a and b of m tokens, special ones included.

    Attributes
    ----------
    a, b : torch.Tensor, (L, H, m, m), float32
        Attention maps; row j holds what token j attends to and sums to 1.
    change : torch.Tensor, (L, H), float64
        ‖A_b - A_a‖ / ‖A_a‖ of the two maps A of each head, Frobenius norms.
    tokens_a, tokens_b : list of str, length m
        Tokens of the maps, as the tokenizer writes them ("[CLS]", "i", …).
    """

    a: Tensor
    b: Tensor
    change: Tensor
    tokens_a: list[str]
    tokens_b: list[str]


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """Attention of two texts that differ in one token, at random and at trained weights.

    Attributes
    ----------
    text_a, text_b : str
        The texts as they were given.
    tokens_a, tokens_b : list of str, length n
        Their tokens, without special ones.
    position : int
        Where they differ: the number of the word, among those of :class:`wsfast.text.Embedded`.
    row : int
        The row of the maps there: the number of the token.
    old, new : str
        What stands there, as the texts write it; "##" in front of a piece inside a word.
    random : RandomAttention
        Maps (n, n) of random attention features and how much they change. Special tokens are no
        part of the text here.
    trained : HeadAttention or None
        Maps of the trained heads; None where the model returns no attention. See `heads`.
    head : (int, int) or None
        Layer and number, from 0, of the trained head to show: of those asked for, the one that
        changes most.
    info : dict
        Where the numbers come from: model, layer of X, weights, seed. JSON can hold it.
    """

    text_a: str
    text_b: str
    tokens_a: list[str]
    tokens_b: list[str]
    position: int
    row: int
    old: str
    new: str
    random: RandomAttention
    trained: HeadAttention | None
    head: tuple[int, int] | None
    info: dict[str, Any]

    @property
    def heads(self) -> HeadAttention:
        """Maps (L, H, m, m) of the trained heads, and how much each changes.

        Special tokens are kept in them: trained heads attend to them, and without them rows would
        not sum to 1.

        Raises
        ------
        ValueError
            If the model returns no attention.
        """
        return checks.check_has_heads(self.trained, self.info["model"])

    @property
    def head_change(self) -> Tensor:
        """How much the map of each trained head changes, (L, H), float64; see `heads`."""
        return self.heads.change

    def plot(self, head: tuple[int, int] | str | None = None) -> np.ndarray[Any, Any]:
        """Draw the two attention maps side by side, on one colour scale.

        Parameters
        ----------
        head : (int, int) or "random", optional
            A trained head, by layer and number, or the random features. By default the random
            features above, and the trained head `head` of this comparison below them.

        Returns
        -------
        ndarray of matplotlib Axes, shape (rows, 2)
            On a new pyplot figure, which a notebook shows by itself.

        Raises
        ------
        ImportError
            If matplotlib is not installed; the message has the pip command.
        TypeError, ValueError
            If there is no such head.
        """
        from wsfast.report.attention import plot_comparison

        return plot_comparison(self, head)

    def __repr__(self) -> str:
        from wsfast.report.attention import describe

        return f"Comparison({describe(self)})"

    def _repr_html_(self) -> str:
        from wsfast.report.attention import to_html

        return to_html(self)


@plain
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
        checks.check_one_text(name, text)
    embedded = embed([a, b], model, "words")
    row = checks.check_one_token_differs(*embedded)
    encoder, tokenizer = models.load(model)
    trained = _trained(encoder, tokenizer, [a, b])
    shown = None
    if trained is not None or layer is not None or head is not None:
        change = checks.check_has_heads(trained, embedded[0].model).change
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
    weights = _checks.weights(W, _checks.texts(X))
    checks.check_one_draw(len(weights))
    return weights[0].detach()


def _random(X_a: Tensor, X_b: Tensor, W: Tensor, backend: str | None) -> RandomAttention:
    """In float64: scores of words of norm √d are large, and the texts are short."""
    W = W.double()
    maps, features = [], []
    with torch.no_grad():
        for X in (X_a.double(), X_b.double()):
            scores = X @ W @ X.mT / X.shape[1] ** 0.5
            maps.append(attention_weights(scores, WeightFn("softmax")))
            features.append(raf_features(X, W, backend=backend))
    map_change, change = float(_change(*maps)), float(_change(*features))
    return RandomAttention(maps[0], maps[1], map_change, change)


def _trained(encoder: Any, tokenizer: Any, texts: list[str]) -> HeadAttention | None:
    encodings = [tokens.encode(tokenizer, text, None) for text in texts]
    limit = models.position_limit(encoder, tokenizer)
    for index, encoding in enumerate(encodings):
        checks.check_length(index, len(encoding.tokens), limit)
    maps = attention_maps(encoder, encodings)
    if maps is None:
        return None
    a, b = maps
    return HeadAttention(a, b, _change(a, b), encodings[0].tokens, encodings[1].tokens)


def _most_changed(change: Tensor, layer: int | None, head: int | None) -> tuple[int, int]:
    """Layer and number of the head that changes most among those asked for."""
    layers, heads = (
        range(size) if chosen is None else [_checks.integer(name, chosen, low=0, high=size - 1)]
        for name, chosen, size in zip(("layer", "head"), (layer, head), change.shape, strict=True)
    )
    return max(((i, j) for i in layers for j in heads), key=lambda at: float(change[at]))


def _change(a: Tensor, b: Tensor) -> Tensor:
    """‖b - a‖ / ‖a‖ over the last two axes."""
    a, b = a.double(), b.double()
    change: Tensor = torch.linalg.matrix_norm(b - a) / torch.linalg.matrix_norm(a)
    return change
