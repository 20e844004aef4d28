"""Word sensitivity of real text: the figures of the library, and what becomes of bad rows."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from command import run

import wsfast
from wsfast.text import Cut, local

pytestmark = pytest.mark.needs("text")

TEXT = "I love her muchness"
ROWS = ["so what", "", None, TEXT, 7, "\u200b", "\ud83d"]
REASONS = {
    1: "must have words, got an empty text: ''",
    2: "must be a str, got a missing value (None)",
    4: "must be a str, got int",
    5: "must have a token, got '\\u200b', in which the tokenizer finds none",
    6: "must have characters of Unicode, got '\\ud83d'",
}


def same(found, expected):
    for name in ("value", "per_word", "position", "delta"):
        one, two = getattr(found, name), getattr(expected, name)
        assert torch.equal(one.nan_to_num(-1.0), two.nan_to_num(-1.0)), name
    assert (found.words, found.axes, found.info) == (expected.words, expected.axes, expected.info)


# -- figures ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layer", "scale", "options"),
    [
        (0, True, {}),
        (2, True, {"seed": 3, "draws": 2}),
        ("words", False, {"radius": 0.5, "weight_fn": "relu", "normalize": False}),
        (0, True, {"backend": "torch"}),
        (0, True, {"perturbation": "mask"}),
    ],
)
def test_score_of_a_text_is_the_search_over_its_vectors(layer, scale, options):
    scores = wsfast.score(TEXT, "minilm", layer, scale=scale, **options)
    embedded = wsfast.embed(TEXT, layer=layer, scale=scale)
    same(scores.result, wsfast.raf_sensitivity(embedded.X, **options).whole_words(embedded))
    assert (scores.texts, scores.offsets) == ([TEXT], [embedded.word_offsets])
    assert (scores.model, scores.layer, scores.scale) == ("minilm", layer, scale)
    assert (scores.left_out, scores.cut, scores.unit) == ({}, {}, "word-max")


def test_tokens_are_scored_where_they_are_asked_for():
    scores, embedded = wsfast.score(TEXT, unit="token"), wsfast.embed(TEXT)
    same(scores.result, wsfast.raf_sensitivity(embedded.X).with_words(embedded.labels))
    assert scores.result.words == ["I", "love", "her", "much", "##ness"]
    assert [TEXT[start:stop] for start, stop in scores.offsets[0]][-1] == "ness"


def test_all_tokens_of_a_word_change_together():
    scores, embedded = wsfast.score(TEXT, unit="word"), wsfast.embed(TEXT)
    sites = [tuple(range(*span)) for span in embedded.word_spans]
    found = wsfast.raf_sensitivity(embedded.X, positions=sites)
    same(scores.result, found.with_words(embedded.words))
    assert scores.result.words == ["I", "love", "her", "muchness"]
    assert scores.offsets == [embedded.word_offsets]
    largest = wsfast.score(TEXT).result
    assert bool((scores.result.per_word >= 0.999 * largest.per_word).all())
    assert "worst word: " in repr(scores)
    # Of a list: as many tokens as the longest of the worst words.
    several = wsfast.score([TEXT, "", "so it"], unit="word", draws=2).result
    assert several.site.shape[:2] == (3, 2)
    assert (several.site[1] == -1).all()
    alone = wsfast.score("so it", unit="word", draws=2).result
    assert torch.equal(several.site[2, :, :1], alone.site)
    assert torch.equal(several.delta[2, :, 0], alone.delta[:, 0])
    assert not several.delta[2, :, 1:].any()


@pytest.mark.parametrize("draws", [None, 2])
def test_texts_of_a_list_keep_their_numbers_and_their_figures(draws):
    scores = wsfast.score(ROWS, draws=draws)
    result = scores.result
    assert result.axes == (("texts",) if draws is None else ("texts", "draws"))
    assert scores.left_out == REASONS
    for number, text in enumerate(ROWS):
        if number in REASONS:
            assert result.value[number].isnan().all()
            assert (result.position[number] == -1).all()
            assert (result.words[number], scores.texts[number]) == ([], "")
            continue
        alone = wsfast.score(text, draws=draws).result
        n = alone.per_word.shape[-1]
        assert torch.equal(result.per_word[number, ..., :n], alone.per_word)
        assert result.per_word[number, ..., n:].isnan().all()
        for name in ("value", "position", "delta"):
            assert torch.equal(getattr(result, name)[number], getattr(alone, name))
        assert result.words[number] == alone.words


def test_texts_of_a_list_are_changed_in_any_way():
    scores = wsfast.score([TEXT, "so what", "so long"], perturbation="mask")
    for number, text in enumerate(scores.texts):
        alone = wsfast.score(text, perturbation="mask").result
        n = alone.per_word.shape[-1]
        assert torch.equal(scores.result.per_word[number, :n], alone.per_word)
    assert "steps" not in scores.result.info


@pytest.mark.needs("tables")
def test_frame_of_a_column():
    import pandas as pd

    scores = wsfast.score(pd.Series(["so what", pd.NA, "me"], index=[7, 8, 9], dtype="string"))
    frame = scores.to_frame()
    assert list(frame.columns) == ["text", "position", "word", "S_i", "worst"]
    assert frame.text.tolist() == [0, 0, 2]
    assert frame.word.tolist() == ["so", "what", "me"]
    assert frame[frame.worst].S_i.tolist() == scores.result.value[[0, 2]].tolist()


# -- long texts ------------------------------------------------------------------------------------

LONG = "so " * 20


@pytest.fixture
def _ten(monkeypatch):
    """A model of ten positions, two of them for special tokens."""
    monkeypatch.setattr(local.LocalEncoder, "limit", 10)


@pytest.mark.usefixtures("_ten")
def test_a_long_text_is_cut_and_named():
    scores = wsfast.score(["me", LONG])
    assert scores.cut == {1: Cut(tokens=20, kept=8)}
    assert scores.result.words[1] == ["so"] * 8
    assert wsfast.score(LONG, max_tokens=15).cut == {0: Cut(20, 8)}
    assert wsfast.score(LONG, max_tokens=3).cut == {}  # the caller knows
    assert wsfast.score(LONG, layer="words").cut == {}  # a table has no positions


@pytest.mark.usefixtures("_ten")
def test_a_long_text_is_left_out_or_ends_the_call():
    reason = 'must have at most 8 tokens, got 20: long="cut" keeps the first 8'
    assert wsfast.score(["me", LONG], long="skip").left_out == {1: reason}
    assert wsfast.score(["me", "so it"], long="skip", max_tokens=1).left_out.keys() == {1}
    with pytest.raises(ValueError, match=r"^texts\[1\] must have at most 8 tokens, got 20"):
        wsfast.score(["me", LONG, "it"], long="fail")
    assert wsfast.score(["me", ""], long="fail").left_out.keys() == {1}


# -- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"texts": " "}, r"^texts\[0\] must have words"),
        (
            {"texts": LONG, "max_tokens": 2, "long": "skip"},
            r"^texts\[0\] must have at most 2 tokens, got 20",
        ),
        ({"texts": []}, "^texts must hold at least one text"),
        ({"texts": ["", None]}, r"^texts must hold one .*, got 2 .*: texts\[0\] must have words"),
        ({"unit": "piece"}, "^unit must be 'word-max', 'word' or 'token', got 'piece'"),
        ({"long": "keep"}, "^long must be 'cut', 'skip' or 'fail', got 'keep'"),
        ({"layer": 7}, "^layer must be .* 0 to 6"),
        ({"weight_fn": "gelu"}, "weight_fn"),
        ({"radius": -1.0}, "radius"),
    ],
)
def test_bad_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        wsfast.score(**{"texts": ["so", ""], **options})


def test_a_text_whose_vectors_are_not_finite_is_left_out(byte_level):
    model, tokenizer = byte_level
    tokens = set(tokenizer("film").input_ids) - set(tokenizer("the").input_ids)
    with torch.no_grad():
        model.get_input_embeddings().weight[list(tokens)] = torch.nan
    scores = wsfast.score(["the", "film"], byte_level, "words")
    assert list(scores.left_out) == [1]
    assert scores.left_out[1].startswith("must have finite rows")


# -- how it is shown -------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"draws": 2}])
def test_files_hold_what_the_command_prints(capsys, tmp_path, options):
    texts, path = ["so what", "naïve, isn't it"], tmp_path / "scores"
    flags = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    scores = wsfast.score(texts, **options)
    scores.to_csv(path)
    assert path.read_text(encoding="utf-8") == run(capsys, "score", "--csv", *flags, *texts)[1]
    scores.to_jsonl(path)
    printed = run(capsys, "score", "--json", *flags, *texts)[1]
    found, expected = (
        [json.loads(line) for line in lines.splitlines()]
        for lines in (path.read_text(encoding="utf-8"), printed)
    )
    steps = [record["info"].pop("steps") for record in expected]
    assert [record["info"].pop("steps") for record in found] == [max(steps)] * 2
    assert found == expected


def test_texts_left_out_have_no_rows_in_files(tmp_path):
    scores, path = wsfast.score(["", "me"]), tmp_path / "scores"
    scores.to_csv(path)
    header, row = path.read_text().splitlines()
    assert header.startswith("text,")
    assert row.startswith("1,0,me,")
    scores.to_jsonl(path)
    assert path.read_text().startswith('{"text": 1, ')


def test_print_shows_what_the_command_prints(capsys):
    assert f"{wsfast.score(TEXT)}\n" == run(capsys, "score", TEXT)[1]
    assert f"{wsfast.score(['so what', 'me'])}\n" == run(capsys, "score", "so what", "me")[1]


def test_what_is_shown_names_texts_left_out():
    scores = wsfast.score(["so", "\u200b", *["me"] * 9, "it"], layer="words")
    reason = "it must have a token"
    assert f"text 1 is left out: {reason}" in str(scores)
    assert str(scores).endswith("… and 2 texts more")
    assert f"1 text left out, the first of them text 1: {reason}" in repr(scores)
    assert f"text 1 is left out: {reason}" in scores._repr_html_()


@pytest.mark.needs("plots")
def test_plot_of_a_text():
    from matplotlib.figure import Figure

    scores = wsfast.score(["", TEXT], layer="words")
    ax = scores.plot(Figure().subplots(), text=1)
    assert [label.get_text() for label in ax.get_xticklabels()] == TEXT.split()
    heights = [bar.get_height() for bar in ax.patches]
    np.testing.assert_array_equal(heights, scores.result.per_word[1].numpy())


def test_progress_counts_texts(capsys):
    wsfast.score(["so", "", "me"], progress=True)
    assert "3/3" in capsys.readouterr().err
    wsfast.score(TEXT, progress=True)
    assert "5/5" in capsys.readouterr().err  # positions
