"""The result object: labels, statistics, files, text."""

from __future__ import annotations

import math
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from results.substitutions import found

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
    with pytest.raises(ValueError, match=r"got 6 \(axes \('texts', 'draws'\)\)"):
        float(make(("texts", "draws")))


def test_float_of_a_value_with_gradient():
    assert float(make(value=torch.tensor(2.0, requires_grad=True))) == 2.0


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
    with pytest.raises(ValueError, match=f"words must .*4 positions, got {count}"):
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
    with pytest.raises(ValueError, match=r"texts must hold 2.*got 1"):
        make(("texts",)).whole_words(one)
    with pytest.raises(ValueError, match="texts must be one"):
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


@pytest.mark.parametrize("kind", ["torch", "numpy"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_share_of_the_draws_in_which_each_word_is_the_worst(kind, dtype):
    result = make(("texts", "draws"), n=3, kind=kind, dtype=dtype)
    result.per_word[0, 0, :2] = 9  # of equal words the first
    result.position[0, 0] = 0
    result.per_word[1, :, 2] = NAN  # padding
    result.position[1] = 1
    got = result.over_draws(of="per_word")
    assert (type(got.share_worst), got.share_worst.dtype) == (type(got.mean), got.mean.dtype)
    np.testing.assert_allclose(got.share_worst, [[1 / 3, 0, 2 / 3], [0, 1, NAN]], rtol=1e-7)
    assert result.over_draws().share_worst is None


def test_share_of_the_draws_of_whole_words():
    merged = make(("draws",)).whole_words(embedded(["abc", "d"], [(0, 3), (3, 4)]))
    assert merged.over_draws(of="per_word").share_worst.tolist() == [0, 1]


def test_over_draws_without_draws():
    for axes in ((), ("texts",)):
        with pytest.raises(ValueError, match="draws=R"):
            make(axes).over_draws()
    with pytest.raises(ValueError, match="draws must be at least 2"):
        make(("draws",), value=torch.ones(1)).over_draws()
    with pytest.raises(ValueError, match=r"of must .*'delta'"):
        make(("draws",)).over_draws(of="delta")
    for confidence in (0, 1, -0.5, 95, math.nan, "0.9"):
        with pytest.raises(ValueError, match="confidence must be"):
            make(("draws",)).over_draws(confidence)


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


# -- upper bounds ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["torch", "numpy"])
def test_the_bound_of_s_is_the_largest_of_the_searched_positions(kind):
    bounds = np.arange(24, dtype="float32").reshape(2, 3, 4) + 2
    result = make(("texts", "draws"), kind=kind)
    result.per_word[0, :, 3] = NAN  # not searched
    result.per_word[1, 0] = result.value[1, 0] = NAN
    bounds[1, 1, 0] = NAN  # no bound is known
    bounds[1, 2, 1] = 30
    result = replace(result, upper=bounds if kind == "numpy" else torch.from_numpy(bounds))
    for got in (result.upper_value, result.ratio):
        assert (type(got), got.dtype) == (type(result.value), result.value.dtype)
    np.testing.assert_array_equal(result.upper_value, [[4, 8, 12], [NAN, NAN, 30]])
    np.testing.assert_array_equal(result.ratio, [[1, 1, 1], [NAN, NAN, 1.25]])


def test_a_bound_of_0_is_exact():
    nothing = make(per_word=torch.zeros(4), value=torch.tensor(0.0), upper=torch.zeros(4))
    assert float(nothing.ratio) == 1
    assert float(replace(nothing, upper=torch.ones(4)).ratio) == math.inf


def test_without_bounds_there_is_none_of_s():
    assert make().upper_value is make().ratio is None


@pytest.mark.parametrize("kind", ["torch", "numpy"])
def test_a_whole_word_has_the_largest_bound_of_its_searched_tokens(kind):
    bounds = np.array([5, 9, NAN, NAN, 7, 8], dtype="float32")
    result = make(n=6, kind=kind, upper=bounds if kind == "numpy" else torch.from_numpy(bounds))
    result.per_word[2] = NAN  # not searched
    merged = result.whole_words(embedded(["abc", "de", "f"], [(0, 3), (3, 5), (5, 6)]))
    assert type(merged.upper) is type(result.upper)
    np.testing.assert_array_equal(merged.upper, [9, NAN, 8])


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


def test_repr_of_one_value_between_bounds():
    assert repr(make(upper=torch.tensor([1.5, 2.5, 3.5, 4.5]))) == (
        "SensitivityResult(S = 4.0000, at most 4.5000 (ratio 1.125), "
        "worst word: the word at position 3\n"
        "  4 words, d = 2, radius 1.5, backend torch\n"
        "  of the feature map; found by search: the truth lies between it and the upper bound)"
    )


def test_repr_of_many_values_has_the_largest_bound_and_ratio():
    result = make(("texts",))
    result = replace(result, upper=result.per_word * torch.tensor([[1.5], [1.25]]))
    assert repr(result).startswith(
        "SensitivityResult(S from 4.0000 to 8.0000, at most 10.000 (ratio up to 1.500)\n"
    )
    assert "between it and the upper bound" in repr(result)
    result.per_word[0] = result.value[0] = NAN  # a text that is left out
    assert "at most 10.000 (ratio up to 1.250)" in repr(result)


def test_repr_has_no_bound_where_one_is_not_known():
    result = make(("texts",))
    result = replace(result, upper=result.per_word.clone())
    result.upper[0, 0] = NAN
    for shown in (repr(result), repr(make(upper=torch.full((4,), NAN)))):
        assert "at most" not in shown
        assert "a lower bound" in shown


def test_repr_of_nan():
    nothing = {"value": torch.tensor(NAN), "per_word": torch.full((1,), NAN)}
    assert "S = nan\n  1 word," in repr(make(**nothing, position=torch.tensor(-1)))
    assert "S from nan to nan" in repr(make(("texts",), value=torch.full((2,), NAN)))
