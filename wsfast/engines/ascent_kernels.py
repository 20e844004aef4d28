"""The closed form with torch's matrix products and one compiled kernel between any two of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from wsfast.attention.functional import FunctionalState
from wsfast.attention.state import BilinearState, HeadState, PositionState
from wsfast.engines import compiled
from wsfast.engines.engine import PATIENCE, Climb, Climber
from wsfast.engines.features import aligned

_SCALARS = 5  # kScalars of csrc/arguments.h

_ALIGNED = 64  # bytes, to which torch allocates


def position_struct(
    kernels: compiled.Kernels, state: PositionState, starts: int, held: dict[str, Tensor]
) -> Any:
    """The kernels' view of the positions that `held` has, contiguous, and keeps alive.

    Those of `state`, or of several alike.
    """
    names = (
        "index", "word", "logit", "a", "b", "inv_b", "c2", "reach", "own_logit", "own_a",
        "own_top", "dominated_start", "dominated_row", "dominated_mean",
    )  # fmt: skip
    return kernels.struct("PositionState", state.word.dtype)(
        weight_fn=state.weight_fn.code,
        curve=state.weight_fn.curve,
        positions=len(held["index"]),
        starts=starts,
        n=state.n,
        d=state.d,
        others=held["rest"].data_ptr(),
        **{name: held[name].data_ptr() for name in names},
    )


class _Rows:
    """One row for each point of some texts, and the rows of each text by themselves.

    A matrix product may round otherwise where its matrices lie otherwise: those of a text lie as
    they would if it were alone.
    """

    def __init__(self, counts: Sequence[int], width: int, like: Tensor) -> None:
        self.all = like.new_empty(sum(counts), width)
        self._views = self.all.split(list(counts))
        self._apart = any(view.data_ptr() % _ALIGNED for view in self._views)
        self.each: Sequence[Tensor] = self._views
        if self._apart:
            self.each = [like.new_empty(count, width) for count in counts]

    def gather(self) -> None:
        """Products have written the rows of each text; `all` is read next."""
        if self._apart:
            torch.cat(list(self.each), out=self.all)

    def scatter(self) -> None:
        """The other way round."""
        if self._apart:
            for own, view in zip(self.each, self._views, strict=True):
                own.copy_(view)


class OfWords:
    """The change of φ, and its gradient, of words that are their own keys and values.

    At `starts` points for each position of the states, which are of texts of one length: a kernel
    meets all of them, and each has products of its own, so that none depends on the others. Holds
    the work space, so that a step of the search allocates nothing.
    """

    _before = 0  # of products: columns for each word before those of the stack

    def __init__(self, states: Sequence[BilinearState], starts: int) -> None:
        state = states[0]
        n, d, word = state.n, state.d, state.word
        self._kernels = compiled.kernels(word.device)
        self._held = _joined(states)
        self._matrices = [
            (one.words.contiguous(), one.stack.contiguous(), one.bilinear.contiguous())
            for one in states
        ]
        self._state = position_struct(self._kernels, state, starts, self._held)
        self._rows_type = self._kernels.struct("AscentRows", word.dtype)
        counts = self._counts = [len(one.index) * starts for one in states]
        rows = sum(counts)
        self._shape = (rows // starts, starts)
        # What a point is multiplied into lies side by side for the kernels.
        parts = (self._before * n, 3 * n, d)
        self._products = _Rows(counts, sum(parts), word)
        by = [product.split(parts, 1)[1:] for product in self._products.each]
        self._by_rows, self._by_bilinear = zip(*by, strict=True)
        self._gradient, self._own_delta = _Rows(counts, d, word), _Rows(counts, d, word)
        self._own_change, self._own_products = _Rows(counts, n, word), _Rows(counts, n, word)
        self._own_weight = word.new_empty(rows, n)
        exponential = state.weight_fn.exponential
        self._own_slope = self._own_weight if exponential else word.new_empty(rows, n)
        self._dominated_coef = word.new_empty(starts, len(self._held["dominated_row"]))
        self._scalars = word.new_empty(rows, _SCALARS)
        self._value, self._size = word.new_empty(2, rows)

    def squared_norms(self, delta: Tensor) -> tuple[Tensor, Tensor]:
        """As `closed_form.squared_norms`; the tensors returned are overwritten by the next call."""
        flat = self._flat(delta)
        rows = self._rows_at(flat, with_size=True)
        self._multiply(flat)
        self._kernels.launch("delta_norms", self._state, rows)
        self._own_row(rows)
        return self._value.view(self._shape), self._size.view(self._shape)

    def value_and_gradient(self, delta: Tensor) -> tuple[Tensor, Tensor]:
        """Σ_j ‖δ_j‖² (P, s) and its gradient (P, s, D); overwritten by the next call."""
        flat = self._flat(delta)
        rows = self._rows_at(flat, with_size=False)
        self._multiply(flat)
        self._kernels.launch("ascent_forward", self._state, rows)
        self._own_row(rows)
        own_delta, own_products = self._own_delta, self._own_products
        own_delta.scatter()
        for (words, _, _), by, into in self._of_texts(own_delta.each, own_products.each):
            torch.mm(by, words.mT, out=into)
        own_products.gather()
        self._kernels.launch("ascent_backward", self._state, rows, own_products.all.data_ptr())
        self._products.scatter()
        for (_, stack, _), by, into in self._of_texts(self._by_rows, self._gradient.each):
            torch.mm(by, stack, out=into)
        self._gradient.gather()
        gradient = self._gradient.all
        self._kernels.launch(
            "ascent_gradient", self._state, rows, own_delta.all.data_ptr(), gradient.data_ptr()
        )
        return self._value.view(self._shape), gradient.view(*self._shape, -1)

    def _flat(self, delta: Tensor) -> Tensor:
        """Δ (P, s, d) as kernels read it, a row for each point; kept alive until the next call."""
        flat = self._held["delta"] = delta.reshape(-1, delta.shape[-1]).contiguous()
        return flat

    def _rows_at(self, flat: Tensor, *, with_size: bool) -> Any:
        return self._rows_type(
            delta=flat.data_ptr(),
            products=self._products.all.data_ptr(),
            own_weight=self._own_weight.data_ptr(),
            own_change=self._own_change.all.data_ptr(),
            own_slope=self._own_slope.data_ptr(),
            dominated_coef=self._dominated_coef.data_ptr(),
            scalars=self._scalars.data_ptr(),
            value=self._value.data_ptr(),
            size=self._size.data_ptr() if with_size else 0,
        )

    def _multiply(self, flat: Tensor) -> None:
        points = [flat]
        if len(self._counts) > 1:
            points = [part.clone() for part in flat.split(self._counts)]
        for (_, stack, _), by, into in self._of_texts(points, self._by_rows):
            torch.mm(by, stack.mT, out=into)
        for (_, _, bilinear), by, into in self._of_texts(points, self._by_bilinear):
            torch.mm(by, bilinear, out=into)
        self._products.gather()

    def _own_row(self, rows: Any) -> None:
        self._own_change.scatter()
        for (words, _, _), by, into in self._of_texts(self._own_change.each, self._own_delta.each):
            torch.mm(by, words, out=into)
        self._own_delta.gather()
        self._kernels.launch("own_row", self._state, rows, self._own_delta.all.data_ptr())

    def _of_texts(
        self, by: Sequence[Tensor], into: Sequence[Tensor]
    ) -> Iterable[tuple[tuple[Tensor, Tensor, Tensor], Tensor, Tensor]]:
        """Words, stack and bilinear form of each text, its rows of a product and of the result."""
        return zip(self._matrices, by, into, strict=True)


class _Batch(NamedTuple):
    """The matrices of T texts with m points each, and their part of the work space."""

    rows: Tensor  # (T, 4n + d, d) words, stack, bilinear form
    gram: Tensor  # (T, n, n) of the words
    here: slice  # their points
    products: Tensor  # (T, m, 4n + d)
    own_change: Tensor  # (T, m, n)
    by_gram: Tensor  # (T, m, n)
    gradient: Tensor  # (T, m, d)


class OfWordsByGram(OfWords, Climber):
    """As `OfWords`, on CUDA: the own row by the Gram matrix of the words, and whole steps.

    A step is three products, of all texts that have as many points, and three kernels; the host
    waits for none of them (docs/design.md, section 6). Rows are filled up to whole packs of 16
    bytes.
    """

    _before = 1  # Δ Xᵀ

    def __init__(self, states: Sequence[BilinearState], starts: int) -> None:
        self._d = states[0].d
        super().__init__([_in_whole_packs(state) for state in states], starts)
        n, counts = states[0].n, self._counts
        alike = len(set(counts)) == 1
        groups = [self._matrices] if alike else [[matrices] for matrices in self._matrices]
        self._batches: list[_Batch] = []
        first = 0
        for texts in groups:
            rows = torch.stack([torch.cat(matrices) for matrices in texts])
            last = first + len(texts) * counts[len(self._batches)]
            here, first = slice(first, last), last
            work = (self._products, self._own_change, self._own_products, self._gradient)
            parts = [of.all[here].unflatten(0, (len(texts), -1)) for of in work]
            self._batches.append(_Batch(rows, rows[:, :n] @ rows[:, :n].mT, here, *parts))

    def value_and_gradient(self, delta: Tensor) -> tuple[Tensor, Tensor]:
        climb = Climb.start(delta)  # whose first step is accepted
        self.climb(climb, 1, None, 1.0)
        return climb.value, climb.gradient

    def climb(self, climb: Climb, steps: int, tol: float | None, radius: float) -> Tensor:
        for name, value in vars(climb).items():
            setattr(climb, name, aligned(value) if value.dim() == 3 else value.contiguous())
        flat = climb.trial.view(-1, climb.trial.shape[-1])
        dtype = flat.dtype
        rows, points = self._rows_at(flat, with_size=False), self._of_batches(flat)
        step = step_struct(self._kernels, climb, self._value, self._gradient.all, radius)
        taken = torch.zeros(len(flat), dtype=torch.int64, device=flat.device)
        ended = torch.zeros(len(flat), dtype=torch.uint8, device=flat.device)
        history = flat.new_empty(len(flat), PATIENCE)
        stalls = self._kernels.struct("Stalls", dtype)(
            least=(1 + (tol or 0.0)) ** 2,
            history=history.data_ptr(),
            taken=taken.data_ptr(),
            ended=0 if tol is None else ended.data_ptr(),
        )
        for _ in range(steps):
            self._evaluate(points, rows)
            self._kernels.launch("ascent_step", self._state, rows, step, stalls)
        for name, value in vars(climb).items():
            setattr(climb, name, value[..., : self._d] if value.dim() == 3 else value)
        return taken

    def _evaluate(self, points: Sequence[Tensor], rows: Any) -> None:
        """All of the value, and of the gradient what is a product."""
        n = self._own_weight.shape[1]
        for of, by in zip(self._batches, points, strict=True):
            torch.bmm(by, of.rows.mT, out=of.products)
        self._kernels.launch("ascent_forward", self._state, rows)
        for of in self._batches:
            torch.bmm(of.own_change, of.gram, out=of.by_gram)
        self._kernels.launch(
            "ascent_backward", self._state, rows, self._own_products.all.data_ptr()
        )
        for of in self._batches:
            torch.bmm(of.products[..., : 4 * n], of.rows[:, : 4 * n], out=of.gradient)

    def _of_batches(self, flat: Tensor) -> list[Tensor]:
        """The points of each batch, (T, m, d)."""
        return [flat[of.here].unflatten(0, (len(of.rows), -1)) for of in self._batches]

    def _flat(self, delta: Tensor) -> Tensor:
        flat = self._held["delta"] = aligned(delta.reshape(-1, self._d))
        return flat


def _in_whole_packs(state: BilinearState) -> BilinearState:
    """The same problem with zeros behind each row, as many as kernels want."""
    state = replace(state, word=aligned(state.word), dominated_mean=aligned(state.dominated_mean))
    if state.word.shape[1] == state.d:
        return state
    return replace(
        state,
        words=aligned(state.words),
        stack=aligned(state.stack),
        bilinear=aligned(aligned(state.bilinear).mT),
    )


def _joined(states: Sequence[BilinearState]) -> dict[str, Tensor]:
    """What kernels read of the positions of all states, one after another."""
    if len(states) == 1:
        return _contiguous(states[0])
    names = (*states[0].per_position, "dominated_row", "dominated_mean")
    joined = {name: torch.cat([getattr(state, name) for state in states]) for name in names}
    pairs = torch.cat([state.dominated_start.diff() for state in states]).cumsum(0)
    return joined | {"dominated_start": torch.cat([pairs.new_zeros(1), pairs])}


class OfHead:
    """The change of a head's output, and its gradient, by one kernel, products included."""

    def __init__(self, state: HeadState, starts: int, moves: Tensor | None) -> None:
        dtype, n, d_k, d = state.word.dtype, state.n, state.keys.shape[1], state.d
        r = 2 * d_k + d if moves is None else len(moves)
        self._kernels = compiled.kernels(state.word.device)
        self._held = _contiguous(state)
        self._state = position_struct(self._kernels, state, starts, self._held)
        self._points_type = self._kernels.struct("HeadPoints", dtype)
        self._shape = (len(state.index), starts)
        points = math.prod(self._shape)
        if not state.made:
            for name in ("queries", "outputs", "keys"):
                state.made.update(_panels(name, getattr(state, name)))
            state.made.update(_panels("values", state.words))
        self._panels = state.made | ({} if moves is None else _panels("moves", moves))
        head_work = getattr(self._kernels.module, compiled.variant("head_work", dtype))
        self._work = state.word.new_empty(head_work(points, n, d_k, d, r))
        self._value, self._size = state.word.new_empty(2, *self._shape)
        self._gradient = state.word.new_empty(*self._shape, r)
        self._fixed = {"moves": 0, "moves_t": 0}
        self._fixed |= {name: panels.data_ptr() for name, panels in self._panels.items()}
        self._fixed |= {
            "d_k": d_k,
            "r": r,
            "value": self._value.data_ptr(),
            "gradient": self._gradient.data_ptr(),
            "work": self._work.data_ptr(),
        }

    def squared_norms(self, delta: Tensor) -> tuple[Tensor, Tensor]:
        """As `closed_form.squared_norms`; the tensors returned are overwritten by the next call."""
        self._run(delta, size=self._size.data_ptr())
        return self._value, self._size

    def value_and_gradient(self, delta: Tensor) -> tuple[Tensor, Tensor]:
        """Σ_j ‖δ_j‖² (P, s) and its gradient (P, s, r); overwritten by the next call."""
        self._run(delta, size=0)
        return self._value, self._gradient

    def _run(self, delta: Tensor, size: int) -> None:
        given = delta.contiguous()
        points = self._points_type(delta=given.data_ptr(), size=size, **self._fixed)
        self._kernels.launch("head_points", self._state, points)


def _panels(name: str, matrix: Tensor) -> dict[str, Tensor]:
    """A matrix (rows, columns) and its transpose as HeadPoints of csrc/arguments.h has them."""
    lanes, panels = 64 // matrix.element_size(), []
    for one in (matrix, matrix.mT):
        whole = torch.nn.functional.pad(one, (0, -one.shape[1] % lanes))
        panels.append(whole.unflatten(1, (-1, lanes)).transpose(0, 1).contiguous())
    return {name: panels[0], f"{name}_t": panels[1]}


def _contiguous(state: PositionState) -> dict[str, Tensor]:
    """One contiguous copy of each array, which lives as long as the kernels may read it."""
    return {
        name: value.contiguous() for name, value in vars(state).items() if isinstance(value, Tensor)
    }


class NativeFunctional:
    """The functional of a state by one compiled kernel between two products; CPU only.

    Holds the work space, so that a step of the search allocates nothing.
    """

    def __init__(self, functional: FunctionalState, starts: int) -> None:
        state = functional.state
        kind: Any = {"dtype": state.word.dtype, "device": state.word.device}
        self._kernels = compiled.kernels(state.word.device)
        # One contiguous copy of each array lives as long as the kernel may read it.
        self._held = held = {
            name: value.contiguous()
            for name, value in (*vars(state).items(), *vars(functional).items())
            if isinstance(value, Tensor)
        }
        n, d, positions = state.n, state.d, len(state.index)
        self._state = position_struct(self._kernels, state, starts, held)
        self._rows_type = self._kernels.struct("FunctionalRows", state.word.dtype)
        self._shape = (positions, starts)
        count = positions * starts
        self._products = torch.empty(count, 3 * n + d, **kind)
        self._by_rows, self._by_bilinear = self._products.split((3 * n, d), 1)
        self._own_weight, self._own_change, self._own_slope = torch.empty(3, count, n, **kind)
        self._value = torch.empty(count, **kind)
        self._gradient = torch.empty(count, d, **kind)

    def value_and_gradient(self, delta: Tensor) -> tuple[Tensor, Tensor]:
        """For Δ (P, s, d): values (P, s) and gradient (P, s, d); overwritten by the next call."""
        flat = delta.reshape(-1, delta.shape[-1]).contiguous()
        stack = self._held["stack"]
        torch.mm(flat, stack.mT, out=self._by_rows)
        torch.mm(flat, self._held["bilinear"], out=self._by_bilinear)
        arguments = self._rows_type(
            by_shift=self._held["by_shift"].data_ptr(),
            by_word=self._held["by_word"].data_ptr(),
            delta=flat.data_ptr(),
            products=self._products.data_ptr(),
            own_weight=self._own_weight.data_ptr(),
            own_change=self._own_change.data_ptr(),
            own_slope=self._own_slope.data_ptr(),
            value=self._value.data_ptr(),
        )
        self._kernels.launch("functional_ascent", self._state, arguments)
        # What the bilinear form adds lies where its product lay.
        torch.addmm(self._by_bilinear, self._by_rows, stack, out=self._gradient)
        return self._value.view(self._shape), self._gradient.view(*self._shape, -1)


def step_struct(
    kernels: compiled.Kernels, climb: Climb, value: Tensor, gradient: Tensor, radius: float
) -> Any:
    """The kernels' view of a climb, whose trial has this value and gradient."""
    return kernels.struct("StepRows", climb.trial.dtype)(
        rows=climb.value.numel(),
        d=climb.trial.shape[-1],
        radius=radius,
        delta=climb.trial.data_ptr(),
        gradient=gradient.data_ptr(),
        value=value.data_ptr(),
        best_delta=climb.delta.data_ptr(),
        best_gradient=climb.gradient.data_ptr(),
        best_value=climb.value.data_ptr(),
        beta=climb.beta.data_ptr(),
        risen=climb.risen.data_ptr(),
    )


def take_step(climb: Climb, value: Tensor, gradient: Tensor, radius: float) -> None:
    """As `Engine.take_step`, in place."""
    kernels = compiled.kernels(climb.trial.device)
    kernels.launch("take_step", step_struct(kernels, climb, value, gradient, radius))
