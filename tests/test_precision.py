"""Full precision whatever the caller's program set, and what it set left as it was found."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from wsfast import raf_features, random_weights
from wsfast._precision import at_full_precision, full_precision, tf32_products


def mode():
    """How products are formed, in the words of `torch.set_float32_matmul_precision`."""
    if not hasattr(torch.backends, "fp32_precision"):  # PyTorch before 2.9
        return torch.get_float32_matmul_precision()
    words = {"bf16": "medium", "tf32": "high", "ieee": "highest"}
    return words[torch.backends.mkldnn.matmul.fp32_precision]


@pytest.fixture
def _coarse():
    """The program asks for fast products."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    yield
    torch.set_float32_matmul_precision(before)


pytestmark = pytest.mark.usefixtures("_coarse")


def test_two_threads_do_not_undo_each_other():
    first_in, second_in, first_out = (threading.Event() for _ in range(3))

    def first():
        with full_precision():
            first_in.set()
            assert second_in.wait(10)
        first_out.set()

    def second():
        assert first_in.wait(10)
        with full_precision():
            second_in.set()
            assert first_out.wait(10)
            return mode()

    with ThreadPoolExecutor(2) as pool:
        done, held = pool.submit(first), pool.submit(second)
        done.result()
        assert held.result() == "highest"
    assert mode() == "medium"


def test_many_threads_leave_the_mode_as_found():
    seen = []

    def work(_):
        for _ in range(200):
            with full_precision():
                seen.append(mode())

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert set(seen) == {"highest"}
    assert mode() == "medium"


def test_tf32_is_allowed_while_no_other_thread_needs_exact_products():
    def mode():
        if not hasattr(torch.backends, "fp32_precision"):
            return torch.get_float32_matmul_precision()
        return torch.backends.cuda.matmul.fp32_precision

    inside, over = threading.Event(), threading.Event()

    def other():
        with full_precision():
            inside.set()
            assert over.wait(10)

    with full_precision(), full_precision(), ThreadPoolExecutor(1) as pool:
        exact = mode()
        with tf32_products():
            assert mode() in ("tf32", "high")
        assert mode() == exact
        done = pool.submit(other)
        assert inside.wait(10)
        with tf32_products():
            assert mode() == exact
        over.set()
        done.result()


def test_error_inside_restores():
    with pytest.raises(KeyError), full_precision(), full_precision():
        raise KeyError
    assert mode() == "medium"


def test_a_change_made_meanwhile_is_the_program_s_own():
    with full_precision():
        torch.set_float32_matmul_precision("high")
        with full_precision():
            assert mode() == "highest"
    assert mode() == "high"


def test_autocast_is_each_thread_s_own():
    X, W = torch.randn(5, 8), random_weights(8)
    expected = raf_features(X, W)

    def in_thread(enabled):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            same = all(torch.equal(raf_features(X, W), expected) for _ in range(20))
            return same and torch.is_autocast_enabled("cpu") == enabled

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(in_thread, [True, False] * 4))


def test_at_full_precision_leaves_modes_as_found():
    @at_full_precision
    def fails():
        assert not torch.is_inference_mode_enabled()
        assert not torch.is_autocast_enabled("cpu")
        assert mode() == "highest"
        raise KeyError

    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        with pytest.raises(KeyError):
            fails()
        assert torch.is_inference_mode_enabled()
        assert torch.is_autocast_enabled("cpu")
    assert mode() == "medium"
