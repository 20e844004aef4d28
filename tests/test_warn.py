"""Warnings name the line of the user's program, by whatever way it came into the package."""

import warnings

import pytest
import torch

import wsfast
from wsfast.engines import compiled

X = torch.randn(3, 4)
ZEROS = torch.zeros(3, 4)


def ill_conditioned():
    texts = X.expand(2, -1, -1) + 1e-7 * torch.randn(2, 3, 4)
    wsfast.generalization.experiment(texts.double(), [1, -1], X.double(), y=1, positions=[0])


CALLS = {
    "raf": lambda: wsfast.raf_sensitivity(ZEROS),
    "rf": lambda: wsfast.rf_sensitivity(ZEROS),
    "substitution": lambda: wsfast.substitution_sensitivity(ZEROS, X, top_k=1),
    "word_sensitivity": lambda: wsfast.word_sensitivity(lambda x: 1 + 1e-9 * x.double(), X),
    "scaling": lambda: wsfast.scaling("raf", 3, texts=[ZEROS], draws=1),
    "experiment": ill_conditioned,
}
WITHOUT_MODULE = {
    "features": lambda: wsfast.raf_features(X, torch.eye(4), weight_fn="relu"),
    "module": lambda: wsfast.nn.RandomAttentionFeatures(4, weight_fn="relu")(X),
    "norms": lambda: wsfast.raf_delta_norms(X, torch.eye(4), X),
    "sensitivity": lambda: wsfast.raf_sensitivity(X),
}


def places(call):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [warning.filename for warning in caught]


@pytest.mark.parametrize("name", CALLS)
def test_a_warning_points_at_the_first_line_outside_of_the_package(name):
    assert places(CALLS[name]) == [__file__]


@pytest.mark.parametrize("name", WITHOUT_MODULE)
def test_a_missing_module_is_told_of_at_the_users_line(name, monkeypatch):
    monkeypatch.setattr(compiled.CPU, "module", None)
    monkeypatch.setattr(compiled.CPU, "_warned", False)
    assert places(WITHOUT_MODULE[name]) == [__file__]


def test_a_warning_is_shown_once_for_each_line():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(2):
            wsfast.raf_sensitivity(ZEROS)
    assert len(caught) == 1
