"""What the closed form is computed with: by PyTorch's own operations, or faster ones.

An engine is chosen once, in `engines.choose`; nothing above asks which one it has.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from wsfast._counter_random import random_block
from wsfast.attention import closed_form, functional, sites
from wsfast.attention.core import Core
from wsfast.attention.functional import FunctionalState
from wsfast.attention.rows import Rows, RowStatistics, attend_by_tiles, left_top_out, rows_of
from wsfast.attention.sites import SiteState
from wsfast.attention.state import PositionState
from wsfast.attention.substitution import Squares, SubstitutionState
from wsfast.attention.substitution_tiles import TorchTiles
from wsfast.attention.turns import RowTurns, turn_rows
from wsfast.attention.weight_fn import WeightFn
from wsfast.bound import ball, certificate, multipliers
from wsfast.bound.ball import SmoothBall
from wsfast.bound.certificate import RowMaxima
from wsfast.bound.form import Form, Multipliers
from wsfast.bound.grid import Nodes
from wsfast.bound.multipliers import Path, Slopes, Step
from wsfast.bound.pairs import Pairs
from wsfast.bound.shape import Shape
from wsfast.engines.features import FeatureOptions, by_definition, by_pytorch
from wsfast.engines.substitution_kernels import Workspace

RANDOM_BLOCK = 1 << 20
"""Random numbers that are made, used and dropped at a time."""


PATIENCE = 4
"""A place is done when its last steps, this many, have together raised the norm by less than `tol`.

A step refused halves the next, so a few in a row say little.
"""


def stalled(history: list[Tensor], value: Tensor, tol: float) -> Tensor:
    """Whether `value` (P,) has hardly risen over the last steps, whose values are `history`."""
    history.append(value.clone())
    if len(history) <= PATIENCE:
        return torch.zeros_like(value, dtype=torch.bool)
    return value <= history.pop(0) * (1 + tol) ** 2


class Evaluator(Protocol):
    """Evaluates an objective at P positions, s points Δ each."""

    def value_and_gradient(self, delta: Tensor) -> tuple[Tensor, Tensor]:
        """For Δ (P, s, d): the values (P, s) and their gradient (P, s, d)."""


class InTurn:
    """Evaluators of parts of some positions, one after another, as one of all of them.

    Parameters
    ----------
    parts : sequence of Evaluator
    counts : sequence of int
        Positions of each part.
    """

    def __init__(self, parts: Sequence[Evaluator], counts: Sequence[int]) -> None:
        self._parts, self._counts = parts, list(counts)

    def value_and_gradient(self, delta: Tensor) -> tuple[Tensor, Tensor]:
        """As of an evaluator."""
        each = [
            part.value_and_gradient(own)
            for part, own in zip(self._parts, delta.split(self._counts), strict=True)
        ]
        values, gradients = zip(*each, strict=True)
        return torch.cat(values), torch.cat(gradients)


class Tiles(Protocol):
    """Evaluates tiles of candidates at P positions."""

    def squares(
        self, candidates: Tensor, self_scores: Tensor, threshold: Tensor | None = None
    ) -> Squares:
        """For candidates (m, d) and v·Wv/√d (m,); overwritten by the next call of any text.

        Where the norm surely is below `threshold` (P,), the square may be any smaller number.
        """


@dataclass
class Climb:
    """Monotone ascent from Δ (P, s, d): the best so far, its gradient, step sizes and momentum."""

    trial: Tensor  # (P, s, d) the next to try
    delta: Tensor  # (P, s, d) the best
    gradient: Tensor  # (P, s, d) there
    value: Tensor  # (P, s)
    beta: Tensor  # (P, s)
    risen: Tensor  # (P, s) steps in a row that rose; -inf without momentum

    @classmethod
    def start(cls, delta: Tensor, *, momentum: bool = True) -> Climb:
        """From `delta` (P, s, d), whose values are not known yet."""
        trial = delta.clone(memory_format=torch.contiguous_format)
        value = torch.full(delta.shape[:2], -torch.inf, dtype=delta.dtype, device=delta.device)
        still = torch.zeros_like(trial)
        beta = torch.ones_like(value)
        risen = torch.full_like(value, 0.0 if momentum else -torch.inf)
        return cls(trial, trial.clone(), still, value, beta, risen)

    def select(self, keep: Tensor) -> Climb:
        """That of the positions numbered `keep` alone."""
        return Climb(*(value[keep] for value in vars(self).values()))

    def put(self, keep: Tensor, part: Climb) -> None:
        """Take what positions have come to that have gone on by themselves."""
        for name, value in vars(self).items():
            setattr(self, name, value.index_copy(0, keep, getattr(part, name)))

    def or_better(self, other: Climb, where: Tensor) -> None:
        """Go on as `other` at positions `where` (P,) it has come higher, each from one start."""
        rose = where & (other.value > self.value)[:, 0]
        for name, value in vars(self).items():
            wide = rose.view(-1, *[1] * (value.dim() - 1))
            setattr(self, name, torch.where(wide, getattr(other, name), value))

    def best(self, count: int) -> None:
        """Keep the best starts alone, so many at each position."""
        if count >= self.value.shape[1]:
            return
        P, starts = self.value.shape
        first = torch.arange(0, P * starts, starts, device=self.value.device)
        best = (first[:, None] + self.value.topk(count, 1).indices).flatten()
        for name, value in vars(self).items():
            setattr(self, name, value.flatten(0, 1)[best].unflatten(0, (P, count)))


class Climber(ABC):
    """An evaluator that takes the steps of a climb itself; the host waits for none of them."""

    @abstractmethod
    def climb(self, climb: Climb, steps: int, tol: float | None, radius: float) -> Tensor:
        """As `Engine.go_on`, or with `tol` as `Engine.until_still`: the steps (M,) taken."""


@dataclass(frozen=True)
class RandomPlane:
    """The entries of one plane of random weights: those of a word, or of a deeper layer."""

    seed: int
    draw: int
    plane: int
    scale: float


def value_and_gradient_of(
    value: Callable[[Tensor], Tensor], delta: Tensor
) -> tuple[Tensor, Tensor]:
    """`value` of Δ (..., d) and its gradient, by autograd."""
    with torch.enable_grad():
        moving = delta.detach().requires_grad_()
        values = value(moving)
        (gradient,) = torch.autograd.grad(values.sum(), moving)
    return values.detach(), gradient


class ByAutograd:
    """A function of Δ (P, s, d) in PyTorch operations, its gradient by autograd."""

    def __init__(self, value: Callable[[Tensor], Tensor]) -> None:
        self._value = value

    def value_and_gradient(self, delta: Tensor) -> tuple[Tensor, Tensor]:
        return value_and_gradient_of(self._value, delta)


class Engine:
    """PyTorch's own operations, which run anywhere and have gradients.

    Other engines override what they have kernels for; what they lack falls back to this by itself.

    Attributes
    ----------
    backend : str
        Its public name.
    closed_form : bool
        Whether it evaluates the closed form; False: the definition.
    waits : bool
        Whether a step of the search may look at values; False: the host runs ahead of the device.
    joins : int
        Pairs of a place and a word up to which `norms_of_texts` is faster than one text after
        another; 0 where it is not.
    """

    backend = "torch"
    closed_form = True
    waits = True
    joins = 0

    def __repr__(self) -> str:
        return f"<engine {self.backend}>"

    def features(self, X: Tensor, queries: Tensor, given: FeatureOptions) -> Tensor:
        """φ (B, R, n, d) of words X (B, n, d) and queries XW (B, R, n, d), which may be lost.

        Rows of masked words may be anything.
        """
        fn = given.weight_fn
        if fn.exponential:
            return by_pytorch(X, queries, given.mask, causal=given.causal)
        return by_definition(X, queries, given)

    def rows(self, core: Core, budget: int) -> Rows:
        """The rows of a text, within `budget` bytes of temporaries."""
        # Scores, weights and what the plain softmax needs of either: about four arrays at a time.
        tile = max(1, budget // (4 * 8 * len(core.values)))
        leave_top_out = self._left_top_out
        return rows_of(core, lambda words, _: attend_by_tiles(core, words, tile, leave_top_out))

    def _left_top_out(self, scores: Tensor, weight_fn: WeightFn) -> tuple[RowStatistics, Tensor]:
        """See `LeaveTopOut`; `scores` may be lost."""
        return left_top_out(scores, weight_fn)

    def squared_norms(
        self, state: PositionState, delta: Tensor, *, own: bool = True
    ) -> tuple[Tensor, Tensor]:
        """‖φ(X^i(Δ)) - φ(X)‖² (P, s) for Δ (P, s, d), and the size of the terms it is a sum of.

        Of all rows or, without `own`, of the rows j ≠ i.
        """
        return closed_form.squared_norms(state, delta, own=own)

    def norms(self, state: PositionState, starts: int, moves: Tensor | None = None) -> Evaluator:
        """Evaluator of ‖φ(X^i(Δ)) - φ(X)‖², at `starts` points for each position.

        With `moves` (d, D), of a head, the state changes by Δ · moves.
        """

        def squares(delta: Tensor) -> Tensor:
            by = delta if moves is None else delta @ moves
            return closed_form.squared_norms(state, by)[0]

        return ByAutograd(squares)

    def norms_of_texts(self, states: Sequence[PositionState], starts: int) -> Evaluator:
        """As `norms`, for the positions of texts of one length; no text depends on another."""
        each = [self.norms(state, starts) for state in states]
        return InTurn(each, [len(state.index) for state in states])

    def site_norms(self, state: SiteState) -> Evaluator:
        """Evaluator of ‖φ(X') - φ(X)‖² at sites of m words, for Δ (P, s, m d)."""
        m = state.at.shape[1]
        return ByAutograd(lambda delta: sites.searched(state, delta.unflatten(-1, (m, -1))))

    def functional(self, state: FunctionalState, starts: int) -> Evaluator:
        """Evaluator of ⟨φ(X^i(Δ)) - φ(X), Θ⟩, likewise."""
        return ByAutograd(partial(functional.values, state))

    def take_step(
        self, climb: Climb, value: Tensor, gradient: Tensor, radius: float, balls: int = 1
    ) -> None:
        """Accept or refuse the trial, whose `value` (P, s) and `gradient` are known; set the next.

        Δ is made of so many `balls`, one after the other. See docs/design.md, section 3.
        """
        rose = value > climb.value
        move = torch.where(rose[..., None], climb.trial - climb.delta, 0.0)
        climb.risen = torch.where(rose, climb.risen + 1, climb.risen.clamp(max=0))
        climb.value = torch.where(rose, value, climb.value)
        climb.delta = torch.where(rose[..., None], climb.trial, climb.delta)
        climb.gradient = torch.where(rose[..., None], gradient, climb.gradient)
        climb.beta = torch.where(rose, (2 * climb.beta).clamp(max=1), climb.beta / 2)
        upwards, delta = (x.unflatten(-1, (balls, -1)) for x in (climb.gradient, climb.delta))
        norm = upwards.norm(dim=-1, keepdim=True)
        beta = climb.beta[..., None, None]
        pull = upwards * (beta * radius / torch.where(norm > 0, norm, 1.0))
        again = (climb.risen - 1).clamp(min=0)
        carry = again / (again + 3)
        moved = (1 - beta) * delta + pull + (carry[..., None] * move).unflatten(-1, (balls, -1))
        # Stay on the sphere while the objective rises outwards; else walk inside the ball, which is
        # convex.
        outwards = (upwards * delta).sum(-1, keepdim=True)
        length = delta.norm(dim=-1, keepdim=True)
        now = moved.norm(dim=-1, keepdim=True)
        onto = ((outwards >= 0) & (length >= 0.999 * radius)) | (now > radius)
        moved = torch.where(onto & (now > 0), moved * (radius / now), moved)
        climb.trial = torch.where(norm > 0, moved, delta).flatten(-2)

    def go_on(
        self, evaluator: Evaluator, climb: Climb, steps: int, radius: float, balls: int = 1
    ) -> None:
        """Take `steps` steps from every start of a climb."""
        if isinstance(evaluator, Climber):
            evaluator.climb(climb, steps, None, radius)
            return
        for _ in range(steps):
            self.take_step(climb, *evaluator.value_and_gradient(climb.trial), radius, balls)

    def until_still(
        self,
        evaluator: Evaluator,
        climb: Climb,
        steps: int,
        tol: float,
        radius: float,
        balls: int = 1,
    ) -> Tensor:
        """As `go_on`, of one start each, but a place that has stopped rising stays where it is.

        Returns the steps (P,) that each place took. No value is looked at.
        """
        if isinstance(evaluator, Climber):
            return evaluator.climb(climb, steps, tol, radius)
        history: list[Tensor] = []
        value, delta = climb.value, climb.delta
        done = torch.zeros_like(value[:, 0], dtype=torch.bool)
        taken = torch.zeros_like(done, dtype=torch.int64)
        for step in range(1, steps + 1):
            self.go_on(evaluator, climb, 1, radius, balls)
            taken = taken + ~done
            still = stalled(history, climb.value[:, 0], tol) | (step == steps)
            ended = (still & ~done)[:, None]
            value = torch.where(ended, climb.value, value)
            delta = torch.where(ended[..., None], climb.delta, delta)
            done = done | ended[:, 0]
        climb.value, climb.delta = value, delta
        return taken

    def turn_rows(self, turns: RowTurns, delta: Tensor) -> Tensor:
        """See `turns.turn_rows`."""
        return turn_rows(turns, delta)

    def bound_rows(
        self, pairs: Pairs, shape: Shape, by: Multipliers, grid: Nodes, *, proof: bool
    ) -> RowMaxima:
        """See `certificate.row_maxima`."""
        return certificate.row_maxima(pairs, shape, by, grid, proof=proof)

    def bound_ball(
        self,
        index: Tensor,
        shape: Shape,
        form: Form,
        lam: Tensor,
        smooth: Tensor,
        radius: Tensor,
    ) -> SmoothBall:
        """See `ball.smooth_ball`."""
        return ball.smooth_ball(index, shape, form, lam, smooth, radius)

    def bound_step(self, pairs: Pairs, path: Path, slopes: Slopes, step: Step) -> None:
        """See `multipliers.take_step`."""
        multipliers.take_step(pairs, path, slopes, step)

    def tiles(
        self, state: SubstitutionState, columns: int, budget: int, workspace: Workspace
    ) -> Tiles:
        """Evaluator of tiles of at most `columns` candidates; temporaries take `budget` bytes.

        `workspace` is what all texts share.
        """
        return TorchTiles(state, budget)

    def fill_random(self, out: Tensor, plane: RandomPlane, first: int) -> None:
        """Fill `out` (rows, cols) with the rows from number `first` of a plane of weights."""
        for block in out.split(max(1, RANDOM_BLOCK // out.shape[1])):
            rows, cols = block.shape
            normals = random_block(
                plane.seed, plane.draw, plane.plane, first, rows, cols, out.device
            )
            torch.mul(normals.to(out.dtype), plane.scale, out=block)
            first += len(block)

    def random_product(self, z: Tensor, plane: RandomPlane, words: Tensor) -> bool:
        """Add V_i x to `z` (B, k) for words x (B, d), V_i a plane that is not formed.

        False, and nothing is added, where V_i is better formed.
        """
        return False

    def bytes_of_point(self, n: int, d: int, *, smoothed: bool) -> int:
        """Bytes that a step needs for each point; `smoothed`: with smooth objectives beside it."""
        kept = 12 if smoothed else 6  # by autograd, of the forward pass
        return kept * _row_bytes(n, d)


class Reference(Engine):
    """The definition: of the closed form nothing is asked of it, but the steps of a search."""

    backend = "reference"
    closed_form = False

    def features(self, X: Tensor, queries: Tensor, given: FeatureOptions) -> Tensor:
        return by_definition(X, queries, given)

    def bytes_of_point(self, n: int, d: int, *, smoothed: bool) -> int:
        return _row_bytes(n, d)


TORCH = Engine()
REFERENCE = Reference()


def _row_bytes(n: int, d: int) -> int:
    return (11 * n + 8 * d) * 8
