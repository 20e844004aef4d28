"""Bad input: every error names the argument, what was got and what is expected."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from studies.generalization.truth import problem

from wsfast.generalization import experiment

KNOWN = problem(5, 3, 4)
GIVEN = {"texts": KNOWN.texts, "labels": KNOWN.labels, "X": KNOWN.X, "y": 1}
NAN = torch.tensor(float("nan"))


def with_nan(x):
    x = x.clone()
    x.view(-1)[7] = NAN
    return x


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        # texts
        ({"texts": KNOWN.texts[0]}, ValueError, "texts must have shape (N, 3, 4), N >= 1"),
        ({"texts": KNOWN.texts[:0]}, ValueError, "texts must have shape (N, 3, 4), N >= 1"),
        ({"texts": KNOWN.texts[:, :2]}, ValueError, "got (5, 2, 4)"),
        ({"texts": KNOWN.texts[..., :2]}, ValueError, "got (5, 3, 2)"),
        ({"texts": list(KNOWN.texts)}, TypeError, "texts must be a torch.Tensor or numpy"),
        ({"texts": KNOWN.texts.float()}, TypeError, "texts must have the dtype of X"),
        ({"texts": KNOWN.texts.int()}, TypeError, "texts must hold real floating-point"),
        ({"texts": with_nan(KNOWN.texts)}, ValueError, "texts must be finite, got nan at"),
        # labels
        ({"labels": [1, -1]}, ValueError, "labels must be 5 labels, each 1 or -1, got shape (2,)"),
        ({"labels": [1, -1, 0, 1, 1]}, ValueError, "labels must be 5 labels, each 1 or -1, got 0"),
        ({"labels": [1, -1, np.nan, 1, 1]}, ValueError, "labels must be 5 labels"),
        ({"labels": 1}, ValueError, "got shape ()"),
        ({"labels": torch.ones(5, 1)}, ValueError, "got shape (5, 1)"),
        ({"labels": ["a"] * 5}, TypeError, "labels must be 5 labels"),
        ({"labels": "abcde"}, TypeError, "labels must be 5 labels"),
        ({"labels": [True] * 5}, TypeError, "got bool"),
        ({"labels": [[1], [1, 2]]}, TypeError, "labels must be 5 labels"),
        ({"labels": None}, TypeError, "labels must be 5 labels"),
        # X and y
        ({"X": KNOWN.X[0]}, ValueError, "X must have shape (n, d) or (B, n, d)"),
        ({"X": [KNOWN.X, KNOWN.X[:2]]}, ValueError, "X must hold texts of one length"),
        ({"X": with_nan(KNOWN.X)}, ValueError, "X must be finite"),
        ({"X": "words"}, TypeError, "X must be a torch.Tensor or numpy.ndarray"),
        ({"y": 2}, ValueError, "y must be 1 or -1, got 2"),
        ({"y": [1, -1]}, ValueError, "y must be 1 or -1, got shape (2,)"),
        ({"y": None}, TypeError, "y must be 1 or -1, got object"),
        # names
        ({"map": "rff"}, ValueError, "map must be 'rf', 'drf', 'raf', "),
        ({"map": 3}, ValueError, "map must be 'rf'"),
        ({"training": "all"}, ValueError, "training must hold one or more of 'fine_tuning'"),
        ({"training": []}, ValueError, "training must hold one or more of"),
        ({"training": ["retraining"] * 2}, ValueError, "each once"),
        ({"training": 3}, TypeError, "training must be a name or a sequence of them, got int"),
        ({"training": [["retraining"]]}, ValueError, "training must hold one or more of"),
        ({"loss": ("error", "features")}, ValueError, "loss must hold one or more of 'feature'"),
        ({"backend": "cuda"}, ValueError, "backend must be None or one of"),
        # weights and draws
        ({"weights": torch.eye(3).double()}, ValueError, "W must have shape (4, 4)"),
        ({"weights": torch.eye(4)}, TypeError, "W must have the dtype of X"),
        ({"weights": torch.eye(4).double(), "draws": 2}, ValueError, "weights and draws cannot"),
        ({"map": "rf", "weights": torch.eye(4).double()}, ValueError, "V must have shape"),
        ({"map": "drf", "weights": torch.eye(12).double()}, TypeError, "V must be a sequence"),
        ({"draws": 0}, ValueError, "draws must be at least 1, got 0"),
        ({"draws": 1.5}, TypeError, "draws must be an integer"),
        # options that a map does not have
        ({"k": 3}, ValueError, "k must be left out: it is no option of map='raf'"),
        ({"map": "rf", "depth": 2}, ValueError, "depth must be left out: it is no option of"),
        ({"map": "relu_raf", "activation": "relu"}, ValueError, "activation must be left out"),
        ({"map": lambda X: X, "weights": KNOWN.X}, ValueError, "weights must be left out"),
        ({"map": lambda X: X, "draws": 2}, ValueError, "draws must be left out"),
        ({"map": lambda X: X, "backend": "torch"}, ValueError, "backend must be left out"),
        ({"map": "rf", "activation": "sine"}, ValueError, "activation must be 'relu'"),
        ({"map": "rf", "k": 0}, ValueError, "k must be from 1 to"),
        # of a user's map
        ({"map": lambda X: 3}, TypeError, "phi must return a real tensor"),
        ({"map": lambda X: X.detach()}, ValueError, "phi must be differentiable"),
        ({"map": lambda X: X.sum()}, ValueError, "phi must map texts (m, n, d)"),
        # the search
        ({"positions": [3]}, ValueError, "positions[0] must be from 0 to 2"),
        ({"positions": []}, ValueError, "positions must hold at least one position"),
        ({"positions": [(0, 1)]}, ValueError, "positions must be single words here, got sites"),
        ({"radius": -1}, ValueError, "radius must be finite and at least 0"),
        ({"seed": -1}, ValueError, "seed must be from 0"),
        ({"starts": 0}, ValueError, "starts must be at least 1"),
        ({"max_steps": 0}, ValueError, "max_steps must be at least 1"),
        ({"tol": "small"}, TypeError, "tol must be a number"),
        ({"memory_budget": 0}, ValueError, "memory_budget must be at least 1"),
        ({"progress": 1}, TypeError, "progress must be True or False"),
    ],
)
def test_bad_input(changes, error, message):
    with pytest.raises(error, match=re.escape(message)):
        experiment(**{**GIVEN, **changes})


def test_devices():
    elsewhere = torch.empty(5, 3, 4, dtype=torch.float64, device="meta")
    with pytest.raises(ValueError, match="texts must be on the device of X, cpu, got meta"):
        experiment(**{**GIVEN, "texts": elsewhere})


def test_features_that_do_not_serve():
    repeated = KNOWN.texts.clone()
    repeated[3] = repeated[0]
    with pytest.raises(ValueError, match="texts must have independent features"):
        experiment(**{**GIVEN, "texts": repeated})
    many = problem(13, 3, 4)
    with pytest.raises(ValueError, match="got N = 13 texts of D = 12 features"):
        experiment(many.texts, many.labels, many.X, 1)
    inside = {**GIVEN, "X": KNOWN.texts[2]}
    with pytest.raises(ValueError, match=r"P⊥φ\(X\) = 0 for text 0 of X"):
        experiment(**inside)
    # Fine-tuning alone does not need P⊥φ(X).
    result = experiment(**inside, training="fine_tuning", loss=("feature", "error"))
    assert float(result.output_before[0, 0]) == pytest.approx(float(KNOWN.labels[2]))
    with pytest.raises(ValueError, match=r"X must have features, but φ\(X\) = 0 for text 0"):
        experiment(**{**GIVEN, "X": torch.zeros(3, 4).double()}, map="rf")
    with pytest.raises(ValueError, match=r"φ\(texts\) must be finite"):
        experiment(**GIVEN, map=lambda X: X.flatten(1) / (X[:, :1, 0] - KNOWN.texts[2, 0, 0]))


def test_missing_module(monkeypatch):
    from wsfast.engines import compiled

    monkeypatch.setattr(compiled.CPU, "module", None)
    monkeypatch.setattr(compiled.CPU, "reason", "gone")
    with pytest.raises(RuntimeError, match="needs the compiled module"):
        experiment(**GIVEN, backend="native")
