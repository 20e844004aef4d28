"""The command ``wsfast substitute``: figures of the library, pages, pictures, errors."""

from __future__ import annotations

import csv
import io
import json
import os
import sys

import pytest
from command import refuses, run
from report.html_tags import Page

import wsfast
from wsfast.report.digits import column

needs_text = pytest.mark.needs("text")

TEXT = "I love her much"
WORDS = ["hate", "smile", "paper", "seven"]


@pytest.fixture
def words(tmp_path):
    """A file of candidates; a blank line and the case play no part."""
    path = tmp_path / "words.txt"
    path.write_text("Hate\n\nsmile\r\n paper \nseven\n")
    return str(path)


@pytest.fixture
def found():
    return wsfast.substitute(TEXT, candidates=WORDS, top_k=5)


# -- what is printed -------------------------------------------------------------------------------


@needs_text
def test_text_table_and_shares(capsys, words, found):
    status, out, err = run(capsys, "substitute", TEXT, "--candidates", words, "--top", "5")
    assert (status, err) == (0, "")
    text, header, *rows, ball, near = out.splitlines()
    assert text == TEXT
    assert header.split() == ["rank", "position", "word", "new", "word", "change", "distance"]
    assert len(rows) == 5
    values = column([row.value for row in found.replacements], 4)
    distances = column([row.distance for row in found.replacements], 3)
    for rank, (line, row) in enumerate(zip(rows, found.replacements, strict=True), 1):
        assert line.split() == [
            *(str(rank), str(row.position), row.old, "->", row.new),
            *(values[rank - 1], distances[rank - 1]),
        ]
    assert f"{found.replacements[0].new!r} makes {100 * found.share_attained:.3g} % of S" in ball
    assert f"{float(found.sensitivity):.4f}" in ball
    assert f"{100 * found.share_attained_at_distance:.3g} %" in near


@needs_text
@pytest.mark.parametrize("position", ["love", "1"])
def test_position_and_all_words(capsys, position):
    _, out, _ = run(capsys, "substitute", TEXT, "--position", position, "--csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    expected = wsfast.substitute(TEXT, position="love").replacements
    assert [row["new"] for row in rows] == [row.new for row in expected]
    assert len(rows) == 20
    assert {row["position"] for row in rows} == {"1"}


@needs_text
def test_harmless_first(capsys, words):
    _, out, _ = run(capsys, "substitute", TEXT, "--candidates", words, "--harmless", "--csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    expected = wsfast.substitute(TEXT, candidates=WORDS, largest=False).replacements
    assert [float(row["value"]) for row in rows] == [row.value for row in expected]


@needs_text
def test_tokens_and_max_tokens(capsys):
    arguments = ("--tokens", "all", "--max-tokens", "2", "--top", "50", "--csv")
    _, out, _ = run(capsys, "substitute", TEXT, *arguments)
    expected = wsfast.substitute(TEXT, tokens="all", max_tokens=2, top_k=50).replacements
    assert any(row.new.startswith("##") for row in expected)
    assert [row["new"] for row in csv.DictReader(io.StringIO(out))] == [row.new for row in expected]


@needs_text
def test_what_is_replaced(capsys, words):
    """Words of one token, and by an option punctuation and pieces of words."""
    text = "so muchness, it"
    options = ("--candidates", words, "--csv", "--top", "99", "--replace")
    for replace in ("words", "whole", "all"):
        _, out, _ = run(capsys, "substitute", text, *options, replace)
        expected = wsfast.substitute(text, candidates=WORDS, top_k=99, replace=replace)
        old = {row["old"] for row in csv.DictReader(io.StringIO(out))}
        assert old == {row.old for row in expected.replacements}
    assert old == {"so", "much", "##ness", ",", "it"}


@needs_text
def test_json_holds_the_figures_of_the_library(capsys, words):
    status, out, _ = run(
        capsys, "substitute", TEXT, "--candidates", words, "--json", "--seed", "3", "--top", "2"
    )
    found = wsfast.substitute(TEXT, candidates=WORDS, seed=3, top_k=2)
    record = json.loads(out)
    assert status == 0
    assert record["replacements"] == [
        {
            "position": row.position,
            "old": row.old,
            "new": row.new,
            "value": row.value,
            "distance": row.distance,
            "replaced": row.text,
            "rows": "all",
            "model_change": None,
        }
        for row in found.replacements
    ]
    for name, old in (("share_attained", "gap"), ("share_attained_at_distance", "gap_at_distance")):
        assert record[name] == record[old] == getattr(found, name)
    assert (record["S"], record["radius"]) == (float(found.sensitivity), found.sensitivity.radius)
    assert (record["text"], record["model"], record["layer"]) == (0, "minilm", "words")
    assert record["info"]["seed"] == 3
    assert record["info"]["weights"] == "random"


@needs_text
def test_words_left_out_are_said(capsys, words):
    text = "the film I've seen, much"
    _, out, _ = run(capsys, "substitute", text, "--candidates", words)
    assert out.splitlines()[-1] == "not replaced: 1 word of several tokens, 1 punctuation mark"
    _, out, _ = run(capsys, "substitute", text, "--candidates", words, "--json")
    record = json.loads(out)
    assert record["left_out"] == {"split": 1, "punctuation": 1, "unmatched": 0}
    assert {row["position"] for row in record["replacements"]} == {0, 1, 3, 5}


@needs_text
def test_draws(capsys, words):
    _, out, _ = run(capsys, "substitute", TEXT, "--candidates", words, "--json", "--draws", "2")
    found = wsfast.substitute(TEXT, candidates=WORDS, draws=2)
    record = json.loads(out)
    assert record["replacements"][0]["value"] == found.replacements[0].value
    assert record["S"] == pytest.approx(float(found.sensitivity.value.mean()))
    assert record["share_attained"] == found.share_attained


@needs_text
def test_csv_of_a_file(capsys, tmp_path, words):
    path = tmp_path / "a.csv"
    path.write_text('review,other\n"so, what",1\n,2\nme,3\n')
    status, out, err = run(
        capsys, "substitute", "--csv", "--file", str(path), "--column", "review",
        "--candidates", words, "--top", "2",
    )  # fmt: skip
    assert status == 3
    assert err.startswith("wsfast: text 1 is left out: there is no text")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [(row["text"], row["rank"]) for row in rows] == [
        ("0", "1"),
        ("0", "2"),
        ("2", "1"),
        ("2", "2"),
    ]
    first = wsfast.substitute("so, what", candidates=WORDS, top_k=2).replacements[0]
    assert rows[0]["replaced"] == first.text
    assert float(rows[0]["value"]) == first.value
    assert float(rows[0]["distance"]) == first.distance


@needs_text
def test_several_texts(capsys, words):
    _, out, _ = run(capsys, "substitute", "so what", "me too", "--candidates", words)
    blocks = out.split("\n\n")
    assert [block.splitlines()[:2] for block in blocks] == [
        ["text 0", "so what"],
        ["text 1", "me too"],
    ]
    _, out, _ = run(capsys, "substitute", "so what", "me too", "--candidates", words, "--json")
    assert [json.loads(line)["text"] for line in out.splitlines()] == [0, 1]


@needs_text
def test_control_characters_reach_no_terminal(capsys, words):
    _, out, _ = run(capsys, "substitute", "so \x1b[31m what", "--candidates", words)
    assert "\x1b" not in out


@needs_text
def test_progress_bar(capsys, monkeypatch, words):
    texts = ("substitute", "--csv", "--candidates", words, "so it", "what")
    assert run(capsys, *texts)[2] == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert "2/2" in run(capsys, *texts)[2]
    assert run(capsys, *texts, "--no-progress")[2] == ""


# -- pictures and pages ----------------------------------------------------------------------------


@needs_text
@pytest.mark.needs("plots")
def test_plot(capsys, tmp_path, words):
    folder = tmp_path / "pictures"
    folder.mkdir()
    path = folder / "a.png"
    arguments = ("substitute", "--candidates", words, "--plot")
    assert run(capsys, *arguments, str(path), "so what")[0] == 0
    assert path.read_bytes().startswith(b"\x89PNG")
    assert run(capsys, *arguments, str(folder / "b.png"), "so", "me")[0] == 0
    assert sorted(os.listdir(folder)) == ["a.png", "b-0.png", "b-1.png"]


@needs_text
@pytest.mark.needs("plots")
def test_html_is_a_page_of_its_own(capsys, tmp_path, words):
    path = tmp_path / "a.html"
    text = "so <script>alert(1)</script> & what"
    status, out, err = run(
        capsys, "substitute", text, "--candidates", words, "--html", str(path), "--top", "3"
    )
    assert (status, err) == (0, "")
    assert out.startswith(text)  # it is printed as well
    source = path.read_text(encoding="utf-8")
    page = Page(source)
    assert source.startswith("<!DOCTYPE html>")
    assert "script" not in page.tags
    assert "link" not in page.tags
    assert "http" not in source
    (picture,) = page.addresses
    assert picture.startswith("data:image/png;base64,iVBOR")
    assert text in page.cells
    found = wsfast.substitute(text, candidates=WORDS, top_k=3)
    assert {*column([row.value for row in found.replacements], 4)} <= {*page.cells}
    for row in found.replacements:
        assert {row.new, row.text} <= {*page.cells}
    assert f"{100 * found.share_attained:.3g} %" in source


@pytest.mark.deep
@needs_text
@pytest.mark.needs("plots")
def test_html_of_several_texts(capsys, tmp_path, words):
    path = tmp_path / "a.html"
    long = "so " * 60 + "it"
    run(capsys, "substitute", "me too", long, "--candidates", words, "--html", str(path))
    page = Page(path.read_text(encoding="utf-8"))
    assert {"me too", long} <= set(page.cells)
    assert page.tags.count("hr") + 1 == page.tags.count("img") == 2
    # A long text is not written again for each of its replacements.
    assert not any(cell.startswith("so so") for cell in page.cells if cell != long)


@needs_text
def test_html_without_matplotlib(capsys, tmp_path, monkeypatch, words):
    path = tmp_path / "a.html"
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    arguments = ("substitute", TEXT, "--candidates", words, "--html", str(path))
    assert run(capsys, *arguments)[0] == 0
    page = Page(path.read_text(encoding="utf-8"))
    assert page.addresses == []
    assert "table" in page.tags


# -- bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give a TEXT in quotes, --file FILE, or texts from a pipe"),
        (["a", "--file", "b"], "either TEXT or --file"),
        (["a", "--column", "b"], "--column goes with --file"),
        (["a", "--json", "--csv"], "not allowed with"),
        (["a", "--top", "0"], "at least 1, got '0'"),
        (["a", "--draws", "1"], "at least 2, got '1'"),
        (["a", "--seed", "-1"], "at least 0, got '-1'"),
        (["a", "--max-tokens", "0"], "at least 1, got '0'"),
        (["a", "--tokens", "some"], "invalid choice: 'some'"),
        (["a", "--candidates", "no such file"], "no such file"),
        (["--file", "no such file"], "no such file"),
    ],
)
def test_bad_arguments(capsys, arguments, message):
    refuses(capsys, message, "substitute", *arguments)


@needs_text
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["so", "--position", "is"],
            "--position must be a word of text 0, got 'is'; its words: 'so'",
        ),
        (["so", "--position", "1"], "--position must be from 0 to 0, got 1"),
    ],
)
def test_bad_texts(capsys, words, arguments, message):
    status, _, err = run(capsys, "substitute", *arguments, "--candidates", words)
    assert status == 2
    assert err.startswith("wsfast: error: ")
    assert message in err
    assert err.count("\n") == 1


@needs_text
def test_a_text_without_the_word_is_left_out(capsys, words):
    texts = ("so it is", "so what", "that is it")
    status, out, err = run(
        capsys, "substitute", *texts, "--position", "is", "--candidates", words, "--json"
    )
    assert status == 3
    assert [json.loads(line)["text"] for line in out.splitlines()] == [0, 2]
    assert err.startswith(
        "wsfast: text 1 is left out: --position must be a word of text 1, got 'is'; its words:"
    )


@needs_text
def test_bad_candidates(capsys, tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("love\nmuchness\n[SEP]\n")
    status, out, err = run(capsys, "substitute", TEXT, "--candidates", str(path))
    assert (status, out) == (2, "")
    assert "'muchness' (its tokens: 'much', '##ness')" in err
    assert "'[SEP]'" in err
    assert err.count("\n") == 1


def test_help_names_every_option(capsys):
    out = run(capsys, "substitute", "--help")[1]
    options = (
        "file column long position top through-model candidates tokens harmless json csv html plot "
        "no-progress"
    )
    for option in [*options.split(), "model", "max-tokens", "draws", "seed"]:
        assert f"--{option}" in out
