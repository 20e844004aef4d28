"""The package as installed: imports, configuration, the compiled module and its variables."""

from __future__ import annotations

import inspect
import io
import os
import re
import subprocess
import sys
import warnings
from importlib import metadata
from pathlib import Path

import pytest
import torch

import wsfast
from wsfast import _backend, _config, _native


def run_python(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_one_version():
    assert wsfast.__version__ == metadata.version("wsfast")


@pytest.mark.parametrize("name", wsfast.__all__)
def test_public_names_exist_and_are_documented(name):
    value = getattr(wsfast, name)
    if name != "__version__":
        assert inspect.getdoc(value)


def test_public_modules_are_typed():
    assert (Path(wsfast.__file__).parent / "py.typed").is_file()


def test_import_is_quick():
    code = (
        "import torch, time; start = time.perf_counter(); import wsfast;"
        "print(time.perf_counter() - start)"
    )
    # The best of several: a busy machine can only make it slower.
    seconds = min(float(run_python("-c", code).stdout) for _ in range(5))
    assert seconds <= 0.1


@pytest.mark.parametrize("module", ["transformers", "matplotlib"])
def test_import_leaves_extras_alone(module):
    code = f"import sys, wsfast; print({module!r} in sys.modules)"
    assert run_python("-c", code).stdout.strip() == "False"


# -- show_config -----------------------------------------------------------------------------------


def test_show_config_prints_every_fact():
    text = io.StringIO()
    wsfast.show_config(file=text)
    lines = text.getvalue().splitlines()
    facts = _config.config()
    assert len(lines) == len(facts)
    for line, (label, value) in zip(lines, facts.items(), strict=True):
        assert line.startswith(label)
        assert line.endswith(value)


def test_show_config_prints_to_standard_output(capsys):
    assert wsfast.show_config() is None
    assert capsys.readouterr().out.startswith("wsfast ")


def test_python_m_wsfast_prints_the_configuration():
    done = run_python("-m", "wsfast")
    assert done.returncode == 0, done.stderr
    for label in ("wsfast", "Python", "PyTorch", "compiled module", "threads", "CUDA"):
        assert re.search(rf"^{label} +\S", done.stdout, re.MULTILINE)


@pytest.mark.needs("native")
def test_config_of_the_compiled_module():
    facts = _config.config()
    assert Path(facts["compiled module"]).is_file()
    assert facts["compiler"]
    built = facts["instruction sets built"].split(", ")
    assert built[0] == "baseline"
    assert facts["instruction set used"] in built


# -- the compiled module ---------------------------------------------------------------------------


@pytest.mark.needs("native")
@pytest.mark.parametrize("library", ["libtorch", "libc10", "libgomp", "libomp"])
def test_compiled_module_links_neither_torch_nor_openmp(library):
    binary = Path(_native.CPU.require().__file__).read_bytes()
    assert library.encode() not in binary


@pytest.mark.needs("native")
def test_compiled_module_loads_without_torch():
    path = _native.CPU.require().__file__
    code = (
        "import sys, importlib.util as u;"
        f"spec = u.spec_from_file_location('_cpu', {path!r});"
        "module = u.module_from_spec(spec); spec.loader.exec_module(module);"
        "print(module.isa_used(), 'torch' in sys.modules)"
    )
    done = run_python("-I", "-c", code)
    assert done.stdout.split() == [_native.CPU.require().isa_used(), "False"], done.stderr


PRINT_ISA = "from wsfast import _native; print(_native.CPU.require().isa_used())"


@pytest.mark.needs("native")
@pytest.mark.parametrize(
    "level",
    [
        "baseline",
        pytest.param("avx2", marks=pytest.mark.needs("avx2")),
        pytest.param("avx512", marks=pytest.mark.needs("avx512")),
    ],
)
def test_wsfast_simd_chooses_the_instruction_set(level):
    done = run_python("-c", PRINT_ISA, WSFAST_SIMD=level)
    assert done.stdout.strip() == level, done.stderr


@pytest.mark.needs("native")
def test_wsfast_simd_empty_is_unset():
    assert run_python("-c", PRINT_ISA, WSFAST_SIMD="").returncode == 0


@pytest.mark.needs("native")
@pytest.mark.parametrize("level", ["avx3", "AVX2", " "])
def test_wrong_wsfast_simd_is_an_error_on_import(level):
    done = run_python("-c", "import wsfast", WSFAST_SIMD=level)
    assert done.returncode != 0
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: WSFAST_SIMD")
    assert f"'{level}'" in last
    assert "baseline" in last


@pytest.mark.needs("native")
def test_set_isa_refuses_an_unknown_level(isa):
    with pytest.raises(ValueError, match="avx3"):
        isa("avx3")


# -- without the compiled module -------------------------------------------------------------------


def lose(monkeypatch, compiled, reason):
    """As where the module was not built."""
    for name, value in (("module", None), ("reason", reason), ("_warned", False)):
        monkeypatch.setattr(compiled, name, value)


@pytest.fixture
def without_module(monkeypatch):
    lose(monkeypatch, _native.CPU, "no compiler here")


@pytest.mark.usefixtures("without_module")
def test_missing_module_is_named_in_every_message():
    with pytest.raises(RuntimeError, match=r"backend='native'.*no compiler here.*backend='torch'"):
        _native.CPU.require()
    assert _config.config()["compiled module"] == "absent: no compiler here"


@pytest.mark.usefixtures("without_module")
def test_missing_module_warns_once():
    with pytest.warns(RuntimeWarning, match="no compiler here"):
        _native.CPU.warn_once_missing()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _native.CPU.warn_once_missing()


@pytest.mark.needs("native")
def test_present_module_does_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _native.CPU.warn_once_missing()
    assert _native.CPU.reason == ""


# -- CUDA ------------------------------------------------------------------------------------------

GPU = torch.device("cuda")


@pytest.fixture
def without_cuda(monkeypatch):
    lose(monkeypatch, _native.CUDA, "nvcc was not found")


@pytest.mark.usefixtures("without_cuda")
def test_cuda_tensors_without_cuda_kernels_go_to_pytorch():
    with pytest.warns(RuntimeWarning, match="module _cuda.*nvcc was not found"):
        assert _backend.resolve(None, GPU) == "torch"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert _backend.resolve(None, GPU) == "torch"
        assert _backend.resolve("torch", GPU) == "torch"
    with pytest.raises(RuntimeError, match=r"_cuda: nvcc was not found.*nvcc.*backend='torch'"):
        _backend.resolve("native", GPU)
    assert _config.config()["CUDA kernels"] == "absent: nvcc was not found"


def test_cuda_tensors_go_to_the_cuda_kernels(monkeypatch):
    monkeypatch.setattr(_native.CUDA, "module", _native)
    for backend in (None, "native"):
        assert _backend.resolve(backend, GPU) == "native"
    assert _backend.resolve(None, GPU, requires_grad=True) == "torch"
    kernels = _native.kernels(GPU)
    assert kernels.gpu
    assert kernels.module is _native


@pytest.mark.needs("native")
def test_tensors_of_the_cpu_go_to_the_kernels_of_the_cpu(monkeypatch):
    monkeypatch.setattr(_native.CUDA, "module", None)
    assert not _native.kernels(torch.device("cpu")).gpu


def test_other_devices_go_to_pytorch():
    assert _backend.resolve(None, torch.device("meta")) == "torch"


def test_broken_module_is_no_import_error(tmp_path):
    """A module built for another machine must not take the rest of the package with it."""
    package = tmp_path / "wsfast"
    package.mkdir()
    source = Path(wsfast.__file__).parent
    for name in ("_native.py", "_version.py", "_config.py", "_warn.py"):
        (package / name).write_text((source / name).read_text())
    (package / "__init__.py").write_text("")
    (package / "_cpu.py").write_text("raise ImportError('undefined symbol: gone')")
    code = "from wsfast import _native; print(_native.CPU.module, _native.CPU.reason)"
    done = run_python("-c", code, PYTHONPATH=str(tmp_path))
    assert done.stdout.startswith("None it failed to load"), done.stderr
    assert "undefined symbol: gone" in done.stdout
