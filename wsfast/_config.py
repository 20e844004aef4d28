"""What is installed, what was built and what is used: the first thing to look at when in doubt."""

from __future__ import annotations

import platform
import sys
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import torch

from wsfast._version import __version__
from wsfast.engines import compiled

_OWNER = "the installed wsfast of the same version; the copy imported has none"


def config() -> dict[str, str]:
    """The facts that :func:`show_config` prints, in its order, from label to value."""
    facts = {
        "wsfast": f"{__version__} ({Path(__file__).parent})",
        "Python": f"{platform.python_version()} ({platform.system()} {platform.machine()})",
        "PyTorch": torch.__version__,
        "NumPy": np.__version__,
    }
    module = compiled.CPU.module
    if module is None:
        facts["compiled module"] = f"absent: {compiled.CPU.reason}"
    else:
        facts["compiled module"] = str(module.__file__)
        if compiled.CPU.borrowed:
            facts["compiled module of"] = _OWNER
        facts["compiler"] = module.compiler()
        facts["instruction sets built"] = ", ".join(module.isa_levels_built())
        facts["instruction set detected"] = module.isa_detected()
        facts["instruction set used"] = module.isa_used()
    facts["threads"] = str(torch.get_num_threads())
    facts["CUDA"] = _cuda_state()
    cuda = compiled.CUDA.module
    if cuda is None:
        facts["CUDA kernels"] = f"absent: {compiled.CUDA.reason}"
    else:
        facts["CUDA kernels"] = str(cuda.__file__)
        if compiled.CUDA.borrowed:
            facts["CUDA kernels of"] = _OWNER
        facts["CUDA compiler"] = cuda.compiler()
        facts["CUDA architectures"] = cuda.architectures()
    return facts


def _cuda_state() -> str:
    """The CUDA version PyTorch was built for and the devices it sees."""
    if torch.version.cuda is None:
        return "PyTorch was built without it"
    if not torch.cuda.is_available():
        return f"PyTorch was built for {torch.version.cuda}; no device"
    names = (torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count()))
    return f"PyTorch was built for {torch.version.cuda}; {', '.join(names)}"


def machine(device: torch.device) -> dict[str, Any]:
    """What the last digits of all numbers depend on, beside the settings of a run."""
    module = compiled.CPU.module
    kernels = "none" if module is None else module.isa_used()
    facts = {
        "torch": str(torch.__version__),
        "instruction set": f"{kernels}, PyTorch's {torch.backends.cpu.get_cpu_capability()}",
        "threads": torch.get_num_threads(),
    }
    return facts | ({"GPU": torch.cuda.get_device_name(device)} if device.type == "cuda" else {})


def show_config(file: TextIO | None = None) -> None:
    """Print what is installed, what was built and what is used.

    Versions, the compiled module (or why it is missing), its compiler and instruction sets, threads
    and the state of CUDA. ``python -m wsfast`` prints the same: put it into every bug report.

    Parameters
    ----------
    file : text file, optional
        Where to print; standard output by default.

    Examples
    --------
    >>> import wsfast
    >>> wsfast.show_config()  # doctest: +ELLIPSIS
    wsfast ...
    """
    facts = config()
    width = max(map(len, facts))
    for label, value in facts.items():
        print(f"{label:<{width}}  {value}", file=sys.stdout if file is None else file)
