"""The pooled output of a whole model for a text, and its change as tokens become others."""

from __future__ import annotations

import math

from torch import Tensor

from wsfast._inputs import Site
from wsfast.text import models, tokens


class PooledText:
    """A text that is run through a whole model.

    The pooled output is the mean of the last hidden state over the tokens that are not special.

    Parameters
    ----------
    model : Loaded
    index : int
        Number of the text, for messages.
    text : str
    max_tokens : int, optional
        As in :func:`wsfast.embed`.

    Raises
    ------
    TooLongError
        If the text has more tokens than the model has positions.
    """

    def __init__(self, model: models.Loaded, index: int, text: str, max_tokens: int | None) -> None:
        encoding = tokens.encode(model.tokenizer, text).first(max_tokens)
        tokens.check_length(f"texts[{index}]", len(encoding.tokens), model.limit)
        self._model = model
        self._inputs, self._special = encoding.inputs, encoding.special
        self._own = [i for i, special in enumerate(encoding.special) if not special]
        self._output = self._pooled(self._inputs, self._special)

    def change(self, site: Site, ids: Site) -> float:
        """‖p' - p‖ / ‖p‖ of the pooled output p, as the tokens of `site` give way to others.

        `site` numbers tokens that follow one another, special ones not counted. NaN where the
        model has no positions for so many tokens.
        """
        start, stop = self._own[site[0]], self._own[site[-1]] + 1
        # A new token is attended to, and is of a segment, as the first of those before.
        inputs = {
            name: [
                *old[:start],
                *(ids if name == "input_ids" else [old[start]] * len(ids)),
                *old[stop:],
            ]
            for name, old in self._inputs.items()
        }
        special = [*self._special[:start], *[False] * len(ids), *self._special[stop:]]
        if self._model.limit is not None and len(special) > self._model.limit:
            return math.nan
        size = float(self._output.norm())
        moved = float((self._pooled(inputs, special) - self._output).norm())
        return moved / size if size > 0 else math.nan

    def _pooled(self, inputs: dict[str, list[int]], special: list[bool]) -> Tensor:
        own = [i for i, flag in enumerate(special) if not flag]
        return self._model.last(inputs)[own].double().mean(0)
