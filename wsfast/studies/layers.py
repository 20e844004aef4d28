"""Word sensitivity of the heads of trained layers, on one text after another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from wsfast._inputs import Places
from wsfast._progress import Progress
from wsfast.maps.attention_layer import AttentionLayer
from wsfast.maps.feature_map import PreparedText
from wsfast.maps.heads import HeadsMap
from wsfast.maps.layer_input import LayerInput
from wsfast.studies.worst_case import Asked, WorstCase, each_once, of_places

COMBINE = ("each", "concatenated", "projected")
"""What is measured: each head, all side by side, or what W_O makes of them."""

_SHUFFLE = 0x5B0F  # tells the seeds of shuffles from others


@dataclass(frozen=True)
class LayerQuestion:
    """What is asked of every layer of every text."""

    combine: str
    at: str  # see `LayerInput`
    heads: list[int] | None  # None: all
    asked: list[Asked]  # one for each radius
    draws: int  # of shuffled weights
    backend: str | None

    def heads_of(self, layer: AttentionLayer) -> list[int]:
        """Numbers of the heads that are measured of a layer.

        Raises
        ------
        ValueError
            If it has no head of a number that is asked for.
        """
        count = len(layer.heads.keys)
        heads = list(range(count)) if self.heads is None else self.heads
        if max(heads) >= count:
            raise ValueError(
                f"heads must be from 0 to {count - 1} in layer {layer.number}, got {max(heads)}"
            )
        return heads

    def maps(self, layer: AttentionLayer) -> list[HeadsMap]:
        """What is measured of a layer: one map for each entry of the axis of heads."""
        given, heads = LayerInput(layer, self.at), self.heads_of(layer)
        if self.combine == "each":
            return [HeadsMap(given, [head]) for head in heads]
        return [HeadsMap(given, heads, projected=self.combine == "projected")]

    def work(self, layers: Sequence[AttentionLayer], places: int) -> int:
        """Words that are moved, in all heads and at all radii."""
        counts = [len(self.heads_of(layer)) for layer in layers]
        each = sum(counts) if self.combine == "each" else len(counts)
        return each * places * len(self.asked) * (1 + self.asked[0].bound + self.draws)


@dataclass(frozen=True)
class OfText:
    """What was found for one text, over layers, heads and radii."""

    value: Tensor  # (L, H, R)
    per_word: Tensor  # (L, H, R, P)
    place: Tensor  # (L, H, R) among the P; -1 where S is NaN
    delta: Tensor  # (L, H, R, m, d)
    control: Tensor  # (C, L, H, R)
    upper: Tensor | None  # (L, H, R, P)
    unbounded: str  # why there are no bounds, where there are none
    steps: int


def of_text(
    layers: Sequence[AttentionLayer], places: Places, question: LayerQuestion, bar: Progress
) -> OfText:
    """The worst case at every place of the text that the layers were captured on."""
    found = [_of_layer(layer, places, question, bar) for layer in layers]
    plain = replace(question, asked=[asked._replace(bound=False) for asked in question.asked])
    of_heads = [of_radii for one in found for of_radii in one]
    flat = [worst for of_radii in of_heads for worst in of_radii]
    shape = (len(found), len(found[0]), len(question.asked))
    per_word = torch.stack([one.per_word for one in flat]).unflatten(0, shape)
    upper = [one.upper for one in flat if one.upper is not None]
    value, place = _largest(per_word)
    best = place.clamp(min=0).flatten().tolist()
    delta = torch.stack([one.delta[p].float() for one, p in zip(flat, best, strict=True)])
    control = [
        _largest(torch.stack([one.per_word for one in of_radii]))[0]
        for draw in range(question.draws)
        for layer in layers
        for of_radii in _of_layer(_shuffled(layer, draw, question), places, plain, bar)
    ]
    return OfText(
        value=value,
        per_word=per_word,
        place=place,
        delta=delta.unflatten(0, shape),
        upper=torch.stack(upper).unflatten(0, shape) if upper else None,
        unbounded=each_once(one.unbounded for one in flat),
        control=torch.stack(control).view(-1, *shape) if control else value.new_empty(0, *shape),
        steps=max(one.steps for one in flat),
    )


def _of_layer(
    layer: AttentionLayer, places: Places, question: LayerQuestion, bar: Progress
) -> list[list[WorstCase]]:
    """Of every head, at every radius."""
    X = layer.X
    keep = torch.ones(len(X), dtype=torch.bool, device=X.device)
    budget = question.asked[0].options.memory_budget
    texts: list[PreparedText] = []
    with torch.no_grad():
        for one in question.maps(layer):
            texts += one.prepare([one.given.X], one.given.engine(question.backend), budget)
        of_radii = [of_places(texts, places, keep, asked, bar) for asked in question.asked]
    return [list(of_head) for of_head in zip(*of_radii, strict=True)]


def _shuffled(layer: Any, draw: int, question: LayerQuestion) -> AttentionLayer:
    """The layer with weights that depend on the seed, its number and the draw, on no text."""
    seed = question.asked[0].options.seed
    sequence = np.random.SeedSequence([seed, _SHUFFLE, layer.number, draw])
    number = int(sequence.generate_state(1, np.uint64)[0])
    twin: AttentionLayer = layer.shuffled(torch.Generator().manual_seed(number >> 1))
    return twin


def _largest(per_word: Tensor) -> tuple[Tensor, Tensor]:
    """The largest S_i (…, P) and its place; NaN and -1 where none is known."""
    known = ~per_word.isnan()
    if per_word.shape[-1] == 0:
        none = per_word.new_full(per_word.shape[:-1], math.nan)
        return none, none.new_full(none.shape, -1, dtype=torch.int64)
    value, place = per_word.masked_fill(~known, -torch.inf).max(-1)
    some = known.any(-1)
    return value.masked_fill(~some, math.nan), place.masked_fill(~some, -1)
