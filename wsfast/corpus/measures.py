"""What is measured of each text of a corpus, and the columns that it gives."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import numpy as np

from wsfast.results.arrays import to_numpy
from wsfast.results.embedded import Embedded
from wsfast.results.sensitivity import SensitivityResult
from wsfast.text import models
from wsfast.text.embed import embed
from wsfast.text.layer_sensitivity import Prepared, layer_sensitivity
from wsfast.text.score import Scoring
from wsfast.text.substitute import Substituting

Columns = dict[str, str]
"""Names of columns, and of what kind each is: float, int, string, or a list of them."""

COMMON: Columns = {"error": "string", "tokens": "int", "cut": "int", "words": "strings"}
"""Columns of every text, whatever is measured."""


class Measure(ABC):
    """One thing that is measured of every text."""

    name: ClassVar[str]
    """What a user calls it."""
    searched: ClassVar[tuple[str, ...]] = ()
    """Columns that a search has found: lower bounds."""
    proved: ClassVar[str] = ""
    """The column that says what these cannot exceed."""

    @staticmethod
    @abstractmethod
    def columns(*, bound: bool) -> Columns:
        """What it gives of a text."""

    @abstractmethod
    def of(self, texts: Sequence[Embedded]) -> list[dict[str, Any]]:
        """The values of these columns for each of some texts of one length.

        None of them depends on the other texts.

        Raises
        ------
        TypeError, ValueError
            If one of the texts cannot be measured.
        """


class Ball(Measure):
    """The worst case over the ball, at every word."""

    name = "ball"
    searched, proved = ("S", "S_i"), "upper"

    def __init__(self, scoring: Scoring, *, bound: bool) -> None:
        self._scoring, self._bound = scoring, bound

    @staticmethod
    def columns(*, bound: bool) -> Columns:
        found = {"S": "float", "position": "int", "word": "string", "S_i": "floats"}
        return found | ({"upper": "float", "upper_i": "floats"} if bound else {})

    def of(self, texts: Sequence[Embedded]) -> list[dict[str, Any]]:
        return [self._columns_of(one) for one in self._scoring.results(texts, bound=self._bound)]

    def _columns_of(self, result: SensitivityResult) -> dict[str, Any]:
        found = dict(zip(("S", "position", "word", "S_i"), _worst(result), strict=True))
        if not self._bound:
            return found
        return found | {"upper": number(result.upper_value), "upper_i": numbers(result.upper)}


class Mask(Measure):
    """The same with each word hidden from all attention."""

    name = "mask"

    def __init__(self, scoring: Scoring) -> None:
        self._scoring = scoring

    @staticmethod
    def columns(*, bound: bool) -> Columns:
        return {
            "mask_max": "float",
            "mask_position": "int",
            "mask_word": "string",
            "mask_i": "floats",
        }

    def of(self, texts: Sequence[Embedded]) -> list[dict[str, Any]]:
        names = self.columns(bound=False)
        each = self._scoring.results(texts, "mask")
        return [dict(zip(names, _worst(one), strict=True)) for one in each]


class Substitute(Measure):
    """The word of the vocabulary that changes the text most, at every word that can be replaced."""

    name = "substitute"

    def __init__(self, model: models.Model, unit: str, *, seed: int, backend: str | None) -> None:
        self._model, self._of_tokens = model, unit == "token"
        self._substituting = Substituting(model, seed=seed, backend=backend)

    @staticmethod
    def columns(*, bound: bool) -> Columns:
        return {
            "substitute_max": "float",
            "substitute_position": "int",
            "substitute_word": "string",
            "substitute_new": "string",
            "substitute_i": "floats",
        }

    def of(self, texts: Sequence[Embedded]) -> list[dict[str, Any]]:
        return [self._of(embedded) for embedded in texts]

    def _of(self, embedded: Embedded) -> dict[str, Any]:
        # The raw rows of the tokens that the other measures see, which a model may have cut.
        words = embed(embedded.text, self._model, "words", max_tokens=len(embedded))
        result = self._substituting.found(words, self._substituting.asked(0, words), 1)
        best, each = result.top()[0], to_numpy(result.best_value)
        if self._of_tokens:
            spans, position = [(i, i + 1) for i in range(len(words))], best.position
        else:
            spans, position = words.word_spans, words.word_numbers[best.position]
        largest = [_largest(each[start:stop]) for start, stop in spans]
        values = (best.value, position, best.word, best.name, largest)
        return dict(zip(self.columns(bound=False), values, strict=True))


class Layers(Measure):
    """S of every head of the trained model."""

    name = "layers"
    searched, proved = ("heads_max", "head_S"), "heads_upper"

    def __init__(
        self,
        model: models.Model,
        *,
        layers: Iterable[int] | None,
        heads: Iterable[int] | None,
        relative_radius: float,
        bound: bool,
        seed: int,
        backend: str | None,
    ) -> None:
        self._prepared = Prepared(model)
        self._options: dict[str, Any] = {
            "layers": layers,
            "heads": heads,
            "relative_radius": relative_radius,
            "bound": bound,
            "seed": seed,
            "backend": backend,
        }

    @staticmethod
    def columns(*, bound: bool) -> Columns:
        return {
            "heads_max": "float",
            "heads_layer": "int",
            "heads_head": "int",
            "heads_word": "string",
            "head_layer": "ints",
            "head": "ints",
            "head_S": "floats",
            "head_word": "strings",
            **({"heads_upper": "float", "head_upper": "floats"} if bound else {}),
        }

    def of(self, texts: Sequence[Embedded]) -> list[dict[str, Any]]:
        return [self._of(embedded) for embedded in texts]

    def _of(self, embedded: Embedded) -> dict[str, Any]:
        result = layer_sensitivity(
            self._prepared, embedded.text, max_tokens=len(embedded), **self._options
        )
        S, position = (to_numpy(array)[..., 0] for array in (result.value, result.position))
        layer, head = (axis.ravel() for axis in np.indices(S.shape))
        words = [result.words[0][i] if i >= 0 else None for i in position.ravel()]
        best = int(np.nanargmax(S))
        numbers_of = {"layer": np.array(result.layers), "head": np.array(result.heads)}
        found = {
            "heads_max": number(S.flat[best]),
            "heads_layer": int(numbers_of["layer"][layer[best]]),
            "heads_head": int(numbers_of["head"][head[best]]),
            "heads_word": words[best],
            "head_layer": numbers_of["layer"][layer].tolist(),
            "head": numbers_of["head"][head].tolist(),
            "head_S": numbers(S.ravel()),
            "head_word": words,
        }
        if result.upper_value is None:
            return found
        upper = to_numpy(result.upper_value)[..., 0].ravel()
        return found | {"heads_upper": number(upper.max()), "head_upper": numbers(upper)}


BY_NAME: dict[str, type[Measure]] = {one.name: one for one in (Ball, Mask, Substitute, Layers)}
"""All that can be measured."""


def number(value: Any) -> float | None:
    """A value that a table can hold: NaN is none."""
    found = float(value)
    return None if math.isnan(found) else found


def numbers(values: Any) -> list[float | None]:
    """The same for each of an array."""
    return [number(value) for value in to_numpy(values).tolist()]


def _worst(result: SensitivityResult) -> tuple[float | None, int | None, str | None, list[Any]]:
    """S, where it is attained and by which word, and S_i."""
    position = int(result.position)
    if position < 0:
        return None, None, None, numbers(result.per_word)
    assert result.words is not None
    return number(result.value), position, str(result.words[position]), numbers(result.per_word)


def _largest(values: Any) -> float | None:
    """The largest of those that are known."""
    known = values[~np.isnan(values)]
    return float(known.max()) if len(known) else None
