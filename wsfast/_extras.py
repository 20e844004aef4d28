"""Optional packages: imported when they are needed, and named with the command that brings them."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from types import ModuleType


def _missing(module: str, extra: str) -> ImportError:
    return ImportError(
        f"{module} is needed for this and is not installed: pip install 'wsfast[{extra}]'",
        name=module,
    )


def import_extra(module: str, extra: str) -> ModuleType:
    """Import an optional module.

    Parameters
    ----------
    module : str
        Name as in an import statement; dots are allowed.
    extra : str
        Extra of this package that brings it, for the error message.

    Raises
    ------
    ImportError
        If the module is not installed. An error inside an installed module is passed on as it is.
    """
    root = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != root:
            raise
        raise _missing(root, extra) from error


def extra_folder(module: str, extra: str) -> Path:
    """Folder of an installed optional package, found without importing it.

    Parameters
    ----------
    module : str
        Name of a top-level package.
    extra : str
        Extra of this package that brings it, for the error message.

    Raises
    ------
    ImportError
        If the package is not installed.
    """
    try:
        spec = importlib.util.find_spec(module)
    except ValueError:  # sys.modules[module] is None or has no spec
        spec = None
    if spec is None or not spec.submodule_search_locations:
        raise _missing(module.replace("_", "-"), extra)
    return Path(next(iter(spec.submodule_search_locations)))
