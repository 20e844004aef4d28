"""The table: order, means, files, joining."""

from __future__ import annotations

import csv
import dataclasses
import math
import os

import numpy as np
import pytest
from results.tables import table

from wsfast.results.cells import Cell
from wsfast.results.scaling import Mean, ScalingResult

NAN = math.nan
RAF = Cell("raf", 4, 8, 0, 0, 0.1, 3)
NOTHING = Cell("raf", 4, 8, 0, 1, NAN, -1)
RF = Cell("rf", 4, 8, 0, 0, 0.25, 2, upper=1 / 3, k=32)


def same(rows, others):
    """Whether rows are equal, NaN being equal to NaN."""
    return repr(tuple(rows)) == repr(tuple(others))


def test_rows_stand_in_one_order():
    cells = [
        Cell(name, n, d, text, draw, 1.0, 0)
        for name in ("rf", "raf", "relu_raf", "drums")  # a map of a user comes last
        for d in (2, 16)
        for n in (3, 10)
        for text in (0, 1)
        for draw in (0, 1)
    ]
    assert ScalingResult(tuple(reversed(cells)), {}).rows == tuple(cells)
    assert len(ScalingResult(tuple(cells), {})) == 64


def test_each_cell_once():
    with pytest.raises(ValueError, match=r"two of map 'raf', n = 4, d = 8, text 0, draw 0"):
        ScalingResult((RAF, RAF._replace(S=0.3)), {})


# -- means -----------------------------------------------------------------------------------------


def test_means():
    # 1, 2, 4, 9 as in sensitivity/test_draws.py, from SciPy; ten times as much at n = 5.
    result = table(lambda n, d, r: (1, 2, 4, 9)[r] * (10 if n == 5 else 1), (2, 5), replicates=4)
    two, five = result.means()
    assert two == (
        "raf", 2, 8, 4.0, pytest.approx(-1.663204705733679), pytest.approx(9.66320470573368), 4
    )  # fmt: skip
    assert five[:4] == ("raf", 5, 8, 40.0)
    half = result.means(0.5)[0]
    assert (half.low, half.high) == pytest.approx((2.6388641258747305, 5.361135874125269))


def test_means_of_several_maps_and_sizes():
    one = table(lambda n, d, r: n * d, (2, 3), (5, 7), name="rf")
    result = ScalingResult.concat([table(lambda n, d, r: -n, (2,)), one])
    assert [mean[:4] for mean in result.means()] == [
        ("rf", 2, 5, 10), ("rf", 3, 5, 15), ("rf", 2, 7, 14), ("rf", 3, 7, 21), ("raf", 2, 8, -2),
    ]  # fmt: skip


def test_mean_of_one_replicate_or_of_nan():
    (one,) = ScalingResult((RAF,), {}).means()
    assert repr(one) == repr(Mean("raf", 4, 8, 0.1, NAN, NAN, 1))
    (both,) = ScalingResult((RAF, NOTHING), {}).means()
    assert math.isnan(both.mean)
    assert both.replicates == 2
    with pytest.raises(ValueError, match="confidence must be"):
        ScalingResult((), {}).means(0)


# -- joining ---------------------------------------------------------------------------------------


def test_concat():
    one, more = table(lambda n, d, r: 1.0, (2,)), table(lambda n, d, r: 2.0, (4,))
    other = table(lambda n, d, r: 3.0, (2,), name="rf")
    joined = ScalingResult.concat([more, one, other])
    assert joined.rows == (*other.rows, *one.rows, *more.rows)
    assert joined.info == {"raf": {"seed": 0}, "rf": {"seed": 0}}
    assert joined.slope(map="raf").value == pytest.approx(1)
    with pytest.raises(ValueError, match="map must be 'rf' or 'raf', got None"):
        joined.slope()


def test_concat_of_other_settings_or_the_same_cells():
    one, more = table(lambda n, d, r: 1.0, (2,)), table(lambda n, d, r: 2.0, (4,))
    with pytest.raises(ValueError, match="one set of settings for the map 'raf'"):
        ScalingResult.concat([one, dataclasses.replace(more, info={"raf": {"seed": 1}})])
    with pytest.raises(ValueError, match="must hold each cell once"):
        ScalingResult.concat([one, one])


def test_concat_of_nothing():
    assert len(ScalingResult.concat([])) == 0


# -- files -----------------------------------------------------------------------------------------


def test_csv(tmp_path):
    result = ScalingResult((RF, NOTHING, RAF), {})
    path = tmp_path / "table.csv"
    result.to_csv(path)
    assert path.read_bytes() == (
        b"map,n,d,text,draw,S,position,upper,k\n"
        b"rf,4,8,0,0,0.25,2,0.3333333333333333,32\n"
        b"raf,4,8,0,0,0.1,3,,\n"
        b"raf,4,8,0,1,,-1,,\n"
    )
    assert os.listdir(tmp_path) == ["table.csv"]


def test_csv_keeps_every_bit(tmp_path):
    values = np.random.default_rng(0).standard_normal(50)
    table(lambda n, d, r: values[r], (3,), replicates=50).to_csv(str(tmp_path / "t"))
    with open(tmp_path / "t", newline="") as file:
        assert [float(row["S"]) for row in csv.DictReader(file)] == values.tolist()


@pytest.mark.needs("tables")
def test_frame():
    frame = ScalingResult((RF, NOTHING, RAF), {}).to_frame()
    assert list(frame.columns) == list(Cell._fields)
    assert frame["map"].tolist() == ["rf", "raf", "raf"]
    assert frame["S"].tolist()[:2] == [0.25, 0.1]
    assert frame["S"].isna().tolist() == [False, False, True]
    assert frame["upper"].isna().tolist() == frame["k"].isna().tolist() == [False, True, True]
    assert frame["k"][0] == 32
    assert [str(kind) for kind in frame.dtypes[1:]] == [
        "int64", "int64", "int64", "int64", "float64", "int64", "float64", "Int64",
    ]  # fmt: skip
    empty = ScalingResult((), {}).to_frame()
    assert list(empty.dtypes[1:]) == list(frame.dtypes[1:])


@pytest.mark.parametrize("rows", [(RF, RAF, NOTHING), (RAF,), ()], ids=len)
def test_round_trip(tmp_path, rows):
    result = ScalingResult(rows, {"rf": {"seed": 3, "k": None}})
    result.save(tmp_path / "r.npz")
    loaded = ScalingResult.load(str(tmp_path / "r.npz"))
    assert same(loaded.rows, result.rows)
    assert loaded.info == result.info
    assert os.listdir(tmp_path) == ["r.npz"]
