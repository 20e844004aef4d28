"""Warnings that point at the line which called into this package."""

from __future__ import annotations

import sys
import warnings

# What may stand between two of our own frames: decorators, operators and modules.
_BETWEEN = {"wsfast", "torch", "contextlib"}


def warn(message: str, category: type[Warning] = RuntimeWarning) -> None:
    """Give a warning for the first caller that is not of this package.

    A number of frames to skip (`stacklevel`) would be true of one way into the package alone, and
    Python 3.10 and 3.11 do not skip files by their names.
    """
    frame = sys._getframe()
    while _package_of(frame.f_globals) in _BETWEEN and frame.f_back is not None:
        frame = frame.f_back
    warnings.warn_explicit(
        message,
        category,
        frame.f_code.co_filename,
        frame.f_lineno,
        module=frame.f_globals.get("__name__"),
        registry=frame.f_globals.setdefault("__warningregistry__", {}),
    )


def _package_of(names: dict[str, object]) -> str:
    return str(names.get("__name__")).partition(".")[0]
