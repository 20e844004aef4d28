"""Studies on disk: killed and gone on with, shared, refused."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from studies.scaling.processes import STUDY

import wsfast.studies.scaling.store as cells_module
import wsfast.studies.scaling.study as study_module
from wsfast.results.cells import Cell, Key
from wsfast.studies.scaling.measure import Measure
from wsfast.studies.scaling.store import Store
from wsfast.studies.scaling.study import scaling

PROGRAM = Path(__file__).parent / "processes.py"
SMALL = {"map": "raf", "ns": [2, 4], "ds": 4, "draws": 2, "max_steps": 2}
TEXT = torch.ones(3, 4)


def csv_of(result, path):
    result.to_csv(path)
    return path.read_bytes()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The study, its table as CSV and its files, from one run."""
    study, folder = STUDY, tmp_path_factory.mktemp("undisturbed")
    table = csv_of(scaling(**study, path=folder / "study"), folder / "table.csv")
    assert len(table.splitlines()) == 1 + 3 * 2 * 20
    return study, table, contents(folder / "study")


def contents(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.name[0] != "."}


@pytest.mark.deep
def test_the_same_table_without_a_folder(undisturbed, tmp_path):
    study, table, files = undisturbed
    assert csv_of(scaling(**study), tmp_path / "t") == table
    assert len(files) == 1 + 3 * 2 * 20


@pytest.fixture(scope="module")
def worked_on(tmp_path_factory):
    """Folders of the study: of processes that were killed, and of two side by side."""
    folders = [tmp_path_factory.mktemp(name) / "study" for name in ("killed", "shared")]
    done = subprocess.run(
        [sys.executable, PROGRAM, *map(str, folders)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "10\n"), done.stderr
    return folders


forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="starts processes with os.fork")


@pytest.mark.deep
@forks
def test_killed_ten_times(undisturbed, worked_on, tmp_path):
    (study, table, files), (folder, _) = undisturbed, worked_on
    kept = contents(folder)
    assert 10 <= len(kept) < len(files)
    # Each is whole, and what an undisturbed run wrote.
    assert all(files[name] == content for name, content in kept.items())
    assert csv_of(scaling(**study, path=folder), tmp_path / "t") == table
    assert contents(folder) == files


@pytest.mark.deep
@forks
def test_two_processes_on_one_folder(undisturbed, worked_on, tmp_path):
    (study, table, files), (_, folder) = undisturbed, worked_on
    assert contents(folder) == files
    assert {path.name for path in folder.iterdir()} == set(files)
    assert csv_of(scaling(**study, path=folder), tmp_path / "t") == table


def computed(monkeypatch):
    """The cells that are computed from now on, one after the other."""
    found, cell = [], Measure.cell

    def watched(self, X, text, draw):
        found.append((len(X), text, draw))
        return cell(self, X, text, draw)

    monkeypatch.setattr(Measure, "cell", watched)
    return found


def test_finished_cells_are_not_computed_again(tmp_path, monkeypatch):
    first = scaling(**SMALL, path=tmp_path)
    found = computed(monkeypatch)
    assert scaling(**SMALL, path=str(tmp_path)).rows == first.rows
    assert found == []
    (tmp_path / "d4-n4-text1-draw1.json").unlink()
    assert scaling(**SMALL, path=tmp_path).rows == first.rows
    assert found == [(4, 1, 1)]


def test_sizes_and_draws_may_grow_and_shrink(tmp_path, monkeypatch):
    few = scaling(**SMALL, path=tmp_path)
    found = computed(monkeypatch)
    larger = {**SMALL, "ns": (9, 2, 4), "ds": (4, 5), "draws": 3}
    many = scaling(**larger, path=tmp_path)
    assert len(found) == 3 * 2 * 3 - 4
    assert many.rows == scaling(**larger).rows
    found.clear()
    assert scaling(**SMALL, path=tmp_path).rows == few.rows
    assert found == []


def test_interrupted(tmp_path, monkeypatch):
    cell, expected = Measure.cell, scaling(**SMALL)

    def interrupted(self, X, text, draw):
        if (len(X), draw) == (2, 1):
            raise KeyboardInterrupt
        return cell(self, X, text, draw)

    monkeypatch.setattr(Measure, "cell", interrupted)
    with pytest.raises(KeyboardInterrupt):
        scaling(**SMALL, path=tmp_path / "a" / "b")
    assert sorted(os.listdir(tmp_path / "a" / "b")) == [
        "d4-n2-text0-draw0.json", "d4-n4-text0-draw0.json", "study.json",
    ]  # fmt: skip
    monkeypatch.setattr(Measure, "cell", cell)
    assert scaling(**SMALL, path=tmp_path / "a" / "b").rows == expected.rows


def test_interrupted_while_writing(tmp_path, monkeypatch):
    replace, calls = os.replace, []

    def interrupted(*paths):
        calls.append(paths)
        if len(calls) == 3:
            raise KeyboardInterrupt
        replace(*paths)

    monkeypatch.setattr(cells_module.os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        scaling(**SMALL, path=tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["d4-n2-text0-draw0.json", "study.json"]


def test_foreign_files_are_left_alone(tmp_path):
    expected = scaling(**SMALL, path=tmp_path / "other", seed=1)
    study = tmp_path / "study"
    study.mkdir()
    foreign = {
        ".d4-n2-text0-draw0.json.0123": b'{"map": "raf", "n": 2, "d"',  # of a run that was killed
        "notes.txt": b"mine",
        "d4-n2-text0-draw0.json.bak": b"{}",
    }
    for name, content in foreign.items():
        (study / name).write_bytes(content)
    (study / "folder").mkdir()
    wrong = {
        b"": "Expecting value",
        b"[]": "other fields",
        b"null": "other fields",
        b"{}": "other fields",
        b"\xff": "decode",
        (tmp_path / "other" / "d4-n2-text0-draw0.json").read_bytes(): "of a study with other",
    }
    for content, reason in wrong.items():
        (study / "d4-n2-text0-draw0.json").write_bytes(content)
        with pytest.warns(RuntimeWarning, match=f"draw0.json' is computed again, .*{reason}"):
            result = scaling(**SMALL, path=study)
        assert result.rows[0].S != expected.rows[0].S
        assert scaling(**SMALL, path=study).rows == scaling(**SMALL).rows
    for name, content in foreign.items():
        assert (study / name).read_bytes() == content


def test_a_cell_of_another_name_is_not_taken(tmp_path):
    result = scaling(**SMALL, path=tmp_path)
    content = (tmp_path / "d4-n2-text0-draw0.json").read_bytes()
    (tmp_path / "d4-n2-text1-draw1.json").write_bytes(content)
    with pytest.warns(RuntimeWarning, match="is another cell"):
        assert scaling(**SMALL, path=tmp_path).rows == result.rows


def test_a_cell_that_cannot_be_read_is_an_error(tmp_path):
    """It is not computed again in silence: a folder stands where its file should be."""
    (tmp_path / "d4-n2-text0-draw0.json").mkdir()
    with pytest.raises(OSError, match="d4-n2-text0-draw0"):
        scaling(**SMALL, path=tmp_path)


def test_floats_keep_every_bit(tmp_path):
    store = Store(tmp_path, {"map": "rf"})
    for r, S in enumerate(np.random.default_rng(0).standard_normal(20).tolist()):
        cell = Cell("rf", 3, 4, r, r, S, 1, upper=S / 3, k=7)
        store.write(cell)
        assert store.read(Key(4, 3, r, r)) == cell
    nothing = Cell("rf", 9, 4, 0, 0, math.nan, -1)
    store.write(nothing)
    assert repr(Store(tmp_path, {"map": "rf"}).read(Key(4, 9, 0, 0))) == repr(nothing)
    assert store.read(Key(4, 3, 0, 1)) is None


# -- other settings --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "now", "message"),
    [
        ({}, {"seed": 1}, "seed 0, now 1"),
        ({}, {"map": "relu_raf"}, "map 'raf', now 'relu_raf'"),
        ({}, {"starts": 2}, "starts 4, now 2"),
        ({}, {"radius": 1.0}, "radius None, now 1.0"),
        ({"positions": [0]}, {"positions": [0, 1]}, r"positions \[0\], now \[0, 1\]"),
        ({"backend": "torch"}, {"backend": "reference"}, "backend 'torch', now 'reference'"),
        ({}, {"texts": [TEXT], "ds": None}, r"texts 'gaussian', now \["),
        (
            {"texts": [TEXT], "ds": None},
            {"texts": [TEXT.double()], "ds": None},
            r"texts \[.*\], now \[",
        ),
        ({"map": "rf"}, {"map": "rf", "k": 5}, "k None, now 5"),
    ],
)
def test_other_settings(tmp_path, before, now, message):
    small = {**SMALL, "ns": [2], "draws": 1}
    scaling(**{**small, **before}, path=tmp_path)
    files = contents(tmp_path)
    with pytest.raises(ValueError, match=message):
        scaling(**{**small, **now}, path=tmp_path)
    assert contents(tmp_path) == files


def test_other_version(tmp_path, monkeypatch):
    scaling(**SMALL, path=tmp_path)
    monkeypatch.setattr("wsfast.studies.scaling.study.__version__", "9.9")
    with pytest.raises(ValueError, match=r"version '.*', now '9\.9'"):
        scaling(**SMALL, path=tmp_path)


@pytest.mark.parametrize("name", ["torch", "instruction set", "threads"])
def test_a_folder_of_another_machine(tmp_path, monkeypatch, name):
    """The table is to be that of one run, bit for bit."""
    scaling(**SMALL, path=tmp_path)
    there = study_module.machine(TEXT.device)
    monkeypatch.setattr(study_module, "machine", lambda device: {**there, name: "another"})
    with pytest.raises(ValueError, match=f"{name} .*, now 'another'.* take another folder"):
        scaling(**SMALL, path=tmp_path)


def test_a_folder_of_before_there_were_bounds_goes_on(tmp_path, monkeypatch):
    scaling(**SMALL, path=tmp_path)
    assert "bound" not in json.loads((tmp_path / "study.json").read_text())
    found = computed(monkeypatch)
    scaling(**SMALL, bound=False, path=tmp_path)
    assert found == []
    with pytest.raises(ValueError, match="bound None, now True"):
        scaling(**SMALL, bound=True, path=tmp_path)


def test_settings_written_otherwise_are_the_same(tmp_path, monkeypatch):
    first = scaling(**SMALL, radius=2, positions=range(2), path=tmp_path)
    found = computed(monkeypatch)
    again = scaling(
        **SMALL, radius=np.float64(2), positions=torch.tensor([0, 1]), starts=4, path=tmp_path
    )
    assert again.rows == first.rows
    assert found == []


def test_studies_that_begin_at_the_same_time(tmp_path):
    one, other = (
        Store(tmp_path, {"map": "raf", "seed": 0}),
        Store(tmp_path, {"map": "raf", "seed": 1}),
    )
    cell = Cell("raf", 3, 4, 0, 0, 1.0, 1)
    one.write(cell)
    with pytest.raises(ValueError, match="seed 0, now 1"):
        other.write(cell)
    with pytest.warns(RuntimeWarning, match="computed again, .* of a study with other settings"):
        assert other.read(Key(4, 3, 0, 0)) is None
    assert one.read(Key(4, 3, 0, 0)) == cell


def test_a_bad_option_leaves_no_folder(tmp_path):
    with pytest.raises(ValueError, match="starts must be at least 1"):
        scaling(**SMALL, starts=0, path=tmp_path / "study")
    assert os.listdir(tmp_path) == []


def test_bad_paths(tmp_path):
    file = tmp_path / "file"
    file.write_bytes(b"")
    with pytest.raises(ValueError, match="path must be a folder, got the file"):
        scaling(**SMALL, path=file)
    with pytest.raises(TypeError, match="path must be a folder's path or None, got int"):
        scaling(**SMALL, path=3)
    for content in (b"", b"[]", b"{}", b"text"):
        (tmp_path / "study.json").write_bytes(content)
        with pytest.raises(ValueError, match="not a file that wsfast"):
            scaling(**SMALL, path=tmp_path)


def test_an_option_that_a_folder_cannot_keep(tmp_path):
    study = {"map": "rf", "ns": [2], "ds": 2, "draws": 1, "activation": torch.sigmoid}
    with pytest.raises(TypeError, match="activation must be numbers or a name where path is given"):
        scaling(**study, path=tmp_path / "study")
    assert json.dumps(scaling(**study).info)
    assert os.listdir(tmp_path) == []
