"""The progress bar of long work, which tqdm draws where it is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from wsfast._extras import import_extra


class Progress(Protocol):
    """Told how much is done."""

    def update(self, n: int) -> object: ...


class _Silent:
    def update(self, n: int) -> None:
        pass


@contextmanager
def progress_bar(
    total: int, unit: str, shown: bool, *, large: bool = False, done: int = 0
) -> Iterator[Progress]:
    """A bar of `total` units on stderr, or nothing at all; `large` totals are shown as 1.3G.

    `done` of them were there before, and say nothing of the time that the others take.

    Raises
    ------
    ImportError
        If a bar is asked for and tqdm, which transformers brings too, is not installed.
    """
    if not shown:
        yield _Silent()
        return
    tqdm = import_extra("tqdm", "text").tqdm
    with tqdm(total=total, unit=unit, unit_scale=large, initial=done) as bar:
        yield bar
