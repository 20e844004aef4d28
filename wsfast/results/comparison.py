"""What :func:`wsfast.compare` returns: attention of two texts that differ in one word."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from wsfast.results.shown import shown_by

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor


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
        return existing(self.trained, self.info["model"])

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
        drawn: np.ndarray[Any, Any] = shown_by("comparison").plot(self, head)
        return drawn

    def __repr__(self) -> str:
        return shown_by("comparison").describe(self)

    def _repr_html_(self) -> str:
        return shown_by("comparison").to_html(self)


def existing(heads: HeadAttention | None, model: str) -> HeadAttention:
    """Refuse to speak of heads where the model returned no attention."""
    if heads is None:
        raise ValueError(
            f"model must return attention maps of heads over all tokens, got none from {model}: "
            "only the random features of this comparison are there"
        )
    return heads
