"""The package as installed: imports, configuration, the compiled module and its variables."""

from __future__ import annotations

import inspect
import io
import os
import pickle
import re
import shutil
import subprocess
import sys
import warnings
from importlib import metadata
from pathlib import Path

import pytest
import torch

import wsfast
from wsfast import _config
from wsfast.engines import choose, compiled


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


# -- start-up --------------------------------------------------------------------------------------

HELP = "import sys; from wsfast.cli import main; main(['--help'])"


def seconds(code: str) -> float:
    """CPU time of a process, the least of several: other programs can only make it longer."""
    times = []
    for _ in range(5):
        before = os.times()
        run_python("-c", code)
        after = os.times()
        times.append(sum(after[2:4]) - sum(before[2:4]))
    return min(times)


@pytest.mark.parametrize("code", ["import wsfast", HELP])
def test_start_up_is_quick(code):
    assert seconds(code) <= 0.15


@pytest.mark.deep
def test_import_beside_torch_is_quick():
    code = (
        "import torch, time; start = time.process_time(); import wsfast;"
        "print(time.process_time() - start)"
    )
    assert min(float(run_python("-c", code).stdout) for _ in range(2)) <= 0.1


HEAVY = (
    "torch",
    "numpy",
    "transformers",
    "matplotlib",
    "tokenizers",
    "pandas",
    "importlib.metadata",
)


def heavy_modules(code: str) -> str:
    """Which heavy modules the code has imported when it ends, whatever its exit status."""
    lines = [
        "import sys",
        "try:",
        *(f"    {line}" for line in code.splitlines()),
        "except SystemExit:",
        "    pass",
        f"print('heavy:', *(name for name in {HEAVY!r} if name in sys.modules))",
    ]
    done = run_python("-c", "\n".join(lines))
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    "code",
    [
        "import wsfast",
        "import wsfast; wsfast.__version__; dir(wsfast); wsfast.__all__",
        "import wsfast.cli",
        *(
            f"from wsfast.cli import main; main({arguments!r})"
            for arguments in (
                ["--help"],
                ["score", "--help"],
                ["substitute", "--help"],
                ["layers", "--help"],
                ["reproduce", "sensitivity", "--help"],
                ["no-such-command"],
                ["score", "--draws", "one", "a text"],
                ["score"],
            )
        ),
    ],
)
def test_start_up_imports_nothing_heavy(code):
    assert heavy_modules(code) == "heavy:"


def test_import_leaves_extras_alone():
    code = (
        "import sys; from wsfast import *; print({'transformers', 'matplotlib'} & {*sys.modules})"
    )
    assert run_python("-c", code).stdout.strip() == "set()"


# Each in a process, or as good as one: wsfast is forgotten before each.
USES = """
import torch, wsfast; torch.ops.wsfast.raf_features  # registered at once where torch is there
import wsfast; wsfast.nn.RandomAttentionFeatures; wsfast.text.Embedded
import wsfast; wsfast.generalization.experiment; wsfast.scaling
import wsfast.nn, torch; assert wsfast.nn is not torch.nn
from wsfast import *; raf_sensitivity, nn.RandomAttentionFeatures, text.imdb_reviews
import wsfast; wsfast.embed; from wsfast.text import embed; assert callable(embed)
import wsfast.text.compare; from wsfast import compare; assert callable(compare)
from wsfast.text import substitute; import wsfast; assert wsfast.substitute is substitute
"""


@pytest.mark.deep
@pytest.mark.parametrize("eager", ["", "1"])
def test_names_are_there_when_asked_for(eager):
    code = (
        "import sys, wsfast\n"
        "assert ('torch' in sys.modules) == bool(sys.argv[1])\n"
        "wsfast.raf_features; import torch; torch.ops.wsfast.raf_features\n"
        f"for line in {USES!r}.strip().splitlines():\n"
        "    for name in [name for name in sys.modules if name.partition('.')[0] == 'wsfast']:\n"
        "        del sys.modules[name]\n"
        "    exec(line, {})\n"
    )
    done = run_python("-c", code, eager, EAGER_IMPORT=eager)
    assert done.returncode == 0, done.stderr


def test_unknown_name():
    with pytest.raises(AttributeError, match="no_such_name"):
        wsfast.no_such_name  # noqa: B018
    assert not hasattr(wsfast, "np")


def test_dir_has_the_public_names():
    assert set(wsfast.__all__) <= {*dir(wsfast)}


@pytest.mark.deep
def test_results_are_unpickled_and_shown_where_nothing_was_imported(tmp_path):
    result = wsfast.raf_sensitivity(torch.randn(3, 4), max_steps=1)
    path = tmp_path / "result.pickle"
    path.write_bytes(pickle.dumps(result))
    code = f"import pickle; print(pickle.load(open({str(path)!r}, 'rb')))"
    done = run_python("-c", code)
    assert done.stdout.strip() == repr(result), done.stderr


USER = """
import torch
import wsfast
from wsfast import SensitivityResult, generalization
from wsfast.text import Embedded

one: Embedded = wsfast.embed("a text")
several: list[Embedded] = wsfast.embed(["a text"])
result: SensitivityResult = wsfast.raf_sensitivity(one.X)
layer: torch.nn.Module = wsfast.nn.RandomAttentionFeatures(4)
experiment = generalization.experiment
version: str = wsfast.__version__
"""


@pytest.mark.deep
def test_mypy_sees_the_types_of_lazy_names(tmp_path):
    pytest.importorskip("mypy")
    program = tmp_path / "program.py"
    program.write_text(USER + "wrong: int = wsfast.embed('a text')\n")
    root = str(Path(wsfast.__file__).parents[1])
    # Of an installed package mypy knows by itself, and takes no such path.
    path = {} if "site-packages" in root else {"MYPYPATH": root}
    done = run_python("-m", "mypy", "--strict", str(program), **path)
    assert done.stdout.count("error:") == 1, done.stdout
    assert '"Embedded"' in done.stdout


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
    binary = Path(compiled.CPU.require().__file__).read_bytes()
    assert library.encode() not in binary


@pytest.mark.needs("native")
def test_compiled_module_loads_without_torch():
    path = compiled.CPU.require().__file__
    code = (
        "import sys, importlib.util as u;"
        f"spec = u.spec_from_file_location('_cpu', {path!r});"
        "module = u.module_from_spec(spec); spec.loader.exec_module(module);"
        "print(module.isa_used(), 'torch' in sys.modules)"
    )
    done = run_python("-I", "-c", code)
    assert done.stdout.split() == [compiled.CPU.require().isa_used(), "False"], done.stderr


PRINT_ISA = "from wsfast.engines import compiled; print(compiled.CPU.require().isa_used())"


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
@pytest.mark.parametrize(
    "level", ["avx3", *(pytest.param(k, marks=pytest.mark.deep) for k in ("AVX2", " "))]
)
def test_wrong_wsfast_simd_is_an_error_at_the_first_use(level):
    use = "import torch; wsfast.raf_sensitivity(torch.ones(2, 2))" if level == "avx3" else PRINT_ISA
    done = run_python("-c", f"import wsfast; print('imported')\n{use}", WSFAST_SIMD=level)
    assert done.stdout == "imported\n"
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
    lose(monkeypatch, compiled.CPU, "no compiler here")


@pytest.mark.usefixtures("without_module")
def test_missing_module_is_named_in_every_message():
    with pytest.raises(RuntimeError, match=r"backend='native'.*no compiler here.*backend='torch'"):
        compiled.CPU.require()
    assert _config.config()["compiled module"] == "absent: no compiler here"


@pytest.mark.usefixtures("without_module")
def test_missing_module_warns_once():
    with pytest.warns(RuntimeWarning, match="no compiler here"):
        compiled.CPU.warn_once_missing()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled.CPU.warn_once_missing()


@pytest.mark.needs("native")
def test_present_module_does_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled.CPU.warn_once_missing()
    assert compiled.CPU.reason == ""


# -- a source tree, served by the installed wsfast -------------------------------------------------


@pytest.fixture
def clone(tmp_path):
    """A source tree without compiled modules, in which a build has left its metadata."""
    source = Path(wsfast.__file__).parent
    tree = tmp_path / "clone"
    compiled_modules = shutil.ignore_patterns("*.so", "*.pyd", "__pycache__")
    shutil.copytree(source, tree / "wsfast", ignore=compiled_modules)
    leave_metadata(tree / "wsfast.egg-info" / "PKG-INFO", wsfast.__version__)
    return tree


@pytest.fixture
def site(tmp_path):
    """A folder where wsfast is installed, with its compiled module."""
    folder = tmp_path / "site"
    module = Path(compiled.CPU.require().__file__)
    (folder / "wsfast").mkdir(parents=True)
    shutil.copy(module, folder / "wsfast" / module.name)
    leave_metadata(folder / "wsfast-7.dist-info" / "METADATA", wsfast.__version__)
    return folder


def leave_metadata(path, version):
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"Metadata-Version: 2.1\nName: wsfast\nVersion: {version}\n")


def run_inside(tree, site, *arguments):
    """As a user who starts Python in the clone."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": f"{site}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.needs("native")
def test_source_tree_uses_the_compiled_module_of_the_installed_wsfast(clone, site):
    done = run_inside(clone, site, "-m", "wsfast")
    assert done.returncode == 0, done.stderr
    facts = dict(re.split(r" {2,}", line, maxsplit=1) for line in done.stdout.splitlines())
    assert str(clone) in facts["wsfast"]
    assert Path(facts["compiled module"]).parent == site / "wsfast"
    assert facts["compiled module of"].startswith("the installed wsfast of the same version")
    assert facts["instruction set used"] == compiled.CPU.require().isa_used()


@pytest.mark.needs("native")
def test_own_compiled_module_comes_before_the_installed_one(clone, site):
    module = Path(compiled.CPU.require().__file__)
    shutil.copy(module, clone / "wsfast" / module.name)
    code = (
        "import sys; from wsfast.engines import compiled; print(compiled.CPU.module.__file__);"
        "print(compiled.CPU.borrowed, 'email' in sys.modules)"  # no search: it costs time
    )
    path, facts = run_inside(clone, site, "-c", code).stdout.splitlines()
    assert Path(path).parent == clone / "wsfast"
    assert facts == "False False"


@pytest.mark.needs("native")
def test_module_of_another_version_is_named_and_not_used(clone, site):
    (clone / "wsfast" / "_version.py").write_text('__version__ = "99.0"\n')
    code = "from wsfast.engines.compiled import CPU; print(CPU.module); CPU.warn_once_missing()"
    done = run_inside(clone, site, "-c", code)
    assert done.stdout == "None\n"
    for part in (str(clone), "version 99.0", f"{wsfast.__version__} in {site}"):
        assert part in done.stderr


@pytest.mark.needs("native")
def test_broken_installed_module_is_no_import_error(clone, site):
    (module,) = (site / "wsfast").iterdir()
    module.write_bytes(b"no library")
    code = "from wsfast.engines import compiled; print(compiled.CPU.module, compiled.CPU.reason)"
    done = run_inside(clone, site, "-c", code)
    assert done.stdout.startswith("None it failed to load"), done.stderr


def test_warning_points_at_the_program_of_the_user(monkeypatch):
    lose(monkeypatch, compiled.CPU, "no compiler here")
    with pytest.warns(RuntimeWarning, match="no compiler here") as caught:
        wsfast.raf_sensitivity(torch.ones(2, 2), max_steps=1)
    assert [one.filename for one in caught] == [__file__]


# -- CUDA ------------------------------------------------------------------------------------------

GPU = torch.device("cuda")


@pytest.fixture
def without_cuda(monkeypatch):
    lose(monkeypatch, compiled.CUDA, "nvcc was not found")


@pytest.mark.usefixtures("without_cuda")
def test_cuda_tensors_without_cuda_kernels_go_to_pytorch():
    with pytest.warns(RuntimeWarning, match="module _cuda.*nvcc was not found"):
        assert choose.engine(None, GPU).backend == "torch"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert choose.engine(None, GPU).backend == "torch"
        assert choose.engine("torch", GPU).backend == "torch"
    with pytest.raises(RuntimeError, match=r"_cuda: nvcc was not found.*nvcc.*backend='torch'"):
        choose.engine("native", GPU)
    assert _config.config()["CUDA kernels"] == "absent: nvcc was not found"


def test_cuda_tensors_go_to_the_cuda_kernels(monkeypatch):
    monkeypatch.setattr(compiled.CUDA, "module", compiled)
    for backend in (None, "native"):
        assert choose.engine(backend, GPU).backend == "native"
    assert choose.engine(None, GPU, requires_grad=True).backend == "torch"
    kernels = compiled.kernels(GPU)
    assert kernels.gpu
    assert kernels.module is compiled


@pytest.mark.needs("native")
def test_tensors_of_the_cpu_go_to_the_kernels_of_the_cpu(monkeypatch):
    monkeypatch.setattr(compiled.CUDA, "module", None)
    assert not compiled.kernels(torch.device("cpu")).gpu


def test_other_devices_go_to_pytorch():
    assert choose.engine(None, torch.device("meta")).backend == "torch"


def test_broken_module_is_no_import_error(tmp_path):
    """A module built for another machine must not take the rest of the package with it."""
    package = tmp_path / "wsfast"
    (package / "engines").mkdir(parents=True)
    source = Path(wsfast.__file__).parent
    names = ("engines/__init__.py", "engines/compiled.py")
    for name in (*names, "_version.py", "_config.py", "_warn.py"):
        (package / name).write_text((source / name).read_text())
    (package / "__init__.py").write_text("")
    (package / "_cpu.py").write_text("raise ImportError('undefined symbol: gone')")
    code = "from wsfast.engines import compiled; print(compiled.CPU.module, compiled.CPU.reason)"
    done = run_python("-c", code, PYTHONPATH=str(tmp_path))
    assert done.stdout.startswith("None it failed to load"), done.stderr
    assert "undefined symbol: gone" in done.stdout
