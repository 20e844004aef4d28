"""What the command line writes to: streams that are closed, full or narrow, paths, whole files."""

from __future__ import annotations

import io
import json
import os
import stat
import subprocess
import sys

import pytest
from command import run

import wsfast
from wsfast._files import whole_file, write_whole
from wsfast.cli import main

needs_text = pytest.mark.needs("text")
needs_plots = pytest.mark.needs("plots")

COMMANDS = ["", "score", "substitute", "compare", "info", "reproduce", "reproduce sensitivity"]
SCORE = ("score", "--layer", "words")


@pytest.fixture
def opened(monkeypatch):
    """`opened("stdout", file)`: the process has this for its stream."""
    streams = []

    def make(name, raw, encoding="utf-8", errors="strict"):
        stream = io.TextIOWrapper(raw, encoding, errors)
        streams.append(stream)
        monkeypatch.setattr(sys, name, stream)
        return stream

    yield make
    for stream in streams:
        stream.close()


@pytest.fixture
def full():
    if not os.path.exists("/dev/full"):
        pytest.skip("needs /dev/full")
    return lambda: io.FileIO("/dev/full", "w")


# -- standard streams ------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
@pytest.mark.parametrize("command", COMMANDS)
def test_help_where_stdout_has_few_characters(opened, command, encoding):
    out = opened("stdout", raw := io.BytesIO(), encoding)
    assert main([*command.split(), "--help"]) == 0
    assert raw.getvalue().decode(encoding).startswith("usage: wsfast")
    assert out.errors == "strict"  # as it was


@needs_text
def test_words_that_stdout_cannot_encode(opened, capsys):
    opened("stdout", raw := io.BytesIO(), "ascii")
    assert main([*SCORE, "naïve 東"]) == 0
    assert b"\\u6771" in raw.getvalue()


@pytest.mark.parametrize("command", COMMANDS)
def test_closed_streams(monkeypatch, command):
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    assert main([*command.split(), "--help"]) == 0
    assert main([*command.split(), "--no-such-option"]) == 2
    assert (sys.stdin, sys.stdout, sys.stderr) == (None, None, None)


@needs_text
def test_work_with_closed_streams(monkeypatch, tmp_path):
    path = tmp_path / "a.html"
    (tmp_path / "words.txt").write_text("hate")
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    words = str(tmp_path / "words.txt")
    assert main(["substitute", "so", "--candidates", words, "--html", str(path)]) == 0
    assert path.read_text(encoding="utf-8").endswith("</html>\n")


@pytest.mark.parametrize(
    "command", [*(f"{command} --help" for command in COMMANDS), "--version", "info", ""]
)
def test_help_on_a_full_disk(opened, capsys, full, command):
    opened("stdout", full())
    assert main(command.split()) == 2
    err = capsys.readouterr().err
    assert err.startswith("wsfast: error: standard output cannot be written: No space left")
    assert err.count("\n") == 1


@needs_text
@pytest.mark.parametrize("form", [[], ["--json"], ["--csv"]])
def test_scores_on_a_full_disk(opened, capsys, full, form):
    opened("stdout", full())
    assert main([*SCORE, *form, "so it", "what is"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("wsfast: error: standard output cannot be written: No space left")
    assert err.count("\n") == 1


def test_stderr_on_a_full_disk(opened, full):
    opened("stderr", full())
    assert main(["score", "--no-such-option"]) == 2
    assert main(["score", "--file", "no such file"]) == 2


@needs_text
@pytest.mark.parametrize("command", [[*SCORE, "so what"], ["info"], ["--help"]])
def test_reader_that_leaves(opened, capsys, command):
    read, write = os.pipe()
    os.close(read)
    opened("stdout", io.FileIO(write, "w"))
    assert main(command) == 141
    assert capsys.readouterr().err == ""


@needs_text
def test_results_come_one_by_one(opened, monkeypatch):
    """What is done is there, whatever happens then."""
    opened("stdout", raw := io.BytesIO())
    true, seen = wsfast.score, []

    def score(*arguments, **options):
        seen.append(len(raw.getvalue().splitlines()))
        return true(*arguments, **options)

    monkeypatch.setattr(wsfast, "score", score)
    main([*SCORE, "--json", "so it", "what is", "me too"])
    assert seen == [0, 1, 2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["score", "so", "--column", "caf\udce9", "--file", "a.csv"], "--column must be UTF-8"),
        (["substitute", "so", "--position", "caf\udce9"], "--position must be UTF-8"),
        (["compare", "caf\udce9", "so"], "TEXT must be UTF-8"),
        (["reproduce", "sensitivity", "--out", "caf\udce9"], "--out must be UTF-8"),
        (["caf\udce9"], "invalid choice"),
        (["score", "--file", "caf\udce9"], "No such file"),
    ],
)
def test_arguments_that_are_not_utf_8(capsys, arguments, message):
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (2, "")
    assert message in err
    assert "Traceback" not in err


@needs_text
def test_utf_8_in_a_locale_of_ascii(capsys):
    """Where Python keeps the bytes of an argument as escapes."""
    assert run(capsys, *SCORE, "so \udce2\udc80\udca6") == run(capsys, *SCORE, "so …")


@needs_text
def test_file_names_that_are_not_utf_8(capsys, tmp_path):
    path = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.txt")
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write("so it\n")
    except OSError:
        pytest.skip("the file system takes no such name")
    assert run(capsys, *SCORE, "--file", path)[0] == 0


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), ImportError("numpy"), ValueError("no"), OSError("read")]
)
def test_interrupt(capsys, monkeypatch, error):
    """Also in the middle of an import, which then fails in its own way."""

    def interrupt(*_, **__):
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            raise error from None

    monkeypatch.setattr(wsfast, "score", interrupt)
    for texts in (["so it"], ["so it", "me too"]):
        assert run(capsys, "score", *texts) == (130, "", "wsfast: interrupted\n")


@pytest.mark.deep
@needs_text
@pytest.mark.parametrize(
    ("redirection", "status"),
    [(">&-", 0), ("<&-", 0), ("2>&-", 0), (">&- <&- 2>&-", 0), (">/dev/full", 2), ("| true", 141)],
)
@pytest.mark.parametrize("arguments", ["--help", "score --help", "info", "score 'so it … √'"])
def test_streams_of_a_process(arguments, redirection, status):
    code = "import sys; from wsfast.cli import main; sys.exit(main())"
    line = f"set -o pipefail; {sys.executable} -c '{code}' {arguments} {redirection}"
    done = subprocess.run(
        ["bash", "-c", line],
        capture_output=True,
        check=False,
        env={**os.environ, "LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
    )
    assert done.returncode in {status, 0 if status == 141 else status}
    assert b"Traceback" not in done.stderr
    assert b"Exception ignored" not in done.stderr


# -- bare commands ---------------------------------------------------------------------------------


def test_a_bare_command_prints_its_help(capsys):
    assert run(capsys) == run(capsys, "--help")
    assert run(capsys)[0] == 0


def test_version(capsys):
    assert run(capsys, "--version") == (0, f"wsfast {wsfast.__version__}\n", "")


def test_completion_asks_argcomplete(capsys, monkeypatch):
    asked = []

    class Module:
        autocomplete = staticmethod(lambda parser: asked.append(parser.prog))

    monkeypatch.setitem(sys.modules, "argcomplete", Module)
    run(capsys, "--version")
    assert asked == []
    monkeypatch.setenv("_ARGCOMPLETE", "1")
    run(capsys, "--version")
    assert asked == ["wsfast"]
    monkeypatch.setitem(sys.modules, "argcomplete", None)  # not installed
    assert run(capsys, "--version")[0] == 0


# -- paths -----------------------------------------------------------------------------------------

PICTURES = [
    ["score", "so", "--plot"],
    ["substitute", "so", "--plot"],
    ["compare", "so it", "so what", "--plot"],
]


@pytest.fixture
def idle(monkeypatch):
    """No work is begun."""
    for name in ("embed", "substitute", "compare"):
        monkeypatch.setattr(wsfast, name, lambda *_, name=name, **__: pytest.fail(name))


@needs_plots
@pytest.mark.usefixtures("idle")
@pytest.mark.parametrize("command", PICTURES, ids=lambda command: command[0])
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere/a.png", "there is no folder"),
        ("file/a.png", "there is no folder"),
        ("folder", "must be the name of a file, got the folder"),
        ("folder.png", "got the folder"),
        ("a.xyz", "must be a name that ends in "),
        ("a", "must be a name that ends in "),
        ("a.png ", "must be a name that ends in "),
        (f"{'a' * 300}.png", "too long"),
        ("a\0.png", "null"),
    ],
)
def test_pictures_that_cannot_be_written(capsys, tmp_path, command, name, message):
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder.png").mkdir()
    before = sorted(os.listdir(tmp_path))
    status, out, err = run(capsys, *command, str(tmp_path / name))
    assert (status, out) == (2, "")
    assert err.startswith("wsfast: error: --plot")
    assert message in err
    assert err.count("\n") == 1
    assert sorted(os.listdir(tmp_path)) == before


@pytest.mark.usefixtures("idle")
@pytest.mark.parametrize("name", ["nowhere/a.html", "folder", "a.xyz", "a", "a.png"])
def test_pages_that_cannot_be_written(capsys, tmp_path, name):
    (tmp_path / "folder").mkdir()
    status, out, err = run(capsys, "substitute", "so", "--html", str(tmp_path / name))
    assert (status, out) == (2, "")
    assert err.startswith("wsfast: error: --html")


@pytest.mark.parametrize("name", ["file", "file/a", f"{'a' * 300}"])
def test_folders_that_cannot_be_made(capsys, tmp_path, name):
    (tmp_path / "file").touch()
    for experiment in ("sensitivity", "generalization", "attention-map"):
        arguments = ("reproduce", experiment, "--quick", "--out", str(tmp_path / name))
        status, out, err = run(capsys, *arguments)
        assert (status, out) == (2, "")
        assert err.startswith("wsfast: error: --out: ")
        assert err.count("\n") == 1


@needs_plots
@pytest.mark.usefixtures("idle")
def test_paths_without_permission(capsys, tmp_path, monkeypatch):
    """For everybody but root, whom the system lets write everywhere."""
    monkeypatch.setattr(os, "access", lambda path, _: str(path) != str(tmp_path))
    path = str(tmp_path / "a")
    for arguments in (
        *([*command, f"{path}.png"] for command in PICTURES),
        ["substitute", "so", "--html", f"{path}.html"],
        ["reproduce", "sensitivity", "--out", path],
    ):
        status, out, err = run(capsys, *arguments)
        assert (status, out) == (2, "")
        assert f"no permission to write {str(tmp_path)!r}" in err


# -- whole files -----------------------------------------------------------------------------------


@pytest.mark.deep
@needs_text
@needs_plots
@pytest.mark.parametrize(
    "arguments",
    [
        ["score", "so", "--plot", "a.png"],
        ["compare", "so it", "so what", "--plot", "a.png"],
        ["substitute", "so", "--candidates", "words.txt", "--plot", "a.png"],
        ["substitute", "so", "--candidates", "words.txt", "--html", "a.html"],
    ],
)
def test_a_full_disk_leaves_no_cut_file(capsys, tmp_path, monkeypatch, full, arguments):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "words.txt").write_text("hate")
    true = type(tmp_path).open

    def narrow(self, mode="r", *rest, **options):
        if "x" not in mode or self.parent != type(tmp_path)():
            return true(self, mode, *rest, **options)
        true(self, mode).close()
        return full()

    monkeypatch.setattr(type(tmp_path), "open", narrow)
    status, _, err = run(capsys, *arguments)
    assert status == 2
    assert err == f"wsfast: error: [Errno 28] No space left on device: {arguments[-1]!r}\n"
    assert os.listdir(tmp_path) == ["words.txt"]


def test_what_is_no_ordinary_file_is_written_as_it_is(tmp_path):
    """/dev/stdout and /dev/null are not replaced by a file."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    read = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    write_whole(path, b"so")
    assert os.read(read, 9) == b"so"
    os.close(read)
    assert stat.S_ISFIFO(path.stat().st_mode)


def test_a_name_as_long_as_the_system_takes(tmp_path):
    path = tmp_path / ("a" * 255)
    write_whole(path, b"so")
    assert path.read_bytes() == b"so"


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_an_interrupted_file_is_none(tmp_path, error):
    def stop(_):
        raise error

    with pytest.raises(error), whole_file(tmp_path / "a") as file:
        stop(file.write(b"so"))
    assert os.listdir(tmp_path) == []


# -- figures for other programs --------------------------------------------------------------------


@needs_text
def test_small_numbers_keep_their_digits(capsys):
    _, out, _ = run(capsys, *SCORE, "--json", "--radius", "1e-12", "so it")
    value = json.loads(out)["S"]
    assert 0 < value < 1e-9
    _, out, _ = run(capsys, *SCORE, "--csv", "--radius", "1e-12", "so it")
    assert max(float(line.split(",")[-1]) for line in out.splitlines()[1:]) == value
