"""Generalisation experiments: the means of their figures as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wsfast.report.digits import column
from wsfast.report.table import aligned, counted
from wsfast.results.arrays import to_numpy

if TYPE_CHECKING:
    from wsfast.results.generalization import GeneralizationResult

_FIGURES = ("loss", "error", "alignment", "gamma")


def describe(result: GeneralizationResult) -> str:
    """What there is, then a line of means for each training and loss."""
    lines = [["training", "minimised", *_FIGURES]]
    shape = (-1, len(result.trainings), len(result.losses))
    means = [to_numpy(getattr(result, name)).reshape(shape).mean(0) for name in _FIGURES]
    names = [[training, loss] for training in result.trainings for loss in result.losses]
    columns = [column(mean.ravel().tolist(), 4) for mean in means]
    lines += [[*name, *cells] for name, *cells in zip(names, *columns, strict=True)]
    sizes = [counted(int(result.error.shape[k]), axis[:-1]) for k, axis in enumerate(result.axes)]
    of = f", means over {' and '.join(sizes)}" if sizes else ""
    facts = [f"{result.info['map']}", f"N = {result.info['N']}", f"radius {result.radius:.4g}"]
    table = "\n".join("  " + line for line in aligned(lines, {0, 1}))
    return f"GeneralizationResult({', '.join(facts)}{of}\n{table})"
