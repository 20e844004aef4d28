"""Texts: a shuffled sample of reviews, or random ones."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import wsfast
from wsfast.reproduce import data
from wsfast.reproduce.seeds import draw_seed
from wsfast.text import Review, imdb_reviews


@pytest.fixture
def few(monkeypatch):
    """Six reviews, one short and two that begin alike."""
    texts = ["so so it is", "so so it was", "so so", "me too it is", "it is me too", "me it too is"]
    pool = [Review(text, 1 if row % 2 else -1, row) for row, text in enumerate(texts)]
    monkeypatch.setattr(data, "imdb_reviews", lambda: pool)
    return pool


@pytest.mark.needs("text")
def test_sample_of_reviews(few):
    sample = data.reviews("minilm", 4, 3, seed=0)
    order = np.random.default_rng(0).permutation(6).tolist()
    taken = [row for row in order if row not in (2, max(0, 1, key=order.index))]
    assert sample.labels == [few[row].label for row in taken]
    for X, row in zip(sample.X, taken, strict=True):
        assert torch.equal(X, wsfast.embed(few[row].text, max_tokens=3).X)
    with pytest.raises(ValueError, match="must have 5 reviews of at least 3 tokens, got 4"):
        data.reviews("minilm", 5, 3, seed=0)


@pytest.mark.needs("text")
def test_beginnings_are_those_of_the_sample(few):
    sample = data.reviews("minilm", 4, 3, seed=0)
    found = data.beginnings("minilm", 4, 3, 0, "words")
    assert [few[row].text for row in found.rows] == [one.text for one in found.taken]
    assert [few[row].label for row in found.rows] == found.labels == sample.labels
    for one in found.taken:
        assert one.layer == "words"
        assert len(one) == 3
    assert found[3:] == sample[2:]
    assert found.described(3).startswith("the first 3 tokens of 4 IMDb reviews")


@pytest.mark.needs("text")
@pytest.mark.usefixtures("few")
def test_what_is_left_out_is_counted():
    counts = {(s.short, s.repeated) for s in (data.reviews("minilm", 4, 3, k) for k in range(9))}
    assert (1, 1) in counts
    # Only those that were met before the sample was full.
    assert min(counts) < (1, 1)


@pytest.mark.deep
@pytest.mark.needs("text", "data")
def test_true_reviews():
    sample = data.reviews("minilm", 12, 20, seed=1)
    assert sample.X.shape == (12, 20, 384)
    torch.testing.assert_close(sample.X.norm(dim=2), torch.full((12, 20), 384**0.5))
    assert set(sample.labels) == {-1, 1}
    pool = imdb_reviews()
    row = int(np.random.default_rng(1).permutation(len(pool))[0])
    assert sample.labels[0] == pool[row].label
    assert torch.equal(sample.X[0], wsfast.embed(pool[row].text, max_tokens=20).X)
    assert not torch.equal(data.reviews("minilm", 1, 20, seed=2).X[0], sample.X[0])


def test_synthetic():
    sample = data.synthetic(60, 3, 5, seed=2)
    rng = np.random.default_rng(2)
    side, rows = rng.standard_normal(15), rng.standard_normal((60, 3, 5))
    rows *= 5**0.5 / np.linalg.norm(rows, axis=2, keepdims=True)
    np.testing.assert_allclose(sample.X.numpy(), rows, rtol=1e-6)
    assert sample.labels == np.sign(rows.reshape(60, 15) @ side).tolist()
    assert sample.described(None).startswith("60 Gaussian texts of n = 3 words, d = 5")


@pytest.mark.needs("text")
def test_dimension():
    assert data.dimension("minilm") == 384


def test_seeds_are_unlike_one_another():
    seeds = {draw_seed(seed, draw) for seed in range(40) for draw in range(40)}
    assert len(seeds) == 1600
    assert all(0 <= seed < 2**64 for seed in seeds)
    assert draw_seed(3, 1) == draw_seed(3, 1)
