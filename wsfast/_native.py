"""The only loader of the compiled modules ``wsfast._cpu`` and ``wsfast._cuda``.

A machine without a compiler installs wsfast without them: the rest of the package asks here whether
they are there, and says through here that they are not.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from wsfast._warn import warn


class Compiled:
    """A compiled module of this package, or the reason why it is missing.

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
        self.module: ModuleType | None
        self.reason: str  # "" where the module is there
        self.module, self.reason = self._load()

    def _load(self) -> tuple[ModuleType | None, str]:
        full = f"wsfast.{self.name}"
        try:
            return importlib.import_module(full), ""
        except ModuleNotFoundError as error:
            if error.name != full:
                return None, f"it failed to load: {error}"
        except ImportError as error:
            # A wrong WSFAST_SIMD is the user's to mend: falling back would hide it.
            if "WSFAST_SIMD" in str(error):
                raise
            return None, f"it failed to load: {error}"
        # Written by setup.py where the build was skipped or failed.
        reason = Path(__file__).with_name(f"{self.name}_missing.txt")
        if reason.is_file():
            return None, reason.read_text(encoding="utf-8").strip()
        return None, "it was not built (the source tree is imported, not an installed wsfast?)"

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


CPU = Compiled("_cpu", "a C++17 compiler")
CUDA = Compiled("_cuda", "nvcc, the CUDA compiler")


def compiled(device: torch.device) -> Compiled | None:
    """The module whose kernels serve tensors on `device`; None where there is no such module."""
    return {"cpu": CPU, "cuda": CUDA}.get(device.type)


# Names in the compiled modules end in the width of what they work on.
_SUFFIX = {torch.float32: "32", torch.float64: "64", torch.bfloat16: "bf16"}


@dataclass(frozen=True)
class Kernels:
    """The compiled kernels that serve tensors on one device."""

    module: ModuleType
    device: torch.device
    gpu: bool  # whether they are the CUDA kernels

    def struct(self, name: str, dtype: torch.dtype) -> Any:
        """The class of arguments `name` for `dtype`."""
        return getattr(self.module, name + _SUFFIX[dtype])

    def launch(
        self, name: str, *arguments: Any, dtype: torch.dtype | None = None, **named: Any
    ) -> None:
        """Call a kernel: with PyTorch's number of threads, or on the device's current stream.

        `dtype` names the variant of a kernel whose arguments do not tell it.
        """
        kernel = getattr(self.module, name if dtype is None else name + _SUFFIX[dtype])
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
    found = compiled(device)
    assert found is not None
    return Kernels(found.require(), device, gpu=found is CUDA)
