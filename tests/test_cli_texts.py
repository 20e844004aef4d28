"""Texts of the command line: files and pipes, long ones, and those that cannot be done."""

from __future__ import annotations

import csv
import io
import json
import os
import sys

import pytest
from command import run

import wsfast
from wsfast.cli import errors, texts
from wsfast.text import local

needs_text = pytest.mark.needs("text")

# The table of words alone: nothing here depends on the layer.
SCORE = ("score", "--layer", "words", "--json")


@pytest.fixture
def file(tmp_path):
    def make(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return make


@pytest.fixture
def stdin(monkeypatch):
    """Standard input that is a pipe with this in it."""
    opened = []

    def make(content):
        read, write = os.pipe()
        os.write(write, content)
        os.close(write)
        opened.append(os.fdopen(read, encoding="ascii"))
        monkeypatch.setattr(sys, "stdin", opened[-1])

    yield make
    for stream in opened:
        stream.close()


def numbers(out):
    return [json.loads(line)["text"] for line in out.splitlines()]


# -- where they come from --------------------------------------------------------------------------


@needs_text
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "text,x\nso it\nme too,1\n"),
        ("a.tsv", "text\tx\nso it\t2\nme too\t1\n"),
        ("a.jsonl", '{"text": "so it"}\n{"text": "me too"}\n'),
        ("a.txt", "so it\nme too"),
    ],
)
def test_every_kind_of_file_gives_the_same(capsys, file, name, content):
    status, out, err = run(capsys, *SCORE, "--file", file(name, content))
    assert (status, err) == (0, "")
    assert out == run(capsys, *SCORE, "so it", "me too")[1]


@needs_text
@pytest.mark.parametrize("arguments", [[], ["-"], ["--file", "-"]])
def test_standard_input(capsys, stdin, arguments):
    stdin("so it\n\nnaïve\n".encode())
    status, out, err = run(capsys, *SCORE, *arguments)
    assert (status, err, numbers(out)) == (0, "", [0, 2])


@needs_text
def test_standard_input_is_left_alone_where_there_are_texts(capsys, stdin):
    """As in `while read line; do wsfast score "$line"; done`."""
    stdin(b"so it\n")
    assert run(capsys, *SCORE, "me too")[0] == 0
    assert sys.stdin.read() == "so it\n"


def test_nothing_to_read(capsys, stdin, monkeypatch, file):
    stdin(b"\n \n")
    assert run(capsys, "score")[::2] == (2, "wsfast: error: there are no texts in standard input\n")
    for content in ("", "\n \n"):
        path = file("a.txt", content)
        assert run(capsys, "score", "--file", path)[::2] == (
            2,
            f"wsfast: error: there are no texts in {path}\n",
        )
    with open(os.devnull, encoding="ascii") as devnull:  # a scheduled job
        monkeypatch.setattr(sys, "stdin", devnull)
        assert "give a TEXT in quotes" in run(capsys, "score")[2]
    for arguments in ([], ["-"]):
        monkeypatch.setattr(sys, "stdin", None)  # closed
        assert "give a TEXT in quotes" in run(capsys, "score", *arguments)[2]


def test_a_terminal_is_read_with_a_hint_and_only_if_asked(capsys, stdin, monkeypatch):
    stdin(b"")
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    assert "reading texts from standard input" in run(capsys, "score", "-")[2]
    with open(os.devnull, encoding="ascii") as devnull:  # a character device, as a terminal is
        monkeypatch.setattr(sys, "stdin", devnull)
        assert "reading" not in run(capsys, "score")[2]


def test_a_silent_pipe_gives_a_hint(capsys, monkeypatch):
    monkeypatch.setattr(texts, "_PATIENCE", 0.01)
    monkeypatch.setattr(texts.streams, "say", said := [].append)
    read, write = os.pipe()
    with os.fdopen(read) as stream, os.fdopen(write, "w"):
        monkeypatch.setattr(sys, "stdin", stream)
        texts._hint_if_nothing_comes()
    assert "standard input" in said.__self__[0]


@needs_text
@pytest.mark.parametrize(
    ("words", "hint"),
    [(["I", "love", "her"], True), (["I love", "her"], False), (["love"], False)],
)
def test_a_sentence_without_quotes_gives_a_hint(capsys, words, hint):
    status, _, err = run(capsys, *SCORE, *words)
    assert status == 0
    assert ('"I love her"' in err) == hint


def test_errors_of_files_name_options(capsys, file):
    path = file("a.csv", "review,stars\nso,1\n")
    for arguments in (["score"], ["substitute"]):
        status, out, err = run(capsys, *arguments, "--file", path)
        assert (status, out) == (2, "")
        assert err == (
            f"wsfast: error: --column: no 'text' in {path!r}; its columns: 'review', 'stars'\n"
        )
    path = file("a.xlsx", b"PK\x03\x04")
    assert run(capsys, "score", "--file", path)[2].startswith(f"wsfast: error: --file: {path!r} is")


# -- texts that cannot be done ---------------------------------------------------------------------

ROWS = """\
{"text": "so it"}
{"text": ""}
{"text": 7}
{"text":
{"label": 1}
{"text": "\\u200b"}
{"text": "\\ud83d"}
{"text": "me too"}
"""


@needs_text
@pytest.mark.parametrize("form", ["--json", "--csv"])
def test_bad_rows_are_left_out_and_the_others_keep_their_numbers(capsys, file, form):
    status, out, err = run(capsys, "score", form, "--file", file("a.jsonl", ROWS))
    assert status == 3
    *lines, last = err.splitlines()
    assert [line.split(":")[1] for line in lines] == [f" text {i} is left out" for i in range(1, 7)]
    assert last == "wsfast: 6 texts were left out, 2 done"
    if form == "--csv":
        out = "".join(f'{{"text": {row["text"]}}}\n' for row in csv.DictReader(io.StringIO(out)))
    assert sorted({*numbers(out)}) == [0, 7]


@needs_text
def test_bad_rows_of_substitute(capsys, file):
    path = file("a.jsonl", ROWS)
    words = file("words.csv", "text\nhate\nsmile\n")
    status, out, err = run(capsys, "substitute", "--file", path, "--candidates", words, "--json")
    assert (status, numbers(out)) == (3, [0, 7])
    assert "wsfast: text 5 is left out: it must have a token" in err


@needs_text
def test_nothing_but_bad_rows(capsys, file):
    status, out, err = run(capsys, "score", "--file", file("a.csv", "text,x\n,1\n,2\n"))
    assert (status, out) == (2, "")
    assert err.endswith("wsfast: 2 texts were left out, 0 done\n")


@needs_text
def test_the_number_of_an_only_text_is_that_of_its_line(capsys, file):
    path = file("a.txt", "\n\nso it\n")
    assert numbers(run(capsys, *SCORE, "--file", path)[1]) == [2]
    path = file("a.txt", "\n\n" + "so " * 600)
    status, _, err = run(capsys, "score", "--file", path, "--long", "fail")
    assert (status, err) == (
        2,
        "wsfast: error: text 2: 600 tokens are more than 510 (--long fail)\n",
    )


@needs_text
def test_results_are_there_before_a_file_breaks_off(capsys, tmp_path):
    import gzip

    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(b"so it\nme too\n")[:-8])
    status, out, err = run(capsys, *SCORE, "--file", str(path))
    assert status == 2
    assert "--file" in err
    assert numbers(out) in ([], [0], [0, 1])


# -- long texts ------------------------------------------------------------------------------------

LONG = "so " * 20


@pytest.fixture
def ten(monkeypatch):
    """A model of ten positions, two of them for special tokens."""
    monkeypatch.setattr(local.LocalEncoder, "limit", 10)


@needs_text
def test_long_texts_are_cut_and_said(capsys, ten):
    status, out, err = run(capsys, "score", "--json", "so it", LONG, "me too")
    assert (status, numbers(out)) == (0, [0, 1, 2])
    assert err == "wsfast: text 1: 20 tokens, cut to the first 8 (--long)\n"
    cut = wsfast.embed(LONG, max_tokens=8)
    assert json.loads(out.splitlines()[1])["S"] == float(wsfast.raf_sensitivity(cut.X))


@needs_text
def test_long_texts_are_left_out(capsys, ten):
    status, out, err = run(capsys, "score", "--json", "so it", LONG, "me too", "--long", "skip")
    assert (status, numbers(out)) == (3, [0, 2])
    assert "wsfast: text 1 is left out: 20 tokens are more than 8 (--long skip)" in err


@needs_text
def test_a_long_text_ends_the_run(capsys, ten):
    status, out, err = run(capsys, "score", "--json", "so it", LONG, "me too", "--long", "fail")
    assert (status, numbers(out)) == (2, [0])
    assert err == "wsfast: error: text 1: 20 tokens are more than 8 (--long fail)\n"


@needs_text
@pytest.mark.parametrize("command", ["score", "substitute"])
@pytest.mark.parametrize(
    ("long", "status", "done"), [("cut", 0, [0, 1]), ("skip", 3, [0]), ("fail", 2, [0])]
)
def test_max_tokens_says_what_is_long(capsys, file, command, long, status, done):
    """Of `substitute` too, which no number of positions limits."""
    arguments = ["so it", "so it is", "--max-tokens", "2", "--long", long, "--json"]
    if command == "substitute":
        arguments += ["--candidates", file("words.txt", "hate")]
    ended, out, err = run(capsys, command, *arguments)
    assert (ended, numbers(out)) == (status, done)
    assert ("3 tokens are more than 2" in err) == (long != "cut")


@needs_text
def test_more_tokens_than_positions_are_cut_to_them(capsys, ten):
    status, _, err = run(capsys, "score", "--json", LONG, "--max-tokens", "15")
    assert (status, err) == (0, "wsfast: text 0: 20 tokens, cut to the first 8 (--long)\n")


# -- faults of wsfast itself -----------------------------------------------------------------------


@needs_text
@pytest.mark.parametrize(
    "fault",
    [
        lambda: [].index(3),
        lambda: list(zip([1], [1, 2], strict=True)),
        lambda: int("so"),
        lambda: {}["so"],
        lambda: pytest.importorskip("torch").zeros(2) @ pytest.importorskip("torch").zeros(3),
    ],
)
def test_a_fault_of_wsfast_keeps_its_traceback(capsys, monkeypatch, fault):
    """A ValueError that Python finds is not one that a check raises."""
    planted = eval("lambda *_, **__: fault()", {"__name__": "wsfast.planted", "fault": fault})
    monkeypatch.setattr(wsfast, "score", planted)
    status, out, err = run(capsys, "score", "so it")
    assert (status, out) == (1, "")
    assert "Traceback" in err
    assert err.endswith("wsfast: please report this, it is a fault of wsfast\n")


@needs_text
def test_a_fault_at_one_text_leaves_the_others(capsys, monkeypatch):
    true = wsfast.score

    def sometimes(text, *rest, **options):
        return [].index(3) if len(text.split()) == 2 else true(text, *rest, **options)

    monkeypatch.setattr(wsfast, "score", sometimes)
    status, out, err = run(capsys, *SCORE, "so it is", "so it", "what", "me too")
    assert (status, numbers(out)) == (1, [0, 2])
    assert err.count("Traceback") == 1
    assert "wsfast: text 3 is left out: ValueError: 3 is not in list" in err


@needs_text
@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("can't allocate memory: 9 bytes")])
def test_a_text_that_the_memory_does_not_hold(capsys, monkeypatch, error):
    def full(*_, **__):
        raise error

    monkeypatch.setattr(wsfast, "score", full)
    status, _, err = run(capsys, *SCORE, "so it")
    assert status == 2
    assert err.startswith("wsfast: error: there is not enough memory, --max-tokens")


@needs_text
def test_an_option_that_no_text_can_meet_ends_the_run(capsys):
    status, out, err = run(capsys, "score", "so it", "me too", "--layer", "7")
    assert (status, out) == (2, "")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("layer must be from 0 to 6, got 7", "--layer must be from 0 to 6, got 7"),
        ("position must be from 0 to 3, got 5", "--position must be from 0 to 3, got 5"),
        ("texts[0] must be: take scale=False", "text 4 must be: take --no-scale"),
        (
            'cut the text with max_tokens, or take layer="words"',
            "cut the text with --max-tokens, or take --layer words",
        ),
        ("candidates must fit texts[0], got", "--candidates must fit text 4, got"),
        ("out: 'a' holds\nother cells", "--out: 'a' holds other cells"),
        ("words, got 'layer: 3'", "words, got 'layer: 3'"),
    ],
)
def test_messages_name_options_in_place_of_arguments(message, said):
    assert errors.with_flags(ValueError(message), 4) == said
