"""How a result is shown, by a room that results do not know.

A result holds data. ``wsfast/__init__`` names the room that writes and draws results; the module of
it that a result asks for is imported when the result is first shown. ``import wsfast.results...``
runs ``wsfast/__init__``, so the name is always there, also where a result comes out of a pickle.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    from pathlib import Path


class Renderer(Protocol):
    """A module that shows results of one kind; it has as many of these functions as they need."""

    def describe(self, result: Any, /) -> str:
        """Text, for ``repr``."""

    def to_html(self, result: Any, /) -> str:
        """HTML, for notebooks."""

    def to_text(self, result: Any, /) -> str:
        """Tables as a terminal shows them, for ``str``."""

    def to_csv(self, result: Any, /) -> str:
        """CSV, with a header."""

    def to_jsonl(self, result: Any, /) -> str:
        """JSON, a line for each text."""

    def to_junit(self, result: Any, /) -> bytes:
        """JUnit XML, as Jenkins reads it."""

    def save_pictures(self, result: Any, folder: Path, /) -> list[Path]:
        """Draw pictures into a folder, and return what was written."""

    def plot(self, result: Any, /, *args: Any, **options: Any) -> Any:
        """Draw a picture, and return its Axes."""


_room: str | None = None


def show_with(room: str) -> None:
    """Set the name of the package whose modules show results."""
    global _room
    _room = room


def shown_by(name: str) -> Renderer:
    """Give the module `name` of the room that shows results."""
    return cast("Renderer", import_module(f"{_room}.{name}"))
