"""The estimate of the time, with a clock of our own."""

from __future__ import annotations

import pytest

from wsfast.reproduce import estimate
from wsfast.reproduce.estimate import Work


@pytest.fixture
def sleep(monkeypatch):
    """A function that takes as long as it is told, and the list of what it was told."""
    now, told = [0.0], []

    def sleep(seconds):
        told.append(seconds)
        now[0] += seconds

    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    return sleep, told


def test_the_largest_quick_piece_is_scaled(sleep):
    call, told = sleep
    pieces = [(operations, lambda s=seconds: call(s)) for operations, seconds in
              [(1, 0.1), (10, 0.5), (100, 4.0), (1000, 40.0)]]  # fmt: skip
    # After 0.5 s for 10 operations, 100 would take 5 s.
    assert estimate.seconds([Work("a", 4000, pieces)]) == {"a": pytest.approx(200)}
    assert told == [0.1, 0.1, 0.5, 0.5]


def test_a_long_piece_is_timed_once(sleep):
    call, told = sleep
    work = Work("a", 10, [(2, lambda: call(30.0)), (4, lambda: call(60.0))])
    assert estimate.seconds([work]) == {"a": pytest.approx(150)}
    assert told == [30.0]


def test_the_first_call_may_be_slow(sleep):
    call, _ = sleep
    times = iter([0.9, 0.2])
    assert estimate.timed(lambda: call(next(times))) == pytest.approx(0.2)


def test_announcement(capsys):
    estimate.announce({"a": 30.0, "b": 7200.0})
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("wsfast: estimate 2.0 h here (a: 30 s, b: 2.0 h)")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "0 s"), (89.0, "89 s"), (90.0, "1.5 min"), (5399.0, "90.0 min"), (5400.0, "1.5 h")],
)
def test_durations(seconds, text):
    assert estimate.duration(seconds) == text


def test_parts_of_the_bar():
    assert estimate.parts([1.0, 2.0, 1.0], 100) == [25, 50, 25]
    assert estimate.parts([5.0], 100) == [100]
    assert estimate.parts([], 100) == []
    many = estimate.parts([0.3] * 700 + [9.0], 1000)
    assert sum(many) == 1000
    assert min(many) >= 0
