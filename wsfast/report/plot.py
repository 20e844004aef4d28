"""Figures and files that pictures are drawn into."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from wsfast._extras import import_extra
from wsfast._files import write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def new_axes(inches: tuple[float, float]) -> Axes:
    """Axes of a new pyplot figure."""
    ax: Axes
    _, ax = import_extra("matplotlib.pyplot", "plots").subplots(
        figsize=inches, layout="constrained"
    )
    return ax


def save_drawing(
    path: str | Path, inches: tuple[float, float], draw: Callable[[Axes], object]
) -> None:
    """Write the picture file `path` of what `draw` draws, without pyplot or a display."""
    figure = import_extra("matplotlib.figure", "plots").Figure(figsize=inches, layout="constrained")
    draw(figure.subplots())
    write_figure(figure, path)


def write_figure(figure: Figure, path: str | Path) -> None:
    """Write the picture file `path`, all of it or none, in the format that its suffix says."""
    stream = io.BytesIO()
    figure.savefig(stream, format=Path(path).suffix[1:].lower(), dpi=150)
    write_whole(Path(path), stream.getvalue())
