"""Files that version 0.1 saved give the figures that they gave."""

from __future__ import annotations

import json

import numpy as np
import pytest
from net.saved import FOLDER, RESULTS, describe, statistics

KNOWN = json.loads((FOLDER / "figures.json").read_text(encoding="utf-8"))


def test_every_file_is_known():
    assert {file.name for file in FOLDER.glob("*.npz")} == set(KNOWN) == set(RESULTS)


@pytest.mark.parametrize("file", RESULTS)
def test_it_loads_with_all_its_numbers(file):
    result = RESULTS[file].kind.load(FOLDER / file)
    found, known = describe(result), dict(KNOWN[file])
    expected = known.pop("statistics")
    for name, value in known.items():
        assert json.dumps(found[name]) == json.dumps(value), name  # NaN is equal to NaN
    assert repr(result).startswith(RESULTS[file].kind.__name__)
    for name, value in statistics(result).items():
        np.testing.assert_allclose(np.array(value), np.array(expected.pop(name)), rtol=1e-9)
    assert not expected
