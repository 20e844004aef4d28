"""What results of every kind have in common: they are frozen, saved and shown."""

from __future__ import annotations

import dataclasses
import json
import os
import pickle

import numpy as np
import pytest
import torch
from results import experiments
from results.sensitivities import one
from results.substitutions import found
from results.tables import table

from wsfast.results.sensitivity import SensitivityResult

RESULTS = {
    "SensitivityResult": one([1.0, 2.0]),
    "SubstitutionResult": found([[1.0, 4.0], [7.0, 2.0]], full=True),
    "ScalingResult": table(lambda n, d, r: n + r, (2, 3)),
    "GeneralizationResult": experiments.make(),
}
every_result = pytest.mark.parametrize("result", RESULTS.values(), ids=RESULTS)


@every_result
def test_frozen(result):
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.info = {}


# -- files -----------------------------------------------------------------------------------------


def stored(path):
    """Arrays and metadata of a file."""
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    return arrays, json.loads(arrays.pop("meta.json").tobytes())


def rewrite(path, arrays=(), without="", **changes):
    """Change the arrays (None takes out) and the metadata of a file."""
    parts, meta = stored(path)
    meta = {**meta, **changes}
    meta.pop(without, None)
    parts = {name: part for name, part in {**parts, **dict(arrays)}.items() if part is not None}
    parts["meta.json"] = np.frombuffer(json.dumps(meta).encode(), dtype=np.uint8)
    with path.open("wb") as file:
        np.savez(file, **parts)


@every_result
def test_save_takes_the_path_as_it_is(tmp_path, result):
    path = tmp_path / "no suffix"
    result.save(str(path))
    result.save(path)
    assert os.listdir(tmp_path) == ["no suffix"]
    for one_path in (path, str(path)):
        assert repr(type(result).load(one_path)) == repr(result)


@pytest.mark.parametrize("name", [name for name in RESULTS if name != "ScalingResult"])  # has rows
def test_every_field_is_saved(tmp_path, name):
    RESULTS[name].save(tmp_path / "r")
    arrays, meta = stored(tmp_path / "r")
    optional = {"upper", "site"}
    assert {field.name for field in dataclasses.fields(RESULTS[name])} - optional <= {
        *arrays,
        *meta,
    }


@pytest.mark.parametrize("name", ["SensitivityResult", "SubstitutionResult"])
def test_save_of_a_tensor_with_gradient(tmp_path, name):
    value = torch.tensor(2.0, requires_grad=True)
    dataclasses.replace(RESULTS[name], value=value).save(tmp_path / "r")
    loaded = type(RESULTS[name]).load(tmp_path / "r").value
    assert float(loaded) == 2.0
    assert not loaded.requires_grad


@every_result
def test_failed_save_keeps_the_old_file(tmp_path, monkeypatch, result):
    path = tmp_path / "r.npz"
    result.save(path)
    before = path.read_bytes()
    with pytest.raises(TypeError):
        dataclasses.replace(result, info={"seed": object()}).save(path)

    def fill_the_disk(file, **_):
        file.write(b"half")
        raise OSError("full")

    monkeypatch.setattr(np, "savez", fill_the_disk)
    with pytest.raises(OSError, match="full"):
        result.save(path)
    assert os.listdir(tmp_path) == ["r.npz"]
    assert path.read_bytes() == before


@every_result
def test_load_refuses_other_files(tmp_path, result):
    path = tmp_path / "x"
    with pytest.raises(FileNotFoundError):
        type(result).load(path)
    result.save(path)
    contents = [b"", b"text", pickle.dumps({"a": 1}), path.read_bytes()[:100]]
    for content in contents:
        path.write_bytes(content)
        with pytest.raises(ValueError, match="path must be a file that save"):
            type(result).load(path)
    for arrays in ({"a": np.ones(2)}, {"meta.json": np.array([object()])}):
        with path.open("wb") as file:
            np.savez(file, **arrays)
        with pytest.raises(ValueError, match="path must be a file that save"):
            type(result).load(path)
    with path.open("wb") as file:
        np.save(file, np.ones(2))
    with pytest.raises(ValueError, match="path must be a file that save"):
        type(result).load(path)


@every_result
def test_load_refuses_results_of_another_kind(tmp_path, result):
    kept = type(result)
    result.save(tmp_path / "r")
    for asked in {type(other) for other in RESULTS.values()} - {kept}:
        message = f"path must hold a {asked.__name__}, got a {kept.__name__} in .*r'"
        with pytest.raises(ValueError, match=message):
            asked.load(tmp_path / "r")


@every_result
def test_load_refuses_another_format(tmp_path, result):
    result.save(tmp_path / "r")
    rewrite(tmp_path / "r", format=9)
    with pytest.raises(ValueError, match=r"of format \d or before, got format 9"):
        type(result).load(tmp_path / "r")


@every_result
@pytest.mark.parametrize("missing", [False, True])
def test_load_refuses_other_arrays(tmp_path, result, missing):
    result.save(tmp_path / "r")
    first = next(iter(stored(tmp_path / "r")[0]))
    rewrite(tmp_path / "r", {first: None} if missing else {"other": np.ones(1)})
    with pytest.raises(ValueError, match=f"the arrays of a {type(result).__name__}"):
        type(result).load(tmp_path / "r")


def test_sensitivities_saved_without_the_name_of_their_class_are_read(tmp_path):
    one([1.0, 2.0]).save(tmp_path / "r")
    rewrite(tmp_path / "r", without="result")
    assert float(SensitivityResult.load(tmp_path / "r")) == 2.0
