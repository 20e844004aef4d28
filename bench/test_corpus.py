"""Many texts: quick search beside whole, texts together beside apart, two processes beside one."""

from __future__ import annotations

import csv
import itertools
import statistics

import pytest

from wsfast import corpus
from wsfast._extras import import_extra
from wsfast.text import imdb_reviews

from .measure import Baseline

TOKENS = 128


def reviews(count):
    """Good and bad ones, spread over the file."""
    pool = imdb_reviews()
    return [pool[k * len(pool) // count].text for k in range(count)]


@pytest.mark.one_thread
@pytest.mark.cases("texts", smoke=[2], quick=[8], full=[64])
@pytest.mark.usefixtures("native", "real_texts")
def test_quick_search(compare, texts):
    batch = {"text": reviews(texts)}
    quick, whole = (corpus.Scorer(max_tokens=TOKENS, quick=flag) for flag in (True, False))
    found, best = quick(batch), whole(batch)
    S = statistics.mean(one / other for one, other in zip(found["S"], best["S"], strict=True))
    each = [statistics.mean(itertools.chain(*one["S_i"])) for one in (found, best)]
    compare(
        "Scorer, ball",
        f"{texts} reviews, {TOKENS} tokens, S={S:.4f}, S_i={each[0] / each[1]:.4f} of the whole's",
        lambda: quick(batch),
        [Baseline("the whole search", lambda: whole(batch))],
    )


@pytest.mark.one_thread
@pytest.mark.cases("tokens", smoke=[8], quick=[16], full=[8, 16, 24, 32, 64])
@pytest.mark.usefixtures("native", "real_texts")
def test_short_texts(compare, tokens):
    scorer, texts = corpus.Scorer(max_tokens=tokens), reviews(16)
    compare(
        "Scorer, texts of one length",
        f"16 reviews, {tokens} tokens",
        lambda: scorer({"text": texts}),
        [Baseline("one text after another", lambda: [scorer({"text": [one]}) for one in texts])],
    )


@pytest.mark.one_thread
@pytest.mark.cases("texts", smoke=[4], quick=[], full=[500])
@pytest.mark.usefixtures("native", "real_texts")
def test_two_processes(compare, texts, tmp_path):
    import_extra("pyarrow", "tables")
    table = tmp_path / "reviews.csv"
    with table.open("w", newline="") as file:
        csv.writer(file).writerows([["text"], *([text] for text in reviews(texts))])
    scorer, number = corpus.Scorer(max_tokens=TOKENS), itertools.count()

    def measured(workers):
        corpus.score(table, tmp_path / f"{next(number)}", scorer, workers=workers, shard_rows=16)

    compare(
        "corpus.score, two processes",
        f"{texts} reviews, {TOKENS} tokens",
        lambda: measured(2),
        [Baseline("one process", lambda: measured(1), at_most=1 / 1.8)],
    )
