"""The folder of a run: one set of settings, whole files."""

from __future__ import annotations

import json
import os

import pytest
import torch

from wsfast import __version__
from wsfast._config import machine
from wsfast._files import write_whole
from wsfast.reproduce.folder import cells_of


def test_same_settings_go_on(tmp_path):
    settings = {"ns": (2, 4), "model": None, "seed": 1}
    cells = cells_of(tmp_path / "a" / "b", "sensitivity", settings)
    assert cells == tmp_path / "a" / "b" / "cells"
    (cells / "cell").touch()
    assert cells_of(tmp_path / "a" / "b", "sensitivity", settings) == cells
    assert sorted(os.listdir(cells)) == ["cell", "settings.json"]
    assert json.loads((cells / "settings.json").read_text()) == {
        "experiment": "sensitivity",
        "wsfast": __version__,
        "ns": [2, 4],
        "model": None,
        "seed": 1,
        **machine(torch.device("cpu")),
    }


@pytest.mark.parametrize(
    ("experiment", "settings", "message"),
    [
        ("sensitivity", {"n": 2, "seed": 2}, "(seed 1, now 2)"),
        ("sensitivity", {"n": 3, "seed": 0}, "(n 2, now 3; seed 1, now 0)"),
        ("sensitivity", {"n": 2}, "(seed 1, now None)"),
        ("generalization", {"n": 2, "seed": 1}, "experiment 'sensitivity', now 'gen"),
    ],
)
def test_other_settings_are_refused(tmp_path, experiment, settings, message):
    cells = cells_of(tmp_path, "sensitivity", {"n": 2, "seed": 1})
    before = (cells / "settings.json").read_bytes()
    with pytest.raises(ValueError, match="begun with other settings") as caught:
        cells_of(tmp_path, experiment, settings)
    assert message in str(caught.value)
    assert (cells / "settings.json").read_bytes() == before


def test_another_version_is_refused(tmp_path, monkeypatch):
    cells_of(tmp_path, "sensitivity", {})
    monkeypatch.setattr("wsfast.reproduce.folder.__version__", "99")
    with pytest.raises(ValueError, match=f"wsfast '{__version__}', now '99'"):
        cells_of(tmp_path, "sensitivity", {})


@pytest.mark.parametrize(
    ("name", "way"),
    [("torch", "install"), ("instruction set", "WSFAST_SIMD"), ("threads", "OMP_NUM_THREADS")],
)
def test_another_machine_is_refused(tmp_path, monkeypatch, name, way):
    """Cells of two machines differ in their last digits: no folder mixes them."""
    cells_of(tmp_path, "sensitivity", {})
    there = machine(torch.device("cpu"))
    monkeypatch.setattr(
        "wsfast.reproduce.folder.machine", lambda device: {**there, name: "another"}
    )
    with pytest.raises(ValueError, match=rf"{name} .*, now 'another'.*\({name}: .*{way}"):
        cells_of(tmp_path, "sensitivity", {})


def test_settings_that_cannot_be_read(tmp_path):
    (tmp_path / "cells").mkdir()
    (tmp_path / "cells" / "settings.json").write_text("{")
    with pytest.raises(ValueError, match="not a file that wsfast wrote: Expecting"):
        cells_of(tmp_path, "sensitivity", {})


def test_folder_that_is_a_file(tmp_path):
    (tmp_path / "a").touch()
    with pytest.raises(OSError, match="a"):
        cells_of(tmp_path / "a", "sensitivity", {})


def test_files_are_replaced_as_a_whole(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    write_whole(path, "naïve\n".encode())
    assert path.read_bytes() == "naïve\n".encode()

    def fail(*_):
        raise OSError("full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="full"):
        write_whole(path, b"other")
    assert path.read_bytes() == "naïve\n".encode()
    assert os.listdir(tmp_path) == ["a.txt"]
