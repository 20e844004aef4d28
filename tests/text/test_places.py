"""Where `substitute` replaces, and the text that it writes."""

from __future__ import annotations

import pytest

from wsfast.text import embed, places
from wsfast.text.substitute import substitute

pytestmark = pytest.mark.needs("text")

TEXT = "I love her much"
WORDS = ["hate", "smile", "paper"]


# -- positions -------------------------------------------------------------------------------------


def searched(found):
    return [i for i, v in enumerate(found.result.best_candidate.tolist()) if v >= 0]


@pytest.mark.parametrize("position", [1, "love", "LOVE", " love "])
def test_position_by_word_and_by_number(position):
    every = substitute(TEXT, candidates=WORDS, top_k=100)
    found = substitute(TEXT, position=position, candidates=WORDS, top_k=100)
    assert searched(found) == [1]
    assert found.replacements == [row for row in every.replacements if row.position == 1]
    assert searched(every) == [0, 1, 2, 3]


def test_word_in_its_own_case_comes_first():
    options = {"candidates": ["love"]}
    assert searched(substitute("So is so it", position="so", **options)) == [2]
    assert searched(substitute("So is so it", position="So", **options)) == [0]
    assert searched(substitute("So is so it", position="SO", **options)) == [0, 2]


def test_every_token_of_a_word_is_a_position():
    found = substitute("muchness and muchness", position="muchness", candidates=["love"])
    assert searched(found) == [0, 1, 3, 4]
    assert searched(substitute("muchness and more", position="ness", candidates=["love"])) == [1]


def test_word_with_punctuation_that_no_blank_separates(unsplit):
    found = substitute("the film, fine", unsplit, position="film")
    assert found.embedded.words == ["the", "film,", "fine"]
    assert searched(found) == [1]
    assert searched(substitute("the film, fine", unsplit, position="film,")) == [1, 2]


# -- the text --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "position", "new", "whole", "expected"),
    [
        ("I love her", 1, "hate", True, "I hate her"),
        ("I LOVE her!", 3, "smile", True, "I LOVE her smile"),
        ("her. she", 1, "smile", True, "her smile she"),
        ("isn't it", 1, "smile", True, "isn smile t it"),
        ("isn't it", 1, ",", True, "isn,t it"),
        ("(so)", 1, "as", True, "(as)"),
        ("muchness now", 0, "such", True, "suchness now"),
        ("muchness now", 1, "like", True, "much like now"),
        ("muchness now", 1, "ly", False, "muchly now"),
        ("  so  it", 0, "as", True, "  as  it"),
    ],
)
def test_text_with_another_word(text, position, new, whole, expected):
    got = places.replaced(embed(text, layer="words"), position, new, whole=whole)
    assert got == expected


@pytest.mark.parametrize("text", [TEXT, "Muchness, isn't (it) naïve: 東京!", "so...what"])
def test_the_new_word_is_a_token_of_the_new_text(text):
    found = substitute(text, candidates=["smile", "paper", ","], top_k=100)
    for row in found.replacements:
        # The piece after a word that is replaced may be read with the new word.
        tokens = embed(row.text, layer="words").tokens
        assert tokens[: row.position] == found.embedded.tokens[: row.position]
        assert tokens[row.position] == row.new


def test_blank_before_a_word_is_kept(byte_level, unsplit):
    for model in (byte_level, unsplit):
        embedded = embed("the, fine film", model, "words")
        assert places.replaced(embedded, 2, "the", whole=True) == "the, the film"
