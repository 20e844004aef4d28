"""A summary holds what its definition says, of every word, position, length and label."""

from __future__ import annotations

import math

import numpy as np
import pytest
from reproduce import tiny_model

from wsfast import corpus
from wsfast.corpus import Scorer
from wsfast.results.student_t import t_factor

pytestmark = pytest.mark.needs("text", "tables", "parquet", "duckdb")

TEXTS = [*tiny_model.TEXTS, "", " ".join(["the film of the films"] * 9), "Film FILM so"]


@pytest.fixture(scope="module")
def scorer(tiny):
    return Scorer(tiny, ["mask", "ball"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory, scorer, measured_here):
    path = tmp_path_factory.mktemp("corpus")
    lines = [f'{{"text": "{text}", "good": {k % 2}}}\n' for k, text in enumerate(TEXTS)]
    (path / "texts.jsonl").write_text("".join(lines))
    with measured_here():
        return corpus.score(path / "texts.jsonl", path / "out", scorer, label="good", shard_rows=3)


def expected(scorer, of, key):
    """Mean of the means of texts, its interval, and quantiles of all values, for each key."""
    found = scorer({"text": TEXTS})
    values = {}
    for row, (words, own) in enumerate(zip(found["words"], found[of], strict=True)):
        for position, value in enumerate(own or []):
            name = key(row, position, words)
            values.setdefault(name, {}).setdefault(row, []).append(value)
    return values


KEYS = {
    "word": lambda row, position, words: words[position].lower(),
    "position": lambda row, position, words: position,
}


@pytest.mark.parametrize("of", ["S_i", "mask_i"])
@pytest.mark.parametrize("by", ["word", "position"])
def test_words_and_positions(folder, scorer, of, by):
    groups = {group.key: group for group in folder.summary(of).groups[by]}
    values = expected(scorer, of, KEYS[by])
    assert groups.keys() == values.keys()
    for key, by_text in values.items():
        group, each = groups[key], np.concatenate(list(by_text.values()))
        means = np.array([np.mean(own) for own in by_text.values()])
        assert (group.texts, group.count) == (len(means), len(each))
        assert group.mean == pytest.approx(means.mean())
        quantiles = group.least, group.q05, group.median, group.q95, group.largest
        np.testing.assert_allclose(quantiles, np.quantile(each, [0, 0.05, 0.5, 0.95, 1]), 1e-6)
        if len(means) == 1:
            assert math.isnan(group.low)
            continue
        half = t_factor(0.95, len(means) - 1) * means.std(ddof=1) / len(means) ** 0.5
        assert (group.low, group.high) == pytest.approx((group.mean - half, group.mean + half))


def test_lengths_labels_and_all_texts_are_of_the_largest(folder, scorer):
    found, S = folder.summary("S_i"), scorer({"text": TEXTS})["S"]
    known = [k for k, value in enumerate(S) if value is not None]
    assert found.overall.texts == len(known) == len(TEXTS) - 1
    assert found.overall.mean == pytest.approx(np.mean([S[k] for k in known]))
    labels = {group.key: group for group in found.groups["label"]}
    for label in "01":
        own = [S[k] for k in known if str(k % 2) == label]
        assert labels[label].texts == len(own)
        assert labels[label].mean == pytest.approx(np.mean(own))
    assert [group.key for group in found.groups["length"]] == [1, 33]
    assert sum(group.texts for group in found.groups["length"]) == len(known)


def test_extreme_words_are_in_texts_enough(folder):
    found = folder.summary(least_texts=4)
    assert found.of == "S_i"
    most, least = found.extreme_words(3)
    every = sorted((g for g in found.groups["word"] if g.texts >= 4), key=lambda g: -g.mean)
    assert most == every[:3]
    assert least == every[::-1][:3]
    lines = str(found).splitlines()
    assert lines[0] == "9 texts, 1 with an error; S_i"
    assert str(most[0].key) in lines[lines.index("most sensitive words (in 4 texts or more)") + 2]
    assert "33 to 64" in str(found)
    assert "lower bound" in lines[-1]


@pytest.mark.needs("plots")
def test_it_is_saved_as_tables_and_pictures(folder, tmp_path):
    import pandas as pd

    found = folder.summary()
    written = found.save(tmp_path / "saved")
    names = [path.name for path in written]
    tables = [f"by_{by}.parquet" for by in ("word", "position", "length", "label")]
    assert names == [*tables, "words.png", "position.png", "length.png"]
    frame = pd.read_parquet(tmp_path / "saved" / "by_word.parquet")
    pd.testing.assert_frame_equal(frame, found.to_frame("word"))
    assert list(frame.columns[:4]) == ["word", "texts", "count", "mean"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in written[4:])


def test_what_cannot_be_summed_up_is_refused(folder, tiny, tmp_path, measured_here):
    with pytest.raises(ValueError, match="of must be"):
        folder.summary("substitute_i")
    with pytest.raises(ValueError, match="least_texts must be at least 1"):
        folder.summary(least_texts=0)
    with pytest.raises(ValueError, match="by must be"):
        folder.summary().to_frame("author")
    (tmp_path / "texts.txt").write_text("so short\n")
    heads = Scorer(tiny, "layers", layers=[0], heads=[0])
    with measured_here():
        other = corpus.score(tmp_path / "texts.txt", tmp_path / "out", heads)
    with pytest.raises(ValueError, match=r"corpus must have values of words .* got one of layers"):
        other.summary()


def test_a_corpus_of_errors_alone(tiny, tmp_path, measured_here):
    (tmp_path / "texts.csv").write_text('text\n" "\n')
    with measured_here():
        found = corpus.score(tmp_path / "texts.csv", tmp_path / "out", Scorer(tiny)).summary()
    assert found.overall is None
    assert found.groups == {"word": [], "position": [], "length": []}
    assert str(found) == "1 text, 1 with an error; S_i: no text has a value"
