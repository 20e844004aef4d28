"""Builds the compiled module wsfast._cpu with CMake and Ninja; the rest is in pyproject.toml.

Environment variables
---------------------
WSFAST_NATIVE
    Unset: build where there is a C++ compiler, install without the module elsewhere.
    ``1``: a module that cannot be built is an error. ``0``: do not build it.
MAX_JOBS
    How many compiler processes may run at once; as many as there are cores where unset.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import ExecError, OptionError

ROOT = Path(__file__).resolve().parent
# Says why in the installed package, where wsfast._native finds it; there only if _cpu is not.
REASON_FILE = "_cpu_missing.txt"


def native_wanted() -> bool | None:
    """What WSFAST_NATIVE asks for: True, False, or None where that is left to the machine."""
    choices = {"": None, "0": False, "1": True}
    value = os.environ.get("WSFAST_NATIVE", "")
    if value not in choices:
        raise OptionError(f"WSFAST_NATIVE is {value!r}; expected 0, 1 or unset")
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


class CMakeBuild(build_ext):
    """Build wsfast._cpu with CMake, or leave the reason why not in the package."""

    def build_extension(self, ext: Extension) -> None:
        """Compile `ext`; where that fails, what WSFAST_NATIVE says decides."""
        wanted = native_wanted()
        jobs = job_count()
        if wanted is False:
            self._leave_out(ext, "WSFAST_NATIVE=0 skipped its build")
            return
        try:
            self._compile(ext, jobs)
        except ExecError as error:
            if wanted:
                raise ExecError(
                    f"WSFAST_NATIVE=1 asks for the compiled module, but {error}; the output above "
                    "says why. Unset WSFAST_NATIVE to install without it."
                ) from error
            self._leave_out(ext, f"when wsfast was installed, {error}")
            self._warn(str(error))
        else:
            for place in self._places():
                (place / "wsfast" / REASON_FILE).unlink(missing_ok=True)

    def _places(self) -> list[Path]:
        """Folders that this build fills: an editable install imports the source tree itself."""
        return [Path(self.build_lib), ROOT] if self.editable_mode else [Path(self.build_lib)]

    def _compile(self, ext: Extension, jobs: int) -> None:
        import pybind11  # a build requirement, not one of WSFAST_NATIVE=0 and of the sdist

        cmake = find_cmake()
        target = Path(self.get_ext_fullpath(ext.name)).resolve()
        build_dir = Path(self.build_temp).resolve() / "cmake"
        # A cache of another environment would bring back its compiler and tools.
        shutil.rmtree(build_dir, ignore_errors=True)
        configure = [
            *(cmake, "-S", str(ROOT), "-B", str(build_dir), "-G", "Ninja"),
            "-DCMAKE_BUILD_TYPE=Release",
            f"-DPython_EXECUTABLE={sys.executable}",
            f"-Dpybind11_DIR={pybind11.get_cmake_dir()}",
            f"-DCMAKE_LIBRARY_OUTPUT_DIRECTORY={target.parent}",
        ]
        self._run(configure, "CMake found no working C++17 compiler, Ninja or Python headers")
        build = [cmake, "--build", str(build_dir), "-j", str(jobs)]
        self._run(build, "the C++ sources failed to compile")
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
            path = place / "wsfast" / REASON_FILE
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(reason + "\n", encoding="utf-8")

    @staticmethod
    def _warn(reason: str) -> None:
        print(
            f"\nWARNING: wsfast is installed WITHOUT its compiled module: {reason}.\n"
            "WARNING: It works all the same, through PyTorch alone and more slowly. For speed,\n"
            "WARNING: install a C++17 compiler and reinstall. WSFAST_NATIVE=1 forbids this.\n",
            file=sys.stderr,
            flush=True,
        )


setup(
    ext_modules=[Extension("wsfast._cpu", sources=[])],
    cmdclass={"build_ext": CMakeBuild},
)
