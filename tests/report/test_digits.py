"""How many digits are shown."""

from __future__ import annotations

import math

import pytest
from results.sensitivities import many, one
from results.substitutions import found

from wsfast.report.digits import column, plus_minus, significant, write, write_up
from wsfast.report.table import summary, word_table
from wsfast.report.view import view_of


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (2.6721, "2.6721"),
        (2.39, "2.3900"),
        (1 / 3, "0.33333"),
        (123.456, "123.46"),
        (99999.6, "1.0000e+05"),
        (1e-4, "0.00010000"),
        (4e-6, "4.0000e-06"),
        (-4e-6, "-4.0000e-06"),
        (1e-42, "1.0000e-42"),
        (3e20, "3.0000e+20"),
        (0.0, "0"),
        (math.nan, "nan"),
        (math.inf, "inf"),
    ],
)
def test_significant_digits(value, shown):
    assert significant(value) == shown


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ([2.391, 2.3698, 2.524], ["2.3910", "2.3698", "2.5240"]),
        ([4e-6, 2e-6, 1.25e-6], ["4.0000e-06", "2.0000e-06", "1.2500e-06"]),
        ([9.99999, 0.5], ["10.000", "0.500"]),
        ([2.5, 0.0031, 4e-6, 0.0], ["2.5000", "0.0031", "4.0000e-06", "0"]),
        ([math.nan, 12.25], ["nan", "12.250"]),
        ([math.nan, 0.0], ["nan", "0"]),
        ([-3.0, 0.25], ["-3.0000", "0.2500"]),
        ([12345.6, 5.3, 0.3], ["12346", "5", "3.0000e-01"]),
        ([], []),
    ],
)
def test_a_column_shares_its_decimals(values, shown):
    assert column(values) == shown


def test_half_widths_have_the_decimals_of_their_value():
    assert plus_minus(7.0, 2.48414) == "7.0000 ± 2.4841"
    assert plus_minus(4e-6, 2.5e-8) == "4.0000e-06 ± 2.5000e-08"
    assert plus_minus(7.0, 1e-6) == "7.0000 ± 1.0000e-06"
    assert plus_minus(7.0, 0.0) == "7.0000 ± 0"


@pytest.mark.parametrize(
    ("value", "places", "shown"),
    [
        (2.67211, 4, "2.6722"),
        (2.6721, 4, "2.6721"),
        (9.99991, 4, "10.0000"),
        (4.00001e-6, 4, "4.0001e-06"),
        (4.00001e-6, None, "4.0001e-06"),
        (123456.0, None, "1.2346e+05"),
        (99999.1, 0, "100000"),
    ],
)
def test_an_upper_bound_is_rounded_up(value, places, shown):
    assert write_up(value, places) == shown


@pytest.mark.parametrize("value", [0.0, math.nan, math.inf])
def test_what_has_no_digits_is_written_as_it_is(value):
    assert write_up(value, 4) == write(value, 4)


def test_small_sensitivities_are_not_zeros():
    """S = 4e-6 is not 0.0000, in whatever shows it."""
    small = one([4e-6, 2e-6], ["a", "b"])
    assert word_table(view_of(small)) == (
        "position  word         S_i\n"
        "       0  a     4.0000e-06  <- worst\n"
        "       1  b     2.0000e-06"
    )
    assert summary(view_of(small)).startswith("S = 4.0000e-06, ")
    drawn = many([[1e-6, 6e-6], [3e-6, 6e-6]], ("draws",))
    several = many([[4e-6], [8e-6]], ("texts",))
    changes = found([[4e-6, 2e-6]])
    for shown in (
        word_table(view_of(drawn)),
        summary(view_of(drawn)),
        *map(repr, (small, several, changes)),
        *(result._repr_html_() for result in (small, several, changes)),
    ):
        assert "e-06" in shown
        assert "0.000" not in shown
