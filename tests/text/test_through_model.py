"""`substitute(through_model=…)` against transformers, run by hand on the token ids."""

from __future__ import annotations

import csv
import io
import json
import math

import pytest
import torch
from command import refuses, run
from text.test_layers import build, traces

from wsfast.report.replacements import attained_lines, table
from wsfast.results.rank_correlation import rank_correlation
from wsfast.text import embed, models
from wsfast.text.substitute import substitute

pytestmark = pytest.mark.needs("text")

TEXT = "not the finest film, a film"
HOW = {"candidates": ["fine", "films", "the film"], "replace": "rewrite", "top_k": 99}
MINILM = "I've loathed this movie"
WORDS = ["unwatchable", "awful", "hate", "seven"]


def pooled(model, ids, special):
    """Mean over the tokens that are not special, of a run with a mask of ones."""
    batch = torch.tensor([ids])
    with torch.no_grad():
        last = model(input_ids=batch, attention_mask=torch.ones_like(batch)).last_hidden_state[0]
    return last[[i for i, flag in enumerate(special) if not flag]].double().mean(0)


def by_hand(pair, found, row):
    """Change of a model as `row` says, from the ids that the search put there."""
    model, tokenizer = pair
    encoded = tokenizer(found.embedded.text, return_special_tokens_mask=True)
    ids, special = encoded["input_ids"], encoded["special_tokens_mask"]
    own = [i for i, flag in enumerate(special) if not flag]
    start, stop = found.embedded.word_spans[row.position]
    start, stop = own[start], own[stop - 1] + 1
    (at,) = [k for k, name in enumerate(found.result.names) if name == row.new]
    new = [at] if found.result.tuples is None else [*found.result.tuples[at]]
    before = pooled(model, ids, special)
    spliced = [*special[:start], *[0] * len(new), *special[stop:]]
    after = pooled(model, [*ids[:start], *new, *ids[stop:]], spliced)
    return float((after - before).norm() / before.norm())


@pytest.fixture(scope="module")
def some():
    """The first three of all that there are."""
    return substitute("so is this movie", candidates=WORDS[1:], top_k=8, through_model=3)


# -- values ----------------------------------------------------------------------------------------


def test_change_is_that_of_transformers_on_the_ids_put_in(some):
    pair = models.load("minilm")
    for row in some.replacements[:3]:
        assert row.model_change == pytest.approx(by_hand(pair, some, row), rel=1e-5)
        assert row.model_change > 0


def test_changes_after_the_first_are_not_known(some):
    assert len(some.replacements) == 8
    assert [math.isnan(row.model_change) for row in some.replacements] == [False] * 3 + [True] * 5
    without = substitute("so is this movie", candidates=WORDS[1:], top_k=8)
    assert [row[:-1] for row in without.replacements] == [row[:-1] for row in some.replacements]
    assert all(math.isnan(row.model_change) for row in without.replacements)
    assert math.isnan(without.model_correlation)


@pytest.mark.parametrize("name", ["Roberta", "GPT2", "T5"])
@pytest.mark.parametrize("replace", ["several", "rewrite"])
def test_whole_words_of_any_architecture(name, replace):
    pair = build(name)
    found = substitute(TEXT, pair, through_model=99, **HOW | {"replace": replace})
    encoder = pair[0].get_encoder() if name == "T5" else pair[0]
    assert len(found.replacements) > 1
    for row in found.replacements:
        expected = by_hand((encoder, pair[1]), found, row)
        assert row.model_change == pytest.approx(expected, rel=1e-4, abs=1e-7)


def test_texts_of_a_list_and_draws(byte_level):
    texts = [TEXT, "the fine film"]
    how = {"candidates": ["fine", "film"], "top_k": 3, "through_model": 2}
    both = substitute(texts, byte_level, **how)
    alone = [substitute(text, byte_level, **how) for text in texts]
    assert [one.replacements[:2] for one in both] == [one.replacements[:2] for one in alone]
    drawn = substitute(texts[1], byte_level, draws=2, **how)
    for row in drawn.replacements[:2]:
        assert row.model_change == pytest.approx(by_hand(byte_level, drawn, row), rel=1e-4)


def test_dtype_and_head_are_those_of_the_model(byte_level):
    from transformers import RobertaForMaskedLM

    model, tokenizer = byte_level
    headed = RobertaForMaskedLM(model.config)
    headed.roberta.load_state_dict(model.state_dict(), strict=False)
    how = {"candidates": ["fine", "film"], "top_k": 4, "through_model": 4}
    found, alone = (
        substitute("the fine film", (one, tokenizer), **how).replacements
        for one in (headed.double(), model.double())
    )
    assert [row.model_change for row in found] == [row.model_change for row in alone]
    halved = substitute("the fine film", (model.bfloat16(), tokenizer), **how).replacements
    of_half = {row[:3]: row.model_change for row in halved}
    for row in alone:
        assert of_half[row[:3]] == pytest.approx(row.model_change, rel=0.2)
        assert of_half[row[:3]] != pytest.approx(row.model_change, rel=1e-7)


def test_max_tokens_is_what_the_model_sees(byte_level):
    how = {"candidates": ["fine", "film"], "top_k": 1, "through_model": 1}
    cut = substitute(TEXT, byte_level, max_tokens=2, **how)
    short = substitute("not the", byte_level, **how)
    assert embed(TEXT, byte_level, "words", max_tokens=2).tokens == short.embedded.tokens
    assert cut.replacements[0].model_change == short.replacements[0].model_change


def test_texts_that_are_too_long(byte_level):
    long = "the film " * 20
    substitute(long, byte_level, candidates=["fine"])  # the table has no positions
    with pytest.raises(ValueError, match=r"texts\[0\] must have at most \d+ tokens.*max_tokens"):
        substitute(long, byte_level, candidates=["fine"], through_model=1)
    limit = models.loaded(byte_level).limit
    full = {"max_tokens": limit - 2, "replace": "rewrite", "position": 0, "top_k": 9}
    found = substitute(long, byte_level, candidates=["fine", "the film"], through_model=9, **full)
    changes = {row.new: row.model_change for row in found.replacements}
    assert math.isnan(changes["the film"])
    assert changes["fine"] > 0


# -- the correlation -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ([1, 2, 3, 4], [10, 20, 40, 30], 0.8),  # 1 - 6·2/(4·15)
        ([5, 1, 3], [1, 5, 3], -1),
        # Ranks 1, 2.5, 2.5, 4 and 1, 2, 3, 4: 4.5/√(4.5·5)
        ([0, 7, 7, 9], [1, 2, 3, 4], 4.5 / (4.5 * 5) ** 0.5),
        ([1, 2], [1, 2], math.nan),
        ([1, 1, 1], [1, 2, 3], math.nan),
    ],
)
def test_rank_correlation(one, other, expected):
    assert rank_correlation(one, other) == pytest.approx(expected, nan_ok=True)


def test_model_correlation_is_of_those_that_were_run(some):
    run_ = some.replacements[:3]
    expected = rank_correlation([r.value for r in run_], [r.model_change for r in run_])
    assert some.model_correlation == expected
    assert abs(expected) in (pytest.approx(1), pytest.approx(0.5))


# -- traces and errors -----------------------------------------------------------------------------


def test_model_is_left_as_it_was(byte_level, untouched):
    model, _ = byte_level
    how = {"candidates": ["fine", "film"], "top_k": 2, "through_model": 2}
    expected = substitute(TEXT, byte_level, **how).replacements
    model.train()
    model.pooler.eval()
    before = traces(model)
    with untouched():
        found = substitute(TEXT, byte_level, **how).replacements
    assert found == expected  # dropout is off
    assert traces(model) == before


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (0, ValueError, "through_model must be at least 1, got 0"),
        (2.0, TypeError, "through_model must be an integer"),
        (True, TypeError, "through_model must be an integer"),
    ],
)
def test_bad_numbers(value, error, message):
    with pytest.raises(error, match=message):
        substitute("so it", through_model=value)


# -- what is shown ---------------------------------------------------------------------------------


def test_what_is_shown(some):
    for shown in (repr(some), some._repr_html_(), "\n".join(attained_lines(some))):
        assert "one end of the ranking: not that of all words" in shown
        assert f"{some.model_correlation:.2f} over the 3 that were run" in shown
        assert "mean over the tokens that are not special" in shown
    assert "of the model 0." in repr(some)
    assert ">model change<" in some._repr_html_()
    assert "model change" in table(some.replacements).splitlines()[0]
    without = substitute("so it", candidates=["awful"])
    assert "model change" not in repr(without) + table(without.replacements)


def test_progress(capsys):
    substitute("so it", candidates=["awful"], through_model=2, progress=True)
    assert "run" in capsys.readouterr().err


@pytest.mark.needs("tables")
def test_frame_is_saved(some, tmp_path):
    import pandas as pd

    some.to_frame().to_csv(tmp_path / "found.csv", index=False)
    changes = pd.read_csv(tmp_path / "found.csv")["model_change"]
    assert changes[:3].tolist() == pytest.approx([r.model_change for r in some.replacements[:3]])
    assert changes[3:].isna().all()


def test_command_prints_the_figures_of_the_library(capsys, tmp_path):
    path, page = tmp_path / "words.txt", tmp_path / "page.html"
    path.write_text("\n".join(WORDS))
    how = {"candidates": WORDS, "replace": "rewrite", "top_k": 4, "through_model": 3}
    found = substitute(MINILM, **how)
    command = ("substitute", MINILM, "--candidates", str(path), "--replace", "rewrite", "--top")
    command = (*command, "4", "--through-model", "3")
    record = json.loads(run(capsys, *command, "--json")[1])
    lines = list(csv.DictReader(io.StringIO(run(capsys, *command, "--csv")[1])))
    for line, cells, row in zip(lines, record["replacements"], found.replacements, strict=True):
        change = None if math.isnan(row.model_change) else row.model_change
        assert cells["model_change"] == change
        assert line["model_change"] == ("" if change is None else str(change))
    assert record["model_correlation"] == found.model_correlation
    status, out, _ = run(capsys, *command, "--html", str(page))
    assert status == 0
    assert table(found.replacements) in out
    assert "one end of the ranking" in out
    assert ">model change<" in page.read_text(encoding="utf-8")


def test_command_cuts_a_text_to_the_model(capsys, tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("awful")
    long = "so " * 600
    command = ("substitute", long, "--candidates", str(path), "--position", "0", "--top", "1")
    command = (*command, "--through-model", "1", "--csv")
    status, out, err = run(capsys, *command)
    assert status == 0
    assert "text 0: 600 tokens, cut to the first" in err
    assert float(next(csv.DictReader(io.StringIO(out)))["model_change"]) > 0
    refuses(capsys, "600 tokens are more than", *command, "--long", "fail")
    refuses(capsys, "--through-model: must be an integer of at least 1, got '0'", *command[:2],
            "--through-model", "0")  # fmt: skip
