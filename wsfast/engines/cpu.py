"""Compiled kernels between the matrix products, for the CPU."""

from __future__ import annotations

import torch
from torch import Tensor

from wsfast._interrupt import rows_at_once as interruptible
from wsfast.attention.functional import FunctionalState
from wsfast.attention.state import HeadState, PositionState
from wsfast.attention.turns import ROWS, STEP, RowTurns, candidates
from wsfast.bound.ball import SmoothBall
from wsfast.bound.certificate import RowMaxima
from wsfast.bound.form import Form, Multipliers
from wsfast.bound.grid import Nodes
from wsfast.bound.multipliers import DECAY, Path, Slopes, Step
from wsfast.bound.pairs import Pairs
from wsfast.bound.shape import Shape
from wsfast.engines import compiled
from wsfast.engines.ascent_kernels import NativeFunctional, OfHead, OfWords, take_step
from wsfast.engines.engine import Climb, Evaluator, RandomPlane
from wsfast.engines.features import TILE, FeatureOptions, by_tiles
from wsfast.engines.native import Native

# What `bound_rows` is given of the pairs.
_OF_PAIRS = (
    "index", "kind", "logit", "scale", "a", "inv_b", "c2", "lost", "low", "high", "alpha_low",
    "alpha_high", "reach", "reach_p", "radius", "reach_u", "others", "own",
)  # fmt: skip

# For so few words the generator multiplies its numbers itself.
_FEW = 4


class Cpu(Native):
    """Kernels of the module `_cpu`."""

    of_words = OfWords

    def evaluator(
        self, state: PositionState, starts: int, moves: Tensor | None = None
    ) -> OfWords | OfHead | None:
        if isinstance(state, HeadState) and state.plain:
            return OfHead(state, starts, moves)
        return super().evaluator(state, starts, moves)

    def features(self, X: Tensor, queries: Tensor, given: FeatureOptions) -> Tensor:
        return by_tiles(X.contiguous(), queries, given, TILE)

    def take_step(
        self, climb: Climb, value: Tensor, gradient: Tensor, radius: float, balls: int = 1
    ) -> None:
        if balls > 1:
            super().take_step(climb, value, gradient, radius, balls)
        else:
            take_step(climb, value, gradient, radius)

    def functional(self, state: FunctionalState, starts: int) -> Evaluator:
        return NativeFunctional(state, starts)

    def turn_rows(self, turns: RowTurns, delta: Tensor) -> Tensor:
        given: dict[str, Tensor] = turns._asdict()
        queries, phi, word = (given.pop(name) for name in ("queries", "phi", "word"))
        given["length"] = delta.norm(dim=1).clamp(min=torch.finfo(delta.dtype).tiny)
        changed = {
            "t": delta @ queries.mT,
            "mean": delta @ phi.mT,
            "u": (delta * word).sum(1),
            "delta": delta.clone(memory_format=torch.contiguous_format),
        }
        (positions, d), n = delta.shape, len(queries)
        size = {"positions": positions, "n": n, "d": d}
        _launch(
            "turn_rows", given, changed, **size, step=STEP, count=ROWS, candidates=candidates(n)
        )
        return changed["delta"]

    def bound_rows(
        self, pairs: Pairs, shape: Shape, by: Multipliers, grid: Nodes, *, proof: bool
    ) -> RowMaxima:
        found = RowMaxima(*(torch.empty_like(pairs.a) for _ in range(4)))
        given = {
            **{name: getattr(pairs, name) for name in _OF_PAIRS},
            **{name: value for name, value in by._asdict().items() if name != "lam"},
            "weights": shape.weights,
            "node": grid.at,
            "node_alpha": grid.alpha,
        }
        positions, n = pairs.a.shape
        _launch(
            "bound_rows",
            given,
            found._asdict(),
            relu=pairs.relu,
            proof=proof,
            positions=positions,
            n=n,
            nodes=len(grid.at),
            theta=shape.theta,
        )
        return found

    def bound_ball(
        self,
        index: Tensor,
        shape: Shape,
        form: Form,
        lam: Tensor,
        smooth: Tensor,
        radius: Tensor,
    ) -> SmoothBall:
        each, vector = torch.empty_like(lam), torch.empty_like(form.b)
        found = SmoothBall(
            lam.clone(), each, vector, torch.empty_like(vector), *(each.clone() for _ in range(2))
        )
        given = {
            "index": index,
            "eigenvalues": shape.eigenvalues,
            "words": shape.words,
            "scores": shape.scores,
            "h": form.h,
            "b": form.b,
            "kappa": form.kappa,
            "nu": form.nu,
            "weights": shape.weights,
            "smooth": smooth,
            "radius": radius,
        }
        positions, N = form.b.shape
        _launch("bound_ball", given, found._asdict(), positions=positions, N=N)
        return found

    def bound_step(self, pairs: Pairs, path: Path, slopes: Slopes, step: Step) -> None:
        given = {"index": pairs.index, "kind": pairs.kind, "size": path.size, "least": path.least}
        changed = {"at": path.at, "first": path.first, "second": path.second}
        positions, n = pairs.a.shape
        _launch(
            "bound_step",
            given | slopes._asdict(),
            changed,
            positions=positions,
            n=n,
            rate=step.rate,
            unbias=1 / (1 - DECAY[0] ** step.number),
            unbias2=1 / (1 - DECAY[1] ** step.number),
        )

    def fill_random(self, out: Tensor, plane: RandomPlane, first: int) -> None:
        for block in out.split(_random_rows(out.shape[1])):
            size = {"first_row": first, "rows": len(block), "cols": block.shape[1]}
            _random("block", out, plane, **size, out=block.data_ptr())
            first += len(block)

    def random_product(self, z: Tensor, plane: RandomPlane, words: Tensor) -> bool:
        if len(words) > _FEW:
            return False
        x = words.contiguous()
        k, d = z.shape[1], x.shape[1]
        at_once = _random_rows(d)
        for first in range(0, k, at_once):
            size = {"texts": len(x), "all_rows": k, "cols": d}
            part = {"first_row": first, "rows": min(at_once, k - first)}
            _random("product", z, plane, **size, **part, x=x.data_ptr(), z=z.data_ptr())
        return True


def _launch(
    kernel: str, given: dict[str, Tensor], found: dict[str, Tensor], **numbers: float
) -> None:
    """A kernel on tensors of one floating dtype."""
    held = {name: value.contiguous() for name, value in given.items()} | found
    like = next(iter(found.values()))
    addresses = {name: value.data_ptr() for name, value in held.items()}
    compiled.kernels(like.device).launch(kernel, **addresses, **numbers, dtype=like.dtype)


def _random_rows(cols: int) -> int:
    """Rows that one call makes; a normal costs as much as some 64 products."""
    return interruptible(64 * cols)


def _random(name: str, like: Tensor, plane: RandomPlane, **arguments: int) -> None:
    kernel = f"random_{name}{32 if like.dtype == torch.float32 else 64}"
    # Not what serves the device of other kernels: this one is compiled for the CPU alone.
    getattr(compiled.CPU.require(), kernel)(
        seed=plane.seed,
        draw=plane.draw,
        plane=plane.plane,
        scale=plane.scale,
        threads=torch.get_num_threads(),
        **arguments,
    )


CPU = Cpu()
