"""The caller's stream, no waiting, and capture in CUDA graphs."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from attention.problems import attention_text
from parameters import dtypes
from torch import Tensor

from wsfast.attention.weight_fn import WeightFn
from wsfast.engines.features import attention_statistics_, fused_features
from wsfast.engines.substitution_kernels import ContenderList, NativeTiles, Workspace
from wsfast.search.ascent import Limits, Point, ascend_unattended, explore
from wsfast.studies.substitution.screen import self_scores_of

pytestmark = pytest.mark.needs("cuda")

SOFTMAX = WeightFn("softmax")
STEPS = 8


# -- streams ---------------------------------------------------------------------------------------


def on_a_stream(run, *inputs: Tensor) -> list[Tensor]:
    """What `run` gives on a stream of its own, on which its inputs are NaN for a while."""
    stream = torch.cuda.Stream()
    places = [torch.full_like(x, torch.nan) for x in inputs]
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)
        for place, x in zip(places, inputs, strict=True):
            place.copy_(x)
        out = run(*places)
        assert not stream.query(), "the call waited, or the stream was not held up"
    stream.synchronize()
    return out


def check_stream(run, *inputs: Tensor) -> None:
    expected = run(*inputs)
    torch.cuda.synchronize()
    got = on_a_stream(run, *inputs)
    assert len(got) == len(expected) > 0
    for a, b in zip(got, expected, strict=True):
        assert not bool(b.isnan().any())
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_features_on_a_stream(text):
    X, W = text(40, 64, texts=2)
    queries = (X @ W)[:, None].contiguous()
    check_stream(lambda x, q: [fused_features(x, q, SOFTMAX, None, 0.1)], X, queries)


def test_rows_on_a_stream(text):
    X, W = text(40, 64, torch.float64)

    def run(scores):
        weights = scores.clone()
        return [*attention_statistics_(weights, SOFTMAX), weights]

    check_stream(run, X @ W @ X.mT / 8)


@dtypes
def test_steps_on_a_stream(text, changes, objective, dtype):
    X, W = text(40, 64, dtype)
    climbed, ball = objective(X, W), Limits(8.0, 1e-4)

    def run(start):
        norms = [x.clone() for x in climbed.engine.squared_norms(climbed.state, start)]
        step = [x.clone() for x in climbed.evaluator(3).value_and_gradient(start)]
        return [*norms, *step, *explore(climbed, start, ball, 1)]

    check_stream(run, changes(40, 3, 64, dtype=dtype))


@dtypes
def test_substitution_on_a_stream(text, changes, dtype):
    X, W = text(40, 64, dtype)
    E = changes(90, 64, dtype=dtype)
    known = attention_text(X, W, SOFTMAX, "native", 2**28)
    state = known.substitution(torch.arange(40, device=X.device), dtype)
    own = self_scores_of(E, W)

    def run(rows):
        tiles = NativeTiles(state, 90, Workspace(X.device))
        plain = [x.clone() for x in tiles.squares(rows, own)]
        held = ContenderList(40, 3, 8, 3600, 1e12, rows)
        screened = tiles.screen(rows, own, torch.arange(90, device=rows.device), None, held)
        return [*plain, *screened, held.surest, held.threshold, held.count]

    check_stream(run, E)


# -- the step loop ---------------------------------------------------------------------------------


@contextmanager
def no_waiting() -> Iterator[None]:
    """An error where the host waits for the device."""
    _set_waiting("error")
    try:
        yield
    finally:
        _set_waiting("default")


def _set_waiting(mode: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that this is a prototype
        torch.cuda.set_sync_debug_mode(mode)


def test_waiting_would_show(device):
    one = torch.ones(1, device=device)
    with no_waiting(), pytest.raises(RuntimeError, match="synchroniz"):
        one.item()


@pytest.fixture
def climb(text, changes, objective):
    """The problem, its starts (n, 3, d) and first points, and the ball."""

    def make(dtype, fn=SOFTMAX):
        X, W = text(24, 40, dtype)
        start = changes(24, 3, 40, dtype=dtype)
        first = Point(start[:, 0].clone(), start.new_zeros(24))
        return objective(X, W, fn), start, first, Limits(40**0.5, 1e-4)

    return make


def both(climbed, start, first, ball) -> list[Tensor]:
    """All that a search of one text computes between its preparation and its result."""
    delta, value = explore(climbed, start, ball, STEPS)
    point, taken = ascend_unattended(climbed, first, ball, STEPS)
    return [delta, value, point.delta, point.value, taken]


FUNCTIONS = [SOFTMAX, WeightFn("relu"), WeightFn("squareplus", True, 0.48)]


@dtypes
@pytest.mark.parametrize("fn", FUNCTIONS, ids=str)
def test_steps_wait_for_nothing(climb, fn, dtype):
    given = climb(dtype, fn)
    both(*given)
    torch.cuda.synchronize()
    with no_waiting():
        both(*given)


@dtypes
@pytest.mark.parametrize("fn", FUNCTIONS, ids=str)
def test_graph(climb, changes, fn, dtype):
    """A captured search gives what it gives when it is called, from other starts too."""
    climbed, start, first, ball = climb(dtype, fn)
    other = changes(24, 4, 40, dtype=dtype)[:, 1:].contiguous()
    starts = [(start.clone(), first.delta.clone()), (other, other[:, 0].clone())]
    rtol = {torch.float32: 1e-3, torch.float64: 1e-9}[dtype]
    expected = []
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # warm: libraries, and what kernels ask for once
        for given, point in starts:
            expected.append(both(climbed, given, Point(point, first.value), ball))
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = both(climbed, start, first, ball)
    for (given, point), wanted in zip(starts, expected, strict=True):
        start.copy_(given)
        first.delta.copy_(point)
        graph.replay()
        once = [x.clone() for x in out]
        graph.replay()
        for a, b, c in zip(once, out, wanted, strict=True):
            assert torch.equal(a, b)
            torch.testing.assert_close(a, c, rtol=rtol, atol=rtol)


def test_graph_of_features(text):
    X, W = text(40, 64, texts=2)
    queries = (X @ W)[:, None].contiguous()
    fused_features(X, queries, SOFTMAX, None, 0.1)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        phi = fused_features(X, queries, SOFTMAX, None, 0.1)
    X *= -1
    graph.replay()
    assert torch.equal(phi, fused_features(X, queries, SOFTMAX, None, 0.1))
