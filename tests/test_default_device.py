"""A default device or dtype of PyTorch's that is not that of the input changes nothing."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from parameters import all_backends

import wsfast
from wsfast.generalization import experiment

X = torch.arange(24.0).cos().reshape(4, 6)
E = torch.arange(60.0).sin().reshape(10, 6)
W = wsfast.random_weights(6)
TEXTS = torch.arange(120.0).cos().square().reshape(5, 4, 6)
MASK = torch.tensor([True, True, False, True])

CALLS = {
    "features": lambda **kw: wsfast.raf_features([X, X[:2]], W, **kw),
    "sensitivity": lambda **kw: wsfast.raf_sensitivity(X, mask=MASK, **kw),
    "relu": lambda **kw: wsfast.raf_sensitivity(X[:, :2], W[:2, :2] + 2, weight_fn="relu", **kw),
    "norms": lambda **kw: wsfast.raf_delta_norms(X, W, E, mask=MASK, **kw),
    "deltas": lambda **kw: wsfast.raf_deltas(X, W, 1, E[0], **kw),
    "rf": lambda **kw: wsfast.rf_sensitivity(X, k=9, draws=2, **kw),
    "drf": lambda **kw: wsfast.drf_features([X, X[:1]], k=9, activation=torch.tanh, **kw),
    "substitution": lambda **kw: wsfast.substitution_sensitivity(X, E, full=True, **kw),
    "candidates": lambda **kw: wsfast.substitution_sensitivity(
        X, E.numpy(), W, candidates=[[1], [], [2, 3], []], top_k=2, **kw
    ),
    "sites": lambda **kw: wsfast.raf_sensitivity(X, positions=[(0, 1), 2, (1, 3)], **kw),
    "sites of relu": lambda **kw: wsfast.raf_delta_norms(
        X, W, perturbation="mask", positions=[(0, 1)], weight_fn="relu", **kw
    ),
    "sites of rf": lambda **kw: wsfast.rf_sensitivity(
        X, k=9, positions=[(0, 1)], ball="each", **kw
    ),
    "sites and candidates": lambda **kw: wsfast.substitution_sensitivity(
        X, E, positions=[(0, 1), 2], candidates=[(1, 2), (3,)], top_k=2, **kw
    ),
    "experiment": lambda **kw: experiment(TEXTS, [1, -1, 1, -1, 1], X, y=1, **kw),
    "others": lambda backend: [
        wsfast.word_sensitivity(torch.tanh, X),
        wsfast.self_scores(E, W),
        wsfast.perturb(X, 1, E[0]),
        wsfast.attention_deltas(*[X[None]] * 3, 1, *[E[None]] * 3, is_causal=True),
        wsfast.attention_deltas(*[X[None]] * 3, [2, 0], *[E[None, :2]] * 3, attn_mask=MASK[None]),
        wsfast.random_weights(6, draws=2),
        *wsfast.drf_weights(3, 4),
    ],
}


def tensors(result):
    if dataclasses.is_dataclass(result):
        result = list(vars(result).values())
    if isinstance(result, list):
        return [found for one in result for found in tensors(one)]
    return [result] if isinstance(result, torch.Tensor) else []


@all_backends
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_default_device(call, backend):
    expected = tensors(call(backend=backend))
    with torch.device("meta"):
        got = tensors(call(backend=backend))
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    ("default", "expected"),
    [
        (torch.float64, torch.float64),
        (torch.float32, torch.float32),
        (torch.bfloat16, torch.float32),
    ],
)
def test_module_has_the_default_dtype_and_device(default, expected):
    before = torch.get_default_dtype()
    torch.set_default_dtype(default)
    try:
        layer = wsfast.nn.RandomAttentionFeatures(6)
        with torch.device("meta"):
            assert wsfast.nn.RandomAttentionFeatures(6).W.is_meta
            assert torch.equal(wsfast.nn.RandomAttentionFeatures(6, device="cpu").W, layer.W)
        # Weights asked for by themselves are as documented: the same bits on every machine.
        assert wsfast.random_weights(6).dtype == torch.float32
        assert layer(torch.randn(3, 6)).dtype == expected
    finally:
        torch.set_default_dtype(before)
    assert torch.equal(layer.W, wsfast.random_weights(6, dtype=expected))
