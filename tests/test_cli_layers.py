"""The command ``wsfast layers``: figures of the library, pages, pictures, errors."""

from __future__ import annotations

import csv
import inspect
import io
import json
import os
import sys

import pytest
from command import refuses, run
from report.html_tags import Page

import wsfast
from wsfast.cli import errors, layers
from wsfast.maps.layer_input import AT
from wsfast.perturbation.change import BALL, KINDS
from wsfast.report.digits import column
from wsfast.studies.layers import COMBINE
from wsfast.text.layer_sensitivity import RADII, AttentionModel

needs_text = pytest.mark.needs("text")

TEXT = "I love her much"
FEW = {"layers": [0, 2], "heads": [1, 3]}
ASKED = ("--layers", "0", "2", "--heads", "1", "3")
MASK = (*ASKED, "--perturbation", "mask")


def masked(text=TEXT, **options):
    return wsfast.layer_sensitivity("minilm", text, **FEW, perturbation="mask", **options)


def records(out):
    return [json.loads(line) for line in out.splitlines()]


# -- what is printed -------------------------------------------------------------------------------


@needs_text
def test_text_table_and_what_it_is_not(capsys):
    status, out, err = run(capsys, "layers", TEXT, *MASK)
    assert (status, err) == (0, "")
    text, header, *rows, scope, deeper = out.splitlines()
    assert text == TEXT
    assert header.split("  ") == [
        *("layer", "median over heads", "largest", "head", "position", "word")
    ]
    S = masked().value[..., 0]
    assert [row.split()[0] for row in rows] == ["0", "2"]
    assert [row.split()[2] for row in rows] == column(S.amax(1).tolist())
    assert [row.split()[3] for row in rows] == [str(FEW["heads"][k]) for k in S.argmax(1).tolist()]
    assert "a layer's sensitivity is not the model's" in scope
    assert "each word hidden in turn" in deeper


@needs_text
def test_json_holds_the_figures_of_the_library(capsys):
    options = ("--relative-radius", "0.1", "0.5", "--seed", "3", "--max-tokens", "3")
    status, out, err = run(capsys, "layers", TEXT, *ASKED, *options, "--json")
    found = wsfast.layer_sensitivity(
        "minilm", TEXT, **FEW, relative_radius=[0.1, 0.5], seed=3, max_tokens=3
    )
    (record,) = records(out)
    assert (status, err) == (0, "")
    assert record["S"] == found.value.tolist()
    assert record["S_i"] == found.per_word.tolist()
    assert (record["radii"], record["relative"]) == ([0.1, 0.5], True)
    assert (record["text"], record["model"], record["words"]) == (0, "minilm", found.words[0])
    assert (record["layers"], record["heads"]) == ([0, 2], [1, 3])
    assert record["info"]["seed"] == 3


def test_bounds_are_printed_where_they_are_asked_for(capsys):
    _, out, _ = run(capsys, "layers", "so what", *ASKED, "--bound")
    assert "times as large, which is proved" in out
    _, out, _ = run(capsys, "layers", "so what", *ASKED, "--bound", "--json")
    (record,) = records(out)
    found = wsfast.layer_sensitivity("minilm", "so what", **FEW, bound=True)
    assert record["upper"] == found.upper.tolist()


@needs_text
def test_plain_radii_in_the_residual_stream_and_heads_together(capsys):
    options = ("--radius", "0.5", "1", "--at", "residual", "--combine", "projected")
    _, out, _ = run(capsys, "layers", "so what", *ASKED, *options, "--json")
    found = wsfast.layer_sensitivity(
        "minilm", "so what", **FEW, radius=[0.5, 1], at="residual", combine="projected"
    )
    (record,) = records(out)
    assert record["S"] == found.value.tolist()
    assert (record["radii"], record["relative"]) == ([0.5, 1.0], False)
    assert (record["at"], record["combine"], record["heads"]) == ("residual", "projected", None)


@needs_text
def test_all_layers_and_heads_at_the_radii_of_the_library(capsys, monkeypatch):
    asked, found = [], masked()
    defaults = inspect.signature(wsfast.layer_sensitivity).parameters
    monkeypatch.setattr(
        wsfast, "layer_sensitivity", lambda *_, **options: asked.append(options) or found
    )
    assert run(capsys, "layers", TEXT)[0] == 0
    assert len(asked[0]) > 10
    assert asked == [{name: defaults[name].default for name in asked[0]}]


@needs_text
def test_a_control(capsys):
    options = ("--control", "shuffled", "--control-draws", "2", "--seed", "5")
    _, out, _ = run(capsys, "layers", "so what", *MASK, *options, "--json")
    found = masked("so what", control="shuffled", control_draws=2, seed=5)
    control = records(out)[0]["control"]
    assert control["draws"] == 2
    assert control["quantiles"] == found.control_quantiles(control["levels"]).tolist()
    _, out, _ = run(capsys, "layers", "so what", *MASK, *options)
    assert "shuffled  ratio" in out


@needs_text
def test_csv_of_a_file(capsys, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('review,other\n"so, what",1\n,2\nme,3\n')
    status, out, err = run(
        capsys, "layers", "--csv", "--file", str(path), "--column", "review", *MASK
    )
    assert status == 3
    first, last = err.splitlines()
    assert first.startswith("wsfast: text 1 is left out: there is no text")
    assert last == "wsfast: 1 text was left out, 2 done"
    rows = list(csv.DictReader(io.StringIO(out)))
    assert list(rows[0]) == ["text", "layer", "head", "position", "word", "S_i", "worst"]
    assert [row["text"] for row in rows] == ["0"] * 12 + ["2"] * 4
    S = [float(row["S_i"]) for row in rows]
    expected = [masked(text).per_word.flatten().tolist() for text in ("so, what", "me")]
    assert [*expected[0], *expected[1]] == S


@needs_text
def test_several_texts_and_one_that_cannot_be_done(capsys):
    status, out, err = run(capsys, "layers", "so what", "\u200b", "me too", *MASK)
    assert status == 3
    assert err.startswith("wsfast: text 1 is left out: it must have a token")
    assert [block.splitlines()[:2] for block in out.split("\n\n")] == [
        ["text 0", "so what"],
        ["text 2", "me too"],
    ]
    _, out, _ = run(capsys, "layers", "so what", "\u200b", "me too", *MASK, "--json")
    assert [record["text"] for record in records(out)] == [0, 2]
    assert [record["S"] for record in records(out)] == [
        masked(text).value.tolist() for text in ("so what", "me too")
    ]


@needs_text
def test_a_model_is_made_ready_once(capsys, monkeypatch):
    made, true = [], AttentionModel.__init__
    monkeypatch.setattr(
        AttentionModel, "__init__", lambda self, model: made.append(1) or true(self, model)
    )
    assert run(capsys, "layers", "so what", "me too", "it is", *MASK)[0] == 0
    assert made == [1]


@needs_text
@pytest.mark.parametrize(("long", "status", "done"), [("cut", 0, [0, 1]), ("skip", 3, [0])])
def test_long_texts(capsys, long, status, done):
    texts = ("so it", "so " * 600)
    asked = ("--layers", "0", "--heads", "0", "--perturbation", "mask")
    ended, out, err = run(capsys, "layers", *texts, *asked, "--long", long, "--json")
    assert (ended, [record["text"] for record in records(out)]) == (status, done)
    if long == "cut":
        assert err == "wsfast: text 1: 600 tokens, cut to the first 510 (--long)\n"
    else:
        assert "text 1 is left out: 600 tokens are more than 510 (--long skip)" in err


@needs_text
def test_progress_bars(capsys, monkeypatch):
    """In words of the only text, else in texts."""
    assert run(capsys, "layers", "so it", *MASK)[2] == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert "8/8" in run(capsys, "layers", "so it", *MASK)[2]  # words in all heads
    several = run(capsys, "layers", "so it", "me too", *MASK)[2]
    assert "2/2" in several
    assert "word" not in several
    assert run(capsys, "layers", "so it", *MASK, "--no-progress")[2] == ""


# -- pictures and pages ----------------------------------------------------------------------------


@needs_text
@pytest.mark.needs("plots")
def test_plot(capsys, tmp_path):
    assert run(capsys, "layers", "so what", *MASK, "--plot", str(tmp_path / "a.png"))[0] == 0
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert run(capsys, "layers", "so", "me", *MASK, "--plot", str(tmp_path / "b.png"))[0] == 0
    assert sorted(os.listdir(tmp_path)) == ["a.png", "b-0.png", "b-1.png"]


@needs_text
@pytest.mark.needs("plots")
def test_html_is_one_page_of_all_texts(capsys, tmp_path):
    path = tmp_path / "a.html"
    nasty = "so <script>alert(1)</script> & what"
    status, out, _ = run(
        capsys, "layers", nasty, "\u200b", "me too", *MASK, "--html", str(path), "--json"
    )
    assert status == 3
    assert len(records(out)) == 2  # it is printed as well
    source = path.read_text(encoding="utf-8")
    page = Page(source)
    assert source.startswith("<!DOCTYPE html>")
    assert "script" not in page.tags
    assert "http" not in source
    assert {nasty, "me too"} <= {*page.cells}
    assert source.count("a layer&#x27;s sensitivity is not the model&#x27;s") == 2
    assert [address[:30] for address in page.addresses] == ["data:image/png;base64,iVBORw0K"] * 2
    for text in (nasty, "me too"):
        assert {*column(masked(text).value[..., 0].amax(1).tolist())} <= {*page.cells}


@needs_text
def test_html_without_matplotlib(capsys, tmp_path, monkeypatch):
    path = tmp_path / "a.html"
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert run(capsys, "layers", "so what", *MASK, "--html", str(path))[0] == 0
    page = Page(path.read_text(encoding="utf-8"))
    assert page.addresses == []
    assert "table" in page.tags


@needs_text
def test_no_page_where_no_text_was_done(capsys, tmp_path):
    path = tmp_path / "a.html"
    for texts in (["\u200b"], ["\u200b", "\u200b"]):
        assert run(capsys, "layers", *texts, *MASK, "--html", str(path))[0] == 2
        assert not path.exists()


# -- bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give a TEXT in quotes, --file FILE, or texts from a pipe"),
        (["a", "--json", "--csv"], "not allowed with"),
        (["a", "--radius", "1", "--relative-radius", "1"], "not allowed with"),
        (["a", "--radius", "1", "-1"], "at least 0, got '-1'"),
        (["a", "--relative-radius", "inf"], "at least 0, got 'inf'"),
        (["a", "--radius"], "expected at least one argument"),
        (["a", "--layers"], "expected at least one argument"),
        (["--layers", "0", "a text"], "argument --layers: must be an integer"),
        (["a", "--heads", "0", "-1"], "at least 0, got '-1'"),
        (["a", "--combine", "sum"], "invalid choice: 'sum'"),
        (["a", "--at", "output"], "invalid choice: 'output'"),
        (["a", "--perturbation", "noise"], "invalid choice: 'noise'"),
        (["a", "--control", "random"], "invalid choice: 'random'"),
        (["a", "--control", "shuffled", "--control-draws", "0"], "at least 1, got '0'"),
        (["a", "--control-draws", "2"], "--control-draws goes with --control"),
        (["a", "--html", "a.txt"], "--html must be a name that ends in .html"),
        (["a", "--file", "b"], "either TEXT or --file"),
    ],
)
def test_bad_arguments(capsys, arguments, message):
    refuses(capsys, message, "layers", *arguments)


@needs_text
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--layers", "0", "6"], "--layers must be from 0 to 5, got 6"),
        (["--heads", "12"], "--heads must be from 0 to 11 in layer 0, got 12"),
        (
            ["--perturbation", "mask", "--radius", "1"],
            "--radius must be left out with --perturbation mask: it is of the ball",
        ),
        (
            ["--perturbation", "zero", "--relative-radius", "1", "2"],
            "--relative-radius must be left out with --perturbation zero: it is of the ball",
        ),
        (["--model", "no such model"], "--model must be 'minilm', 'mpnet'"),
    ],
)
def test_what_no_text_can_meet_ends_the_run_and_names_options(capsys, arguments, message):
    status, out, err = run(capsys, "layers", "so it", "me too", *arguments)
    assert (status, out) == (2, "")
    assert err.startswith(f"wsfast: error: {message}")
    assert err.count("\n") == 1


def test_a_text_behind_the_options_of_several_values(capsys, monkeypatch):
    found = []
    monkeypatch.setattr(layers, "_run", lambda args: found.append((args.text, args.layers)) or 0)
    run(capsys, "layers", "--layers", "0", "1", "--", "a text")
    assert found == [(["a text"], [0, 1])]


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("layers[1] must be at least 0, got -1", "--layers must be at least 0, got -1"),
        ("relative_radius[0] must be finite", "--relative-radius must be finite"),
        ("layerss must be", "layerss must be"),
    ],
)
def test_entries_of_lists_are_options_too(message, said):
    assert errors.with_flags(ValueError(message)) == said


# -- help ------------------------------------------------------------------------------------------


def test_help_names_every_option_and_what_it_is_not(capsys):
    out = run(capsys, "layers", "--help")[1]
    options = (
        "file column long layers heads combine at perturbation relative-radius radius control "
        "control-draws json csv html plot no-progress model max-tokens seed"
    )
    for option in options.split():
        assert f"--{option} " in out or f"--{option}\n" in out
    assert "A layer's sensitivity is not the model's." in " ".join(out.split())
    assert "(default 0.1 and 1)" in " ".join(out.split())


def test_choices_and_defaults_are_those_of_the_library():
    assert layers._COMBINE == COMBINE
    assert layers._AT == AT
    assert (BALL, *KINDS) == layers._PERTURBATIONS
    assert layers._RADII == RADII
