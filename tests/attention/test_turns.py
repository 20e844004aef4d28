"""Turns of Δ: what they lead to is held against the change of all rows there."""

from __future__ import annotations

import pytest
import torch

import wsfast
from wsfast.attention import turns
from wsfast.attention.closed_form import squared_norms
from wsfast.attention.state import BilinearState
from wsfast.attention.weight_fn import WeightFn
from wsfast.engines.cpu import CPU
from wsfast.engines.engine import TORCH
from wsfast.maps.attention import Weights
from wsfast.maps.attention_text import AttentionMap, AttentionText


def state_of(n: int, d: int, *, scale: float = 1.0, causal: bool = False) -> BilinearState:
    generator = torch.Generator().manual_seed(n * d)
    X = torch.randn(n, d, generator=generator, dtype=torch.float64)
    W = scale * wsfast.random_weights(d, seed=n, dtype=torch.float64)
    map_ = AttentionMap(Weights(W), WeightFn("softmax"), causal=causal)
    state = AttentionText(map_, X, TORCH, 1 << 24).state(torch.arange(n))
    assert isinstance(state, BilinearState)
    return state


def changes(state: BilinearState) -> torch.Tensor:
    generator = torch.Generator().manual_seed(state.n)
    delta = torch.randn(state.n, state.d, generator=generator, dtype=torch.float64)
    return torch.nn.functional.normalize(delta, dim=1) * state.d**0.5


def others(state: BilinearState, delta: torch.Tensor) -> torch.Tensor:
    """Σ ‖δ_j‖² over the rows j ≠ i at Δ (P, s, d)."""
    return squared_norms(state, delta, own=False)[0]


@pytest.mark.parametrize(("n", "d"), [(1, 3), (3, 2), (7, 5), (20, 48)])
def test_the_first_turn_is_the_best_of_all(monkeypatch, n, d):
    monkeypatch.setattr(turns, "ROWS", 1)
    state = state_of(n, d, scale=0.1)
    assert len(state.dominated_row) == 0
    delta = changes(state)
    turned = TORCH.turn_rows(turns.row_turns(state), delta)
    directions = torch.nn.functional.normalize(state.queries, dim=1)
    attends = (state.logit + delta @ state.queries.mT).sigmoid() >= 0.5
    s = torch.where(attends, -turns.STEP, turns.STEP) * d**0.5
    every = delta[:, None] + s[..., None] * directions
    every = torch.nn.functional.normalize(every, dim=2) * d**0.5
    best = others(state, every).argmax(1)
    torch.testing.assert_close(turned, every[torch.arange(n), best])


@pytest.mark.parametrize("causal", [False, True])
def test_further_turns_change_the_other_rows_more(causal):
    """Of random Δ, which are no maxima: more by each turn, and the length stays."""
    state = state_of(24, 32, causal=causal)
    delta = changes(state)
    turned = TORCH.turn_rows(turns.row_turns(state), delta)
    assert turns.ROWS > 1
    torch.testing.assert_close(turned.norm(dim=1), delta.norm(dim=1))
    gain = others(state, turned[:, None]) / others(state, delta[:, None])
    seen = slice(-1 if causal else None)  # by other rows
    assert float(gain[seen].log().mean()) > 0.5


@pytest.mark.needs("native")
@pytest.mark.parametrize(
    ("n", "d"), [(1, 1), (1, 4), (2, 3), (9, 7), (17, 12), (70, 33), (130, 20)]
)
@pytest.mark.parametrize("scale", [0.0, 1.0, 30.0])  # no scores, some, dominated rows
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_kernel(level, n, d, scale, dtype):
    state = state_of(n, d, scale=scale, causal=n % 2 == 1)
    state = state.to(dtype, state.bilinear.to(dtype))
    delta = changes(state).to(dtype)
    by = turns.row_turns(state)
    native, plain = (engine.turn_rows(by, delta) for engine in (CPU, TORCH))
    if dtype == torch.float64:
        torch.testing.assert_close(native, plain, rtol=1e-9, atol=1e-9)
    else:  # two turns may be as good as each other
        one, other = (others(state, x[:, None]) for x in (native, plain))
        torch.testing.assert_close(one, other, rtol=1e-2, atol=1e-3)
    assert native.isfinite().all()


def test_a_part_of_the_positions_turns_alike(monkeypatch):
    state = state_of(12, 16)
    delta, by = changes(state), turns.row_turns(state)
    whole = TORCH.turn_rows(by, delta)
    monkeypatch.setattr(turns, "_NUMBERS", 3 * 12**2)
    torch.testing.assert_close(TORCH.turn_rows(by, delta), whole)


def test_the_own_row_turns_towards_its_word():
    state = state_of(20, 48)
    delta = changes(state)
    turned = torch.nn.functional.normalize(turns.turn_own(state, delta), dim=1) * 48**0.5

    def own_score(at):
        return state.moves(at[:, None]).r[:, 0].diagonal()

    assert (own_score(turned) > own_score(delta)).all()
