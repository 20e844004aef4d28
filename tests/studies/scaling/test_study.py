"""scaling: its cells are the sensitivities that one would compute by hand."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import wsfast
from wsfast._random import TEXT_STREAM, normals
from wsfast.maps.draws import BUILDERS
from wsfast.results.embedded import Embedded
from wsfast.studies.scaling import measure
from wsfast.studies.scaling.measure import Measure
from wsfast.studies.scaling.study import _parts, scaling
from wsfast.studies.scaling.texts import digest, gaussian_text

QUICK = {"max_steps": 5}
SEARCHES = {
    "raf": (wsfast.raf_sensitivity, {}),
    "relu_raf": (wsfast.raf_sensitivity, {"weight_fn": "relu"}),
    "relu_raf_unnormalized": (wsfast.raf_sensitivity, {"weight_fn": "relu", "normalize": False}),
    "rf": (wsfast.rf_sensitivity, {}),
    "drf": (wsfast.drf_sensitivity, {}),
}


def rows_of_norm_root_d(n, d, seed, draw):
    """The Gaussian text of a draw."""
    rows = normals(seed, TEXT_STREAM + draw, n * d).reshape(n, d)
    for row in rows:
        row *= math.sqrt(d) / math.sqrt(sum(x * x for x in row))
    return torch.from_numpy(rows).float()


# -- texts -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 7, 300])
def test_gaussian_text(d):
    text = gaussian_text(5, d, seed=3, draw=2)
    torch.testing.assert_close(text, rows_of_norm_root_d(5, d, 3, 2))
    torch.testing.assert_close(text.norm(dim=1), torch.full((5,), d**0.5))


@pytest.mark.parametrize("d", [1, 3, 64, 768])
@pytest.mark.parametrize("n", [1, 2, 7])
def test_a_shorter_text_is_the_beginning_of_a_longer(n, d):
    assert torch.equal(
        gaussian_text(n, d, seed=5, draw=1), gaussian_text(50, d, seed=5, draw=1)[:n]
    )


def test_texts_are_independent_of_each_other_and_of_the_weights():
    kinds = [gaussian_text(40, 40, seed=seed, draw=draw) for seed in (0, 1) for draw in (0, 1)]
    kinds.append(wsfast.random_weights(40) * 40**0.5)
    correlations = np.corrcoef(torch.stack(kinds).flatten(1).numpy())
    assert np.abs(correlations - np.eye(5)).max() < 4 / 40


def test_digest():
    X = torch.arange(6.0).reshape(2, 3)
    others = [X.double(), X.reshape(3, 2), X + 1, X[:1]]
    assert digest(X) == digest(X.T.contiguous().T)
    assert len({digest(X), *map(digest, others)}) == 5


# -- cells -----------------------------------------------------------------------------------------


@pytest.mark.deep
@pytest.mark.parametrize("name", BUILDERS)
def test_cells_of_gaussian_texts(name):
    search, options = SEARCHES[name]
    result = scaling(name, [7, 4], [6, 3], draws=3, seed=7, **QUICK)
    assert [(c.map, c.d, c.n, c.text, c.draw) for c in result.rows] == [
        (name, d, n, r, r) for d in (3, 6) for n in (4, 7) for r in range(3)
    ]
    for cell in result.rows:
        X = gaussian_text(cell.n, cell.d, seed=7, draw=cell.draw)
        expected = search(X, draws=3, seed=7, **options, **QUICK)
        assert float(expected.value[cell.draw]) == cell.S
        assert cell.position == int(expected.position[cell.draw])
        if name in ("rf", "drf"):
            assert cell.k == expected.info["k"] == cell.n * cell.d
            assert cell.upper == float(expected.upper[cell.draw].max())
            assert cell.upper >= cell.S
        else:
            assert cell.k is None
            assert cell.upper is None


@pytest.mark.parametrize("name", ["raf", "rf"])
@pytest.mark.parametrize("kind", ["torch", "numpy", "embedded"])
def test_cells_of_given_texts(name, kind):
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((n, 4)) for n in (6, 9)]
    dtype = torch.float32 if kind == "embedded" else torch.float64
    tensors = [torch.from_numpy(array).to(dtype) for array in arrays]
    texts = {
        "torch": tensors,
        "numpy": arrays,
        "embedded": [Embedded("", [], X, [], [], [], "m", 0) for X in tensors],
    }[kind]
    result = scaling(name, [3, 6], texts=texts, draws=2, seed=1, **QUICK)
    search, options = SEARCHES[name]
    for cell in result.rows:
        X = tensors[cell.text][: cell.n].clone()
        expected = search(X, draws=2, seed=1, **options, **QUICK)
        assert float(expected.value[cell.draw]) == cell.S
    assert [(c.n, c.text, c.draw) for c in result.rows] == [
        (n, text, draw) for n in (3, 6) for text in (0, 1) for draw in (0, 1)
    ]
    assert {c.d for c in result.rows} == {4}


def test_options_reach_the_search():
    options = {"radius": 0.5, "positions": [1], "starts": 2, "tol": 0.1, "max_steps": 3}
    (cell,) = scaling("raf", 4, 6, draws=1, backend="torch", **options).rows
    X, W = gaussian_text(4, 6, seed=0, draw=0), wsfast.random_weights(6)
    assert float(wsfast.raf_sensitivity(X, W, backend="torch", **options).value) == cell.S
    assert cell.position == 1

    options = {"k": 5, "depth": 2, "activation": "tanh", "max_steps": 3}
    (cell,) = scaling("drf", 4, 6, draws=1, **options).rows
    whole = wsfast.drf_sensitivity(X, **options)
    assert float(whole.value) == cell.S
    assert cell.k == 5
    assert cell.upper == float(whole.upper.max()) > float(whole.upper.min())


def test_memory_budget_reaches_the_search(monkeypatch):
    seen = []
    search = measure.sensitivity_under

    def watched(*arguments, **options):
        seen.append(options["memory_budget"])
        return search(*arguments, **options)

    monkeypatch.setattr(measure, "sensitivity_under", watched)
    scaling("raf", 2, 2, draws=1, memory_budget=12345, **QUICK)
    assert seen == [12345]


@pytest.mark.parametrize("name", ["raf", "relu_raf"])
def test_attention_is_bounded_where_that_is_asked_for(name):
    result = scaling(name, [3, 6], 24, draws=2, bound=True)
    weight_fn = {"raf": "softmax", "relu_raf": "relu"}[name]
    for cell in result.rows:
        text = gaussian_text(6, 24, seed=0, draw=cell.draw)[: cell.n]
        W = wsfast.random_weights(24, draws=2)[cell.draw]
        single = wsfast.raf_sensitivity(text, W, weight_fn=weight_fn, bound=True)
        assert float(single.value) == pytest.approx(cell.S, rel=1e-6)
        assert float(single.upper_value) == pytest.approx(cell.upper, rel=1e-6)
        assert cell.S <= cell.upper < 2 * cell.S
    assert result.info[name]["bound"] is True


def test_bounds_where_there_are_none():
    assert "bound" not in scaling("raf", [2], 4, draws=1, bound=False).info["raf"]
    (cell,) = scaling("relu_raf_unnormalized", [2], 4, draws=1, bound=True).rows
    assert cell.upper is None
    with pytest.raises(TypeError, match="takes no option 'bound' for the map 'rf'"):
        scaling("rf", [2], 4, draws=1, bound=True)
    with pytest.raises(TypeError, match="bound must be True or False"):
        scaling("raf", [2], 4, draws=1, bound=1)


def test_an_activation_without_a_bound():
    (cell,) = scaling("rf", 2, 3, draws=1, activation=torch.sigmoid, **QUICK).rows
    assert cell.upper is None
    assert cell.S > 0


def test_info_tells_the_settings():
    result = scaling("raf", 2, 2, draws=1, seed=3, starts=np.int64(2), backend="torch", **QUICK)
    assert result.info == {
        "raf": {
            "map": "raf",
            "texts": "gaussian",
            "device": "cpu",
            "seed": 3,
            "radius": None,
            "positions": None,
            "starts": 2,
            "max_steps": 5,
            "tol": 1e-4,
            "backend": "torch",
            "version": wsfast.__version__,
        }
    }
    given = [torch.ones(2, 2)]
    info = scaling("raf", 2, texts=given, draws=1, **QUICK).info
    assert info["raf"]["texts"] == [digest(given[0])]
    assert json.loads(json.dumps(info)) == info


def test_zero_features():
    texts = [torch.zeros(3, 2), torch.ones(3, 2)]
    with pytest.warns(
        RuntimeWarning, match=r"NaN in 4 of 8 cells, the first with n = 1, d = 2, text 0, draw 0"
    ) as caught:
        result = scaling("raf", [1, 3], texts=texts, draws=2, **QUICK)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert [math.isnan(cell.S) for cell in result.rows] == 2 * [True, True, False, False]
    assert [cell.position for cell in result.rows[:2]] == [-1, -1]


def test_laws_of_the_paper():
    ns, settings = [8, 16, 32, 64], {"draws": 6, "max_steps": 10, "starts": 1}
    flat = scaling("raf", ns, 64, **settings).slope()
    assert -0.1 < flat.low <= flat.high < 0.1
    falls = scaling("rf", ns[:3], 16, k=256, **settings).slope()
    assert -0.65 < falls.value < -0.4


def test_leaves_everything_as_it_was(untouched):
    with untouched():
        scaling("raf", [2, 3], 2, draws=2, **QUICK).slope()
        scaling("rf", 2, 2, draws=1, **QUICK)


# -- progress --------------------------------------------------------------------------------------


@pytest.mark.needs("text")
def test_progress(capfd, tmp_path):
    scaling("raf", [2, 4], 3, draws=2, path=tmp_path, **QUICK)
    assert capfd.readouterr().err == ""
    scaling("raf", [2, 4, 9], 3, draws=2, progress=True, path=tmp_path, **QUICK)
    assert "1000/1000" in capfd.readouterr().err
    scaling("raf", [2, 4, 9], 3, draws=2, progress=True, path=tmp_path, **QUICK)
    assert "0part" in capfd.readouterr().err


def test_parts_stand_for_equal_costs():
    assert _parts([1.0, 2.0, 1.0]) == [250, 500, 250]
    assert _parts([1e9]) == [1000]
    assert _parts([]) == []
    many = _parts([0.1] * 3000)
    assert sum(many) == 1000
    assert set(many) == {0, 1}


@pytest.mark.parametrize("name", BUILDERS)
def test_cost_grows_with_the_work(name):
    options = {"positions": None, "k": None, "depth": 3}
    every = Measure(name, seed=0, memory_budget=1, options=options)
    small = every.cost(10, 64)
    assert small < every.cost(20, 64)
    assert small < every.cost(10, 128)
    one = Measure(name, seed=0, memory_budget=1, options={**options, "positions": [0]})
    assert one.cost(100, 768) < every.cost(100, 768) / 10


# -- errors ----------------------------------------------------------------------------------------

TEXT = torch.ones(4, 3)
BAD = [
    ({"map": "RAF"}, ValueError, "map must be 'rf', 'drf', .* got 'RAF'"),
    ({"map": None}, ValueError, "map must be 'rf', 'drf', .* got None"),
    ({"ns": []}, ValueError, "ns must hold at least one number, got none"),
    ({"ns": [2, 0]}, ValueError, r"ns\[1\] must be at least 1, got 0"),
    ({"ns": 2.5}, TypeError, "ns must be an integer, got 2.5"),
    ({"ns": "34"}, TypeError, "ns must be an integer, got '34'"),
    ({"ns": [True]}, TypeError, r"ns\[0\] must be an integer, got True"),
    ({"ds": ()}, ValueError, "ds must hold at least one number"),
    ({"ds": [3, "4"]}, TypeError, r"ds\[1\] must be an integer, got '4'"),
    ({"ds": None}, ValueError, "ds must be given for Gaussian texts, and not together with texts"),
    ({"texts": [TEXT]}, ValueError, "ds must be given for Gaussian texts"),
    ({"ds": None, "texts": TEXT}, TypeError, "texts must be a list of texts .* got Tensor"),
    ({"ds": None, "texts": []}, ValueError, "texts must hold at least one text"),
    ({"ds": None, "texts": ["so"]}, TypeError, r"texts\[0\] must be a torch.Tensor"),
    ({"ds": None, "texts": [TEXT[0]]}, ValueError, r"texts\[0\] must have shape \(n, d\)"),
    ({"ds": None, "texts": [TEXT[:, :0]]}, ValueError, r"texts\[0\] must have shape \(n, d\)"),
    ({"ds": None, "texts": [TEXT.int()]}, TypeError, r"texts\[0\] must hold real"),
    (
        {"ds": None, "texts": [TEXT, TEXT[:, :2]]},
        ValueError,
        "texts of one dimension, got 3 .*, 2 in",
    ),
    ({"ds": None, "texts": [TEXT, TEXT.double()]}, ValueError, "texts of one dtype"),
    ({"ds": None, "texts": [TEXT, TEXT.to("meta")]}, ValueError, "texts of one device"),
    ({"ds": None, "texts": [TEXT, TEXT[:1]]}, ValueError, r"texts\[1\] .* = 3 words, got 1"),
    ({"ds": None, "texts": [TEXT / 0]}, ValueError, r"texts\[0\] must be finite, got inf"),
    ({"draws": 0}, ValueError, "draws must be at least 1, got 0"),
    ({"draws": None}, TypeError, "draws must be an integer, got None"),
    ({"seed": -1}, ValueError, "seed must be from 0"),
    ({"memory_budget": 0}, ValueError, "memory_budget must be at least 1"),
    ({"progress": 1}, TypeError, "progress must be True or False"),
    ({"step": 3}, TypeError, "takes no option 'step' for the map 'raf', only radius, positions"),
    ({"k": 3}, TypeError, "takes no option 'k' for the map 'raf'"),
    ({"map": "rf", "depth": 3}, TypeError, "takes no option 'depth' for the map 'rf'"),
    ({"backend": "fast"}, ValueError, "backend must be None or one of"),
    ({"map": "rf", "k": "many"}, TypeError, "k must be an integer, got 'many'"),
    ({"map": "drf", "depth": 0}, ValueError, "depth must be at least 1, got 0"),
    ({"max_steps": 0}, ValueError, "max_steps must be at least 1, got 0"),
    ({"positions": [2]}, ValueError, r"positions\[0\] must be from 0 to 1, got 2"),
    ({"positions": torch.tensor(0)}, TypeError, "positions must be a sequence of integers"),
    ({"positions": 0}, TypeError, "positions must be a sequence of integers"),
    ({"map": "rf", "activation": "step"}, ValueError, "activation must be 'relu'"),
    *(
        ({name: None}, TypeError, f"takes no option '{name}'")
        for name in ("X", "W", "V", "mask", "weight_fn", "normalize")
    ),
]


@pytest.mark.parametrize(("changes", "error", "message"), BAD)
def test_bad_arguments(changes, error, message, monkeypatch):
    finished = []
    cell = Measure.cell
    monkeypatch.setattr(Measure, "cell", lambda *given: finished.append(cell(*given)))
    with pytest.raises(error, match=message):
        scaling(**{"map": "raf", "ns": [2, 3], "ds": [3], "draws": 2, **changes})
    assert finished == []


def test_sizes_as_arrays():
    result = scaling("raf", np.array([3, 2, 3]), torch.tensor([4]), draws=1, **QUICK)
    assert [cell.n for cell in result.rows] == [2, 3]
    assert replace(result, info={}).rows == scaling("raf", range(2, 4), 4, draws=1, **QUICK).rows
