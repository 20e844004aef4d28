"""`substitute` for whole words of several tokens: by as many, or in a text that is rewritten."""

from __future__ import annotations

import csv
import io
import json
import math
from itertools import pairwise

import pytest
import torch
from command import refuses, run

import wsfast
from wsfast.report.replacements import table
from wsfast.text import embed, models
from wsfast.text.substitute import substitute

pytestmark = pytest.mark.needs("text")

TEXT = "I've loathed this movie, muchness"  # of 3, 3, 1, 1, 1 and 2 tokens
WORDS = ["unwatchable", "Loathed", "blandly", "stupidly", "awful", "don't", "ludicrous"]
SPANS = {0: (0, 3), 1: (3, 6), 2: (6, 7), 3: (7, 8), 5: (9, 11)}  # the comma is no word


@pytest.fixture(scope="module")
def several():
    return substitute(TEXT, candidates=WORDS, replace="several", top_k=100)


@pytest.fixture(scope="module")
def rewritten():
    return substitute(TEXT, candidates=WORDS, replace="rewrite", top_k=100)


def ids_of(text):
    tokenizer = models.source("minilm", "words")[0].tokenizer
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def rows_of(text):
    """Rows of the raw table for the tokens of a text, scaled: written again."""
    rows = models.source("minilm", "words")[0].words(ids_of(text)).double()
    return (rows * (rows.shape[1] ** 0.5 / rows.norm(dim=1, keepdim=True))).float()


def features(X):
    return wsfast.raf_features(X.double(), wsfast.random_weights(384).double())


def pairs(found):
    return {(row.position, row.new) for row in found.replacements}


# -- as many tokens --------------------------------------------------------------------------------


def test_values_are_the_definition_with_all_rows_of_a_word_replaced(several):
    X = rows_of(TEXT)
    before = features(X)
    for row in several.replacements:
        start, stop = SPANS[row.position]
        moved = X.clone()
        moved[start:stop] = rows_of(row.new)
        change = (features(moved) - before).norm() / before.norm()
        assert row.value == pytest.approx(float(change), rel=1e-6)
        assert row.distance == pytest.approx(float((moved - X).norm()), rel=1e-6)
        assert row.rows == "all"
    assert all(a.value >= b.value for a, b in pairwise(several.replacements))


def test_every_word_gets_the_candidates_of_as_many_tokens_but_itself(several):
    three = ["unwatchable", "don't", "ludicrous"]
    expected = {(0, new) for new in [*three, "Loathed"]}
    expected |= {(1, new) for new in three}  # "Loathed" stands there
    expected |= {(at, "awful") for at in (2, 3)}
    expected |= {(5, new) for new in ("blandly", "stupidly")}
    assert pairs(several) == expected
    assert len(several.replacements) == len(expected)


def test_words_of_one_token_change_as_by_default(several):
    alone = substitute(TEXT, candidates=["awful"], top_k=100)
    found = [row for row in several.replacements if row.new == "awful"]
    assert [row[:3] for row in found] == [row[:3] for row in alone.replacements]
    for row, expected in zip(found, alone.replacements, strict=True):
        assert row.value == pytest.approx(expected.value, rel=1e-6)


def test_share_attained_is_that_of_the_joint_ball_of_the_words(several):
    first, X = several.replacements[0], several.embedded.X
    sites = [tuple(range(*span)) for span in SPANS.values()]
    ball = wsfast.raf_sensitivity(X, positions=sites)
    assert several.share_attained == first.value / float(ball)
    near = wsfast.raf_sensitivity(X, positions=sites, radius=first.distance)
    assert several.share_attained_at_distance == first.value / float(near)
    assert "the worst case found at these words over the ball" in repr(several)


def test_words_left_out_are_counted():
    found = substitute(TEXT, candidates=["awful"], replace="several", max_tokens=10)
    assert found.embedded.cut
    assert {row.position for row in found.replacements} == {2, 3}
    assert found.left_out == (1, 1, 2)  # "much" of "muchness", the comma, "I've" and "loathed"
    line = "1 word of several tokens, 1 punctuation mark, 2 words of as many tokens as no candidate"
    assert f"not replaced: {line}" in repr(found)


# -- any number of tokens --------------------------------------------------------------------------


def test_values_are_those_of_the_other_rows_in_the_text_embedded_again(rewritten):
    X = rewritten.embedded.X
    before = features(X)
    for row in rewritten.replacements:
        start, stop = SPANS[row.position]
        again = embed(row.text, layer="words").X
        assert len(again) - len(X) == len(ids_of(row.new)) - (stop - start)
        after = features(again)
        rest = len(X) - stop
        change = torch.cat([after[:start], after[len(again) - rest :]])
        change -= torch.cat([before[:start], before[stop:]])
        assert row.value == pytest.approx(float(change.norm() / before.norm()), rel=1e-6)
        assert row.rows == "others"
    assert all(a.value >= b.value for a, b in pairwise(rewritten.replacements))


def test_every_word_gets_every_candidate_but_itself(rewritten):
    expected = {(at, new) for at in SPANS for new in WORDS} - {(1, "Loathed")}
    assert pairs(rewritten) == expected
    assert rewritten.left_out == (0, 1, 0)


def test_same_number_of_tokens_is_the_change_that_raf_sensitivity_gives(several, rewritten):
    values = {(row.position, row.new): row for row in rewritten.replacements}
    for row in several.replacements:
        other = values[row.position, row.new]
        assert (other.text, other.distance) == (row.text, row.distance)
        assert other.value < row.value

    def put(X, at):
        return wsfast.Change(put=rows_of("ludicrous").to(X)[None, None])

    X = rewritten.embedded.X
    found = wsfast.raf_sensitivity(X, positions=[(0, 1, 2)], perturbation=put, rows="others")
    assert values[0, "ludicrous"].value == pytest.approx(float(found), rel=1e-6)


def test_no_ball_bounds_what_is_rewritten(rewritten):
    assert math.isnan(rewritten.share_attained)
    assert math.isnan(rewritten.share_attained_at_distance)
    assert rewritten.sensitivity is rewritten.sensitivity_at_distance is None
    for row in rewritten.replacements:
        start, stop = SPANS[row.position]
        assert math.isnan(row.distance) == (len(ids_of(row.new)) != stop - start)


def test_what_is_shown_says_which_rows_the_changes_are_of(rewritten):
    kind = "of the rows of the other words alone, by the definition on the text embedded again"
    for shown in (rewritten, rewritten.result):
        assert kind in repr(shown)
        assert kind in shown._repr_html_()
        assert "S = " not in repr(shown)
    heads = ("change of other rows", ">change of other rows<")
    assert heads[0] in table(rewritten.replacements)
    assert heads[1] in rewritten._repr_html_()


# -- of both ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("replace", ["several", "rewrite"])
def test_draws_give_means(byte_level, replace):
    how = {"candidates": ["films", "fine", "the film"], "replace": replace, "top_k": 99}
    found = substitute("not the finest film", byte_level, draws=2, **how)
    W = wsfast.random_weights(8, draws=2)
    alone = [substitute("not the finest film", byte_level, W=w, **how).replacements for w in W]
    values = [{row[:3]: row.value for row in rows} for rows in alone]
    assert len(found.replacements) == len(values[0]) > 1
    for row in found.replacements:
        mean = sum(one[row[:3]] for one in values) / 2
        assert row.value == pytest.approx(mean, rel=1e-5)


@pytest.mark.parametrize("replace", ["several", "rewrite"])
def test_result_is_of_words_and_is_saved(several, rewritten, tmp_path, replace):
    found = {"several": several, "rewrite": rewritten}[replace]
    result = found.result
    assert result.words == ["I've", "loathed", "this", "movie", "muchness"]
    assert result.sites == [tuple(range(*span)) for span in SPANS.values()]
    assert result.names == WORDS
    assert result.tuples == [tuple(ids_of(word)) for word in WORDS]
    result.save(tmp_path / "found")
    loaded = wsfast.SubstitutionResult.load(tmp_path / "found")
    assert loaded.top() == result.top()
    assert repr(loaded) == repr(result)


@pytest.mark.parametrize("position", [5, "muchness", "MUCHNESS"])
def test_position_is_that_of_a_word(position):
    found = substitute(TEXT, candidates=["blandly", "don't"], replace="rewrite", position=position)
    assert pairs(found) == {(5, "blandly"), (5, "don't")}
    assert {row.text for row in found.replacements} == {
        "I've loathed this movie, blandly",
        "I've loathed this movie, don't",
    }


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (TEXT, {"candidates": None}, 'candidates must be given with replace="several"'),
        (TEXT, {"candidates": ["[SEP]", "🜚 so"]}, r"candidates .*'\[SEP\]' \(unk.*'🜚 so' \(unk"),
        (TEXT, {"candidates": []}, "candidates must hold at least one word"),
        (
            "muchness so",
            {},
            r"\('muchness' at position 0, 'so' at position 1: of as many",
        ),
        ("loathed", {}, r"candidates must hold a word to put into texts\[0\]"),
        (TEXT, {"position": "ness"}, r"position must be a word of texts\[0\], got 'ness'"),
        (TEXT, {"position": ","}, r"takes none \(',' at position 4: punctuation\)$"),
        (
            "adored",
            {"replace": "rewrite"},
            r"texts\[0\] must have another word .*got 'adored' alone",
        ),
    ],
)
def test_errors(text, options, message):
    given = {"candidates": ["loathed"], "replace": "several", **options}
    with pytest.raises(ValueError, match=message):
        substitute(text, **given)


# -- the command -----------------------------------------------------------------------------------


@pytest.fixture
def words(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("\n".join(WORDS))
    return str(path)


@pytest.mark.parametrize("replace", ["several", "rewrite"])
def test_command_prints_the_figures_of_the_library(capsys, words, replace):
    found = substitute(TEXT, candidates=WORDS, replace=replace, position="muchness")
    command = ("substitute", TEXT, "--candidates", words, "--replace", replace, "--position", "5")
    record = json.loads(run(capsys, *command, "--json")[1])
    lines = list(csv.DictReader(io.StringIO(run(capsys, *command, "--csv")[1])))
    assert len(lines) == len(record["replacements"]) == len(found.replacements)
    for line, cells, row in zip(lines, record["replacements"], found.replacements, strict=True):
        assert (cells["position"], cells["new"], cells["replaced"]) == (row[0], row.new, row.text)
        assert (cells["value"], cells["rows"]) == (row.value, row.rows)
        assert (float(line["value"]), line["rows"]) == (row.value, row.rows)
        distance = None if math.isnan(row.distance) else row.distance
        assert cells["distance"] == distance
        assert line["distance"] == ("" if distance is None else str(distance))
    ball = found.sensitivity
    S = (None, None) if ball is None else (float(ball), found.share_attained)
    assert (record["S"], record["share_attained"]) == S
    assert table(found.replacements) in run(capsys, *command)[1]


def test_command_needs_candidates_for_whole_words(capsys):
    message = "--candidates must be given with --replace several"
    refuses(capsys, message, "substitute", TEXT, "--replace", "several")
