"""A review with other words in it, run through a trained model: its layers and its embedding."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wsfast.maps.attention_layer import AttentionLayer
from wsfast.maps.layer_input import LayerInput
from wsfast.results import storage
from wsfast.results.embedded import Embedded
from wsfast.text import models, places
from wsfast.text.attention_layers import AttentionModel, encode
from wsfast.text.pooled import PooledText
from wsfast.text.vocabulary import vocabulary_of

_NAME = "ChangedTexts"
_FORMAT = 1
_ARRAYS = ("position", "token", "layers", "embedding", "scale", "lengths")


@dataclass(frozen=True)
class ChangedTexts:
    """A review of n tokens, one word of it exchanged in each of C texts; L layers of H heads."""

    position: NDArray[np.int64]  # (C,) of the token that gives way, special ones not counted
    token: NDArray[np.int64]  # (C,) what takes its place
    layers: NDArray[np.float64]  # (C, L) relative change of the output of all heads of a layer
    embedding: NDArray[np.float64]  # (C,) relative change of the mean of the last hidden state
    scale: NDArray[np.float64]  # (L, H) √rows σ_max(W_V) / ‖o‖; NaN where rows are not linear
    lengths: NDArray[np.float64]  # (L, n) norms of the vectors that a layer reads
    words: list[str]  # (C,) what is put in place

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to `path`, as a whole."""
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        storage.save_result(path, _NAME, _FORMAT, arrays, {"words": self.words})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ChangedTexts:
        """Read a file of :meth:`save`."""
        arrays, meta = storage.load_result(path, _NAME, _FORMAT, _ARRAYS)
        return cls(**arrays, words=meta["words"])

    def share(self, S: NDArray[np.float64], at: NDArray[np.int64], radius: float) -> Any:
        """S (L, H), found at the words `at` (L, H), as a share of what their values can do.

        That is √n σ_max(W_V) ‖Δ‖ / ‖o‖: n rows that attend to the moved word alone, whose value
        moves by as much as it can. What these rows lose of other words comes on top.
        """
        return S / (self.scale * radius * np.take_along_axis(self.lengths, at, 1))


class Model:
    """A trained model by its name, ready for one review after another."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.loaded = models.loaded(name)
        self.attention = AttentionModel(self.loaded.model)

    def text(self, review: Embedded) -> ModelText:
        """A review as this model sees it."""
        return ModelText(self, review)

    def changed_texts(self, review: Embedded, count: int, seed: list[int]) -> ChangedTexts:
        """Each word of one token gives way to `count` others, drawn from the whole words."""
        text, vocabulary = self.text(review), vocabulary_of(self.name)
        words = vocabulary.allowed("words").nonzero()[:, 0].numpy()
        rng = np.random.default_rng(seed)
        pairs, changes = [], []
        for place in text.places:
            others = words[words != review.token_ids[place]]
            for token in rng.choice(others, count, replace=False).tolist():
                pairs.append((place, token))
                changes.append(text.changes(place, token))
        position, tokens = np.array(pairs).T
        return ChangedTexts(
            position=position,
            token=tokens,
            layers=np.array([of_layers for of_layers, _ in changes]),
            embedding=np.array([of_embedding for _, of_embedding in changes]),
            scale=np.array([_scale(layer) for layer in text.layers]),
            lengths=np.array([layer.X[text.own].norm(dim=1).tolist() for layer in text.layers]),
            words=[vocabulary.names[token] for token in tokens],
        )


class ModelText:
    """The first tokens of a review, and what becomes of the model's layers as one is another."""

    def __init__(self, model: Model, review: Embedded) -> None:
        loaded, n = model.loaded, len(review)
        encoding = encode(loaded.model, loaded.tokenizer, review.text, n)
        self.own = [i for i, special in enumerate(encoding.special) if not special]
        self.places = places.replaceable(None, review, 0, "words").rows
        self._attention, self._inputs = model.attention, encoding.inputs
        self._pooled = PooledText(loaded, 0, review.text, n)
        self.layers: list[AttentionLayer] = [*model.attention.layers(encoding.inputs)]
        self._outputs = _outputs(self.layers)

    def changes(self, place: int, token: int) -> tuple[list[float], float]:
        """Relative changes of the output of each layer's heads, and of the pooled output."""
        ids = [*self._inputs["input_ids"]]
        ids[self.own[place]] = token
        after = _outputs(self._attention.layers({**self._inputs, "input_ids": ids}))
        pairs = zip(self._outputs, after, strict=True)
        of_layers = [float((new - old).norm() / old.norm()) for old, new in pairs]
        return of_layers, self._pooled.change((place,), (token,))


def _outputs(layers: list[Any]) -> list[Tensor]:
    """Of each layer all heads (H, n, d_v)."""
    return [layer.heads.output() for layer in layers]


def _scale(layer: AttentionLayer) -> list[float]:
    """√rows σ_max(W_V) / ‖o‖ of each head."""
    heads, given = layer.heads, LayerInput(layer)
    count, rows, d_k = heads.keys.shape
    if not given.linear:
        return [math.nan] * count
    values = given.matrix[:, :, d_k : d_k + heads.values.shape[-1]].movedim(1, 0)
    norms = torch.linalg.matrix_norm(values, 2)
    found: list[float] = (rows**0.5 * norms / heads.output().flatten(1).norm(dim=1)).tolist()
    return found
