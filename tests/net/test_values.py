"""What version 0.1 computed comes back: as accurately as promised, and S no lower."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from net.cases import CASES, Case
from net.defined import defined
from net.running import TABLE, call, figures, inputs, sizes
from studies.generalization import truth

from wsfast.engines import compiled

# Of the larger of a change and 1e-3 of the features: docs/design.md, section 5.
ACCURACY = {"float32": 1e-4, "float64": 1e-10}
# Of the larger of a substitution's relative change and 1e-3: in the table, and elsewhere, where
# float64 is rounded to the dtype.
OF_PAIRS = {"float32": (1e-4, 2e-7), "float64": (1e-9, 1e-9)}
# The axes of what one text and draw, or one Δ, gives.
ONE = {"rf_features": (-1,), "drf_features": (-1,), "raf_delta_norms": ()}
# How much lower S may be, as between backends.
LOWER = 1e-3

KNOWN: dict[str, dict[str, Any]] = json.loads(TABLE.read_text(encoding="utf-8"))


def test_every_case_is_in_the_table():
    assert len(CASES) == 40
    assert [case.name for case in CASES] == list(KNOWN)


def runs():
    """Every case with each of its backends; the quick tier has the fastest that can run here."""
    for case in CASES:
        backends = case.backends or (None,)
        able = [name for name in backends if name != "native" or compiled.CPU.module is not None]
        for backend in backends:
            marks = [pytest.mark.needs("native")] if backend == "native" else []
            marks += [pytest.mark.deep] if backend != able[-1] else []
            yield pytest.param(case, backend, marks=marks, id=f"{case.name}-{backend}")


@pytest.mark.parametrize(("case", "backend"), [*runs()])
def test_values(case: Case, backend: str | None):
    known = {name: np.array(value) for name, value in KNOWN[case.name].items()}
    # Otherwise NumPy's Generator gives other numbers than it gave.
    np.testing.assert_allclose(sizes(case), known.pop("inputs"), rtol=1e-9)
    given = inputs(case)
    result = call(case, given, backend)
    found = figures(case, given, result)
    size = known.pop("size of φ", None)
    assert found.keys() == known.keys()
    for name, value in found.items():
        assert value.shape == known[name].shape, name
        np.testing.assert_array_equal(np.isnan(value), np.isnan(known[name]), err_msg=name)
    if case.function in CHECKS:
        CHECKS[case.function](case, result, found, known)
    else:
        check_features(case, result, found, known, size)


def dtype(case: Case) -> str:
    """What results come in."""
    return "float32" if case.dtype == "bfloat16" else case.dtype


def of_kind(case: Case, array: Any) -> None:
    assert isinstance(array, np.ndarray if case.kind == "numpy" else torch.Tensor)
    assert str(array.dtype).removeprefix("torch.") == dtype(case)


# -- one value ------------------------------------------------------------------------------------


def check_features(case, result, found, known, size):
    """Features, their changes and gradients of each text and draw as a whole; norms one by one."""
    of_kind(case, result)
    for name, value in found.items():
        axes, floor = (-2, -1), 0.0
        if name == "values":
            axes = ONE.get(case.function, axes)
            floor = 0.0 if size is None else case.floor * size[..., None, None]
        squares = (value - known[name]) ** 2, known[name] ** 2
        error, norm = (np.sqrt(np.nansum(square, axes, keepdims=True)) for square in squares)
        assert np.all(error <= ACCURACY[dtype(case)] * np.maximum(norm, floor)), name


def check_pairs(case, result, found, known):
    """Substitutions: the same pairs in the same order, with the same changes."""
    of_kind(case, result.value)
    for name, value in found.items():
        if value.dtype == np.int64:
            np.testing.assert_array_equal(value, known[name], err_msg=name)
            continue
        limit = OF_PAIRS[dtype(case)][name not in ("table", "grid_value")]
        error = np.nan_to_num(abs(value - known[name]))
        assert np.all(error <= limit * np.maximum(np.nan_to_num(known[name]), 1e-3)), name


# -- what a search finds --------------------------------------------------------------------------


def check_search(case, result, found, known):
    """S and every S_i are no lower, and S is attained."""
    of_kind(case, result.delta)
    assert np.all(no_lower(found["value"], known["value"]))
    assert np.all(no_lower(found["per_word"], known["per_word"]))
    if "upper" in found:
        np.testing.assert_allclose(found["upper"], known["upper"], rtol=ACCURACY[dtype(case)])
        assert not np.any(found["per_word"] > found["upper"])
    for one in defined(case):
        place = one.place
        value, position = float(found["value"][place]), int(found["position"][place])
        of_words, known_of_words = found["per_word"][place], known["per_word"][place]
        # No S_i is above S, which is attained.
        assert value == of_words[position] == np.nanmax(of_words)
        delta = torch.as_tensor(result.delta[place]).double()
        assert float(delta.norm()) <= result.radius
        assert value == pytest.approx(one.change(position, delta), rel=ACCURACY[dtype(case)])
        # Another word is the worst only where it was as bad before, or a worse change is found.
        as_bad = no_lower(known_of_words[position], float(known["value"][place]))
        assert as_bad or value > float(known["value"][place])


def no_lower(found, known):
    """Whether S is as large as it was; NaN is where it was."""
    return ~(np.asarray(found) < (1 - LOWER) * np.asarray(known))


def check_study(case, result, found, known):
    """Cells of a scaling study."""
    for name in ("n", "d", "text", "draw"):
        np.testing.assert_array_equal(found[name], known[name], err_msg=name)
    assert np.all(no_lower(found["S"], known["S"]))
    assert np.all((found["position"] == known["position"]) | (found["S"] > known["S"]))


def check_experiment(case, result, found, known):
    """Outputs and condition are the same, losses no higher, and figures those of the Δ found."""
    of_kind(case, result.delta)
    for name in ("output_before", "output_after", "condition"):
        np.testing.assert_allclose(found[name], known[name], rtol=ACCURACY["float64"])
    # A loss of 0 is left with its rounding.
    assert np.all(found["loss"] <= (1 + LOWER) * known["loss"] + 1e-12)
    given = {
        name: value if name == "y" else torch.as_tensor(value)
        for name, value in inputs(case).items()
        if name != "map"
    }
    phi = truth.phi_of(case.options.get("map", "raf"), given["weights"])
    trials = given["X"].view(-1, case.n, case.d)
    for t, (X, y) in enumerate(zip(trials, np.atleast_1d(given["y"]), strict=True)):
        problem = truth.Problem(given["texts"], given["labels"], X, float(y))
        for r, training in enumerate(result.trainings):
            for k, loss in enumerate(result.losses):
                at = (t,) * len(result.axes) + (r, k)
                position, delta = int(result.position[at]), torch.as_tensor(result.delta[at])
                assert float(delta.norm()) <= result.radius
                figures_there = truth.figures(phi, problem, training, loss, position, delta)
                for name, value in figures_there.items():
                    got = float(getattr(result, name)[at])
                    assert got == pytest.approx(value, rel=1e-8, abs=1e-10), (name, at)


CHECKS = {
    "raf_sensitivity": check_search,
    "word_sensitivity": check_search,
    "rf_sensitivity": check_search,
    "drf_sensitivity": check_search,
    "substitution_sensitivity": check_pairs,
    "experiment": check_experiment,
    "scaling": check_study,
}
