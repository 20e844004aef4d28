"""`Scorer`: word sensitivity of a batch of texts, for the engines that have many."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from wsfast import _values
from wsfast._extras import import_extra
from wsfast.corpus.measures import BY_NAME, COMMON, Ball, Layers, Mask, Measure, Substitute
from wsfast.results.embedded import Embedded
from wsfast.text import models
from wsfast.text.batch import by_length
from wsfast.text.embed import checked_max_tokens, is_missing, items_of
from wsfast.text.score import UNITS, Scoring
from wsfast.text.tokens import UnfitTextError

if TYPE_CHECKING:
    import pyarrow as pa

LONG = ("cut", "skip")
"""What may be done with a text of too many tokens: one text never ends a batch."""

_PROBE = "a"  # a text on which settings that no text can meet show


class Scorer:
    """Word sensitivity of texts, as a function of a batch of columns.

    It can be pickled, and is then its settings alone: every process loads the model once, at its
    first batch. Texts of one length share work, but a value never depends on the rest of its
    batch. What of a text cannot be measured is None, and its `error` says why.

    Parameters
    ----------
    model : str, (model, tokenizer) or SentenceTransformer
        As in :func:`wsfast.embed`.
    what : str or sequence of str
        What is measured, one or several of:

        - "ball", the worst case over the ball, as :func:`wsfast.score` finds it: columns `S`,
          `position`, `word`, and the list `S_i`; with `bound` also `upper` and the list `upper_i`;
        - "mask", the same with each word hidden from all attention: `mask_max`, `mask_position`,
          `mask_word`, and the list `mask_i`;
        - "substitute", the best of all words of the vocabulary, as :func:`wsfast.substitute` finds
          it: `substitute_max`, `substitute_position`, `substitute_word`, `substitute_new`, and the
          list `substitute_i` (None where a word cannot be replaced);
        - "layers", the heads of the trained model, as :func:`wsfast.layer_sensitivity` finds it:
          `heads_max`, `heads_layer`, `heads_head`, `heads_word`, and the lists `head_layer`,
          `head`, `head_S`, `head_word` of all heads; with `bound` also `heads_upper` and the list
          `head_upper`.
    column : str, default "text"
        Column of a batch that holds the texts.
    keep : sequence of str
        Columns of a batch that are given back as they are.
    layer, unit, weight_fn, normalize, radius
        As in :func:`wsfast.score`; of "ball" and "mask". Words of the columns are those units.
    quick : bool, default True
        As in :func:`wsfast.raf_sensitivity`; of "ball".
    bound : bool, default False
        Whether to prove from above as well; of "ball" and "layers".
    layers, heads, relative_radius
        As in :func:`wsfast.layer_sensitivity`; of "layers". One radius, 0.1 by default.
    max_tokens : int, optional
        Keep only the first `max_tokens` tokens of a text.
    long : {"cut", "skip"}
        Whether a text of more tokens than the model takes is cut, or has an error.
    seed : int, default 0
        Of the random W, the same for all texts, and of the search.
    backend : {"reference", "torch", "native"}, optional
        As in :func:`wsfast.raf_sensitivity`.

    Raises
    ------
    TypeError, ValueError
        For options outside of these; of a model, and what a model does not have, at the first
        batch.

    Notes
    -----
    Every batch also has `error` (None where there is none), `tokens`, how many tokens of a text
    are measured, `cut`, how many it has where the model takes only its beginning, and `words`, the
    words that S_i is of. docs/corpus.md shows it with `datasets`, Ray Data, pandas, polars and
    Spark.

    A layer's sensitivity is not the model's, and a search gives a lower bound.

    Examples
    --------
    >>> scorer = Scorer(max_tokens=128)
    >>> found = scorer({"text": ["I love her much", None]})  # doctest: +SKIP
    >>> found["word"], found["error"]  # doctest: +SKIP
    (['much', None], [None, 'must be a str, got a missing value (None)'])
    """

    def __init__(
        self,
        model: models.Model = models.PACKAGED,
        what: str | Sequence[str] = Ball.name,
        *,
        column: str = "text",
        keep: Sequence[str] = (),
        layer: int | str = 0,
        unit: str = "word-max",
        weight_fn: str = "softmax",
        normalize: bool = True,
        radius: float | None = None,
        quick: bool = True,
        bound: bool = False,
        layers: Iterable[int] | None = None,
        heads: Iterable[int] | None = None,
        relative_radius: float = 0.1,
        max_tokens: int | None = None,
        long: str = "cut",
        seed: int = 0,
        backend: str | None = None,
    ) -> None:
        models.check(model)
        self._settings: dict[str, Any] = {
            "model": model,
            "what": _whats(what),
            "column": _names("column", [column])[0],
            "keep": _names("keep", keep),
            "layer": layer,
            "unit": _values.one_of("unit", unit, UNITS),
            "weight_fn": weight_fn,
            "normalize": _values.flag("normalize", normalize),
            "radius": None if radius is None else _values.number("radius", radius, low=0),
            "quick": _values.flag("quick", quick),
            "bound": _values.flag("bound", bound),
            "layers": None if layers is None else _integers("layers", layers),
            "heads": None if heads is None else _integers("heads", heads),
            "relative_radius": _values.number("relative_radius", relative_radius, low=0),
            "max_tokens": checked_max_tokens(max_tokens),
            "long": _values.one_of("long", long, LONG),
            "seed": _values.seed(seed),
            "backend": backend,
        }

    @property
    def settings(self) -> dict[str, Any]:
        """All that was given, a model by its name; JSON can hold it."""
        encoder = None if isinstance(self.model, str) else models.load(self.model)[0]
        return self._settings | {"model": models.name_of(self.model, encoder)}

    @property
    def model(self) -> models.Model:
        """As it was given."""
        given: models.Model = self._settings["model"]
        return given

    @property
    def column(self) -> str:
        """Column of a batch that holds the texts."""
        return str(self._settings["column"])

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the columns, those of `keep` left out.

        Raises
        ------
        ImportError
            If pyarrow is not installed; the message has the pip command.
        """
        arrow = import_extra("pyarrow", "tables")
        kinds = {
            "string": arrow.string(),
            "int": arrow.int32(),
            "float": arrow.float64(),
            "strings": arrow.list_(arrow.string()),
            "ints": arrow.list_(arrow.int32()),
            "floats": arrow.list_(arrow.float32()),
        }
        return arrow.schema([(name, kinds[kind]) for name, kind in self._kinds.items()])

    @property
    def columns(self) -> list[str]:
        """Names of the columns, those of `keep` left out."""
        return list(self._kinds)

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, list[Any]]:
        """Measure the texts of a batch.

        Parameters
        ----------
        batch : mapping of str to columns
            A dict of lists, or of arrays of NumPy or Arrow; a DataFrame of pandas or polars; an
            Arrow table.

        Returns
        -------
        dict of str to list
            The columns, a value for each text: Python numbers, strings, and lists of them; None
            where a text has no such value.

        Raises
        ------
        ImportError, OSError
            If there is no such model, or a package for it is not installed.
        ValueError
            If the batch has no such column, or no text can be measured with these settings.
        """
        items = self._column(batch, self.column)
        kept = {name: self._column(batch, name) for name in self._settings["keep"]}
        rows: list[dict[str, Any]] = [{} for _ in items]
        for group in by_length(self._embedded(items, rows)):
            found = self._measured([embedded for _, embedded in group])
            for (index, _), columns in zip(group, found, strict=True):
                rows[index] |= columns
        return {**kept, **{name: [row.get(name) for row in rows] for name in self._kinds}}

    def __getstate__(self) -> dict[str, Any]:
        """What was loaded stays in its process."""
        return {"_settings": self._settings}

    @cached_property
    def _kinds(self) -> dict[str, str]:
        """Kind of every column."""
        kinds = dict(COMMON)
        for name in self._settings["what"]:
            kinds |= BY_NAME[name].columns(bound=self._settings["bound"])
        return kinds

    @cached_property
    def _ready(self) -> tuple[Scoring, list[Measure]]:
        """What reads texts and what measures them; settings that no text can meet are told here."""
        own = self._settings
        names = ("layer", "unit", "weight_fn", "normalize", "radius", "seed", "quick")
        shared = {name: own[name] for name in (*names, "max_tokens", "long", "backend")}
        scoring = Scoring(own["model"], scale=True, draws=None, **shared)
        given = {"seed": own["seed"], "backend": own["backend"]}
        of_heads = {name: own[name] for name in ("layers", "heads", "relative_radius", "bound")}
        made: dict[str, Callable[[], Measure]] = {
            Ball.name: lambda: Ball(scoring, bound=own["bound"]),
            Mask.name: lambda: Mask(scoring),
            Substitute.name: lambda: Substitute(own["model"], own["unit"], **given),
            Layers.name: lambda: Layers(own["model"], **of_heads, **given),
        }
        measures = [made[name]() for name in own["what"]]
        embedded, _ = scoring.embedded(0, _PROBE)
        for measure in measures:
            measure.of([embedded])
        return scoring, measures

    def _embedded(
        self, items: Iterable[Any], rows: Sequence[dict[str, Any]]
    ) -> Iterator[tuple[int, Embedded]]:
        """The texts that can be measured, numbered; `rows` get what is known of all of them."""
        scoring, _ = self._ready
        for index, item in enumerate(items):
            try:
                # What engines write where a column has a gap, they write in their own ways.
                embedded, cut = scoring.embedded(index, None if is_missing(item) else item)
            except UnfitTextError as error:  # noqa: PERF203
                rows[index]["error"] = error.reason
            except Exception as error:  # one text never ends a batch
                rows[index]["error"] = _told(error)
            else:
                rows[index] |= {
                    "tokens": len(embedded),
                    "cut": None if cut is None else cut.tokens,
                    "words": scoring.labels(embedded),
                }
                yield index, embedded

    def _measured(self, texts: Sequence[Embedded]) -> list[dict[str, Any]]:
        """The values of texts of one length; `error` where some of them cannot be had."""
        rows: list[dict[str, Any]] = [{} for _ in texts]
        problems = []
        for measure in self._ready[1]:
            try:
                each = measure.of(texts)
            except Exception as error:  # noqa: PERF203
                if len(texts) > 1:  # which of them it is shows when each is alone
                    return [self._measured([text])[0] for text in texts]
                problems.append(f"{measure.name}: {_told(error)}")
            else:
                rows = [row | found for row, found in zip(rows, each, strict=True)]
        if problems:  # of the only text
            rows[0]["error"] = "; ".join(problems)
        return rows

    def _column(self, batch: Mapping[str, Any], name: str) -> list[Any]:
        try:
            column = batch[name]
        except LookupError as error:
            names = getattr(batch, "column_names", None) or list(batch)
            listed = ", ".join(map(repr, names)) or "none"
            raise ValueError(f"batch must have a column {name!r}, got {listed}") from error
        return items_of(column)


def _told(error: Exception) -> str:
    """What is wrong, in a line."""
    message = " ".join(str(error).split())
    reason = message.removeprefix("texts[0] ")
    return reason if isinstance(error, ValueError) else f"{type(error).__name__}: {message}"


def _whats(what: object) -> list[str]:
    """Names of measures, each once."""
    names = [what] if isinstance(what, str) else list(_names("what", what))
    for name in names:
        _values.one_of("what", name, tuple(BY_NAME))
    if not names:
        raise ValueError(f"what must name one of {', '.join(BY_NAME)}, got none")
    return list(dict.fromkeys(names))


def _integers(argument: str, values: Iterable[int]) -> list[int]:
    return [_values.integer(f"{argument}[{k}]", value, low=0) for k, value in enumerate(values)]


def _names(argument: str, names: object) -> list[str]:
    """Names of columns, or of measures."""
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise TypeError(f"{argument} must be a list of str, got {type(names).__name__}")
    for k, name in enumerate(names):
        if not isinstance(name, str):
            raise TypeError(f"{argument}[{k}] must be a str, got {type(name).__name__}")
    return list(names)
