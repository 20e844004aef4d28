"""`layer_sensitivity`: how much the attention of a trained model reacts to a single word."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from wsfast import _inputs, _values
from wsfast._inputs import Places, Site
from wsfast._precision import at_full_precision
from wsfast._progress import progress_bar
from wsfast.maps.layer_input import AT
from wsfast.perturbation.ball import BALLS
from wsfast.perturbation.change import BALL, Kind, kind_of
from wsfast.results.axes import joined
from wsfast.results.embedded import token_labels
from wsfast.results.layers import LayerSensitivityResult
from wsfast.results.scores import Cut
from wsfast.search.options import DEFAULT_BUDGET, SearchOptions, effort
from wsfast.studies.assemble import versions
from wsfast.studies.layers import COMBINE, LayerQuestion, OfText, of_text
from wsfast.studies.worst_case import Asked, each_once, norm_of
from wsfast.text import models, tokens
from wsfast.text.attention_layers import AttentionModel
from wsfast.text.batch import LONG, check_some_done, fitted, why_left_out
from wsfast.text.embed import checked_max_tokens, listed, text_of
from wsfast.text.tokens import Encoding, UnfitTextError

RADII = (0.1, 1.0)
"""Relative radii by default."""


class Prepared:
    """A model for several calls, loaded and made ready once, at the first that comes so far.

    For a caller who has texts one after another. The weights are those of then.
    """

    def __init__(self, model: models.Model) -> None:
        models.check(model)
        self._model = model

    @cached_property
    def loaded(self) -> tuple[Any, Any]:
        """The transformers model and its tokenizer."""
        encoder, tokenizer = models.load(self._model)
        models.check_tokenizer(tokenizer)
        return encoder, tokenizer

    @cached_property
    def attention(self) -> AttentionModel:
        """What gives the layers of a text."""
        return AttentionModel(self.loaded[0])

    @property
    def name(self) -> str:
        """What results call it."""
        return models.name_of(self._model, self.loaded[0])


@at_full_precision
def layer_sensitivity(
    model: models.Model | Prepared,
    texts: str | Iterable[str],
    *,
    layers: Iterable[int] | None = None,
    heads: Iterable[int] | None = None,
    combine: str = "each",
    perturbation: str | Kind = BALL,
    rows: str = "all",
    radius: float | Sequence[float] | None = None,
    relative_radius: float | Sequence[float] | None = None,
    at: str = "attention",
    ball: str = "joint",
    positions: Any = None,
    include_special: bool = False,
    control: str | None = None,
    control_draws: int = 8,
    seed: int = 0,
    starts: int = 4,
    max_steps: int = 60,
    tol: float = 1e-4,
    bound: bool = False,
    max_tokens: int | None = None,
    long: str = "cut",
    memory_budget: int = DEFAULT_BUDGET,
    backend: str | None = None,
    progress: bool = False,
) -> LayerSensitivityResult:
    """Word sensitivity of every attention head of a trained transformer, on real texts.

    For each text, layer, head and word, S_i is the largest relative change ‖o(X^i(Δ)) - o(X)‖ /
    ‖o(X)‖ of the output o (n, d_v) of the head when the vector of that word moves by at most the
    radius, and all else that the layer reads is kept. Queries, keys and values are the model's own,
    and their change is exact. The search gives a lower bound that is attained: the largest S_i of
    each head is verified by the model's own code, in float64.

    **A layer's sensitivity is not the model's.** It does not tell how the output of the whole model
    changes: over random words put into twelve reviews, the change of one of the first three layers
    of MiniLM had a rank correlation (Spearman) of 0.1 to 0.2 with that of the pooled output
    (docs/layers.md). And beyond the first layer it is the vector of a row that moves, not a word of
    the text, whose exchange would move all rows. :func:`wsfast.substitute` runs words through the
    whole model (`through_model`).

    Parameters
    ----------
    model, texts
        As in :func:`wsfast.embed`; decoders too, and of an encoder-decoder the encoder. The model
        is left as it was, and made ready once for all texts; `Prepared` of this module keeps it for
        several calls. An entry of a sequence that cannot be done is left out, and named.
    layers, heads : iterable of int, optional
        Which layers and heads, from 0; by default all.
    combine : {"each", "concatenated", "projected"}
        Measure each head; all of them side by side, (n, H d_v); or what the output map W_O makes of
        them, (n, d).
    perturbation, rows
        As in :func:`wsfast.raf_sensitivity`: "ball", "mask", "zero", "mean", or a function.
    radius : float or sequence of float, optional
        Largest ‖Δ‖. Not together with `relative_radius`.
    relative_radius : float or sequence of float, optional
        Largest ‖Δ‖ in units of the norm of that word's own vector at `at`; by default 0.1 and 1.
        Trained heads saturate at 1: small radii tell them apart.
    at : {"attention", "residual"}
        Where words move: at the input of the attention module (after the normalisation, where the
        model normalises before), or in the residual stream where the block begins.
    ball, positions
        As in :func:`wsfast.raf_sensitivity`, sites too. Positions are numbers of tokens, special
        ones not counted unless they are moved.
    include_special : bool, default False
        Whether special tokens ([CLS], [SEP]) are moved too. They always are rows.
    control : {None, "shuffled"}
        The same on twins of the layers, **on the same hidden states**: the entries of each matrix
        of queries, keys, values and output are permuted at random, in `control_draws` draws. A
        model with initialised weights is no control: its attention is flat.
    seed : int, default 0
        Of the starts of the search, and of the shuffles.
    starts, max_steps, tol, memory_budget, backend
        As in :func:`wsfast.raf_sensitivity`.
    bound : bool, default False
        Whether to prove from above as well, as in :func:`wsfast.raf_sensitivity`: for single heads
        whose queries, keys and values are linear in the word (BERT; GPT-2 at "attention") and whose
        scores have no soft cap; elsewhere `upper` is NaN, and ``info["bound"]["none"]`` says why.
        Heads are bounded less tightly than random attention. Not of shuffled twins.
    max_tokens, long
        As in :func:`wsfast.score`.
    progress : bool, default False
        Whether to show a progress bar, in words that are moved.

    Returns
    -------
    LayerSensitivityResult
        Axes (text, layer, head, radius, word); that of the texts only for a sequence.

    Raises
    ------
    ImportError
        If the extra ``text``, or ``mpnet`` for that model, is not installed.
    TypeError, ValueError
        For a model whose attention cannot be read (see :func:`wsfast.attention_layers`), a single
        text that cannot be done, a list in which none can, a layer, head or position that is not
        there, and options outside of these.
    OSError
        If there is no model of that name.

    Notes
    -----
    docs/design.md, section 7; what it shows on reviews: docs/layers.md. The definition is (5) of
    Bombari & Mondelli (arXiv 2402.02969), of trained heads.

    Examples
    --------
    >>> found = layer_sensitivity("minilm", "I love her much")  # doctest: +SKIP
    >>> found.value.shape  # layers, heads, radii  # doctest: +SKIP
    torch.Size([6, 12, 2])
    """
    name, given = _radius_of(radius, relative_radius)
    kind = kind_of(perturbation, given, name)
    radii = _radii(name, RADII if given is None else given) if kind is None else [math.nan]
    measure = norm_of(kind, rows)
    search = effort(
        memory_budget=memory_budget, seed=seed, starts=starts, max_steps=max_steps, tol=tol
    )
    relative = kind is None and radius is None
    if _values.flag("bound", bound) and (kind is not None or combine != "each"):
        raise ValueError(
            "bound must be False but for perturbation='ball' and combine='each', got "
            f"perturbation={perturbation!r} and combine={combine!r}"
        )
    _values.one_of("ball", ball, BALLS)
    question = LayerQuestion(
        combine=_values.one_of("combine", combine, COMBINE),
        at=_values.one_of("at", at, AT),
        heads=None if heads is None else _numbers("heads", heads),
        asked=[
            Asked(
                SearchOptions([], one, **search._asdict()),
                kind,
                measure,
                ball,
                bound,
                relative,
            )
            for one in radii
        ],
        draws=_draws(control, control_draws),
        backend=backend,
    )
    wanted = None if layers is None else _numbers("layers", layers)
    shown = _values.flag("progress", progress)
    include_special = _values.flag("include_special", include_special)
    items = listed(texts)
    prepared = model if isinstance(model, Prepared) else Prepared(model)
    encoder, tokenizer = prepared.loaded
    limit = models.position_limit(encoder, tokenizer)
    read = _Read(
        tokenizer, limit, checked_max_tokens(max_tokens), _values.one_of("long", long, LONG)
    )
    read.texts(items, single=isinstance(texts, str))
    rows_of = {index: _moved(one, include_special) for index, one in read.encodings.items()}
    inputs = _inputs.texts([torch.zeros(len(at_), 1) for at_ in rows_of.values()])
    places, sites = _inputs.places(positions, inputs)
    layers_of = prepared.attention.layers
    found: dict[int, OfText] = {}
    first = layers_of(next(iter(read.encodings.values())).inputs, wanted)
    columns = sum(len(one.column) for one in places)
    with progress_bar(question.work(first, columns), "word", shown) as bar:
        for (index, encoding), one in zip(read.encodings.items(), places, strict=True):
            captured = layers_of(encoding.inputs, wanted) if found else first
            found[index] = of_text(captured, _of_rows(one, rows_of[index]), question, bar)
    named = perturbation if isinstance(perturbation, str) else _values.name_of(perturbation)
    return _assembled(
        found,
        [one.column for one in places],
        (len(items), inputs.length if sites is None else len(sites)),
        single=isinstance(texts, str),
        layers=[one.number for one in first],
        heads=question.heads_of(first[0]) if combine == "each" else None,
        combine=combine,
        at=at,
        perturbation=named,
        radius=radii,
        relative=relative,
        words=[read.labels(index, rows_of.get(index), sites) for index in range(len(items))],
        texts=["" if index in read.left_out else str(one) for index, one in enumerate(items)],
        left_out=read.left_out,
        cut=read.cut,
        sites=sites,
        info={
            "model": prepared.name,
            "backend": question.maps(first[0])[0].given.engine(backend).backend,
            "linear": all(one.linear for one in first),
            "rows": rows,
            "ball": ball,
            "include_special": include_special,
            "control": control,
            "seed": search.seed,
            "starts": search.starts,
            "max_steps": search.max_steps,
            "tol": search.tol,
            "steps": max(one.steps for one in found.values()),
            **({"bound": _why_unbounded(found)} if bound else {}),
            "versions": versions(),
        },
    )


class _Read:
    """Texts as tokens; of a list, without those that cannot be done."""

    def __init__(
        self, tokenizer: Any, limit: int | None, max_tokens: int | None, long: str
    ) -> None:
        self._tokenizer, self._limit = tokenizer, limit
        self._max_tokens, self._long = max_tokens, long
        self._texts: dict[int, str] = {}
        self.encodings: dict[int, Encoding] = {}
        self.left_out: dict[int, str] = {}
        self.cut: dict[int, Cut] = {}

    def texts(self, items: list[Any], *, single: bool) -> None:
        for index, item in enumerate(items):
            try:
                self._read(index, item)
            except UnfitTextError as error:  # noqa: PERF203
                self.left_out[index] = why_left_out(error, self._long, single=single)
        check_some_done(len(items), self.left_out)

    def labels(self, index: int, rows: list[int] | None, sites: list[Site] | None) -> list[str]:
        """A label for each of the tokens `rows` of a text, or for each site of them."""
        if rows is None:
            return []
        one = self.encodings[index]
        every = token_labels(self._texts[index], one.tokens, one.offsets, one.starts_word)
        moved = [every[i] for i in rows]
        if sites is None:
            return moved
        return [joined(moved[i] for i in site if i < len(moved)) for site in sites]

    def _read(self, index: int, item: object) -> None:
        name = f"texts[{index}]"
        text = text_of(name, item)
        encoding = tokens.encode(self._tokenizer, text)
        tokens.check_some(name, text, encoding)
        kept, cut = fitted(index, encoding, self._max_tokens, self._limit, self._long)
        self._texts[index], self.encodings[index] = text, kept
        if cut is not None:
            self.cut[index] = cut


def _moved(encoding: Encoding, include_special: bool) -> list[int]:
    """Rows of the tokens that may be moved."""
    return [i for i, special in enumerate(encoding.special) if include_special or not special]


def _of_rows(places: Places, rows: list[int]) -> Places:
    """Places among the tokens that may be moved, as rows of the layer."""
    table = torch.tensor(rows)
    return places._replace(at=torch.where(places.at < 0, -1, table[places.at]))


def _assembled(
    found: dict[int, OfText],
    columns: list[Tensor],
    size: tuple[int, int],
    *,
    single: bool,
    **given: Any,
) -> LayerSensitivityResult:
    """One result: of texts that are left out NaN, beyond the words of a text NaN."""
    texts, length = size
    first = next(iter(found.values()))
    shape = first.value.shape
    m, d = max(one.delta.shape[-2] for one in found.values()), first.delta.shape[-1]
    value = torch.full((texts, *shape), math.nan, dtype=torch.float64)
    per_word = value.new_full((*value.shape, length), math.nan)
    position = torch.full(value.shape, -1)
    delta = torch.full((*value.shape, m, d), math.nan, dtype=torch.float32)
    control = value.new_full((len(first.control), *value.shape), math.nan)
    upper = None if first.upper is None else torch.full_like(per_word, math.nan)
    for (index, one), column in zip(found.items(), columns, strict=True):
        value[index] = one.value.cpu()
        per_word[index][..., column] = one.per_word.cpu()
        known = one.place.cpu()
        position[index] = torch.where(known < 0, -1, column[known.clamp(min=0)])
        delta[index, ..., : one.delta.shape[-2], :] = one.delta.cpu()
        delta[index, ..., one.delta.shape[-2] :, :] = 0.0
        control[:, index] = one.control.cpu()
        if upper is not None and one.upper is not None:
            upper[index][..., column] = one.upper.cpu()
    arrays: dict[str, Any] = {
        "value": value,
        "per_word": per_word,
        "position": position,
        "delta": delta,
    }
    if upper is not None:
        arrays["upper"] = upper
    if single:
        arrays = {name: array[0] for name, array in arrays.items()}
        control = control[:, 0]
    shuffled = control if len(control) else None
    return LayerSensitivityResult(**arrays, control=shuffled, batched=not single, **given)


def _why_unbounded(found: dict[int, OfText]) -> dict[str, str]:
    """Why some words have no bound; nothing where all have one."""
    reason = each_once(one.unbounded for one in found.values())
    return {"none": reason} if reason else {}


def _numbers(name: str, values: Any) -> list[int]:
    """Numbers of layers or heads, ascending, each once."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise TypeError(f"{name} must be an iterable of integers, got {values!r}")
    found = {_values.integer(f"{name}[{k}]", one, low=0) for k, one in enumerate(values)}
    if not found:
        raise ValueError(f"{name} must hold at least one number, got none")
    return sorted(found)


def _radius_of(radius: Any, relative_radius: Any) -> tuple[str, Any]:
    """What the radius is called, and the one that was given; None where neither was."""
    if radius is not None and relative_radius is not None:
        raise ValueError("radius and relative_radius cannot both be given")
    return ("relative_radius", relative_radius) if radius is None else ("radius", radius)


def _radii(name: str, given: Any) -> list[float]:
    """The radii of the ball; `name` is what messages call them."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        return [_values.number(name, given, low=0)]
    found = [_values.number(f"{name}[{k}]", one, low=0) for k, one in enumerate(given)]
    if not found:
        raise ValueError(f"{name} must hold at least one radius, got none")
    return found


def _draws(control: Any, draws: Any) -> int:
    """Draws of shuffled weights; 0 without a control."""
    if control is not None and control != "shuffled":
        raise ValueError(f"control must be None or 'shuffled', got {control!r}")
    count = _values.integer("control_draws", draws, low=1)
    return 0 if control is None else count
