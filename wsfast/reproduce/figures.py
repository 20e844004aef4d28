"""Pictures of a reproduction, each as PNG and as SVG."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wsfast._extras import import_extra
from wsfast._files import write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def save(
    folder: Path, name: str, inches: tuple[float, float], draw: Callable[[Figure], object]
) -> list[str]:
    """Write NAME.png and NAME.svg of what `draw` draws, without pyplot or a display.

    The SVG holds no date and no random names: the same figures give the same bytes.
    """
    matplotlib: Any = import_extra("matplotlib", "plots")
    figure = import_extra("matplotlib.figure", "plots").Figure(figsize=inches, layout="constrained")
    names = []
    with matplotlib.rc_context({"svg.hashsalt": "wsfast"}):
        draw(figure)
        for suffix, metadata in (("png", None), ("svg", {"Date": None})):
            stream = io.BytesIO()
            figure.savefig(stream, format=suffix, dpi=150, metadata=metadata)
            names.append(f"{name}.{suffix}")
            write_whole(folder / names[-1], stream.getvalue())
    return names
