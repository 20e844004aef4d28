"""torch.compile of functions that call wsfast: one break where values are looked at."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch._dynamo.utils import counters

import wsfast
from wsfast import (
    drf_features,
    drf_sensitivity,
    perturb,
    raf_delta_norms,
    raf_deltas,
    raf_features,
    raf_sensitivity,
    random_weights,
    rf_features,
    rf_sensitivity,
    rf_weights,
    self_scores,
    substitution_sensitivity,
    word_sensitivity,
)
from wsfast.generalization import experiment

W = random_weights(4)
DELTA = torch.tensor([0.5, -1.0, 2.0, 0.0])
TEXTS = torch.arange(60.0).cos().reshape(5, 3, 4)

CALLS = {
    "raf_sensitivity": lambda X: raf_sensitivity(X, W).value,
    "substitution_sensitivity": lambda X: substitution_sensitivity(X, TEXTS[0], W, top_k=2),
    "rf_features": lambda X: rf_features(X, k=9),
    "raf_features of a list": lambda X: raf_features([X, X], W),
}
MORE_CALLS = {
    "rf_sensitivity": lambda X: rf_sensitivity(X, k=9).value,
    "drf_sensitivity": lambda X: drf_sensitivity(X, k=9).value,
    "word_sensitivity": lambda X: word_sensitivity(torch.tanh, X).value,
    "self_scores": lambda X: self_scores(X, W),
    "raf_delta_norms": lambda X: raf_delta_norms(X, W, DELTA[None]),
    "raf_deltas": lambda X: raf_deltas(X, W, 1, DELTA),
    "experiment": lambda X: experiment(TEXTS, [1, -1, 1, -1, 1], X, y=1).error,
    "perturb": lambda X: perturb(X, 1, DELTA),
    "drf_features": lambda X: drf_features(X, k=9),
    "weights": lambda X: X.flatten() @ rf_weights(3, 4),
}


@pytest.mark.parametrize(
    "call",
    [
        *(pytest.param(call, id=name) for name, call in CALLS.items()),
        *(pytest.param(call, id=name, marks=pytest.mark.deep) for name, call in MORE_CALLS.items()),
    ],
)
def test_study_inside_a_compiled_function(call):
    torch.compiler.reset()
    counters.clear()

    def function(X):
        result = call(2 * X)
        return result.top_value if hasattr(result, "top_value") else result

    compiled = torch.compile(function, backend="eager")
    X = TEXTS[0]
    assert torch.equal(compiled(X), function(X))
    assert len(counters["graph_break"]) == 1
    assert torch.equal(compiled(X + 1), function(X + 1))


def test_module_is_one_graph():
    torch.compiler.reset()
    layer = wsfast.nn.RandomAttentionFeatures(4)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(TEXTS), layer(TEXTS))


# The compiler's own warning.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
def test_gradient_through_a_break_of_the_graph():
    torch.compiler.reset()
    X = TEXTS[0].clone().requires_grad_()
    function = torch.compile(lambda X: rf_features(2 * X, k=9).sum(), backend="eager")
    (got,) = torch.autograd.grad(function(X), X)
    (expected,) = torch.autograd.grad(rf_features(2 * X, k=9).sum(), X)
    assert torch.equal(got, expected)


@pytest.mark.deep
def test_nothing_imports_the_compiler_before_it_is_used():
    code = (
        "import sys, torch, wsfast; wsfast.raf_sensitivity(torch.ones(2, 2)); "
        "sys.exit('torch._dynamo' in sys.modules)"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)
