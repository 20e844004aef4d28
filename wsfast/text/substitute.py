"""`substitute`: the word of a vocabulary that changes a real text most."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import overload

import torch

from wsfast import _inputs, _values
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
from wsfast.text import models, places
from wsfast.text.embed import embed
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
        is "hate" for a tokenizer that lowers all words. By default those of `tokens`.
    top_k : int, default 20
        How many replacements to return; fewer where there are fewer pairs.
    largest : bool, default True
        Whether to return the largest changes, or the smallest: the most harmless replacements.
    tokens : {"words", "whole", "all"}, default "words"
        Which tokens of the vocabulary to try where `candidates` does not say: alphabetic whole
        words; also numbers and punctuation; or also pieces of words ("##ness"). Special and unused
        tokens are never tried, nor is one whose row is zero, which cannot be scaled. No word is
        replaced by itself.
    replace : {"words", "whole", "all"}, default "words"
        Which tokens of the text to replace: words (letters, digits) that are one token; also
        punctuation marks and symbols that are; or also the pieces of other words, each by itself.
        A word is one to a reader: "I've" is one of three tokens, which stays as it is by default.
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
        says, candidates that are not single tokens (the message names them), a text where nothing
        can be replaced or no candidate is left, and what :func:`wsfast.embed`
        and :func:`wsfast.substitution_sensitivity` refuse.

    Notes
    -----
    Word sensitivity is that of Bombari & Mondelli (arXiv 2402.02969), with real words in place of
    the ball of their definition (5). Tokenizers that mark the start of a word by a blank have
    another token for a word at the very start of a text: candidates are those after a blank.

    Examples
    --------
    >>> love = substitute("I love her much", position="love")  # doctest: +SKIP
    >>> love.replacements[0].text, love.share_attained  # doctest: +SKIP
    """
    _check_position(position)
    _check_candidates(candidates)
    _values.one_of("tokens", tokens, places.CHOICES)
    _values.one_of("replace", replace, places.CHOICES)
    _values.flag("progress", progress)
    top_k = _values.integer("top_k", top_k, low=1)
    seed = _values.seed(seed)
    embedded = embed(texts, model, "words", max_tokens=max_tokens)
    listed = [embedded] if isinstance(embedded, Embedded) else embedded
    vocabulary = vocabulary_of(model)
    tokenizer = models.source(model, "words")[0].tokenizer
    allowed = (
        vocabulary.allowed(tokens) if candidates is None else vocabulary.find(candidates, tokenizer)
    )
    given = (ATTENTION["raf"], W, draws, seed, backend)
    maps = attention_draws(_inputs.texts(listed[0].X), *given).kept()
    scores = vocabulary.self_scores(seed, draws) if W is None else self_scores(vocabulary.E, W)
    several = len(listed) > 1
    results = []
    with progress_bar(len(listed), "text", progress and several) as bar:
        for index, one in enumerate(listed):
            at, left_out = places.replaceable(position, one, index, replace)
            own = [one.token_ids[i] for i in at]
            found = len(at) * int(allowed.sum()) - int(allowed[own].sum())
            if found == 0:
                raise ValueError(
                    f"candidates must hold a word to put into texts[{index}], got none: no word is "
                    "replaced by itself"
                )
            result = substitution_under(
                maps,
                _inputs.texts(one.X),
                vocabulary.E,
                positions=at,
                candidates=allowed,
                own=one.token_ids,
                top_k=min(top_k, found),
                largest=largest,
                self_scores=scores,
                seed=seed,
                progress=progress and not several,
            )
            result = result.with_words(one.labels).with_names(vocabulary.names)
            results.append(_replacements(result, one, left_out, vocabulary, at, maps))
            bar.update(1)
    return results if isinstance(embedded, list) else results[0]


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


def _replacements(
    result: SubstitutionResult,
    embedded: Embedded,
    left_out: LeftOut,
    vocabulary: Vocabulary,
    at: list[int],
    maps: Draws,
) -> Replacements:
    rows = _means(result, embedded, vocabulary, maps) if maps.has_axis else result.top()
    whole = vocabulary.whole.tolist()
    # What the next token was, not what it may become: it stays the same row of X.
    alone = [whole[i] for i in embedded.token_ids[1:]] + [True]
    words = embedded.word_numbers
    replacements = []
    for row in rows:
        change = vocabulary.E[row.candidate].double() - embedded.X[row.position].double()
        text = places.replaced(
            embedded,
            row.position,
            vocabulary.texts[row.candidate],
            whole=whole[row.candidate],
            before_whole=alone[row.position],
        )
        at_word, distance = words[row.position], float(change.norm())
        replacements.append(Replacement(at_word, row.word, row.name, row.value, distance, text))
    first = replacements[0]
    ball, near = (
        sensitivity_under(maps, embedded.X, radius=radius, positions=at, seed=result.info["seed"])
        for radius in (None, first.distance)
    )
    # The search of the ball may end below a point that is known to lie in it: the word itself.
    reached = max(_mean(near), first.value)
    return Replacements(
        replacements=replacements,
        share_attained=_share(first.value, _mean(ball)),
        share_attained_at_distance=_share(first.value, reached),
        result=result,
        left_out=left_out,
        embedded=embedded,
        sensitivity=ball,
        sensitivity_at_distance=near,
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
    rows = sorted({v for _, v in pairs})
    column = {v: k for k, v in enumerate(rows)}
    tried = torch.zeros(len(embedded), len(rows), dtype=torch.bool, device=embedded.X.device)
    for i, v in pairs:
        tried[i, column[v]] = True
    # In float64: a table of float32 has its rounding, unlike the ranking of each draw.
    found = substitution_under(
        maps,
        _inputs.texts(embedded.X.double()),
        vocabulary.E[rows].double(),
        candidates=tried,
        top_k=1,
        full=True,
    )
    means = torch.as_tensor(found.table, device=embedded.X.device).mean(0)
    sign = -1 if result.largest else 1
    pairs.sort(key=lambda pair: sign * float(means[pair[0], column[pair[1]]]))
    words = result.words or []
    return [
        Substitution(i, v, float(means[i, column[v]]), str(words[i]), vocabulary.names[v])
        for i, v in pairs[: int(result.top_value.shape[-1])]
    ]
