"""Results of single texts as one of a list."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from results.sensitivities import one

from wsfast.results.scores import batch_of

NAN = math.nan


def test_bounds_of_texts_are_those_of_the_list():
    without = replace(one([1.0, 2.0, 3.0]), info={"steps": 1})
    bounded = replace(one([2.0, 1.0]), info={"steps": 1}, upper=np.array([2.5, 3.0]))
    upper = batch_of([bounded, None, without]).upper
    np.testing.assert_array_equal(upper, [[2.5, 3, NAN], [NAN] * 3, [NAN] * 3])
    assert batch_of([without]).upper is None
