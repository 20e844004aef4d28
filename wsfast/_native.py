"""The only loader of the compiled module ``wsfast._cpu``.

A machine without a compiler installs wsfast without it: the rest of the package asks here whether
it is there, and says through here that it is not.
"""

from __future__ import annotations

import importlib
import warnings
from pathlib import Path
from types import ModuleType


def _load() -> tuple[ModuleType | None, str]:
    """The compiled module and ``""``, or None and the reason why it is missing."""
    try:
        return importlib.import_module("wsfast._cpu"), ""
    except ModuleNotFoundError as error:
        if error.name != "wsfast._cpu":
            return None, f"it failed to load: {error}"
    except ImportError as error:
        # A wrong WSFAST_SIMD is the user's to mend: falling back would hide it.
        if "WSFAST_SIMD" in str(error):
            raise
        return None, f"it failed to load: {error}"
    # Written by setup.py where the build was skipped or failed.
    reason = Path(__file__).with_name("_cpu_missing.txt")
    if reason.is_file():
        return None, reason.read_text(encoding="utf-8").strip()
    return None, "it was not built (the source tree is imported, not an installed wsfast?)"


_module, _reason = _load()
_warned = False


def cpu_module() -> ModuleType | None:
    """The compiled module, or None where it is missing."""
    return _module


def why_missing() -> str:
    """Why the compiled module is missing, in a few words; ``""`` where it is there."""
    return _reason


def require_cpu() -> ModuleType:
    """The compiled module.

    Raises
    ------
    RuntimeError
        Where it is missing, with the reason and the way out.
    """
    if _module is None:
        raise RuntimeError(
            f"backend='native' needs the compiled module wsfast._cpu: {_reason}. "
            "Reinstall wsfast where there is a C++17 compiler, or use backend='torch'."
        )
    return _module


def warn_once_missing() -> None:
    """Warn, the first time only, that the PyTorch backend stands in for the compiled module."""
    global _warned
    if _module is None and not _warned:
        _warned = True
        warnings.warn(
            f"wsfast runs without its compiled module, more slowly: {_reason}. "
            "backend='torch' chooses this without a warning.",
            RuntimeWarning,
            stacklevel=4,
        )
