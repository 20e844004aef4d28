"""The only loader of the compiled modules ``wsfast._cpu`` and ``wsfast._cuda``.

A machine without a compiler installs wsfast without them: the rest of the package asks here whether
they are there, and says through here that they are not. A source tree has none of its own: that of
an installed wsfast of the same version serves it. Neither needs PyTorch to be loaded.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec, PathFinder
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from wsfast._version import __version__
from wsfast._warn import warn

if TYPE_CHECKING:
    import torch

_HERE = Path(__file__).parents[1]  # the package, in which they lie
_loading = threading.Lock()  # two threads may need a module for the first time at once


class Compiled:
    """A compiled module of this package, or the reason why it is missing.

    It is loaded when it is first asked for.

    Parameters
    ----------
    name : str
        Of the module.
    compiler : str
        What builds it.
    """

    def __init__(self, name: str, compiler: str) -> None:
        self.name = name
        self._compiler = compiler
        self._warned = False

    @cached_property
    def module(self) -> ModuleType | None:
        """The module; None where it is missing."""
        return self._loaded[0]

    @cached_property
    def reason(self) -> str:
        """Why it is missing; "" where it is there."""
        return self._loaded[1]

    @property
    def borrowed(self) -> bool:
        """Whether it is that of an installed wsfast, and this is another copy of the package."""
        file = None if self.module is None else self.module.__file__
        return file is not None and Path(file).parent != _HERE

    @cached_property
    def _loaded(self) -> tuple[ModuleType | None, str]:
        # In this folder alone: a finder of another, editable wsfast would offer that one's.
        own = PathFinder.find_spec(f"wsfast.{self.name}", [str(_HERE)])
        if own is not None:
            return _load(own)
        # Written by setup.py where the build was skipped or failed.
        reason = _HERE / f"{self.name}_missing.txt"
        if reason.is_file():
            return None, reason.read_text(encoding="utf-8").strip()
        return self._borrow()

    def _borrow(self) -> tuple[ModuleType | None, str]:
        """That of an installed wsfast of this version."""
        others = []
        for version, folder in _installed():
            files = [folder / f"{self.name}{suffix}" for suffix in EXTENSION_SUFFIXES]
            if version == __version__ and (found := [path for path in files if path.is_file()]):
                return _load(spec_from_file_location(f"wsfast.{self.name}", found[0]))
            if folder.is_dir() and folder.resolve() != _HERE.resolve():
                others.append(f"{version} in {folder.parent}")
        known = f"installed: {', '.join(dict.fromkeys(others))}" if others else "none is installed"
        return None, (
            f"the copy of wsfast in {_HERE.parent} has none, nor has an installed wsfast of its "
            f"version {__version__} ({known})"
        )

    def require(self) -> ModuleType:
        """The compiled module.

        Raises
        ------
        RuntimeError
            Where it is missing, with the reason and the way out.
        """
        if self.module is None:
            raise RuntimeError(
                f"backend='native' needs the compiled module wsfast.{self.name}: {self.reason}. "
                f"Reinstall wsfast where there is {self._compiler}, or use backend='torch'."
            )
        return self.module

    def warn_once_missing(self) -> None:
        """Warn, the first time only, that the PyTorch backend stands in for the module."""
        if self.module is None and not self._warned:
            self._warned = True
            warn(
                f"wsfast runs without its compiled module {self.name}, more slowly: {self.reason}. "
                "backend='torch' chooses this without a warning."
            )


def _load(spec: ModuleSpec | None) -> tuple[ModuleType | None, str]:
    """The module that `spec` found, or why it is not used."""
    assert spec is not None
    assert spec.loader is not None
    with _loading:
        if spec.name in sys.modules:
            return sys.modules[spec.name], ""
        try:
            module = module_from_spec(spec)
            spec.loader.exec_module(module)
        except ImportError as error:
            # A wrong WSFAST_SIMD is the user's to mend: falling back would hide it.
            if "WSFAST_SIMD" in str(error):
                raise
            return None, f"it failed to load: {error}"
        sys.modules[spec.name] = module
    return module, ""


def _installed() -> Iterator[tuple[str, Path]]:
    """Version and package folder of every installed wsfast, as they come on the path.

    In a clone, its own metadata may come first, left by a build: a folder without the module.
    """
    import json
    from importlib import metadata
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    for distribution in metadata.distributions(name="wsfast"):
        folder = Path(str(distribution.locate_file("wsfast")))
        origin = json.loads(distribution.read_text("direct_url.json") or "{}")
        if origin.get("dir_info", {}).get("editable"):  # its source tree is elsewhere
            folder = Path(url2pathname(urlsplit(origin["url"]).path)) / "wsfast"
        yield distribution.version, folder


CPU = Compiled("_cpu", "a C++17 compiler")
CUDA = Compiled("_cuda", "nvcc, the CUDA compiler")


def module_for(device: torch.device) -> Compiled | None:
    """The module whose kernels serve tensors on `device`; None where there is no such module."""
    return {"cpu": CPU, "cuda": CUDA}.get(device.type)


_SUFFIX = {"torch.float32": "32", "torch.float64": "64"}


def variant(name: str, dtype: torch.dtype | None) -> str:
    """What `name` for `dtype` is called in the compiled modules; without one, the name itself."""
    return name if dtype is None else name + _SUFFIX[str(dtype)]


@dataclass(frozen=True)
class Kernels:
    """The compiled kernels that serve tensors on one device."""

    module: ModuleType
    device: torch.device
    gpu: bool  # whether they are the CUDA kernels

    def struct(self, name: str, dtype: torch.dtype) -> Any:
        """The class of arguments `name` for `dtype`."""
        return getattr(self.module, variant(name, dtype))

    def launch(
        self, name: str, *arguments: Any, dtype: torch.dtype | None = None, **named: Any
    ) -> None:
        """Call a kernel: with PyTorch's number of threads, or on the device's current stream.

        `dtype` names the variant of a kernel whose arguments do not tell it.
        """
        import torch

        kernel = getattr(self.module, variant(name, dtype))
        if not self.gpu:
            kernel(*arguments, **named, threads=torch.get_num_threads())
        elif self.device.type != "cuda":
            kernel(*arguments, **named, stream=0)
        else:
            with torch.cuda.device(self.device):
                stream = torch.cuda.current_stream(self.device).cuda_stream
                kernel(*arguments, **named, stream=stream)


def kernels(device: torch.device) -> Kernels:
    """The compiled kernels for tensors on `device`, which `backend="native"` has been granted."""
    found = module_for(device)
    assert found is not None
    return Kernels(found.require(), device, gpu=found is CUDA)
