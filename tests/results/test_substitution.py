"""The result object: labels, lists, frames, files, text."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
from results.substitutions import NAN, found

from wsfast.results.substitution import Substitution, SubstitutionResult

# Text 1 has one word less; candidate 2 may not stand at position 0.
TABLE = [[1.0, 4.0, NAN], [7.0, 2.0, 6.0], [3.0, 5.0, 0.5]]
SHORTER = [[1.5, 2.5, 3.5], [8.0, 0.25, 0.125], [NAN, NAN, NAN]]
BATCH = [[TABLE, np.add(TABLE, 10)], [SHORTER, np.add(SHORTER, 20)]]  # 2 texts, 2 draws
TABLES = {
    (): TABLE,
    ("texts",): [TABLE, SHORTER],
    ("draws",): BATCH[0],
    ("texts", "draws"): BATCH,
}
WORDS = ["I", "love", "her"]
NAMES = ["hate", "see", "é"]
ARRAYS = (
    "value",
    "best_candidate",
    "best_value",
    "top_position",
    "top_candidate",
    "top_value",
    "grid_candidate",
    "grid_value",
)


def make(axes=(), **options):
    return found(TABLES[axes], axes, **options)


# -- single values ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["torch", "numpy"])
def test_float(kind):
    assert float(make(kind=kind)) == 7.0
    assert float(make(kind=kind, largest=False)) == 0.5
    assert math.isnan(float(found([[NAN]], kind=kind)))


def test_float_of_several_values():
    with pytest.raises(ValueError, match=r"single value, got 4 \(axes \('texts', 'draws'\)\)"):
        float(make(("texts", "draws")))


# -- labels ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("axes", [(), ("draws",)])
def test_with_words(axes):
    result = make(axes)
    labelled = result.with_words(("a", "b", "c"))
    assert labelled.words == ["a", "b", "c"]
    assert result.words is None
    assert labelled.table is result.table
    assert labelled.top_value is result.top_value


@pytest.mark.parametrize("axes", [("texts",), ("texts", "draws")])
def test_with_words_of_a_batch(axes):
    result = make(axes)
    assert result.with_words([WORDS, ["x", "y"]]).words == [WORDS, ["x", "y"]]
    assert result.with_words([WORDS, ["x", "y", ""]]).words == [WORDS, ["x", "y", ""]]
    with pytest.raises(ValueError, match=r"words\[0\] must .*3 positions, got 2"):
        result.with_words([["a", "b"], ["x", "y"]])
    with pytest.raises(ValueError, match=r"words\[1\] must .*3 positions, got 1"):
        result.with_words([WORDS, ["x"]])
    with pytest.raises(ValueError, match=r"words must hold 2 lists.*got 1"):
        result.with_words([WORDS])


@pytest.mark.parametrize("count", [0, 2, 4])
def test_with_words_counts(count):
    with pytest.raises(ValueError, match=f"words must .*3 positions, got {count}"):
        make().with_words(["a"] * count)


def test_with_names():
    result = make()
    assert result.with_names(tuple(NAMES)).names == NAMES
    assert result.names is None


@pytest.mark.parametrize("count", [0, 2, 4])
def test_with_names_counts(count):
    # As many as there are rows of E, whatever was searched and kept.
    with pytest.raises(ValueError, match=f"names must .*3 rows of E, got {count}"):
        make().with_names(["a"] * count)


# -- lists -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["torch", "numpy"])
def test_top(kind):
    result = make(kind=kind)
    assert result.top() == [(1, 0, 7.0, "", ""), (1, 2, 6.0, "", ""), (2, 1, 5.0, "", "")]
    first = result.with_words(WORDS).with_names(NAMES).top()[0]
    assert first == Substitution(position=1, candidate=0, value=7.0, word="love", name="hate")
    assert [type(part) for part in first] == [int, int, float, str, str]
    assert [row.value for row in make(largest=False).top()] == [0.5, 1.0, 2.0]


def test_top_of_one_draw_of_one_text():
    result = make(("texts", "draws"), k=1).with_words([WORDS, ["x", "y"]]).with_names(NAMES)
    assert result.top(0, 1) == [(1, 0, 17.0, "love", "hate")]
    assert result.top(1) == [(1, 0, 8.0, "y", "hate")]
    assert result.top(text=1, draw=1) == [(1, 0, 28.0, "y", "hate")]
    assert make(("draws",), k=1).top(draw=1) == [(1, 0, 17.0, "", "")]
    assert make(("texts",), k=1).top(1) == [(1, 0, 8.0, "", "")]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"text": 2}, "text must be from 0 to 1, got 2"),
        ({"text": -1}, "text must be from 0 to 1, got -1"),
        ({"draw": 2}, "draw must be from 0 to 1, got 2"),
    ],
)
def test_no_such_text_or_draw(options, message):
    with pytest.raises(ValueError, match=message):
        make(("texts", "draws")).top(**options)


def test_no_axis_has_one_text_and_draw():
    with pytest.raises(ValueError, match="text must be from 0 to 0, got 1"):
        make(("draws",)).top(text=1)
    with pytest.raises(ValueError, match="draw must be from 0 to 0, got 1"):
        make(("texts",)).top(draw=1)


def test_top_leaves_out_what_is_not_there():
    assert found([[NAN, 1.0]], k=4).top() == [(0, 1, 1.0, "", "")]
    assert found([[NAN, NAN]], k=4).top() == []


# -- frames ----------------------------------------------------------------------------------------


@pytest.mark.needs("tables")
@pytest.mark.parametrize("kind", ["torch", "numpy"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_frame_of_the_top(kind, dtype):
    frame = make(kind=kind, dtype=dtype).with_words(WORDS).with_names(NAMES).to_frame()
    assert [*frame.columns] == ["position", "word", "candidate", "name", "value"]
    assert [*frame.itertuples(index=False, name=None)] == [
        (1, "love", 0, "hate", 7.0),
        (1, "love", 2, "é", 6.0),
        (2, "her", 1, "see", 5.0),
    ]
    assert [str(frame.dtypes[name]) for name in ("position", "candidate", "value")] == [
        "int64",
        "int64",
        dtype,
    ]
    assert [*frame.index] == [0, 1, 2]


@pytest.mark.needs("tables")
def test_frame_of_the_positions():
    frame = found([[1.0, 4.0], [NAN, NAN], [3.0, NAN]]).to_frame("positions")
    assert [*frame.itertuples(index=False, name=None)] == [(0, "", 1, "", 4.0), (2, "", 0, "", 3.0)]


@pytest.mark.needs("tables")
def test_frames_of_several_texts_and_draws():
    result = make(("texts", "draws"), k=1).with_words([WORDS, ["x", "y"]])
    frame = result.to_frame()
    assert [*frame.columns] == ["text", "draw", "position", "word", "candidate", "name", "value"]
    assert [*frame.itertuples(index=False, name=None)] == [
        (0, 0, 1, "love", 0, "", 7.0),
        (0, 1, 1, "love", 0, "", 17.0),
        (1, 0, 1, "y", 0, "", 8.0),
        (1, 1, 1, "y", 0, "", 28.0),
    ]
    frame = result.to_frame("positions")
    assert len(frame) == 10  # no rows for padding
    assert frame[(frame.text == 1) & (frame.draw == 1)].value.tolist() == [23.5, 28.0]
    assert frame[frame.text == 1].word.tolist() == ["x", "y", "x", "y"]
    assert "draw" not in make(("texts",)).to_frame()
    assert "text" not in make(("draws",)).to_frame("positions")


@pytest.mark.needs("tables")
@pytest.mark.parametrize("of", ["top", "positions"])
def test_frame_of_nothing_has_the_same_columns(of):
    frame, other = found([[NAN, NAN]]).to_frame(of), make().to_frame(of)
    assert len(frame) == 0
    assert frame.dtypes.to_dict() == other.dtypes.to_dict()


def test_frame_of_something_else():
    with pytest.raises(ValueError, match="of must be 'top' or 'positions', got 'table'"):
        make().to_frame("table")


def test_missing_pandas_names_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"pip install 'wsfast\[tables\]'"):
        make().to_frame()


# -- files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("axes", TABLES)
@pytest.mark.parametrize("kind", ["torch", "numpy"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("full", [False, True])
def test_round_trip(tmp_path, axes, kind, dtype, full):
    words = WORDS if "texts" not in axes else [WORDS, ['"', "\n"]]
    result = make(axes, kind=kind, dtype=dtype, full=full, largest=full)
    result = result.with_words(words).with_names(NAMES)
    result.save(tmp_path / "r.npz")
    loaded = SubstitutionResult.load(tmp_path / "r.npz")
    for name in (*ARRAYS, "table") if full else ARRAYS:
        before, after = getattr(result, name), getattr(loaded, name)
        assert type(after) is type(before)
        assert after.dtype == before.dtype
        np.testing.assert_array_equal(after, before, strict=True)
    assert full or loaded.table is None
    for name in ("largest", "info", "axes", "words", "names"):
        assert getattr(loaded, name) == getattr(result, name)


def test_table_is_stored_only_where_there_is_one(tmp_path):
    make().save(tmp_path / "r")
    with np.load(tmp_path / "r") as stored:
        assert {*stored.files} == {*ARRAYS, "meta.json"}
    loaded = SubstitutionResult.load(tmp_path / "r")
    assert (loaded.words, loaded.names) == (None, None)


# -- text ------------------------------------------------------------------------------------------


def test_repr_of_one_value():
    assert repr(make()) == (
        "SubstitutionResult(largest change 7.0000: candidate 0 at position 1\n"
        "  3 words, 3 candidates, backend torch\n"
        "  of the feature map)"
    )
    assert repr(make(largest=False).with_words(WORDS).with_names(NAMES)).startswith(
        "SubstitutionResult(smallest change 0.50000: 'her' -> 'é' at position 2\n"
    )
    assert "'love' -> candidate 0 at position 1" in repr(make().with_words(WORDS))


def test_repr_of_many_values():
    assert repr(make(("texts", "draws"), info={"candidates": 1, "map": "raf"})) == (
        "SubstitutionResult(largest change from 7.000 to 28.000\n"
        "  2 texts, 2 draws, up to 3 words, 1 candidate\n"
        "  of one layer of random attention, not of a whole model)"
    )


def test_repr_of_nothing_known():
    assert "largest change: none is known\n  1 word," in repr(found([[NAN]]))
    assert "change from nan to nan" in repr(found([[[NAN]], [[NAN]]], ("texts",)))


def test_text_and_lists_leave_global_state_alone(untouched):
    result = make(("texts", "draws"), kind="torch")
    with untouched():
        repr(result)
        result._repr_html_()
        result.top()
