"""The checks of ci/device_code.py find what is planted, and conflicts that they cannot follow."""

from __future__ import annotations

import importlib
import re
import shutil
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
CUDA = ROOT / "csrc" / "cuda"
sys.path.insert(0, str(ROOT / "ci"))
device_code = importlib.import_module("device_code")
budget = importlib.import_module("cubin.budget")
compiler = importlib.import_module("cubin.compiler")
sass = importlib.import_module("cubin.sass")

pytestmark = pytest.mark.deep

# -- what the compiler says ------------------------------------------------------------------------

VERBOSE = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z3twov' for 'sm_90'
ptxas info    : Function properties for _Z3twov
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 84 registers, used 1 barriers, 1728 bytes smem
ptxas info    : Compiling entry function '_Z3onev' for 'sm_90'
ptxas info    : Function properties for _Z3onev
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 30 registers, used 0 barriers
"""


def test_resources_of_each_kernel():
    assert compiler.parse_resources(VERBOSE) == {
        "_Z3twov": compiler.Resources(84, 1728),
        "_Z3onev": compiler.Resources(30, 0),
    }


def test_short_name():
    name = (
        "void wsfast::cuda::(anonymous namespace)::forward_kernel<true, 128, wsfast::(anonymous "
        "namespace)::Normalized<wsfast::(anonymous namespace)::Relu>, float>(wsfast::A<float>)"
    )
    assert compiler.short(name) == "forward_kernel<true, 128, Normalized<Relu>, float>"


PLANTS = {
    "spill": (
        "__global__ void __launch_bounds__(1024, 2) planted(float* x) {\n"
        "  float a[64];\n"
        "#pragma unroll\n"
        "  for (int k = 0; k < 64; ++k) a[k] = x[k * 1024 + threadIdx.x];\n"
        "  __syncthreads();\n"
        "#pragma unroll\n"
        "  for (int k = 0; k < 64; ++k) x[threadIdx.x * 64 + 63 - k] = a[k] * a[(k + 32) % 64];\n"
        "}\n",
        "Registers are spilled to local memory in function 'planted",
    ),
    "local memory": (
        "__global__ void planted(float* x, int i, int j) {\n"
        "  float a[99];\n"
        "  for (int k = 0; k < 99; ++k) a[k] = x[k];\n"
        "  a[j] = 1;\n"
        "  x[0] = a[i];\n"
        "}\n",
        "Local memory used for function 'planted",
    ),
    "warning": ("__global__ void planted(float* x) { int unused; }\n", "never referenced"),
}


def _compile(folder: Path, text: str, name: str = "planted_f32") -> dict[str, object]:
    source = folder / f"{name}.cu"
    source.write_text(text)
    nvcc = shutil.which("nvcc")
    return compiler.compile_cubin(nvcc, source, ROOT / "csrc", "sm_90", folder / "a.cubin")


@pytest.mark.needs("nvcc")
@pytest.mark.parametrize("plant", PLANTS)
def test_compiler_refuses(tmp_path: Path, plant: str):
    text, message = PLANTS[plant]
    with pytest.raises(compiler.CompileError, match=re.escape(message)):
        _compile(tmp_path, text)


DOUBLE = """\
__global__ void __launch_bounds__(32) without(float* x) { x[0] = 1; }
__global__ void __launch_bounds__(32) planted(float* x) { x[0] = x[0] * 0.3; }
"""


@pytest.mark.needs("nvcc", "cuxray")
@pytest.mark.parametrize(("name", "faults"), [("planted_f32", 1), ("planted_f64", 0)])
def test_double_is_found_where_it_is_not_meant(tmp_path: Path, name: str, faults: int):
    source = tmp_path / f"{name}.cu"
    source.write_text(DOUBLE)
    tools = device_code.find_tools()
    report = device_code.examine(tools.nvcc, tools.nvdisasm, source, "sm_90")
    assert len(report.faults) == faults
    assert all(fault.startswith("planted: double precision: DMUL") for fault in report.faults)
    assert len(report.rows) == 2


# -- machine code ----------------------------------------------------------------------------------

CODE = """\
\t.section\t.text._Z3onev,"ax",@progbits
_Z3onev:
.text._Z3onev:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/              @!P0 LDGSTS.E.BYPASS.128 [R9], desc[UR16][R6.64] ;
        /*0020*/             @!UP1 HMMA.1688.F32.TF32 R4, R8, R6, R4 ;
.L_x_0:
        /*10030*/              @P0 STG.E.128 desc[UR4][R2.64], R4 ;
        /*10040*/                  LDS.64 R2, [R9] ;
        /*10050*/                  LDS.64 R4, [R9+0x8] ;
        /*10060*/                  DEPBAR.LE SB0, 0x1 ;
"""
FEATURES = "features_kernel<6>"


def test_opcodes():
    assert sass.opcodes(CODE) == {
        "_Z3onev": Counter(
            {
                "LDC": 1,
                "LDGSTS.E.BYPASS.128": 1,
                "HMMA.1688.F32.TF32": 1,
                "STG.E.128": 1,
                "LDS.64": 2,
                "DEPBAR.LE": 1,
            }
        )
    }


def test_machine_code_as_meant():
    codes = sass.opcodes(CODE)["_Z3onev"]
    assert sass.faults(FEATURES, codes, double=False) == []
    assert sass.faults(FEATURES, Counter(), double=False) == ["no instructions were found"]


@pytest.mark.parametrize("code", ["HMMA.1688.F32.TF32", "LDGSTS.E.BYPASS.128", "STG.E.128"])
def test_instruction_missing(code: str):
    codes = sass.opcodes(CODE.replace(code, code.split(".")[0] + ".32"))["_Z3onev"]
    assert len(sass.faults(FEATURES, codes, double=False)) == 1


PRODUCTS = """\
\t.section\t.text._Z3onev,"ax",@progbits
        /*0000*/                   HMMA.1688.F32.TF32 R4, R8, R6, R4 ;
.L_x_0:
        /*0010*/                   LDS.64 R2, [R9] ;
        /*0020*/              @!P0 BRA `(.L_x_1) ;
        /*0030*/                   LDS.64 R2, [R9] ;
        /*0040*/                   HMMA.1688.F32.TF32 R4, R8, R6, R4 ;
        /*0050*/                   HMMA.1688.F32.TF32 R4, R8, R6, RZ ;
.L_x_1:
        /*0060*/                   FADD R2, R2, R4 ;
        /*0070*/               @P0 BRA `(.L_x_0) ;
        /*0080*/                   EXIT ;
"""


def test_instructions_of_a_tile():
    found = sass.products_of_a_tile(PRODUCTS)
    assert found == {"_Z3onev": 3}
    assert sass.products_of_a_tile(PRODUCTS.replace("`(.L_x_0)", "`(.L_x_9)")) == {}
    assert sass.too_many_for_a_tile({FEATURES}, {FEATURES: 850}) == []
    for products in ({}, {FEATURES: 851}):
        assert len(sass.too_many_for_a_tile({FEATURES}, products)) == 1


@pytest.mark.parametrize("code", ["STL.64", "LDL"])
def test_local_memory(code: str):
    assert sass.faults("any", Counter({code: 1}), double=True) == [f"local memory: {code}"]


@pytest.mark.parametrize("code", ["DADD", "DFMA", "DSETP.GT.AND", "F2F.F64.F32", "MUFU.RCP64H"])
def test_double_precision(code: str):
    assert sass.faults("any", Counter({code: 1}), double=False) == [f"double precision: {code}"]
    assert sass.faults("any", Counter({code: 1}), double=True) == []


def test_every_kernel_meant_is_there():
    assert not device_code.unused_rules(
        {
            *(FEATURES, "forward_kernel<true, 32, Softmax, float>", "step_kernel<32, 4, float>"),
            *("rows_kernel<Softmax, float>", "rows_kernel<Softmax, double>"),
        }
    )
    assert len(device_code.unused_rules(set())) == len(sass.MEANT)


# -- budget ----------------------------------------------------------------------------------------


def _row(registers: int = 64, shared: int = 512, threads: int = 128) -> object:
    return budget.Row(threads, compiler.Resources(registers, shared))


KEY = ("step_kernel<128, 4, float>", "sm_90")


@pytest.mark.parametrize(
    ("measured", "fault"),
    [
        ({KEY: _row(65)}, "registers 65, more than 64"),
        ({KEY: _row(shared=513)}, "shared 513, more than 512"),
        ({KEY: _row(threads=256)}, "blocks of 256 threads, not 128"),
        ({KEY: _row(), (KEY[0], "sm_80"): _row()}, "not in the budget"),
        ({}, "only in the budget"),
    ],
)
def test_budget_exceeded(measured: dict, fault: str):
    (wrong,) = budget.faults({KEY: _row()}, measured)
    assert wrong.startswith(KEY[0])
    assert fault in wrong


@pytest.mark.needs("cuxray")
def test_budget_kept(tmp_path: Path):
    rows = {KEY: _row(), (KEY[0], "sm_100"): _row(70)}
    path = tmp_path / "resources.csv"
    path.write_text(budget.text(rows))
    assert path.read_text().splitlines()[1] == f'"{KEY[0]}",128,512,0,64,32,70,28'
    assert budget.load(path) == rows
    assert budget.faults(rows, {KEY: _row(63), (KEY[0], "sm_100"): _row(70, 0)}) == []


@pytest.mark.needs("cuxray")
def test_what_a_multiprocessor_holds():
    # 56 registers: 1,792 a warp, 36 warps in 65,536; 140 KiB of 227: one block.
    assert budget.warps("any", "sm_90", _row(56, 0)) == 36
    wide = "features_kernel<8>"
    assert budget.warps(wide, "sm_90", _row(128, 1344, 256)) == 8


@pytest.mark.needs("nvcc")
def test_dynamic_shared_memory_is_that_of_the_layout(tmp_path: Path):
    text = '#include "cuda/features.cuh"\nusing namespace wsfast::cuda;\n'
    for blocks in (1, 3, 6, 8):
        bytes_ = budget.dynamic_shared(f"features_kernel<{blocks}>")
        text += f"static_assert(Layout<{blocks}>::kBytes == {bytes_});\n"
    _compile(tmp_path, text)
    with pytest.raises(compiler.CompileError, match="static assertion failed"):
        _compile(tmp_path, text.replace("kBytes ==", "kBytes == 1 +"))


# -- banks of shared memory ------------------------------------------------------------------------


def ways(addresses: list[int], width: int) -> int:
    """How many words the fullest bank is asked for, in the worst of an access's parts."""
    lanes = 32 * 4 // max(width, 4)
    worst = 1
    for first in range(0, 32, lanes):
        words = {
            (address + byte) // 4
            for address in addresses[first : first + lanes]
            for byte in range(0, width, 4)
        }
        worst = max(worst, *Counter(word % 32 for word in words).values())
    return worst


def _constant(name: str) -> int:
    text = "".join(path.read_text("utf-8") for path in sorted(CUDA.glob("*.cuh")))
    (value,) = re.findall(rf"^constexpr int\b[^;]*\b{name} = (\d+)", text, re.MULTILINE)
    return int(value)


LANES = [(lane // 4, lane % 4) for lane in range(32)]


def _tile_accesses(blocks: int, padding: int) -> dict[str, int]:
    """The ways of each access of features.cuh to a tile of words."""
    stride = _constant("kWarps") * blocks * _constant("kBlockColumns") + padding
    return {
        "add_scores": ways([(g * stride + 2 * t) * 4 for g, t in LANES], 8),
        "add_values": ways([(t * stride + 2 * g) * 4 for g, t in LANES], 8),
        "copy_words": ways([(g * stride + 4 * t) * 4 for g, t in LANES], 16),
    }


@pytest.mark.parametrize("blocks", [1, 3, 6, 8])
def test_lanes_of_a_tile_meet_in_no_bank(blocks: int):
    found = _tile_accesses(blocks, _constant("kPadding"))
    # Copies are few, and asynchronous.
    assert found.pop("copy_words") <= 2
    assert set(found.values()) == {1}


def test_padding_is_needed():
    assert max(_tile_accesses(6, 0).values()) >= 4


def test_ways():
    assert ways([4 * lane for lane in range(32)], 4) == 1
    assert ways([0] * 32, 4) == 1
    assert ways([128 * lane for lane in range(32)], 4) == 32
    assert ways([16 * lane for lane in range(32)], 16) == 1
    assert ways([16 * lane for lane in range(32)], 4) == 4
    assert ways([256 * lane for lane in range(32)], 8) == 16


CONFLICT = """\
\t.target\tsm_90
\t.section\t.text._Z3onev,"ax",@progbits
_Z3onev:
.text._Z3onev:
        /*0000*/                   S2R R0, SR_TID.X ;
        /*0010*/                   IMAD.SHL.U32 R2, R0, 0x{stride:x}, RZ ;
        /*0020*/                   LDS R3, [R2] ;
        /*0030*/                   STS [R2+0x4], R3 ;
        /*0040*/                   EXIT ;
"""


@pytest.mark.parametrize(("stride", "faults"), [(4, 0), (16, 2)])
@pytest.mark.needs("cuxray")
def test_conflicts_are_read_from_machine_code(stride: int, faults: int):
    banks = importlib.import_module("cubin.banks")
    name = "rows_kernel<Softmax, float>"
    found = banks.read(CONFLICT.format(stride=stride), {name: 256}, {"_Z3onev": name})[name]
    assert (found.known, found.unknown) == (2, 0)
    assert len(found.faults) == faults
    if faults:
        assert found.faults[0] == "LDS meets 4 ways in a bank of shared memory"


@pytest.mark.needs("cuxray")
def test_allowed_conflicts():
    banks = importlib.import_module("cubin.banks")
    text = CONFLICT.format(stride=8)
    (reading,) = banks.read(text, {FEATURES: 256}, {"_Z3onev": FEATURES}).values()
    assert reading.faults == ("LDS meets 2 ways in a bank of shared memory",)


# -- the whole -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("options", "status"), [([], 0), (["--require"], 1)])
def test_missing_tool(monkeypatch: pytest.MonkeyPatch, capsys, options: list[str], status: int):
    def missing() -> None:
        raise device_code.MissingError("nvcc was not found")

    monkeypatch.setattr(device_code, "find_tools", missing)
    monkeypatch.setattr(sys, "argv", ["device_code.py", *options])
    assert device_code.main() == status
    assert capsys.readouterr().out == "device code NOT checked: nvcc was not found\n"


def test_too_few_accesses_followed():
    assert device_code.unknown_accesses([device_code.Report("a.cu", "", known=69, unknown=31)])
    assert not device_code.unknown_accesses([device_code.Report("a.cu", "", known=70, unknown=30)])
