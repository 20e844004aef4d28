"""`substitute` against the definition, and the text it writes."""

from __future__ import annotations

import sys
import threading
from dataclasses import replace
from itertools import pairwise

import definition
import numpy as np
import pytest
import torch

import wsfast
from wsfast.report.digits import significant
from wsfast.text import Replacement, Replacements, embed, models, vocabulary
from wsfast.text.compare import compare
from wsfast.text.substitute import substitute

pytestmark = pytest.mark.needs("text")

TEXT = "I love her much"
WORDS = ["Hate", "smile", "like", "paper", "seven", "her"]


@pytest.fixture(scope="module")
def love():
    """Every position of a text, all words of the vocabulary."""
    return substitute(TEXT)


@pytest.fixture(scope="module")
def few():
    return substitute(TEXT, candidates=WORDS, top_k=100)


def rows_of(model, ids):
    """Rows of the raw table, scaled: written again without the library."""
    rows = model.get_input_embeddings().weight.detach()[ids].double()
    return (rows * (rows.shape[1] ** 0.5 / rows.norm(dim=1, keepdim=True))).float()


def by_definition(X, row, position, W):
    """Relative change as row `position` of X becomes `row`."""
    moved = X.clone()
    moved[position] = row
    before, after = definition.features(X, W), definition.features(moved, W)
    return float((after - before).norm() / before.norm())


def pairs(found):
    return [(row.position, row.new) for row in found.replacements]


# -- values ----------------------------------------------------------------------------------------


def test_values_are_the_definition_at_the_rows_of_the_table(love):
    model, tokenizer = models.load("minilm")
    W = wsfast.random_weights(384)
    X = rows_of(model, tokenizer(TEXT, add_special_tokens=False)["input_ids"])
    assert torch.equal(love.embedded.X, X)
    assert len(love.replacements) == 20
    for row in love.replacements[:6]:
        (new,) = rows_of(model, [tokenizer.get_vocab()[row.new]])
        expected = by_definition(X, new, row.position, W)
        assert row.value == pytest.approx(expected, rel=1e-6)
        assert row.distance == pytest.approx(float((new.double() - X[row.position]).norm()))


def test_values_are_those_of_the_text_with_the_word_in_it(few):
    W = wsfast.random_weights(384)
    before = definition.features(embed(TEXT, layer="words").X, W)
    for row in few.replacements:
        replaced = embed(row.text, layer="words")
        assert replaced.tokens[row.position] == row.new
        after = definition.features(replaced.X, W)
        assert row.value == pytest.approx(float((after - before).norm() / before.norm()), rel=1e-6)


def test_the_change_is_that_of_compare(few):
    row = next(row for row in few.replacements if row.text == "I love her smile")
    assert row.value == pytest.approx(compare(TEXT, row.text).random.change, rel=1e-6)


@pytest.mark.parametrize("largest", [True, False])
def test_no_pair_is_missed(byte_level, largest):
    """Every pair of a small model by the definition, sorted."""
    model, tokenizer = byte_level
    text = "not the fine film, a film"  # a word that stands twice: ties
    W = wsfast.random_weights(8, seed=3)
    found = substitute(text, byte_level, top_k=15, largest=largest, seed=3, replace="all")
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    X = rows_of(model, ids)
    words = {token[1:]: i for token, i in tokenizer.get_vocab().items() if token[1:].isalpha()}
    words = {word: i for word, i in words.items() if tokenizer.convert_ids_to_tokens(i)[0] == "Ġ"}
    assert len(words) > 5
    values = {
        (position, word): by_definition(X, rows_of(model, [i])[0], position, W)
        for position in range(len(ids))
        for word, i in words.items()
        if i != ids[position]
    }
    sign = -1 if largest else 1
    order = sorted(values, key=lambda at: (round(sign * values[at], 9), at[0], words[at[1]]))
    expected = order[:15]
    assert pairs(found) == expected
    for row in found.replacements:
        assert row.value == pytest.approx(values[row.position, row.new], rel=1e-5)


def test_no_word_is_replaced_by_itself():
    harmless = substitute(TEXT, largest=False, top_k=40)
    assert all(row.value > 0.01 for row in harmless.replacements)
    assert all(row.old.lower() != row.new for row in harmless.replacements)
    few = substitute(TEXT, candidates=["love", "her"], top_k=100)
    assert sorted(pairs(few)) == sorted(
        [(0, "her"), (0, "love"), (1, "her"), (2, "love"), (3, "her"), (3, "love")]
    )


def test_most_harmless_first(few):
    harmless = substitute(TEXT, candidates=WORDS, top_k=100, largest=False)
    assert pairs(harmless) == pairs(few)[::-1]
    assert all(a.value <= b.value for a, b in pairwise(harmless.replacements))
    assert not harmless.result.largest


def test_top_k(few):
    found = substitute(TEXT, candidates=WORDS, top_k=3)
    assert found.replacements == few.replacements[:3]
    assert len(few.replacements) == 4 * 6 - 1


@pytest.mark.parametrize("kind", ["torch", "numpy"])
def test_given_weights(few, kind):
    W = wsfast.random_weights(384)
    given = substitute(TEXT, candidates=WORDS, top_k=100, W=W if kind == "torch" else W.numpy())
    assert given.replacements == few.replacements
    assert (given.share_attained, given.share_attained_at_distance) == (
        few.share_attained,
        few.share_attained_at_distance,
    )
    other = substitute(TEXT, candidates=WORDS, W=wsfast.random_weights(384, seed=1))
    assert other.replacements[0].value != few.replacements[0].value
    assert (
        other.replacements[0].value
        == substitute(TEXT, candidates=WORDS, seed=1).replacements[0].value
    )


# -- labels ----------------------------------------------------------------------------------------


def test_result_has_words_and_names(few):
    assert few.result.words == ["I", "love", "her", "much"]
    ids = models.load("minilm")[1].get_vocab()
    for row, pair in zip(few.replacements, few.result.top(), strict=True):
        assert (pair.position, pair.word, pair.name) == (row.position, row.old, row.new)
        assert pair.candidate == ids[pair.name]
        assert pair.value == row.value
    assert few.result.info["candidates"] == 30522


def test_pieces_of_a_word_are_marked():
    found = substitute("Muchness, isn't", candidates=["love"], top_k=9, replace="all")
    assert found.result.words == ["Much", "##ness", ",", "isn", "##'", "##t"]
    assert {row.position: row.old for row in found.replacements}.keys() == {0, 1, 2}


def test_max_tokens():
    cut = substitute(TEXT + " indeed", max_tokens=4, candidates=WORDS, top_k=3)
    whole = substitute(TEXT, candidates=WORDS, top_k=3)
    assert [row[:5] for row in cut.replacements] == [row[:5] for row in whole.replacements]
    assert cut.replacements[0].text == whole.replacements[0].text + " indeed"
    with pytest.raises(ValueError, match="position"):
        substitute(TEXT, max_tokens=2, position="much", candidates=WORDS)


# -- candidates ------------------------------------------------------------------------------------


def test_words_are_the_default(love):
    ids = models.load("minilm")[1].get_vocab()
    assert all(row.new.isalpha() for row in love.replacements)
    assert all(
        ids[row.new] == pair.candidate
        for row, pair in zip(love.replacements, love.result.top(), strict=True)
    )


@pytest.mark.parametrize("tokens", ["words", "whole", "all"])
def test_choice_of_tokens(byte_level, tokens):
    found = substitute("the fine film", byte_level, tokens=tokens, top_k=10_000)
    allowed = vocabulary.vocabulary_of(byte_level).allowed(tokens).nonzero()[:, 0].tolist()
    special = set(byte_level[1].all_special_ids)
    tried = {row.candidate for row in found.result.top()}
    assert tried == set(allowed)
    assert not tried & special
    ids = byte_level[1]("the fine film", add_special_tokens=False)["input_ids"]
    assert len(found.replacements) == 3 * len(allowed) - len(set(ids) & set(allowed))


def test_candidates_are_of_the_case_of_the_tokenizer(few):
    assert {row.new for row in few.replacements} == {word.lower() for word in WORDS}


def test_words_of_other_tokenizers(byte_level, unsplit):
    for model in (byte_level, unsplit):
        found = substitute("the fine film", model, candidates=["fine"], top_k=9)
        assert [row.new for row in found.replacements] == ["fine"] * 2
        assert {row.text for row in found.replacements} == {"the fine fine", "fine fine film"}


# -- where the worst word stands -------------------------------------------------------------------


def test_share_attained_is_that_of_the_worst_case(few):
    first = few.replacements[0]
    ball = wsfast.raf_sensitivity(few.embedded.X)
    assert few.sensitivity.value == ball.value
    assert few.sensitivity.radius == pytest.approx(384**0.5)
    assert few.share_attained == first.value / float(ball)
    near = wsfast.raf_sensitivity(few.embedded.X, radius=first.distance)
    assert few.sensitivity_at_distance.value == near.value
    assert few.share_attained_at_distance == first.value / float(near)
    assert 0 < few.share_attained_at_distance < 1


def test_share_attained_at_the_positions_that_are_searched():
    found = substitute(TEXT, position="her", candidates=WORDS)
    ball = wsfast.raf_sensitivity(found.embedded.X, positions=[2])
    assert found.share_attained == found.replacements[0].value / float(ball)


def test_share_at_distance_is_1_where_the_search_ends_below_the_word(monkeypatch):
    # By its name: the attribute of the package is the function.
    module = sys.modules["wsfast.text.substitute"]
    search = module.sensitivity_under

    def weak(*arguments, **options):
        result = search(*arguments, **options)
        return replace(result, value=result.value / 100)

    monkeypatch.setattr(module, "sensitivity_under", weak)
    assert substitute(TEXT, candidates=WORDS).share_attained_at_distance == 1


# -- draws -----------------------------------------------------------------------------------------


@pytest.mark.deep
def test_draws_rank_by_the_mean():
    found = substitute(TEXT, candidates=WORDS, top_k=23, draws=3, seed=2)
    W = wsfast.random_weights(384, draws=3, seed=2)
    assert found.result.axes == ("draws",)
    assert found.result.value.shape == (3,)
    model, tokenizer = models.load("minilm")
    X = found.embedded.X
    assert len(found.replacements) == 23
    for row in found.replacements[:5]:
        (new,) = rows_of(model, [tokenizer.get_vocab()[row.new]])
        values = [by_definition(X, new, row.position, w) for w in W]
        assert row.value == pytest.approx(np.mean(values), rel=1e-6)
    assert all(a.value >= b.value for a, b in pairwise(found.replacements))
    assert found.result.info["weights"] == found.sensitivity.info["weights"] == "random"
    ball = wsfast.raf_sensitivity(X, draws=3, seed=2)
    assert found.share_attained == pytest.approx(
        found.replacements[0].value / float(ball.value.mean())
    )
    given = substitute(TEXT, candidates=WORDS, top_k=23, W=W)
    assert given.replacements == found.replacements


@pytest.mark.deep
@pytest.mark.parametrize("largest", [True, False])
def test_draws_return_the_best_of_any_draw(largest):
    found = substitute(TEXT, candidates=WORDS, top_k=4, draws=4, largest=largest)
    every = substitute(TEXT, candidates=WORDS, top_k=23, draws=4, largest=largest)
    tops = {pair[:2] for draw in range(4) for pair in found.result.top(draw=draw)}
    names = found.result.names
    among = [row for row in every.replacements if (row.position, names.index(row.new)) in tops]
    assert pairs(found) == [(row.position, row.new) for row in among[:4]]
    means = [row.value for row in every.replacements]
    assert means == sorted(means, reverse=largest)
    for row, expected in zip(found.replacements, among, strict=False):
        assert row.value == pytest.approx(expected.value, rel=1e-12)


# -- several texts ---------------------------------------------------------------------------------


def test_a_list_gives_a_list_of_what_each_text_gives(few):
    texts = [TEXT, "so is it"]
    found = substitute(texts, candidates=WORDS, top_k=100)
    assert [one.embedded.text for one in found] == texts
    assert found[0].replacements == few.replacements
    assert isinstance(substitute([TEXT], candidates=WORDS), list)
    assert isinstance(substitute(TEXT, candidates=WORDS), Replacements)


def test_table_and_self_scores_are_kept_between_calls(monkeypatch):
    substitute("so it", candidates=WORDS, seed=11)
    monkeypatch.setattr(vocabulary, "_read", None)
    monkeypatch.setattr(vocabulary, "self_scores", None)
    substitute("so is it", candidates=WORDS, seed=11)


def test_text_is_tokenized_once(byte_level):
    model, tokenizer = byte_level
    calls = []

    class Counting:
        def __call__(self, *arguments, **options):
            calls.append(arguments)
            return tokenizer(*arguments, **options)

        def __getattr__(self, name):
            return getattr(tokenizer, name)

    substitute("the fine film", (model, Counting()))
    assert calls == [("the fine film",)]


def test_weights_are_drawn_once(monkeypatch):
    from wsfast.maps import draws

    drawn = []
    draw = draws.weights_of_draw
    monkeypatch.setattr(
        draws, "weights_of_draw", lambda d, **how: drawn.append(how["draw"]) or draw(d, **how)
    )
    substitute(["so it", "it is"], candidates=WORDS, seed=12, draws=2)
    assert drawn == [0, 1]


def test_progress(capsys):
    substitute(["so it", "it is"], candidates=WORDS, progress=True)
    assert "2/2" in capsys.readouterr().err
    substitute("so it", candidates=WORDS, progress=True)
    assert capsys.readouterr().err
    substitute(["so it", "it is"], candidates=WORDS)
    assert capsys.readouterr() == ("", "")


# -- traces ----------------------------------------------------------------------------------------


def test_nothing_is_left_behind(untouched, byte_level):
    model, _ = byte_level
    model.train()
    model.pooler.eval()
    modes = [module.training for module in model.modules()]
    before = [parameter.detach().clone() for parameter in model.parameters()]
    with untouched():
        substitute("the film", byte_level)
        substitute(TEXT, candidates=WORDS, seed=5)
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert all(parameter.grad is None for parameter in model.parameters())
    assert sum(len(module._forward_hooks) for module in model.modules()) == 0


def test_threads(few):
    found = []
    texts = [TEXT, "so is it", TEXT, "it is so"]
    threads = [
        threading.Thread(
            target=lambda text=text: found.append(substitute(text, candidates=WORDS, top_k=100))
        )
        for text in texts
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(one.embedded.text for one in found) == sorted(texts)
    assert all(one.replacements == few.replacements for one in found if one.embedded.text == TEXT)


# -- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"position": "loves"},
            ValueError,
            r"position must be a word of texts\[0\], got 'loves'.*'I', 'love'",
        ),
        ({"position": " "}, ValueError, "position must be a word"),
        ({"position": 4}, ValueError, "position must be from 0 to 3, got 4"),
        ({"position": -1}, ValueError, "position must be at least 0, got -1"),
        ({"position": 1.0}, TypeError, "position must be an integer"),
        ({"position": True}, TypeError, "position must be an integer"),
        ({"candidates": "love"}, TypeError, "candidates must be a list of words, got str"),
        ({"candidates": {"love"}}, TypeError, "candidates must .*got set"),
        ({"candidates": []}, ValueError, "candidates must .*at least one"),
        ({"candidates": ["so", 3]}, TypeError, r"candidates\[1\] must be a str, got int"),
        ({"candidates": ["muchness"]}, ValueError, "candidates must .*'muchness' .*'##ness'"),
        (
            {"candidates": ["LOVE"], "position": "love"},
            ValueError,
            r"candidates must hold a word to put into texts\[0\]",
        ),
        ({"tokens": "pieces"}, ValueError, "tokens must be .*'pieces'"),
        ({"top_k": 0}, ValueError, "top_k"),
        ({"largest": 1}, TypeError, "largest"),
        ({"max_tokens": 0}, ValueError, "max_tokens"),
        ({"seed": -1}, ValueError, "seed"),
        ({"draws": 0}, ValueError, "draws"),
        ({"W": torch.zeros(384, 384), "draws": 2}, ValueError, "W and draws"),
        ({"W": torch.zeros(3, 3)}, ValueError, "W must have shape"),
        ({"backend": "cuda"}, ValueError, "backend"),
        ({"progress": 1}, TypeError, "progress"),
        ({"model": 3}, TypeError, "model must"),
    ],
)
def test_bad_options(options, error, message):
    with pytest.raises(error, match=message):
        substitute(TEXT, **options)


@pytest.mark.parametrize(
    ("texts", "error", "message"),
    [
        (3, TypeError, "texts must"),
        ("", ValueError, r"texts\[0\]"),
        (["a", ""], ValueError, r"texts\[1\]"),
    ],
)
def test_bad_texts(texts, error, message):
    with pytest.raises(error, match=message):
        substitute(texts)


def test_word_that_one_of_several_texts_lacks():
    with pytest.raises(ValueError, match=r"a word of texts\[1\], got 'love'"):
        substitute([TEXT, "so it"], position="love", candidates=WORDS)


# -- reports ---------------------------------------------------------------------------------------


def test_repr_is_short(few, love):
    first = few.replacements[0]
    lines = repr(few).splitlines()
    assert lines[0] == f"Replacements({TEXT}"
    assert lines[1].strip() == (
        f"{first.old} -> {first.new} at position {first.position}: {significant(first.value, 4)}"
    )
    assert lines[6].strip() == "… and 18 more"
    assert (
        f"{100 * few.share_attained:.3g} % of S = {significant(float(few.sensitivity))}" in lines[7]
    )
    assert f"{100 * few.share_attained_at_distance:.3g} %" in lines[8]
    assert len(lines) == 9
    assert len(repr(love).splitlines()) == 9
    long = substitute("so " * 100, candidates=["love"], top_k=1)
    assert max(map(len, repr(long).splitlines())) < 110


def test_html_is_escaped():
    html = substitute("so <script> it", candidates=["love"], replace="whole")._repr_html_()
    assert "<script" not in html
    assert "so &lt;script&gt; it" in html
    assert html.count("<tr>") == 1 + 5
    assert "love" in html


def test_words_that_were_left_out_are_counted_in_print():
    found = substitute("so I've muchness, it.", candidates=["love"])
    line = "not replaced: 2 words of several tokens, 2 punctuation marks"
    assert line in repr(found)
    assert line in found._repr_html_()
    assert "S = " in repr(found)
    assert "the worst case found at these words over the ball" in repr(found)
    assert "replaced:" not in repr(substitute("so it", candidates=["love"]))


@pytest.mark.parametrize(
    ("old", "new"),
    [("gap", "share_attained"), ("gap_at_distance", "share_attained_at_distance")],
)
def test_old_names_warn_at_the_users_line(few, old, new):
    with pytest.warns(FutureWarning, match=f"Replacements.{old} is called {new} now") as caught:
        assert getattr(few, old) == getattr(few, new)
    assert [warning.filename for warning in caught] == [__file__]


@pytest.mark.needs("tables")
def test_frame(few):
    frame = few.to_frame()
    assert list(frame.columns) == list(Replacement._fields)
    assert frame.pop("model_change").isna().all()
    rows = [row[:-1] for row in few.replacements]
    assert list(frame.itertuples(index=False, name=None)) == rows


def test_replacement_is_a_tuple(few):
    row = few.replacements[0]
    assert row == Replacement(*row)
    known = ("position", "old", "new", "value", "distance", "text", "rows", "model_change")
    assert row._fields == known
