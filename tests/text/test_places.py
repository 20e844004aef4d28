"""Where `substitute` replaces, and the text that it writes."""

from __future__ import annotations

from unicodedata import normalize

import pytest

import wsfast
from wsfast.text import embed, places
from wsfast.text.substitute import substitute
from wsfast.text.vocabulary import vocabulary_of

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


def test_position_is_that_of_score():
    """Words in front that are several tokens do not shift it."""
    text = "Muchness isn't what I love"
    found = substitute(text, position="love", candidates=WORDS, top_k=1)
    whole = wsfast.raf_sensitivity(found.embedded.X).whole_words(found.embedded)
    row = found.replacements[0]
    assert row.position == whole.words.index("love") == 4
    by_number = substitute(text, position=4, candidates=WORDS, top_k=1)
    assert by_number.replacements == found.replacements
    assert "at position 4" in repr(found)


@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize("position", ["café", "cafe\u0301", "CAFÉ", "Cafe\u0301"])
def test_position_finds_a_word_in_either_normal_form(form, position):
    text = normalize(form, "le café noir")
    found = substitute(text, position=position, candidates=WORDS, top_k=1)
    assert found.replacements[0].position == 1
    assert found.replacements[0].text == f"le {found.replacements[0].new} noir"


# -- what is replaced ------------------------------------------------------------------------------

REVIEW = "It's the worst movie I've ever had, Muchness! 90's 3.14 don’t"


def old(text, model="minilm", **options):
    found = substitute(text, model, candidates=["smile"], top_k=99, **options)
    rows = sorted((row.position, row.old) for row in found.replacements)
    return rows, found.left_out


def test_apostrophes_punctuation_and_pieces_of_words_are_not_replaced():
    rows, left = old(REVIEW)
    assert rows == [(1, "the"), (2, "worst"), (3, "movie"), (5, "ever"), (6, "had")]
    assert left == (6, 2, 0)  # It's, I've, Muchness, 90's, 3.14, don’t; the comma and "!"


def test_punctuation_by_an_option():
    rows, left = old(REVIEW, replace="whole")
    assert [word for _, word in rows if not word.isalpha()] == [",", "!"]
    assert left == (6, 0, 0)


def test_pieces_by_an_option():
    rows, left = old(REVIEW, replace="all")
    assert [one for at, one in rows if at == 4] == ["##'", "##ve", "I"]
    assert [one for at, one in rows if at == 8] == ["##ness", "Much"]
    assert left == (0, 0, 0)
    assert len(rows) == len(embed(REVIEW).tokens)


def test_piece_is_found_where_pieces_are_replaced():
    assert old("muchness and more", replace="all", position="ness")[0] == [(0, "##ness")]
    rows, _ = old("muchness and muchness", replace="all", position="muchness")
    assert rows == [(0, "##ness"), (0, "much"), (2, "##ness"), (2, "much")]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("so muchness", {"position": "muchness"}, r"'muchness' at position 1: of several.*\"all\""),
        ("so muchness", {"position": 1}, "'muchness' at position 1: of several tokens"),
        ("so, it", {"position": ","}, r"',' at position 1: punctuation\): take replace=\"whole\""),
        ("I've!", {}, r"\"I've\" at position 0: of several tokens; '!' at position 1: punctuation"),
        ("so muchness", {"position": 2}, "position must be from 0 to 1, got 2"),
        ("한", {"replace": "all"}, "'한' at position 0: of several tokens"),
        ("so it", {"replace": "pieces"}, "replace must be .*'pieces'"),
    ],
)
def test_nothing_to_replace(text, options, message):
    with pytest.raises(ValueError, match=message):
        substitute(text, candidates=["smile"], **options)


def test_word_that_max_tokens_cuts_is_not_replaced():
    rows, left = old("so muchness", max_tokens=2)
    assert (rows, left) == ([(0, "so")], (1, 0, 0))
    rows, left = old("so muchness", max_tokens=2, replace="all")
    assert (rows, left) == ([(0, "so"), (1, "much")], (0, 0, 0))
    assert old("so ภาษาไทย นาง", max_tokens=2)[0] == [(0, "so"), (1, "ภาษาไทย")]
    assert old("muchness so", max_tokens=3)[1] == (1, 0, 0)


def test_words_of_other_tokenizers(byte_level, unsplit):
    """Punctuation that no blank separates is a word of its own for each of them."""
    for model in (byte_level, unsplit):
        found = substitute("the film, fine", model, candidates=["fine"], replace="whole")
        assert found.embedded.words == ["the", "film", ",", "fine"]
        assert searched(found) == [0, 1, 2]
        assert {row.text for row in found.replacements} == {
            *("fine film, fine", "the fine, fine", "the film fine fine"),
        }


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
    assert written(embed(text, layer="words"), position, new, whole=whole) == expected


def written(embedded, row, new, *, whole, model="minilm"):
    ids = [*embedded.token_ids[row + 1 :], embedded.token_ids[0]]
    before_whole = bool(vocabulary_of(model).whole[ids[0]])
    return places.replaced(embedded, [row], new, whole=whole, before_whole=before_whole)


@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        "Muchness, isn't (it) naïve: 東京!",
        "so...what",
        "👍🏽 so❤️! 👨\u200d👩\u200d👧",
        "le cafe\u0301!",
    ],
)
@pytest.mark.parametrize("replace", ["words", "whole", "all"])
def test_the_new_word_is_a_token_of_the_new_text(text, replace):
    found = substitute(text, candidates=["smile", "paper", ","], top_k=100, replace=replace)
    for pair, row in zip(found.result.top(), found.replacements, strict=True):
        # The piece after a word that is replaced may be read with the new word.
        tokens = embed(row.text, layer="words").tokens
        assert tokens[: pair.position] == found.embedded.tokens[: pair.position]
        assert tokens[pair.position] == row.new


@pytest.mark.parametrize(
    ("text", "position", "expected"),
    [
        ("cafe\u0301 noir", 0, "smile noir"),
        ("le cafe\u0301", 1, "le smile"),
        (normalize("NFD", "Tiếng Việt rất tốt"), 2, normalize("NFD", "Tiếng Việt smile tốt")),
        ("ภาษาไทย ดี", 1, "ภาษาไทย smile"),
        ("so e\u0301\r\nit", 1, "so smile\r\nit"),
        ("a❤\ufe0f b", 1, "a❤\ufe0f smile"),
        ("a 葛\U000e0100城", 1, "a smile 城"),
    ],
)
def test_no_mark_is_left_of_a_word_that_is_replaced(text, position, expected):
    found = substitute(text, position=position, candidates=["smile"])
    assert found.replacements[0].text == expected


def test_text_with_another_word_of_several_tokens():
    embedded = embed("so muchness東", layer="words")
    text = places.replaced(embedded, [1, 2], "like", whole=True, before_whole=False)
    assert text == "so like 東"


def test_blank_before_a_word_is_kept(byte_level, unsplit):
    for model in (byte_level, unsplit):
        embedded = embed("the, fine film", model, "words")
        text = written(embedded, 2, "the", whole=True, model=model)
        assert text == "the, the film"
