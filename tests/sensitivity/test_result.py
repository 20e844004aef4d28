"""The result object: labels, statistics, files, text."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import pickle
import sys

import numpy as np
import pytest
import torch
from substitution.results import found

from wsfast.results.embedded import Embedded
from wsfast.results.sensitivity import SensitivityResult

NAN = math.nan
INFO = {"backend": "torch", "seed": 3, "steps": [4, 6], "versions": {"torch": "2"}}
SHAPES = {(): (), ("texts",): (2,), ("draws",): (3,), ("texts", "draws"): (2, 3)}


def make(axes=(), n=4, d=2, *, kind="torch", dtype="float32", **changes):
    """S_i counts up from 1 along the last axis and goes on from row to row."""
    lead = SHAPES[axes]
    per_word = 1 + np.arange(math.prod(lead) * n, dtype=dtype).reshape(*lead, n)
    parts = {
        "value": per_word.max(-1),
        "per_word": per_word,
        "position": np.asarray(per_word.argmax(-1), dtype=np.int64),
        "delta": np.ones((*lead, d), dtype=dtype),
    }
    parts = {name: np.asarray(part) for name, part in parts.items()}
    if kind == "torch":
        parts = {name: torch.from_numpy(part.copy()) for name, part in parts.items()}
    return SensitivityResult(**{**parts, "radius": 1.5, "info": INFO, "axes": axes, **changes})


def embedded(words, spans):
    n = spans[-1][1]
    return Embedded("", ["t"] * n, torch.zeros(n, 2), words, spans, [(0, 0)] * n, "m", 0)


# -- single values ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["torch", "numpy"])
def test_float(kind):
    assert float(make(kind=kind)) == 4.0
    assert float(make(("texts",), kind=kind, value=torch.tensor([2.5]))) == 2.5


def test_float_of_several_values():
    with pytest.raises(ValueError, match=r"has 6 \(axes \('texts', 'draws'\)\)"):
        float(make(("texts", "draws")))


def test_float_of_a_value_with_gradient():
    assert float(make(value=torch.tensor(2.0, requires_grad=True))) == 2.0


def test_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        make().value = 3


# -- labels ----------------------------------------------------------------------------------------


def test_with_words():
    result = make()
    labelled = result.with_words(("a", "b", "c", "d"))
    assert labelled.words == ["a", "b", "c", "d"]
    assert result.words is None
    assert labelled.value is result.value


def test_with_words_of_a_batch_with_padding():
    result = make(("texts",))
    result.per_word[1, 2:] = NAN
    words = [list("abcd"), list("xy")]
    assert result.with_words(words).words == words
    with pytest.raises(ValueError, match=r"words\[0\].*4 positions, got 3"):
        result.with_words([list("abc"), list("xy")])
    with pytest.raises(ValueError, match=r"2 lists.*got 1"):
        result.with_words([list("abcd")])


@pytest.mark.parametrize("count", [0, 3, 5])
def test_with_words_counts(count):
    with pytest.raises(ValueError, match=f"words: .*4 positions, got {count}"):
        make().with_words(["a"] * count)


def test_whole_words():
    merged = make(("draws",)).whole_words(embedded(["ab", "c"], [(0, 3), (3, 4)]))
    assert merged.words == ["ab", "c"]
    assert merged.per_word.tolist() == [[3, 4], [7, 8], [11, 12]]
    assert merged.position.tolist() == [1, 1, 1]
    assert merged.value.tolist() == [4, 8, 12]


def test_whole_words_of_a_batch():
    result = make(("texts",))
    result.per_word[1, 2:] = NAN
    texts = [embedded(["a", "bcd"], [(0, 1), (1, 4)]), embedded(["xy"], [(0, 2)])]
    merged = result.whole_words(texts)
    assert merged.words == [["a", "bcd"], ["xy"]]
    np.testing.assert_array_equal(merged.per_word, [[1, 4], [6, NAN]])


def test_whole_words_of_another_number_of_texts():
    one = embedded(["a"], [(0, 4)])
    with pytest.raises(ValueError, match=r"texts: expected 2.*got 1"):
        make(("texts",)).whole_words(one)
    with pytest.raises(ValueError, match="texts: expected one"):
        make().whole_words([one])


# -- draws -----------------------------------------------------------------------------------------


def test_over_draws():
    got = make(("draws",)).over_draws()  # 4, 8, 12
    assert (float(got.mean), float(got.std), got.draws) == (8.0, 4.0, 3)
    half = 4.302652729749462 * 4 / math.sqrt(3)  # SciPy's t for 2 degrees of freedom
    assert float(got.low) == pytest.approx(8 - half, rel=1e-6)
    assert float(got.high) == pytest.approx(8 + half, rel=1e-6)


def test_over_draws_per_word_of_a_batch():
    result = make(("texts", "draws"), kind="numpy")
    got = result.over_draws(0.5, of="per_word")
    np.testing.assert_array_equal(got.mean, [[5, 6, 7, 8], [17, 18, 19, 20]])
    np.testing.assert_allclose(got.high - got.mean, 0.8164965809277261 * 4 / math.sqrt(3), 1e-6)
    np.testing.assert_array_equal(result.over_draws().mean, [8, 20])


def test_over_draws_without_draws():
    for axes in ((), ("texts",)):
        with pytest.raises(ValueError, match="draws=R"):
            make(axes).over_draws()
    with pytest.raises(ValueError, match="at least 2 draws"):
        make(("draws",), value=torch.ones(1)).over_draws()
    with pytest.raises(ValueError, match=r"of: .*'delta'"):
        make(("draws",)).over_draws(of="delta")


# -- frames ----------------------------------------------------------------------------------------


@pytest.mark.needs("tables")
@pytest.mark.parametrize("kind", ["torch", "numpy"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_frame(kind, dtype):
    frame = make(kind=kind, dtype=dtype, words=["so", "it", "is", "é"]).to_frame()
    assert [*frame.columns] == ["position", "word", "S_i", "worst"]
    assert [*frame.itertuples(index=False, name=None)] == [
        (0, "so", 1.0, False),
        (1, "it", 2.0, False),
        (2, "is", 3.0, False),
        (3, "é", 4.0, True),
    ]
    assert [str(frame.dtypes[name]) for name in ("position", "S_i", "worst")] == [
        "int64",
        dtype,
        "bool",
    ]


@pytest.mark.needs("tables")
def test_frame_of_texts_and_draws():
    result = make(("texts", "draws"))
    result.per_word[1, :, 3] = NAN  # padding
    result.position[1] = torch.tensor([2, 0, 1])
    frame = result.with_words([list("abcd"), list("xyz")]).to_frame()
    assert [*frame.columns] == ["text", "draw", "position", "word", "S_i", "worst"]
    assert len(frame) == 2 * 3 * 4 - 3
    rows = frame[(frame.text == 1) & (frame.draw == 2)]
    assert rows.word.tolist() == ["x", "y", "z"]
    assert rows.S_i.tolist() == [21, 22, 23]
    assert frame[frame.worst & (frame.text == 1)].position.tolist() == [2, 0, 1]
    assert frame.groupby(["text", "draw"]).worst.sum().tolist() == [1] * 6
    assert [*make(("draws",)).to_frame().columns][:2] == ["draw", "position"]


@pytest.mark.needs("tables")
def test_frame_has_upper_bounds_where_there_are_some():
    result = make(upper=torch.tensor([5.0, NAN, 7.0, 8.0]))
    result.per_word[0] = NAN  # not searched
    frame = result.to_frame()
    assert [*frame.columns] == ["position", "word", "S_i", "upper", "worst"]
    assert frame.position.tolist() == [1, 2, 3]
    np.testing.assert_array_equal(frame.upper, [NAN, 7, 8])


@pytest.mark.needs("tables")
def test_frame_of_nothing_has_the_same_columns():
    nothing = make(per_word=torch.full((4,), NAN), position=torch.tensor(-1)).to_frame()
    assert len(nothing) == 0
    assert nothing.dtypes.to_dict() == make().to_frame().dtypes.to_dict()


@pytest.mark.needs("tables")
def test_frames_of_all_results_name_the_same_things_alike():
    result = make(("texts", "draws"))
    changes = found(np.ones((2, 3, 4, 5)), ("texts", "draws"))
    shared = ["text", "draw", "position", "word"]
    assert [*result.to_frame().columns][:4] == [*changes.to_frame().columns][:4] == shared


def test_frame_without_pandas_names_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"pip install 'wsfast\[tables\]'"):
        make().to_frame()


# -- files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("axes", SHAPES)
@pytest.mark.parametrize("kind", ["torch", "numpy"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_round_trip(tmp_path, axes, kind, dtype):
    words = list("abcd") if "texts" not in axes else [list("abcd"), ["é", '"', "\n", ""]]
    result = make(axes, kind=kind, dtype=dtype, words=words)
    result.per_word[..., 0] = NAN
    result.save(tmp_path / "r.npz")
    loaded = SensitivityResult.load(tmp_path / "r.npz")
    for name in ("value", "per_word", "position", "delta"):
        before, after = getattr(result, name), getattr(loaded, name)
        assert type(after) is type(before)
        assert after.dtype == before.dtype
        np.testing.assert_array_equal(after, before, strict=True)
    for name in ("radius", "info", "axes", "words"):
        assert getattr(loaded, name) == getattr(result, name)


def test_save_takes_the_path_as_it_is(tmp_path):
    make().save(str(tmp_path / "no suffix"))
    make().save(tmp_path / "no suffix")
    assert os.listdir(tmp_path) == ["no suffix"]
    assert float(SensitivityResult.load(str(tmp_path / "no suffix"))) == 4.0


def test_save_of_a_tensor_with_gradient(tmp_path):
    make(value=torch.tensor(2.0, requires_grad=True)).save(tmp_path / "r")
    assert not SensitivityResult.load(tmp_path / "r").value.requires_grad


def test_failed_save_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "r.npz"
    make().save(path)
    with pytest.raises(TypeError):
        make(info={"seed": object()}).save(path)

    def fill_the_disk(file, **_):
        file.write(b"half")
        raise OSError("full")

    monkeypatch.setattr(np, "savez", fill_the_disk)
    with pytest.raises(OSError, match="full"):
        make(radius=9.0).save(path)
    assert os.listdir(tmp_path) == ["r.npz"]
    assert SensitivityResult.load(path).radius == 1.5


def test_load_refuses_other_files(tmp_path):
    path = tmp_path / "x"
    with pytest.raises(FileNotFoundError):
        SensitivityResult.load(path)
    half = tmp_path / "half"
    make().save(half)
    contents = [b"", b"text", pickle.dumps({"a": 1}), half.read_bytes()[:100]]
    for content in contents:
        path.write_bytes(content)
        with pytest.raises(ValueError, match="not a file that save"):
            SensitivityResult.load(path)
    for arrays in ({"a": np.ones(2)}, {"meta.json": np.array([object()])}):
        with path.open("wb") as file:
            np.savez(file, **arrays)
        with pytest.raises(ValueError, match="not a file that save"):
            SensitivityResult.load(path)
    with path.open("wb") as file:
        np.save(file, np.ones(2))
    with pytest.raises(ValueError, match="not a file that save"):
        SensitivityResult.load(path)


def test_load_refuses_a_later_format(tmp_path):
    make().save(tmp_path / "r")
    with np.load(tmp_path / "r") as stored:
        arrays = dict(stored)
    meta = json.loads(arrays.pop("meta.json").tobytes())
    later = np.frombuffer(json.dumps({**meta, "format": 2}).encode(), dtype=np.uint8)
    with (tmp_path / "r").open("wb") as file:
        np.savez(file, **arrays, **{"meta.json": later})
    with pytest.raises(ValueError, match="format 1, got format 2"):
        SensitivityResult.load(tmp_path / "r")


# -- text ------------------------------------------------------------------------------------------


def test_repr_of_one_value():
    assert repr(make().with_words(["so", "it", "is", "me"])) == (
        "SensitivityResult(S = 4.0000, worst word: 'me' at position 3\n"
        "  4 words, d = 2, radius 1.5, backend torch\n"
        "  of the feature map; found by search, a lower bound)"
    )
    assert "the word at position 3" in repr(make())


def test_repr_of_many_values():
    assert repr(make(("texts", "draws"), info={"map": "raf"})) == (
        "SensitivityResult(S from 4.000 to 24.000\n"
        "  2 texts, 3 draws, up to 4 words, d = 2, radius 1.5\n"
        "  of one layer of random attention, not of a whole model; found by search, a lower bound)"
    )


def test_repr_of_nan():
    nothing = {"value": torch.tensor(NAN), "per_word": torch.full((1,), NAN)}
    assert "S = nan\n  1 word," in repr(make(**nothing, position=torch.tensor(-1)))
    assert "S from nan to nan" in repr(make(("texts",), value=torch.full((2,), NAN)))
