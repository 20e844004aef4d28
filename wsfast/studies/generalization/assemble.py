"""From what each draw gives to one result."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from wsfast._inputs import Inputs
from wsfast._warn import warn
from wsfast.maps.draws import Draws
from wsfast.results.generalization import FIGURES, GeneralizationResult
from wsfast.search.options import SearchOptions
from wsfast.studies.assemble import versions
from wsfast.studies.generalization.minimise import Change

# Condition number of ΦΦᵀ from which on a warning says that digits are lost.
_ILL_CONDITIONED = 1e12


class Asked(NamedTuple):
    """Which trainings, and which losses to minimise."""

    trainings: tuple[str, ...]
    losses: tuple[str, ...]

    @property
    def searches(self) -> int:
        """Number of different Δ for each trial and draw."""
        shared = len({"feature", "alignment"} & {*self.losses})
        return shared + len(self.trainings) * ("error" in self.losses)

    @property
    def away(self) -> bool:
        """Whether P⊥φ(X) is needed."""
        return "retraining" in self.trainings or "alignment" in self.losses


class OfDraw(NamedTuple):
    """What one draw of the weights gives."""

    figures: dict[str, list[float]]  # T·training·loss each
    changes: list[Change]  # likewise
    steps: list[int]
    condition: float
    size: int  # D


def assemble(
    of_draws: list[OfDraw],
    maps: Draws,
    count: int,
    inputs: Inputs,
    options: SearchOptions,
    asked: Asked,
) -> GeneralizationResult:
    """One result; `count` is N, the number of texts that were trained on."""
    trials, draws = len(inputs.texts), len(of_draws)
    lead = (trials,) if inputs.batched else ()
    lead = (*lead, draws) if maps.has_axis else lead
    axes = tuple(
        name for name, there in (("trials", inputs.batched), ("draws", maps.has_axis)) if there
    )
    shape = (*lead, len(asked.trainings), len(asked.losses))

    def by_trial(values: list[Tensor]) -> Any:
        """(T?, R?, training, loss, ...) from one tensor (T·training·loss, ...) a draw."""
        stacked = torch.stack(values).unflatten(1, (trials, -1)).transpose(0, 1)
        return inputs.give(stacked.reshape(*shape, *values[0].shape[1:]))

    def numbers(values: list[float], dtype: torch.dtype = torch.float64) -> Tensor:
        return torch.tensor(values, dtype=dtype, device=inputs.device)

    conditions = [one.condition for one in of_draws]
    if max(conditions) > _ILL_CONDITIONED:
        worst = max(range(draws), key=conditions.__getitem__)
        warn(
            f"ΦΦᵀ of the {count} texts has the condition number {conditions[worst]:.1e}"
            f"{f' in draw {worst}' if maps.has_axis else ''}: few digits of the outputs are sure. "
            "Leave out nearly equal texts, take fewer texts, or a map of more features"
        )
    condition = numbers(conditions)
    return GeneralizationResult(
        **{name: by_trial([numbers(one.figures[name]) for one in of_draws]) for name in FIGURES},
        position=by_trial(
            [numbers([c.position for c in one.changes], torch.int64) for one in of_draws]
        ),
        delta=by_trial([torch.stack([c.delta for c in one.changes]) for one in of_draws]),
        condition=inputs.give(condition if maps.has_axis else condition[0]),
        trainings=asked.trainings,
        losses=asked.losses,
        radius=options.radius,
        info={
            **maps.info,
            "N": count,
            "D": of_draws[0].size,
            "dtype": str(inputs.dtype).removeprefix("torch."),
            "seed": options.seed,
            "starts": options.starts,
            "max_steps": options.max_steps,
            "tol": options.tol,
            "steps": max(max(one.steps) for one in of_draws),
            "versions": versions(),
        },
        axes=axes,
    )
