"""Kinds of tensor other than plain ones: as good as plain, or refused by name."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import wsfast
from wsfast.generalization import experiment

X = torch.arange(24.0).cos().reshape(4, 6)
E = torch.arange(60.0).sin().reshape(10, 6)
W = wsfast.random_weights(6)
TEXTS = torch.arange(120.0).cos().square().reshape(5, 4, 6)

# Of real numbers, as X where not said otherwise; then of whole numbers and bool.
CALLS = {
    "features": lambda x: wsfast.raf_features(x, W.to(x.device)),
    "features of a list": lambda x: wsfast.raf_features([x], W.to(x.device)),
    "sensitivity": lambda x: wsfast.raf_sensitivity(x),
    "substitution": lambda x: wsfast.substitution_sensitivity(x, E.to(x.device)),
    "deltas": lambda x: wsfast.raf_deltas(x, W.to(x.device), 0, W[0].to(x.device)),
    "norms": lambda x: wsfast.raf_delta_norms(x, W.to(x.device), W[:2].to(x.device)),
    "perturb": lambda x: wsfast.perturb(x, 0, W[0].to(x.device)),
    "rf": lambda x: wsfast.rf_sensitivity(x, k=5),
    "rf features": lambda x: wsfast.rf_features(x, k=5),
    "word": lambda x: wsfast.word_sensitivity(torch.tanh, x),
    "experiment": lambda x: experiment(TEXTS.to(x.device), [1, -1, 1, -1, 1], x, y=1),
    "E": lambda x: wsfast.substitution_sensitivity(X, x, W, top_k=2),
    "self scores": lambda x: wsfast.self_scores(x, W),
    "V": lambda x: wsfast.rf_features(X[:1], x),
}
OTHERS = {
    "mask": lambda x: wsfast.raf_features(X, W, mask=x.bool()),
    "mask of a list": lambda x: wsfast.raf_features([X], W, mask=[x.bool()]),
    "labels": lambda x: experiment(TEXTS, x, X, y=1),
    "positions": lambda x: wsfast.raf_sensitivity(X, positions=x.long()),
    "candidates": lambda x: wsfast.substitution_sensitivity(X, E, candidates=x.bool()),
}
KINDS = {
    "meta": lambda x: x.to("meta"),
    "fake": FakeTensorMode(allow_non_fake_inputs=True).from_tensor,
    "nested": lambda x: torch.nested.nested_tensor([x[:3], x[3:]]),
    "sparse": lambda x: x.to_sparse(),
    "mkldnn": lambda x: x.to_mkldnn(),
}
# No values are needed for these, or there is no such tensor.
SERVED = {("features", "meta"), ("features", "fake"), ("mask", "fake")}
SERVED |= {(name, "mkldnn") for name in OTHERS}


@pytest.mark.parametrize(
    ("name", "kind"),
    [(name, kind) for name in (*CALLS, *OTHERS) for kind in KINDS if (name, kind) not in SERVED],
)
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_refused_by_name(name, kind):
    with pytest.raises((TypeError, ValueError), match="must"):
        (CALLS | OTHERS)[name](KINDS[kind](X))


def test_features_of_the_meta_device():
    x, w = torch.empty(2, 5, 6, device="meta"), torch.empty(3, 6, 6, device="meta")
    for options in ({}, {"weight_fn": "relu"}, {"mask": torch.ones(5, device="meta").bool()}):
        phi = wsfast.raf_features(x, w, **options)
        assert phi.is_meta
        assert phi.shape == (2, 3, 5, 6)
    layer = wsfast.nn.RandomAttentionFeatures(6, device="meta")
    assert layer(x.requires_grad_()).is_meta


@pytest.mark.parametrize("backend", ["reference", "torch"])
def test_negated_views_are_taken_by_their_values(backend):
    def view(x):
        """`x` again, as a view whose memory holds -x."""
        return torch.complex(torch.zeros_like(x), -x).conj().imag

    assert view(X).is_neg()
    options = {"full": True, "backend": backend}
    expected = wsfast.substitution_sensitivity(X, E, W, **options).table
    got = wsfast.substitution_sensitivity(view(X), view(E), view(W), **options).table
    assert torch.equal(got, expected)
    assert torch.equal(wsfast.raf_features(view(X), W), wsfast.raf_features(X, W))


class Named(torch.Tensor):
    pass


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_parameters_and_subclasses_are_plain(call):
    call(torch.nn.Parameter(X))
    call(X.as_subclass(Named))
