"""Builds the compiled modules with CMake and Ninja; the rest is in pyproject.toml.

Environment variables
---------------------
WSFAST_NATIVE
    Unset: build wsfast._cpu where there is a C++ compiler, install without the module elsewhere.
    ``1``: a module that cannot be built is an error. ``0``: do not build it.
WSFAST_CUDA
    The same for wsfast._cuda, where there is nvcc.
CUDA_HOME
    The CUDA toolkit. Otherwise /usr/local/cuda, otherwise that of the nvcc on PATH.
CMAKE_CUDA_ARCHITECTURES, TORCH_CUDA_ARCH_LIST
    Architectures to compile for, as CMake or as PyTorch names them; the first of these that is set.
MAX_JOBS
    How many compiler processes may run at once; as many as there are cores where unset.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import ExecError, OptionError

ROOT = Path(__file__).resolve().parent

# Compute capabilities, times ten. The kernels use what came with the least.
LEAST_ARCHITECTURE = 80
DEFAULT_ARCHITECTURES = (80, 90, 100)


def wanted(variable: str) -> bool | None:
    """What WSFAST_NATIVE or WSFAST_CUDA asks for: True, False, or None: the machine decides."""
    choices = {"": None, "0": False, "1": True}
    value = os.environ.get(variable, "")
    if value not in choices:
        raise OptionError(f"{variable} is {value!r}; expected 0, 1 or unset")
    return choices[value]


def job_count() -> int:
    """How many compilers to run at once: MAX_JOBS, otherwise the cores this process may use."""
    value = os.environ.get("MAX_JOBS", "")
    if not value:
        if hasattr(os, "sched_getaffinity"):
            return len(os.sched_getaffinity(0))
        return os.cpu_count() or 1
    if not value.isdecimal() or int(value) < 1:
        raise OptionError(f"MAX_JOBS is {value!r}; expected a whole number of at least 1")
    return int(value)


def find_cmake() -> str:
    """Path of cmake: on PATH, or beside the interpreter where its environment is not activated."""
    found = shutil.which("cmake") or shutil.which("cmake", path=str(Path(sys.executable).parent))
    if found is None:
        raise ExecError("CMake was not found")
    return found


# -- CUDA ------------------------------------------------------------------------------------------


class NvccMissingError(ExecError):
    """Most machines have no nvcc: no reason to warn."""


def find_nvcc(default_root: Path = Path("/usr/local/cuda")) -> str:
    """Path of nvcc in its toolkit."""
    roots = [default_root]
    if home := os.environ.get("CUDA_HOME"):
        roots.insert(0, Path(home))
    for root in roots:
        if found := shutil.which("nvcc", path=str(root / "bin")):
            return found
    found = shutil.which("nvcc")
    if found is None:
        raise NvccMissingError("nvcc was not found")
    # That on PATH may be a script far from the toolkit, which itself says where it is.
    told = re.search(r"^#\$ TOP=(.+)$", _output(found, "--dryrun", "-x", "cu", os.devnull), re.M)
    inner = told and shutil.which("nvcc", path=str(Path(told[1].strip(), "bin").resolve()))
    return inner or found


def _output(*command: str) -> str:
    """What a command writes; nothing where it does not run."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout + done.stderr


def cuda_architectures(nvcc: str) -> str:
    """Architectures to compile for, as CMake names them."""
    for variable, translate in (
        ("CMAKE_CUDA_ARCHITECTURES", _from_cmake),
        ("TORCH_CUDA_ARCH_LIST", _from_torch),
    ):
        value = os.environ.get(variable, "")
        if names := re.findall(r"[^;,\s]+", value):
            chosen = [translate(name, f"{variable} is {value!r}") for name in names]
            # A list for all of a machine room may name older ones too.
            able = [name for name in chosen if int(re.match(r"\d+", name)[0]) >= LEAST_ARCHITECTURE]
            if not able:
                raise ExecError(f"{variable} is {value!r}, all below compute capability 8.0")
            return ";".join(dict.fromkeys(able))
    known = re.findall(r"compute_(\d+)\b", _output(nvcc, "--list-gpu-arch"))
    names = [str(number) for number in DEFAULT_ARCHITECTURES if str(number) in known]
    if not names:
        raise ExecError(f"{nvcc} knows none of the architectures {DEFAULT_ARCHITECTURES}")
    # Later GPUs translate what the last leaves besides machine code.
    return ";".join([*(f"{name}-real" for name in names[:-1]), names[-1]])


def _from_cmake(name: str, given: str) -> str:
    if not re.fullmatch(r"\d{2,3}[af]?(-real|-virtual)?", name):
        raise OptionError(f"{given}; {name!r} is not an architecture such as 90, 90-real or 90a")
    return name


def _from_torch(name: str, given: str) -> str:
    parts = re.fullmatch(r"(\d{1,2})\.(\d)([af]?)(\+PTX)?", name)
    if parts is None:
        raise OptionError(f"{given}; {name!r} is not an architecture such as 9.0, 9.0a or 9.0+PTX")
    major, minor, variant, ptx = parts.groups()
    return f"{major}{minor}{variant}" + ("" if ptx else "-real")


# -- modules ---------------------------------------------------------------------------------------


class CPUModule(Extension):
    """The kernels for the CPU."""

    variable = "WSFAST_NATIVE"
    compiler = "C++17 compiler"

    def options(self) -> list[str]:
        """What CMake is told besides."""
        return []


class CUDAModule(Extension):
    """The kernels for CUDA devices."""

    variable = "WSFAST_CUDA"
    compiler = "nvcc, C++17 compiler"

    def options(self) -> list[str]:
        """What CMake is told besides."""
        nvcc = find_nvcc()
        return [
            "-DWSFAST_CUDA=ON",
            f"-DCMAKE_CUDA_COMPILER={nvcc}",
            f"-DCMAKE_CUDA_ARCHITECTURES={cuda_architectures(nvcc)}",
        ]


class CMakeBuild(build_ext):
    """Build each module with CMake, or leave the reason why not in the package."""

    def build_extension(self, ext: CPUModule | CUDAModule) -> None:
        """Compile `ext`; where that fails, what its variable says decides."""
        must = wanted(ext.variable)
        jobs = job_count()
        if must is False:
            self._leave_out(ext, f"{ext.variable}=0 skipped its build")
            return
        try:
            self._compile(ext, jobs)
        except ExecError as error:
            if must:
                raise ExecError(
                    f"{ext.variable}=1 asks for the compiled module {ext.name}, but {error}. "
                    f"Unset {ext.variable} to install without it."
                ) from error
            self._leave_out(ext, f"{error} when wsfast was installed")
            if not isinstance(error, NvccMissingError):
                self._warn(ext, str(error))
        else:
            for path in self._reason_files(ext):
                path.unlink(missing_ok=True)

    def _places(self) -> list[Path]:
        """Folders that this build fills: an editable install imports the source tree itself."""
        return [Path(self.build_lib), ROOT] if self.editable_mode else [Path(self.build_lib)]

    def _reason_files(self, ext: Extension) -> list[Path]:
        """Where wsfast.engines.compiled finds why the module is missing; there only if it is."""
        return [place / (ext.name.replace(".", "/") + "_missing.txt") for place in self._places()]

    def _compile(self, ext: CPUModule | CUDAModule, jobs: int) -> None:
        options = ext.options()
        import pybind11  # a build requirement, not one of WSFAST_NATIVE=0 and of the sdist

        cmake = find_cmake()
        target = Path(self.get_ext_fullpath(ext.name)).resolve()
        build_dir = Path(self.build_temp).resolve() / ext.name
        # A cache of another environment would bring back its compiler and tools.
        shutil.rmtree(build_dir, ignore_errors=True)
        configure = [
            *(cmake, "-S", str(ROOT), "-B", str(build_dir), "-G", "Ninja"),
            "-DCMAKE_BUILD_TYPE=Release",
            f"-DPython_EXECUTABLE={sys.executable}",
            f"-Dpybind11_DIR={pybind11.get_cmake_dir()}",
            f"-DCMAKE_LIBRARY_OUTPUT_DIRECTORY={target.parent}",
            *options,
        ]
        self._run(configure, f"CMake found no working {ext.compiler}, Ninja or Python headers")
        build = [cmake, "--build", str(build_dir), "-j", str(jobs)]
        self._run(build, f"the sources of {ext.name} failed to compile")
        if not target.is_file():
            raise ExecError(f"the build made no {target.name}")

    @staticmethod
    def _run(command: list[str], failure: str) -> None:
        sys.stdout.flush()
        try:
            subprocess.run(command, check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise ExecError(failure) from error

    def _leave_out(self, ext: Extension, reason: str) -> None:
        """Finish without the module; nothing of an earlier build may stand in for it."""
        self.extensions = [other for other in self.extensions if other is not ext]
        for place in self._places():
            (place / self.get_ext_filename(ext.name)).unlink(missing_ok=True)
        for path in self._reason_files(ext):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(reason + "\n", encoding="utf-8")

    @staticmethod
    def _warn(ext: CPUModule | CUDAModule, reason: str) -> None:
        print(
            f"\nWARNING: wsfast is installed WITHOUT its compiled module {ext.name}: {reason}.\n"
            "WARNING: It works all the same, through PyTorch alone and more slowly. For speed,\n"
            f"WARNING: mend that and reinstall. {ext.variable}=1 forbids this.\n",
            file=sys.stderr,
            flush=True,
        )


if __name__ == "__main__":
    setup(
        ext_modules=[CPUModule("wsfast._cpu", []), CUDAModule("wsfast._cuda", [])],
        cmdclass={"build_ext": CMakeBuild},
    )
