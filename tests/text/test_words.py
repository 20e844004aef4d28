"""Words as a reader sees them: marks stay with their letters, contractions hold together."""

from __future__ import annotations

from unicodedata import normalize

import pytest
from text.small_models import encoder
from text.test_other_models import byte_level_tokenizer, unsplit_tokenizer

from wsfast.text import embed

pytestmark = pytest.mark.needs("text")

FAMILY, THUMB = "👨\u200d👩\u200d👧", "👍🏽"


@pytest.fixture(scope="module", params=["minilm", "byte level", "unsplit"])
def model(request):
    """WordPiece that strips marks, byte-level BPE, SentencePiece without a splitter."""
    if request.param == "minilm":
        return "minilm"
    tokenizer = byte_level_tokenizer() if request.param == "byte level" else unsplit_tokenizer()
    return encoder(tokenizer), tokenizer


def words(text, model="minilm", **options):
    embedded = embed(text, model, "words", scale=False, **options)
    assert [text[start:stop].strip() for start, stop in embedded.word_offsets] == embedded.words
    return embedded.words


@pytest.mark.parametrize(
    "text",
    [
        "Le cafe\u0301 ferme\u0301 de\u0301ja\u0300",
        normalize("NFD", "Tiếng Việt rất đẹp"),
        "ภาษาไทยที่น่ารัก ดี",
        "नमस्ते दुनिया हिन्दी",
        "தமிழ் மொழி",
        "السَّلَامُ عَلَيْكُمْ",
        "שָׁלוֹם עֲלֵיכֶם",
        "한국어 영화",
        normalize("NFD", "한국어 영화"),
        "か\u3099くせい",
        f"a {FAMILY} 🇫🇷🇩🇪 {THUMB} ❤\ufe0f 1\ufe0f\u20e3 b",
        "e\u0301",
    ],
)
def test_words_end_with_their_marks(text, model):
    assert words(text, model) == text.split()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cafe\u0301!", ["cafe\u0301", "!"]),
        ("(e\u0301) o\u0300,", ["(", "e\u0301", ")", "o\u0300", ","]),
        ("so!\u0301 it", ["so", "!\u0301", "it"]),
        ("a \u0301 b", ["a", "b"]),  # a mark of no letter, and no token
        ("\u0301so", ["so"]),
        ("be\u0301\r\nso\u0301\tit\u0301\r\n", ["be\u0301", "so\u0301", "it\u0301"]),
        ("葛\U000e0100城", ["葛\U000e0100", "城"]),
        ("e\u0301's I\u0301've", ["e\u0301's", "I\u0301've"]),
    ],
)
def test_marks_beside_other_things(text, expected):
    assert words(text) == expected


def test_unknown_words_end_with_their_marks():
    embedded = embed(f"so {FAMILY} ꙮ\u0308\u0301", layer="words")
    assert embedded.tokens == ["so", "[UNK]", "[UNK]"]
    assert embedded.words == ["so", FAMILY, "ꙮ\u0308\u0301"]


def test_both_normal_forms_have_the_same_words(model):
    text = "Ngày mai, tôi sẽ đọc một cuốn sách: déjà-vu à l’hôtel!"
    composed, apart = (words(normalize(form, text), model) for form in ("NFC", "NFD"))
    assert [normalize("NFC", word) for word in apart] == composed
    assert composed[:3] == ["Ngày", "mai", ","]


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_word_that_is_cut_ends_with_its_mark(form):
    text = normalize(form, "so fermé")
    embedded = embed(text, layer="words", max_tokens=3)
    assert embedded.tokens == ["so", "fe", "##rm"]
    assert embedded.words == ["so", "ferm"]
    assert embed(text, layer="words", max_tokens=4).words == text.split()


@pytest.mark.parametrize(
    "text",
    [
        "I've don't it’s rock'n'roll d´accord don`t",
        "90's 3rd 3.14 1,000 1,000.50",
        "l'ami col·lega צה״ל",
    ],
)
def test_contractions_and_numbers_are_one_word(text, model):
    assert words(text, model) == text.split()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the dogs' 'tis", ["the", "dogs", "'", "'", "tis"]),
        ("bad.The end", ["bad", ".", "The", "end"]),
        ("so,it 3. 4,", ["so", ",", "it", "3", ".", "4", ","]),
        ("naïve-ish _so_", ["naïve", "-", "ish", "_", "so", "_"]),
        ("(film) fine=film's.", ["(", "film", ")", "fine", "=", "film's", "."]),
    ],
)
def test_punctuation_stands_alone(text, expected, model):
    assert words(text, model) == expected


def test_tokens_share_no_mark_and_leave_none():
    text = normalize("NFD", "déjà-vu très fermé")
    spans = embed(text, layer="words").offsets
    assert "".join(text[start:stop] for start, stop in spans) == text.replace(" ", "")


def test_labels_and_numbers_of_tokens():
    embedded = embed("So, I've muchness", layer="words")
    assert embedded.words == ["So", ",", "I've", "muchness"]
    assert embedded.labels == ["So", ",", "I", "##'", "##ve", "much", "##ness"]
    assert embedded.word_numbers == [0, 1, 2, 2, 2, 3, 3]
    assert len(embedded.token_ids) == len(embedded)
