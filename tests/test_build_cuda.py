"""What setup.py makes of the machine and its variables; nothing is built."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from setuptools import Distribution
from setuptools.errors import ExecError, OptionError


def load_setup():
    spec = importlib.util.spec_from_file_location(
        "wsfast_setup", Path(__file__).resolve().parents[1] / "setup.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


build = load_setup()


@pytest.fixture(autouse=True)
def no_variables(monkeypatch):
    for name in (
        "WSFAST_NATIVE", "WSFAST_CUDA", "MAX_JOBS", "CUDA_HOME", "CMAKE_CUDA_ARCHITECTURES",
        "TORCH_CUDA_ARCH_LIST",
    ):  # fmt: skip
        monkeypatch.delenv(name, raising=False)


def program(path, *lines):
    """An executable file that prints the lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["#!/bin/sh", *(f"echo '{line}' >&2" for line in lines)]) + "\n")
    path.chmod(0o755)
    return str(path)


# -- variables -------------------------------------------------------------------------------------


@pytest.mark.parametrize("variable", ["WSFAST_NATIVE", "WSFAST_CUDA"])
def test_wanted(monkeypatch, variable):
    assert build.wanted(variable) is None
    for value, expected in (("", None), ("0", False), ("1", True)):
        monkeypatch.setenv(variable, value)
        assert build.wanted(variable) is expected


@pytest.mark.parametrize("value", ["2", "yes", " 1", "ON"])
def test_wrong_wanted_is_named(monkeypatch, value):
    monkeypatch.setenv("WSFAST_CUDA", value)
    with pytest.raises(OptionError, match=f"WSFAST_CUDA is '{value}'"):
        build.wanted("WSFAST_CUDA")


def test_job_count(monkeypatch):
    assert build.job_count() >= 1
    monkeypatch.setenv("MAX_JOBS", "3")
    assert build.job_count() == 3


@pytest.mark.parametrize("value", ["0", "-1", "two", "1.5"])
def test_wrong_job_count_is_named(monkeypatch, value):
    monkeypatch.setenv("MAX_JOBS", value)
    with pytest.raises(OptionError, match=f"MAX_JOBS is '{value}'"):
        build.job_count()


# -- architectures ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("8.0", "80-real"),
        ("8.0;9.0+PTX", "80-real;90"),
        ("8.0 8.6 9.0a 12.0+PTX", "80-real;86-real;90a-real;120"),
        ("8.0, 10.0f", "80-real;100f-real"),
        (" 9.0 ; 9.0 ;", "90-real"),
        ("5.2 6.0 7.0 7.5 8.0+PTX", "80"),
    ],
)
def test_architectures_of_torch(monkeypatch, value, expected):
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", value)
    assert build.cuda_architectures("no such nvcc") == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("90", "90"),
        ("80-real;90-virtual", "80-real;90-virtual"),
        ("90a-real;100f", "90a-real;100f"),
        ("70;75-real;80", "80"),
    ],
)
def test_architectures_of_cmake_come_first(monkeypatch, value, expected):
    monkeypatch.setenv("CMAKE_CUDA_ARCHITECTURES", value)
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "8.6")
    assert build.cuda_architectures("no such nvcc") == expected


@pytest.mark.parametrize(
    ("variable", "value", "culprit"),
    [
        ("TORCH_CUDA_ARCH_LIST", "8.0;Hopper", "Hopper"),
        ("TORCH_CUDA_ARCH_LIST", "90", "90"),
        ("TORCH_CUDA_ARCH_LIST", "9.0+ptx", "9.0+ptx"),
        ("TORCH_CUDA_ARCH_LIST", "9.0b", "9.0b"),
        ("CMAKE_CUDA_ARCHITECTURES", "8.0", "8.0"),
        ("CMAKE_CUDA_ARCHITECTURES", "80;native", "native"),
        ("CMAKE_CUDA_ARCHITECTURES", "90-reel", "90-reel"),
        ("CMAKE_CUDA_ARCHITECTURES", "sm_90", "sm_90"),
    ],
)
def test_wrong_architecture_is_named(monkeypatch, variable, value, culprit):
    monkeypatch.setenv(variable, value)
    with pytest.raises(OptionError) as caught:
        build.cuda_architectures("no such nvcc")
    assert f"{variable} is {value!r}; {culprit!r} is not" in str(caught.value)


@pytest.mark.parametrize(
    ("variable", "value"),
    [("TORCH_CUDA_ARCH_LIST", "7.0 7.5+PTX"), ("CMAKE_CUDA_ARCHITECTURES", "52;75")],
)
def test_architectures_that_the_kernels_cannot_serve(monkeypatch, variable, value):
    """Not the user's mistake: the module is left out."""
    monkeypatch.setenv(variable, value)
    with pytest.raises(ExecError) as caught:
        build.cuda_architectures("no such nvcc")
    assert f"{variable} is {value!r}" in str(caught.value)


@pytest.mark.parametrize("variable", ["TORCH_CUDA_ARCH_LIST", "CMAKE_CUDA_ARCHITECTURES"])
@pytest.mark.parametrize(
    ("known", "expected"),
    [
        (["75", "80", "86", "90", "100", "103", "120"], "80-real;90-real;100"),
        (["50", "80", "90", "90a"], "80-real;90"),
        (["90", "100a"], "90"),
    ],
)
def test_default_architectures_are_those_nvcc_knows(
    monkeypatch, tmp_path, variable, known, expected
):
    monkeypatch.setenv(variable, "")
    nvcc = program(tmp_path / "nvcc", *(f"compute_{name}" for name in known))
    assert build.cuda_architectures(nvcc) == expected


def test_no_architecture_that_nvcc_knows(tmp_path):
    for nvcc in (program(tmp_path / "nvcc", "compute_50"), str(tmp_path / "nowhere")):
        with pytest.raises(ExecError, match="knows none of the architectures"):
            build.cuda_architectures(nvcc)


# -- the toolkit -----------------------------------------------------------------------------------


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A machine whose PATH and /usr/local/cuda are folders that the test may fill."""
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    return tmp_path


def found(machine):
    return build.find_nvcc(machine / "cuda")


def test_cuda_home_comes_first(monkeypatch, machine):
    monkeypatch.setenv("CUDA_HOME", str(machine / "home"))
    nvcc = program(machine / "home/bin/nvcc")
    program(machine / "cuda/bin/nvcc")
    program(machine / "path/nvcc")
    assert found(machine) == nvcc


@pytest.mark.parametrize("home", ["", "home"])
def test_default_root_comes_next(monkeypatch, machine, home):
    (machine / "home").mkdir()
    monkeypatch.setenv("CUDA_HOME", home and str(machine / home))
    nvcc = program(machine / "cuda/bin/nvcc")
    program(machine / "path/nvcc")
    assert found(machine) == nvcc


def test_nvcc_on_path_says_where_its_toolkit_is(machine):
    nvcc = program(machine / "elsewhere/bin/nvcc")
    program(
        machine / "path/nvcc",
        "#$ _HERE_=/nowhere",
        f"#$ TOP={machine}/elsewhere/bin/..",
        "#$ PATH=/nowhere",
    )
    assert found(machine) == nvcc


@pytest.mark.parametrize("lines", [[], ["#$ TOP=/nowhere/bin/.."]])
def test_nvcc_on_path_that_does_not_say(machine, lines):
    nvcc = program(machine / "path/nvcc", *lines)
    assert found(machine) == nvcc


def test_no_nvcc(machine):
    with pytest.raises(build.NvccMissingError, match="nvcc was not found"):
        found(machine)


def test_what_cmake_is_told_of_cuda(monkeypatch, machine):
    monkeypatch.setenv("CUDA_HOME", str(machine / "home"))
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "8.0;9.0+PTX")
    nvcc = program(machine / "home/bin/nvcc")
    assert build.CUDAModule("wsfast._cuda", []).options() == [
        "-DWSFAST_CUDA=ON",
        f"-DCMAKE_CUDA_COMPILER={nvcc}",
        "-DCMAKE_CUDA_ARCHITECTURES=80-real;90",
    ]


# -- a module that is there, or the reason why not -------------------------------------------------


class Build:
    """The build of both modules into a folder, in which `failure` stands in for the compiler's."""

    def __init__(self, folder, monkeypatch):
        self.package = folder / "wsfast"
        self.package.mkdir()
        modules = [build.CPUModule("wsfast._cpu", []), build.CUDAModule("wsfast._cuda", [])]
        self.command = build.CMakeBuild(Distribution({"ext_modules": modules}))
        self.command.build_lib = str(folder)
        self.command.extensions = modules
        self.failure = {}
        monkeypatch.setattr(self.command, "_compile", self.compile)

    def file(self, name):
        return Path(self.command.build_lib, self.command.get_ext_filename(name))

    def compile(self, ext, jobs):
        if ext.name in self.failure:
            raise self.failure[ext.name]
        self.file(ext.name).touch()

    def run(self):
        self.command.build_extensions()
        return {path.name: path.read_text() for path in self.package.glob("*.txt")}

    def built(self):
        names = [ext.name for ext in self.command.extensions]
        assert all(self.file(name).is_file() for name in names)
        return names


@pytest.fixture
def both(tmp_path, monkeypatch):
    return Build(tmp_path, monkeypatch)


def test_both_modules_are_built(both, capsys):
    for name in ("_cpu", "_cuda"):
        (both.package / f"{name}_missing.txt").write_text("of an earlier build")
    assert both.run() == {}
    assert both.built() == ["wsfast._cpu", "wsfast._cuda"]
    assert capsys.readouterr().err == ""


def test_missing_nvcc_is_no_warning(both, capsys):
    both.file("wsfast._cuda").touch()  # of an earlier build
    both.failure["wsfast._cuda"] = build.NvccMissingError("nvcc was not found")
    assert both.run() == {"_cuda_missing.txt": "nvcc was not found when wsfast was installed\n"}
    assert both.built() == ["wsfast._cpu"]
    assert not both.file("wsfast._cuda").exists()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("name", "other", "variable"),
    [
        ("wsfast._cpu", "wsfast._cuda", "WSFAST_NATIVE"),
        ("wsfast._cuda", "wsfast._cpu", "WSFAST_CUDA"),
    ],
)
class TestOneModule:
    def test_failed_build_is_a_warning(self, both, capsys, name, other, variable):
        both.failure[name] = ExecError("the sources failed")
        reason = {f"{name[7:]}_missing.txt": "the sources failed when wsfast was installed\n"}
        assert both.run() == reason
        assert both.built() == [other]
        err = capsys.readouterr().err
        assert f"WITHOUT its compiled module {name}: the sources failed." in err
        assert f"{variable}=1 forbids this" in err

    @pytest.mark.parametrize("kind", [ExecError, build.NvccMissingError])
    def test_failed_build_is_an_error_where_asked_for(
        self, both, monkeypatch, name, other, variable, kind
    ):
        monkeypatch.setenv(variable, "1")
        both.failure[name] = kind("no luck")
        message = f"{variable}=1 asks for the compiled module {name}, but no luck"
        with pytest.raises(ExecError, match=message):
            both.run()

    def test_skipped(self, both, monkeypatch, capsys, name, other, variable):
        monkeypatch.setenv(variable, "0")
        both.failure[name] = AssertionError("it was built all the same")
        assert both.run() == {f"{name[7:]}_missing.txt": f"{variable}=0 skipped its build\n"}
        assert both.built() == [other]
        assert capsys.readouterr().err == ""

    def test_wrong_choice_is_an_error(self, both, monkeypatch, name, other, variable):
        monkeypatch.setenv(variable, "maybe")
        with pytest.raises(OptionError, match=f"{variable} is 'maybe'"):
            both.run()
