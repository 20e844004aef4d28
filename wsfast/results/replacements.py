"""What :func:`wsfast.substitute` returns for one text."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from wsfast._extras import import_extra
from wsfast._warn import warn
from wsfast.results.rank_correlation import rank_correlation
from wsfast.results.shown import shown_by

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

    from wsfast.results.embedded import Embedded
    from wsfast.results.sensitivity import SensitivityResult
    from wsfast.results.substitution import SubstitutionResult


class Replacement(NamedTuple):
    """One word put in place of another.

    Attributes
    ----------
    position : int
        The word of the text that is replaced, or of which a token is: its number among
        ``embedded.words``, as ``raf_sensitivity(embedded.X).whole_words(embedded)`` counts them.
    old, new : str
        The token as the text writes it, and the token that comes in its place; "##" in front of
        those that continue a word. With ``replace="several"`` or ``"rewrite"`` the word, and the
        candidate as it was given.
    value : float
        Relative change of the features, ‖φ(X') - φ(X)‖ / ‖φ(X)‖; the mean over draws of W.
    distance : float
        ‖v - x_i‖, the norm of the change of the word's vector; of several tokens the joint norm,
        the root of the sum of squares. NaN where the number of tokens changes.
    text : str
        The text with the replacement in it.
    rows : {"all", "others"}
        Which rows of φ(X') - φ(X) the value is of: all, or with ``replace="rewrite"`` those of the
        other words alone. Values of the two kinds do not compare.
    model_change : float
        With `through_model`, the relative change of the whole model's pooled output, see
        :func:`wsfast.substitute`. NaN where the text was not run, or has become too long for the
        model.
    """

    position: int
    old: str
    new: str
    value: float
    distance: float
    text: str
    rows: str = "all"
    model_change: float = math.nan


class LeftOut(NamedTuple):
    """How many words of a text were left as they are.

    Attributes
    ----------
    split : int
        Words of several tokens, such as "I've": no row of the table stands for one. Also a last
        word that `max_tokens` cuts.
    punctuation : int
        Punctuation marks, emoji and other symbols.
    unmatched : int
        With ``replace="several"``, words of as many tokens as no candidate has.
    """

    split: int
    punctuation: int
    unmatched: int = 0


@dataclass(frozen=True, eq=False, repr=False)
class Replacements:
    """The words that change a text most (or least), and how near they come to the worst case.

    Attributes
    ----------
    replacements : list of Replacement
        Largest change first; smallest first, if those were searched. With draws of W, the pairs
        that are among the `top_k` of any draw, in the order of their means.
    share_attained : float
        Change that the first of them makes, over S: the largest that any vector in the ball of
        radius √d around a word can make. With draws, the means of both. The ball of a word of
        several tokens is the joint one: all their changes together are at most √d. NaN with
        ``replace="rewrite"``, whose values no ball bounds.
    share_attained_at_distance : float
        The same, over the largest change of any vector as near as that word. The word is one of
        them, so this is at most 1.
    result : SubstitutionResult
        What the search found: the best candidate of every token, heat maps. Its positions are rows
        of X, labelled with the tokens of the text; its candidates are token ids, labelled with
        those of the vocabulary. With ``replace="several"`` or ``"rewrite"`` its positions are the
        words in ``result.sites``, its candidates the token ids in ``result.tuples``.
    left_out : LeftOut
        How many of the words that were asked for could not be replaced.
    embedded : Embedded
        The text, its tokens and their vectors X (n, d).
    sensitivity, sensitivity_at_distance : SensitivityResult, optional
        Searches of the ball, of radius √d and of the first word's distance, at the tokens, or the
        sites, that were replaced here. None with ``replace="rewrite"``.
    """

    replacements: list[Replacement]
    share_attained: float
    share_attained_at_distance: float
    result: SubstitutionResult
    left_out: LeftOut
    embedded: Embedded
    sensitivity: SensitivityResult | None
    sensitivity_at_distance: SensitivityResult | None

    @property
    def model_correlation(self) -> float:
        """Spearman's rank correlation of `value` and `model_change`, where the model was run.

        Ties have their mean rank; NaN for fewer than 3 replacements. **The range is truncated**:
        those run are one end of the ranking, and their correlation is not that of all words, see
        :func:`wsfast.substitute`.
        """
        run = [row for row in self.replacements if not math.isnan(row.model_change)]
        return rank_correlation([row.value for row in run], [row.model_change for row in run])

    @property
    def gap(self) -> float:
        """The name that `share_attained` had: 1 means that there is no gap."""
        return self._renamed("gap", "share_attained")

    @property
    def gap_at_distance(self) -> float:
        """The name that `share_attained_at_distance` had."""
        return self._renamed("gap_at_distance", "share_attained_at_distance")

    def _renamed(self, old: str, new: str) -> float:
        warn(f"Replacements.{old} is called {new} now; wsfast 0.2 knows only that", FutureWarning)
        value: float = getattr(self, new)
        return value

    def to_frame(self) -> DataFrame:
        """Give the replacements as a pandas DataFrame, one row each, in their order.

        Its columns are the fields of :class:`Replacement`.

        Raises
        ------
        ImportError
            If pandas is not installed; the message has the pip command.
        """
        pandas = import_extra("pandas", "tables")
        frame: DataFrame = pandas.DataFrame(self.replacements, columns=Replacement._fields)
        return frame

    def plot(self, ax: Axes | None = None, *, draw: int = 0) -> Axes:
        """Draw what the best candidates change at every word that was searched, as a heat map.

        See :meth:`wsfast.SubstitutionResult.plot`; `draw` is one of several draws of W.
        """
        return self.result.plot(ax, draw=draw)

    def __repr__(self) -> str:
        return shown_by("replacements").describe(self)

    def _repr_html_(self) -> str:
        return shown_by("replacements").to_html(self)
