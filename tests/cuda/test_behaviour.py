"""What holds for every function on CUDA tensors."""

from __future__ import annotations

import pytest
import torch
from parameters import dtypes

import wsfast
from wsfast import (
    raf_delta_norms,
    raf_deltas,
    raf_features,
    raf_sensitivity,
    self_scores,
    substitution_sensitivity,
)

ARRAYS = ("value", "per_word", "position", "delta", "best_value", "top_candidate", "top_value")


@pytest.fixture
def results(text, changes, device):
    """Everything that the functions give for one text, by the CUDA kernels: name to tensor."""
    generator = torch.Generator().manual_seed(5)
    E = torch.randn(50, 24, generator=generator, dtype=torch.float64)

    def run(dtype=torch.float32, layout=lambda x: x):
        X, W = map(layout, text(19, 24, dtype))
        delta, rows = layout(changes(2, 24, dtype=dtype)), layout(E.to(device, dtype))
        out = {
            "features": raf_features(X, W, backend="native"),
            "relu": raf_features(X, W, weight_fn="relu", backend="native"),
            "norms": raf_delta_norms(X, W, delta, backend="native"),
            "deltas": raf_deltas(X, W, 3, delta[0], backend="native"),
            "self-scores": self_scores(rows, W),
        }
        for name, result in (
            ("ball", raf_sensitivity(X, W, max_steps=12, backend="native")),
            ("vocabulary", substitution_sensitivity(X, rows, W, backend="native")),
        ):
            for array in ARRAYS:
                if hasattr(result, array):
                    out[f"{name}.{array}"] = getattr(result, array)
        return out

    return run


def equal(one, two):
    assert one.keys() == two.keys()
    for name, value in one.items():
        assert not bool(value.isnan().any()), name
        assert torch.equal(value, two[name]), name


@dtypes
def test_again(results, dtype):
    """The same to the last bit, on the device of the text."""
    first = results(dtype)
    for value in first.values():
        assert value.device == first["features"].device
    equal(first, results(dtype))


@dtypes
def test_new_memory_is_written_before_it_is_read(results, poisoned, dtype):
    plain = results(dtype)
    with poisoned():
        equal(results(dtype), plain)


def shifted(x):
    """The same numbers, not at a multiple of 16 bytes."""
    return torch.empty(x.numel() + 1, dtype=x.dtype, device=x.device)[1:].view_as(x).copy_(x)


def padded(x):
    """The same numbers, each row at some distance from the last."""
    return torch.nn.functional.pad(x, (3, 4))[..., 3:-4]


@dtypes
@pytest.mark.parametrize("layout", [shifted, padded, lambda x: x.mT.contiguous().mT])
def test_memory_format(results, layout, dtype):
    plain, other = results(dtype), results(dtype, layout)
    # A product of PyTorch may take another way for another layout.
    rtol = {torch.float32: 1e-4, torch.float64: 1e-9}[dtype]
    for name, value in plain.items():
        if name.endswith(("delta", "position")):
            continue  # where a search ends
        loose = 5e-3 if name.startswith("ball") else rtol
        torch.testing.assert_close(other[name], value, rtol=loose, atol=rtol)


@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (0, 3, 4), (2, 0, 4)])
def test_nothing_to_work_on(device, shape):
    X, W = torch.ones(shape, device=device), torch.eye(4, device=device)
    for call in (
        lambda: raf_features(X, W, backend="native"),
        lambda: raf_delta_norms(X, W, torch.ones(1, 4, device=device), backend="native"),
        lambda: raf_sensitivity(X, W, backend="native"),
        lambda: substitution_sensitivity(X, torch.ones(3, 4, device=device), W, backend="native"),
    ):
        with pytest.raises(ValueError, match=r"X(\[0\])? must"):
            call()


def test_nothing_to_replace_with(device):
    X, W = torch.ones(3, 4, device=device), torch.eye(4, device=device)
    for call in (
        lambda: substitution_sensitivity(X, torch.ones(0, 4, device=device), W, backend="native"),
        lambda: self_scores(torch.ones(0, 4, device=device), W),
    ):
        with pytest.raises(ValueError, match="E must"):
            call()
    with pytest.raises(ValueError, match="mask must be True for at least one word"):
        raf_features(X, W, mask=torch.zeros(3, dtype=torch.bool, device=device), backend="native")


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_numbers_that_are_not_finite(text, bad):
    X, W = text(5, 6)
    X[2, 3] = bad
    for call in (
        lambda: raf_features(X, W, backend="native"),
        lambda: raf_sensitivity(X, W, backend="native"),
    ):
        with pytest.raises(ValueError, match="X"):
            call()


@pytest.mark.needs("cuda")
def test_other_device(text):
    X, W = text(5, 6)
    with pytest.raises(ValueError, match="W must be on the device of X"):
        raf_features(X, W.cpu())


@pytest.mark.needs("cuda")
def test_config(capsys):
    wsfast.show_config()
    printed = capsys.readouterr().out
    assert torch.cuda.get_device_name(0) in printed
    assert wsfast.engines.compiled.CUDA.require().architectures() in printed


@pytest.mark.needs("cuda")
def test_cuda_kernels_are_the_default(text):
    X, W = text(5, 6)
    assert raf_sensitivity(X, W, max_steps=5).info["backend"] == "native"
    assert substitution_sensitivity(X, X, W).info["backend"] == "native"
