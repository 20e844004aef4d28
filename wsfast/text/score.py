"""`score`: word sensitivity of real text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from wsfast import _inputs, _values
from wsfast._inputs import Texts
from wsfast._progress import progress_bar
from wsfast.maps.attention import weight_function
from wsfast.maps.draws import Draws, attention_draws
from wsfast.perturbation.change import BALL, Kind
from wsfast.results.embedded import Embedded
from wsfast.results.scores import Cut, Scores, batch_of, texts_of
from wsfast.results.sensitivity import SensitivityResult
from wsfast.studies.sensitivity import sensitivity_under
from wsfast.text import models
from wsfast.text.batch import LONG, by_length, check_some_done, fitted, why_left_out
from wsfast.text.embed import checked_max_tokens, embedder_of, listed, text_of
from wsfast.text.tokens import UnfitTextError

UNITS = ("word-max", "word", "token")
"""What S_i may be of."""


def score(
    texts: str | Iterable[str],
    model: models.Model = models.PACKAGED,
    layer: int | str = 0,
    *,
    unit: str = "word-max",
    weight_fn: str = "softmax",
    normalize: bool = True,
    radius: float | None = None,
    perturbation: str | Kind = "ball",
    bound: bool = False,
    scale: bool = True,
    draws: int | None = None,
    seed: int = 0,
    quick: bool = False,
    max_tokens: int | None = None,
    long: str = "cut",
    backend: str | None = None,
    progress: bool = False,
) -> Scores:
    """Word sensitivity of a text, or of each text of a list: what ``wsfast score`` does.

    S_i is the largest relative change of random attention features when word i moves by at most
    the norm of an embedding; S is the largest of them. The vectors are those of :func:`embed`, the
    search is that of :func:`raf_sensitivity`, a few texts at a time: vectors are not kept, so that
    a list may be long.

    Parameters
    ----------
    texts : str, or sequence of str
        As in :func:`wsfast.embed`: a list, a column of pandas, … An entry of a sequence that cannot
        be done (missing, empty, without tokens, too long where `long` says so) is left out, and
        named in the result.
    model, layer, scale
        As in :func:`wsfast.embed`.
    unit : {"word-max", "word", "token"}
        S_i of whole words: the largest among the tokens of each; or of all tokens of a word at
        once, which move together within the radius. Or S_i of tokens.
    weight_fn, normalize, radius, perturbation, bound, backend
        As in :func:`wsfast.raf_sensitivity`; the radius is √d by default. A perturbation changes
        one token at a time.
    draws : int, optional
        Number R of independent random W.
    seed : int, default 0
        Of the random W, the same for all texts, and of the search.
    quick : bool, default False
        As in :func:`wsfast.raf_sensitivity`.
    max_tokens : int, optional
        Keep only the first `max_tokens` tokens of a text.
    long : {"cut", "skip", "fail"}
        What to do with a text of more tokens than `max_tokens` or the model takes: keep its
        beginning, leave it out, or end with an error. ``Scores.cut`` names those that the model
        cannot take whole.
    progress : bool, default False
        Whether to show a progress bar; of a list, in texts.

    Returns
    -------
    Scores
        Tables, pictures and files of it; ``.result`` is a :class:`SensitivityResult`.

    Raises
    ------
    ImportError
        If the extra ``text``, or ``mpnet`` for that model, is not installed.
    TypeError, ValueError
        For a single text that cannot be done, a list in which none can, an option outside of these,
        and what :func:`wsfast.embed` and :func:`wsfast.raf_sensitivity` refuse.
    OSError
        If there is no model of that name.

    Notes
    -----
    Definition (5) of Bombari & Mondelli (arXiv 2402.02969), for one layer of random attention over
    the vectors of a real text.

    Examples
    --------
    >>> scores = score(["I love her much", "", "so what"])  # doctest: +SKIP
    >>> scores.left_out  # doctest: +SKIP
    {1: "must have words, got an empty text: ''"}
    >>> scores.to_frame()  # doctest: +SKIP
    """
    items = listed(texts)
    shown = _values.flag("progress", progress)
    single = isinstance(texts, str)
    scoring = Scoring(
        model,
        layer,
        unit=unit,
        weight_fn=weight_fn,
        normalize=normalize,
        radius=radius,
        scale=scale,
        draws=draws,
        seed=seed,
        quick=quick,
        max_tokens=max_tokens,
        long=long,
        backend=backend,
    )
    bound = _values.flag("bound", bound)
    parts: list[SensitivityResult | None] = [None] * len(items)
    offsets: list[list[tuple[int, int]]] = [[] for _ in items]
    left_out: dict[int, str] = {}
    cut: dict[int, Cut] = {}
    with progress_bar(len(items), "text", shown and not single) as bar:

        def embedded() -> Iterator[tuple[int, Embedded]]:
            for index, item in enumerate(items):
                try:
                    text, shortened = scoring.embedded(index, item)
                except UnfitTextError as error:  # noqa: PERF203
                    left_out[index] = why_left_out(error, long, single=single)
                    bar.update(1)
                else:
                    cut.update({} if shortened is None else {index: shortened})
                    yield index, text

        for group in by_length(embedded()):
            options = {"bound": bound, "progress": shown and single}
            results = scoring.results([text for _, text in group], perturbation, **options)
            for (index, text), result in zip(group, results, strict=True):
                parts[index] = result
                offsets[index] = text.offsets if unit == "token" else text.word_offsets
            bar.update(len(group))
    check_some_done(len(items), left_out)
    return Scores(
        result=parts[0] if single and parts[0] is not None else batch_of(parts),
        texts=["" if index in left_out else str(item) for index, item in enumerate(items)],
        offsets=offsets,
        left_out=left_out,
        cut=cut,
        model=scoring.model,
        layer=layer,
        scale=scale,
        unit=unit,
    )


class Scoring:
    """A model and settings, checked and looked up once, for one text after another.

    The arguments are those of :func:`score`.
    """

    def __init__(
        self,
        model: models.Model,
        layer: int | str,
        *,
        unit: str,
        weight_fn: str,
        normalize: bool,
        radius: float | None,
        scale: bool,
        draws: int | None,
        seed: int,
        quick: bool,
        max_tokens: int | None,
        long: str,
        backend: str | None,
    ) -> None:
        self._unit = _values.one_of("unit", unit, UNITS)
        self._long = _values.one_of("long", long, LONG)
        self._max_tokens = checked_max_tokens(max_tokens)
        self._fn = weight_function(weight_fn, normalize)
        self._given = (None, draws, _values.seed(seed), backend)
        self._radius, self._quick = radius, _values.flag("quick", quick)
        self._embedder = embedder_of(model, layer, scale=scale)
        self._maps: Draws | None = None

    @property
    def model(self) -> str:
        """What results call it."""
        return self._embedder.name

    def embedded(self, index: int, item: object) -> tuple[Embedded, Cut | None]:
        """Vectors of text number `index`, and what the model could not take of it.

        Raises
        ------
        UnfitTextError
            For what is no text, or one that cannot be done.
        """
        text = text_of(f"texts[{index}]", item)
        encoding = self._embedder.encode(text)
        kept, cut = fitted(index, encoding, self._max_tokens, self._embedder.limit, self._long)
        embedded = self._embedder.embed(index, text, kept)
        _check_finite(index, embedded)
        return embedded, cut

    def labels(self, embedded: Embedded) -> list[str]:
        """What S_i is of, as the text writes it."""
        return embedded.labels if self._unit == "token" else embedded.words

    def results(
        self,
        texts: Sequence[Embedded],
        perturbation: str | Kind = BALL,
        *,
        bound: bool = False,
        progress: bool = False,
    ) -> list[SensitivityResult]:
        """S_i of the units of each text, labelled with them; together where that is faster.

        The texts have one length, and none of their values depends on the others.
        """
        if self._maps is None:
            # They are the same for all texts: drawn once.
            self._maps = attention_draws(_inputs.texts(texts[0].X), self._fn, *self._given).kept()
        maps = self._maps

        def found(X: Texts, spans: list[tuple[int, ...]] | None = None) -> SensitivityResult:
            return sensitivity_under(
                maps,
                X,
                positions=spans,
                radius=self._radius,
                perturbation=perturbation,
                seed=self._given[2],
                quick=self._quick,
                bound=bound,
                progress=progress,
            )

        if self._unit == "word":
            # A site is a word here, and is numbered as one.
            sites = [[tuple(range(*span)) for span in text.word_spans] for text in texts]
            return [
                replace(found(text.X, spans).with_words(text.words), sites=None)
                for text, spans in zip(texts, sites, strict=True)
            ]
        if len(texts) == 1:
            each = [found(texts[0].X)]
        else:
            each = texts_of(found([text.X for text in texts]))
        if self._unit == "word-max":
            return [one.whole_words(text) for one, text in zip(each, texts, strict=True)]
        return [one.with_words(self.labels(text)) for one, text in zip(each, texts, strict=True)]


def _check_finite(index: int, embedded: Embedded) -> None:
    """Refuse rows with NaN or infinity, which a model of few bits may give."""
    broken = (~embedded.X.isfinite().all(dim=1)).nonzero()
    if len(broken):
        position = int(broken[0])
        raise UnfitTextError(
            f"texts[{index}]",
            f"must have finite rows, got NaN or infinity in that of token "
            f"{embedded.tokens[position]!r} (position {position})",
        )
