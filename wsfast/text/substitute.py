"""`substitute`: the word of a vocabulary that changes a real text most."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, NamedTuple, overload

import torch
from torch import Tensor

from wsfast import _inputs, _values
from wsfast._inputs import Site
from wsfast._precision import at_full_precision
from wsfast._progress import progress_bar
from wsfast._values import Array
from wsfast.maps.draws import ATTENTION, Draws, attention_draws
from wsfast.results.arrays import to_numpy
from wsfast.results.embedded import Embedded
from wsfast.results.replacements import LeftOut, Replacement, Replacements
from wsfast.results.sensitivity import SensitivityResult
from wsfast.results.substitution import Substitution, SubstitutionResult
from wsfast.studies.sensitivity import sensitivity_under
from wsfast.studies.substitution.search import self_scores, substitution_under
from wsfast.studies.substitution.sites import fitting
from wsfast.text import models, places
from wsfast.text.embed import embed
from wsfast.text.pooled import PooledText
from wsfast.text.vocabulary import Vocabulary, vocabulary_of


@overload
def substitute(  # type: ignore[overload-overlap] # a text is a sequence of texts to mypy
    texts: str,
    model: models.Model = ...,
    *,
    position: int | str | None = ...,
    candidates: Sequence[str] | None = ...,
    top_k: int = ...,
    largest: bool = ...,
    tokens: str = ...,
    replace: str = ...,
    through_model: int | None = ...,
    max_tokens: int | None = ...,
    W: Array | None = ...,
    draws: int | None = ...,
    seed: int = ...,
    backend: str | None = ...,
    progress: bool = ...,
) -> Replacements: ...


@overload
def substitute(
    texts: Iterable[str],
    model: models.Model = ...,
    *,
    position: int | str | None = ...,
    candidates: Sequence[str] | None = ...,
    top_k: int = ...,
    largest: bool = ...,
    tokens: str = ...,
    replace: str = ...,
    through_model: int | None = ...,
    max_tokens: int | None = ...,
    W: Array | None = ...,
    draws: int | None = ...,
    seed: int = ...,
    backend: str | None = ...,
    progress: bool = ...,
) -> list[Replacements]: ...


@at_full_precision
def substitute(
    texts: str | Iterable[str],
    model: models.Model = models.PACKAGED,
    *,
    position: int | str | None = None,
    candidates: Sequence[str] | None = None,
    top_k: int = 20,
    largest: bool = True,
    tokens: str = "words",
    replace: str = "words",
    through_model: int | None = None,
    max_tokens: int | None = None,
    W: Array | None = None,
    draws: int | None = None,
    seed: int = 0,
    backend: str | None = None,
    progress: bool = False,
) -> Replacements | list[Replacements]:
    """Real words that change a text most: which word, where, by how much.

    Every word of the text is replaced by every candidate of the model's vocabulary, and the
    relative change ‖φ(X') - φ(X)‖ / ‖φ(X)‖ of the random attention features φ(X) =
    softmax(X W Xᵀ/√d) X is computed for each pair. X holds rows of the raw input-embedding table,
    scaled to norm √d, and the candidates are rows of the same table, scaled in the same way: a
    replacement moves one row of X to another row of that table, and nothing else.

    Parameters
    ----------
    texts : str, or sequence of str
        As in :func:`wsfast.embed`: one text gives one result, a sequence a list. The vocabulary is
        prepared once, and that of a model given by name is kept for later calls.
    model : str, (model, tokenizer) or SentenceTransformer
        As in :func:`wsfast.embed`.
    position : int or str, optional
        Where to replace: the number of a word, or a word of the text, at all its occurrences. By
        default everywhere.
    candidates : sequence of str, optional
        The words to try, each of them a single token, in the case that the tokenizer takes: "Hate"
        is "hate" for a tokenizer that lowers all words. By default those of `tokens`. With
        ``replace="several"`` or ``"rewrite"`` they must be given, and are of any number of tokens.
    top_k : int, default 20
        How many replacements to return; fewer where there are fewer pairs.
    largest : bool, default True
        Whether to return the largest changes, or the smallest: the most harmless replacements.
    tokens : {"words", "whole", "all"}, default "words"
        Which tokens of the vocabulary to try where `candidates` does not say: alphabetic whole
        words; also numbers and punctuation; or also pieces of words ("##ness"). Special and unused
        tokens are never tried, nor is one whose row is zero, which cannot be scaled. No word is
        replaced by itself.
    replace : {"words", "whole", "all", "several", "rewrite"}, default "words"
        Which tokens of the text to replace: words (letters, digits) that are one token; also
        punctuation marks and symbols that are; or also the pieces of other words, each by itself.
        A word is one to a reader: "I've" is one of three tokens, which stays as it is by default.
        The last two choices take such words too, whole. "several" puts a candidate of as many
        tokens in place of a word, all tokens at once. "rewrite" puts any candidate there, of one
        token or more: the text may get shorter or longer, so that it is embedded again, and the
        value is, by the definition, that of **the rows of the other words alone**, over the same
        ‖φ(X)‖ (``Replacement.rows`` is "others"). It does not compare with values of all rows.
    through_model : int, optional
        How many of the replacements, from the first on, to run through the whole model. Their
        ``model_change`` is ‖p(X') - p(X)‖ / ‖p(X)‖ of the pooled output p: the mean of the model's
        last hidden state over the tokens that are not special, of an encoder and a decoder alike
        (of an encoder-decoder, the encoder's). By default none.
    max_tokens : int, optional
        Keep only the first `max_tokens` tokens of a text.
    W : Tensor or ndarray, shape (d, d) or (R, d, d), optional
        Attention weights, in float32. By default random, as `random_weights` gives for `seed`.
    draws : int, optional
        Number R of independent random W; not together with `W`.
    seed : int, default 0
        Of the random W.
    backend : {"reference", "torch", "native"}, optional
        As in :func:`wsfast.substitution_sensitivity`.
    progress : bool, default False
        Whether to show a progress bar; of a list, in texts.

    Returns
    -------
    Replacements or list of Replacements

    Raises
    ------
    ImportError
        If the extra ``text`` is not installed.
    TypeError, ValueError
        For a position or word that the text does not have, or that cannot be replaced as `replace`
        says, candidates that are not single tokens, or not tokens of the vocabulary (the message
        names them), or are missing where `replace` needs them, a text where nothing can be replaced
        or no candidate is left, a text of more tokens than the model has positions where it is to
        run through the model, and what :func:`wsfast.embed` and
        :func:`wsfast.substitution_sensitivity` refuse.

    Notes
    -----
    Word sensitivity is that of Bombari & Mondelli (arXiv 2402.02969), with real words in place of
    the ball of their definition (5). Tokenizers that mark the start of a word by a blank have
    another token for a word at the very start of a text: candidates are those after a blank.
    "rewrite" costs one attention layer for each pair. Its value is the one that ``rows="others"``
    of :func:`wsfast.raf_sensitivity` gives where the number of tokens stays the same, and at most
    that of "several".

    **A layer's sensitivity is not the model's**: the word that changes a layer of random attention
    most need not change the output of a model much. With MiniLM, Spearman's rank correlation of
    both changes was from -0.4 to 0.2 over 150 random replacements in each of six IMDb reviews (64
    tokens), and from -0.1 to 0.6 over the 50 largest; for trained attention, 0.1 to 0.2 in its
    first three layers (twelve reviews; docs/layers.md). And beyond the first layer it is the vector
    of row i that moves in a layer's sensitivity, where a new word moves all rows.
    `through_model` puts both changes side by side, and ``Replacements.model_correlation`` is their
    rank correlation over the words that were run. Those are one end of the ranking, and over so
    narrow a range it can be far from the correlation over all words. For that one, give a random
    sample of words as `candidates`, and a `top_k` and a `through_model` that take all pairs.
    A text is run alone, dropout off, in the model's own dtype, with the special tokens that the
    tokenizer sets; the tokens that are replaced are those of X. Sentence encoders pool in ways of
    their own: many count special tokens too.

    Examples
    --------
    >>> love = substitute("I love her much", position="love")  # doctest: +SKIP
    >>> love.replacements[0].text, love.share_attained  # doctest: +SKIP
    >>> words = ["ludicrous", "awful"]  # of three tokens, as "loathed", and of one
    >>> substitute("I loathed it", candidates=words, replace="several")  # doctest: +SKIP
    """
    asking: dict[str, Any] = {
        "position": position,
        "candidates": candidates,
        "tokens": tokens,
        "replace": replace,
    }
    _check_asking(**asking)
    _values.flag("progress", progress)
    top_k = _values.integer("top_k", top_k, low=1)
    if through_model is not None:
        through_model = _values.integer("through_model", through_model, low=1)
    seed = _values.seed(seed)
    embedded = embed(texts, model, "words", max_tokens=max_tokens)
    listed = [embedded] if isinstance(embedded, Embedded) else embedded
    substituting = Substituting(model, **asking, W=W, draws=draws, seed=seed, backend=backend)
    vocabulary, maps = substituting.vocabulary, substituting.maps
    several = len(listed) > 1
    shown = progress and not several
    whole = None if through_model is None else models.loaded(model)
    results = []
    with progress_bar(len(listed), "text", progress and several) as bar:
        for index, one in enumerate(listed):
            asked = substituting.asked(index, one)
            # Before the search: a text that is too long for the model is refused at once.
            runs = None
            if whole is not None and through_model is not None:
                text = PooledText(whole, index, one.text, max_tokens)
                runs = _Runs(text, through_model, shown)
            result = substituting.found(one, asked, top_k, largest=largest, progress=shown)
            results.append(_replacements(result, one, asked, vocabulary, maps, runs))
            bar.update(1)
    return results if isinstance(embedded, list) else results[0]


class Substituting:
    """What is replaced by what, prepared once for one text after another.

    The arguments are those of :func:`substitute`, checked.
    """

    def __init__(
        self,
        model: models.Model,
        *,
        position: int | str | None = None,
        candidates: Sequence[str] | None = None,
        tokens: str = "words",
        replace: str = "words",
        W: Array | None = None,
        draws: int | None = None,
        seed: int = 0,
        backend: str | None = None,
    ) -> None:
        self.vocabulary = vocabulary = vocabulary_of(model)
        tokenizer = models.source(model, "words")[0].tokenizer
        of_table = _inputs.texts(vocabulary.E[:1])
        self.maps = attention_draws(of_table, ATTENTION["raf"], W, draws, seed, backend).kept()
        self._seed = seed
        self._choice: _Tokens | _Words
        if candidates is not None and replace in places.OF_WORDS:
            self._choice = _Words(position, replace, vocabulary.cut(candidates, tokenizer))
            return
        allowed = (
            vocabulary.allowed(tokens)
            if candidates is None
            else vocabulary.find(candidates, tokenizer)
        )
        scores = vocabulary.self_scores(seed, draws) if W is None else self_scores(vocabulary.E, W)
        self._choice = _Tokens(position, replace, vocabulary.names, allowed, scores)

    def asked(self, index: int, embedded: Embedded) -> Asked:
        """Where to replace in text number `index`, and by what.

        Raises
        ------
        ValueError
            If there is nothing to replace in it, or nothing to put there.
        """
        asked = self._choice.of(embedded, index)
        if asked.pairs == 0:
            raise ValueError(
                f"candidates must hold a word to put into texts[{index}], got none: no word is "
                "replaced by itself"
            )
        return asked

    def found(
        self,
        embedded: Embedded,
        asked: Asked,
        top_k: int,
        *,
        largest: bool = True,
        progress: bool = False,
    ) -> SubstitutionResult:
        """The change of every pair, labelled; its `top_k` pairs, fewer where there are fewer."""
        result = substitution_under(
            self.maps,
            _inputs.texts(embedded.X),
            self.vocabulary.E,
            positions=asked.at,
            own=embedded.token_ids,
            top_k=min(top_k, asked.pairs),
            largest=largest,
            seed=self._seed,
            progress=progress,
            **asked.options,
        )
        return result.with_words(asked.labels).with_names(asked.names)


def _check_asking(position: object, candidates: object, tokens: object, replace: object) -> None:
    """Refuse what no text can be asked."""
    _check_position(position)
    _check_candidates(candidates)
    _values.one_of("tokens", tokens, places.CHOICES)
    _values.one_of("replace", replace, (*places.CHOICES, *places.OF_WORDS))
    if candidates is None and replace in places.OF_WORDS:
        raise ValueError(
            f'candidates must be given with replace="{replace}": the list of words to put in place '
            "of whole words, got none"
        )


def _check_position(position: object) -> None:
    """Accept None, a word or a number; the text tells later which there are."""
    if isinstance(position, str):
        if not position.strip():
            raise ValueError(f"position must be a word, got {position!r}")
    elif position is not None:
        _values.integer("position", position, low=0)


def _check_candidates(candidates: object) -> None:
    """Accept None or words; the vocabulary tells later whether it has them."""
    if candidates is None:
        return
    if isinstance(candidates, str) or not isinstance(candidates, Sequence):
        raise TypeError(
            f"candidates must be a list of words, got {type(candidates).__name__}: {candidates!r}"
        )
    if not candidates:
        raise ValueError("candidates must hold at least one word, got none")
    for k, word in enumerate(candidates):
        if not isinstance(word, str):
            raise TypeError(f"candidates[{k}] must be a str, got {type(word).__name__}")


# -- what is asked of a text -----------------------------------------------------------------------


class Asked(NamedTuple):
    """Where to replace in a text, and by what."""

    at: list[int] | list[Site]
    left_out: LeftOut
    pairs: int  # of a place and a candidate
    labels: list[str]
    names: list[str]
    options: dict[str, Any]  # of `substitution_under`


class _Tokens(NamedTuple):
    """Tokens are replaced by rows of the vocabulary."""

    position: int | str | None
    replace: str
    names: list[str]
    allowed: Tensor  # (V,) bool
    scores: Tensor

    def of(self, embedded: Embedded, index: int) -> Asked:
        at, left_out = places.replaceable(self.position, embedded, index, self.replace)
        own = [embedded.token_ids[i] for i in at]
        pairs = len(at) * int(self.allowed.sum()) - int(self.allowed[own].sum())
        options = {"candidates": self.allowed, "self_scores": self.scores}
        return Asked(at, left_out, pairs, embedded.labels, self.names, options)


class _Words(NamedTuple):
    """Whole words are replaced by words of a list, all their tokens at once."""

    position: int | str | None
    replace: str
    candidates: dict[Site, str]  # rows of the vocabulary, and what they write

    def of(self, embedded: Embedded, index: int) -> Asked:
        rows = "others" if self.replace == "rewrite" else "all"
        lengths = {len(one) for one in self.candidates} if rows == "all" else None
        words, left_out = places.replaceable_words(
            self.position, embedded, index, self.replace, lengths
        )
        if rows == "others" and len(embedded.words) == 1:
            raise ValueError(
                f'texts[{index}] must have another word for replace="rewrite", which compares the '
                f"rows of the others, got {embedded.words[0]!r} alone"
            )
        sites = [tuple(range(*embedded.word_spans[word])) for word in words]
        taken = {len(site) for site in sites}
        tuples = [one for one in self.candidates if rows == "others" or len(one) in taken]
        return Asked(
            at=sites,
            left_out=left_out,
            pairs=int(fitting(sites, tuples, embedded.token_ids, rows).sum()),
            labels=[embedded.words[word] for word in words],
            names=[self.candidates[one] for one in tuples],
            options={"candidates": tuples, "rows": rows},
        )


# -- what is told of it ----------------------------------------------------------------------------


class _Runs(NamedTuple):
    """The first replacements are run through the whole model."""

    text: PooledText
    most: int
    progress: bool

    def changes(self, result: SubstitutionResult, found: list[Substitution]) -> Iterator[float]:
        """The change of the pooled output for each; NaN for those after the first `most`."""
        first = found[: self.most]
        with progress_bar(len(first), "run", self.progress) as bar:
            for one in first:
                yield self.text.change(_site(result, one.position), _rows(result, one.candidate))
                bar.update(1)
        yield from repeat(math.nan, len(found) - len(first))


def _replacements(
    result: SubstitutionResult,
    embedded: Embedded,
    asked: Asked,
    vocabulary: Vocabulary,
    maps: Draws,
    runs: _Runs | None,
) -> Replacements:
    found = _means(result, embedded, vocabulary, maps) if maps.has_axis else result.top()
    rows = result.info.get("rows", "all")
    changes = repeat(math.nan, len(found)) if runs is None else runs.changes(result, found)
    replacements = [
        Replacement(
            position=embedded.word_numbers[_site(result, one.position)[0]],
            old=one.word,
            new=one.name,
            value=one.value,
            distance=_distance(result, one, embedded, vocabulary),
            text=_written(result, one, embedded, vocabulary),
            rows=rows,
            model_change=change,
        )
        for one, change in zip(found, changes, strict=True)
    ]
    first = replacements[0]
    ball = near = None
    attained = at_distance = math.nan
    if rows == "all":
        options: dict[str, Any] = {"positions": asked.at, "seed": result.info["seed"]}
        ball, near = (
            sensitivity_under(maps, embedded.X, radius=radius, **options)
            for radius in (None, first.distance)
        )
        attained = _share(first.value, _mean(ball))
        # The search of the ball may end below a point that is known to lie in it: the word itself.
        at_distance = _share(first.value, max(_mean(near), first.value))
    return Replacements(
        replacements=replacements,
        share_attained=attained,
        share_attained_at_distance=at_distance,
        result=result,
        left_out=asked.left_out,
        embedded=embedded,
        sensitivity=ball,
        sensitivity_at_distance=near,
    )


def _site(result: SubstitutionResult, position: int) -> Site:
    """Rows of X at a position of a result."""
    return (position,) if result.sites is None else result.sites[position]


def _rows(result: SubstitutionResult, candidate: int) -> Site:
    """Rows of E that a candidate of a result is."""
    return (candidate,) if result.tuples is None else result.tuples[candidate]


def _distance(
    result: SubstitutionResult, one: Substitution, embedded: Embedded, vocabulary: Vocabulary
) -> float:
    site, rows = _site(result, one.position), _rows(result, one.candidate)
    if len(site) != len(rows):
        return math.nan
    return float((vocabulary.E[[*rows]].double() - embedded.X[[*site]].double()).norm())


def _written(
    result: SubstitutionResult, one: Substitution, embedded: Embedded, vocabulary: Vocabulary
) -> str:
    """The text with the replacement in it."""
    site, first = _site(result, one.position), _rows(result, one.candidate)[0]
    after = site[-1] + 1
    return places.replaced(
        embedded,
        site,
        vocabulary.texts[first] if result.tuples is None else one.name,
        whole=bool(vocabulary.whole[first]),
        # What the next token was, not what it may become: it stays the same row of X.
        before_whole=after == len(embedded) or bool(vocabulary.whole[embedded.token_ids[after]]),
    )


def _share(value: float, whole: float) -> float:
    return value / whole if whole > 0 else math.nan


def _mean(result: SensitivityResult) -> float:
    return float(to_numpy(result.value).mean())


def _means(
    result: SubstitutionResult, embedded: Embedded, vocabulary: Vocabulary, maps: Draws
) -> list[Substitution]:
    """Pairs that are among the best of any draw, best mean over all draws first; k of them."""
    positions, candidates = (
        array.flatten().tolist() for array in (result.top_position, result.top_candidate)
    )
    pairs = sorted({(i, v) for i, v in zip(positions, candidates, strict=True) if v >= 0})
    at, tried = (sorted({*some}) for some in zip(*pairs, strict=True))
    used = sorted({row for v in tried for row in _rows(result, v)})
    number = {row: k for k, row in enumerate(used)}
    options: dict[str, Any]
    if result.tuples is None:
        allowed = torch.zeros(len(embedded), len(used), dtype=torch.bool, device=embedded.X.device)
        for i, v in pairs:
            allowed[i, number[v]] = True
        options, line = {"candidates": allowed}, {i: i for i in at}
    else:
        options = {
            "positions": [_site(result, i) for i in at],
            "candidates": [tuple(number[row] for row in _rows(result, v)) for v in tried],
            "rows": result.info.get("rows", "all"),
        }
        line = {i: k for k, i in enumerate(at)}
    # In float64: a table of float32 has its rounding, unlike the ranking of each draw.
    found = substitution_under(
        maps,
        _inputs.texts(embedded.X.double()),
        vocabulary.E[used].double(),
        top_k=1,
        full=True,
        **options,
    )
    means = torch.as_tensor(found.table, device=embedded.X.device).mean(0)
    column = {v: k for k, v in enumerate(tried)}
    values = {(i, v): float(means[line[i], column[v]]) for i, v in pairs}
    sign = -1 if result.largest else 1
    pairs.sort(key=lambda pair: sign * values[pair])
    words, names = result.words or [], result.names or []
    return [
        Substitution(i, v, values[i, v], str(words[i]), names[v])
        for i, v in pairs[: int(result.top_value.shape[-1])]
    ]
