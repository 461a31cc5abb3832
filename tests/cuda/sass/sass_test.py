"""What ptxas says and what nvdisasm prints becomes resources, loops and an error of the build. Needs neither."""

import json
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import resources
import sass

HERE = Path(__file__).parent
NAME = "_ZN7moestro4cuda12_GLOBAL__N_111PlainKernelEPf"
PTXAS = f"""ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '{NAME}' for 'sm_90'
ptxas info    : Function properties for {NAME}
    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 96 registers, used 1 barriers
"""
# A loop of five instructions within one of eight; and the one that ends every kernel.
DISASSEMBLY = f"""
	.section	.text.{NAME},"ax",@progbits
        /*0000*/                   MOV R1, R2 ;
.L_x_0:
        /*0010*/                   LDG.E.128 R4, [R2] ;
        /*0020*/                   STS.128 [R8], R4 ;
.L_x_1:
        /*0030*/              @!P0 LDS.64 R4, [R8] ;
        /*0040*/                   LDSM.16.M88.4 R4, [R8] ;
        /*0050*/                   HMMA.16816.F32.BF16 R4, R4, R8, R4 ;
        /*0060*/                   HMMA.16816.F32.BF16 R4, R4, R8, R4 ;
        /*0070*/               @P0 BRA `(.L_x_1) ;
        /*0080*/               @P1 BRA `(.L_x_0) ;
        /*0090*/                   BRA `(.L_x_3) ;
.L_x_3:
        /*00a0*/                   EXIT ;
.L_x_2:
        /*00b0*/                   BRA `(.L_x_2);
"""


def test_resources_of_a_compilation():
    assert resources.parse(PTXAS * 2) == [resources.Resources("PlainKernel", "sm_90", 96, 8)] * 2
    assert resources.parse("a warning\n") == []


def test_names_of_templates():
    name = ("void moestro::cuda::(anonymous namespace)::LinearKernel<moestro::cuda::(anonymous namespace)::Tiling<"
            "(moestro::DType)10, true, 4> >(moestro::cuda::LinearParams)")
    assert resources.short_name(name) == "LinearKernel<Tiling<Q6_K, true, 4>>"


def test_the_main_loop_is_the_innermost_with_tensor_instructions():
    loops = sass.kernels_of(DISASSEMBLY)
    assert list(loops) == ["PlainKernel"]
    loop = loops["PlainKernel"]
    assert (loop.instructions, loop.tensor, loop.shared_clocks) == (5, 2, 2 + 4)
    bytes_ = sass.kernels_of(DISASSEMBLY.replace("HMMA.16816.F32.BF16", "IMMA.16832.S8.S8"))["PlainKernel"]
    assert (bytes_.instructions, bytes_.tensor) == (5, 2)
    # Four warps read 64 columns of 32 bytes; a load that is never executed is none.
    groups = DISASSEMBLY.replace("HMMA.16816.F32.BF16", "QGMMA.64x64x32.F32.E4M3.E4M3").replace("@!P0 LDS", "@!PT LDS")
    loop = sass.kernels_of(groups)["PlainKernel"]
    assert (loop.instructions, loop.tensor, loop.shared_clocks) == (5, 2, 4 + 2 * 4)
    plain = sass.kernels_of(DISASSEMBLY.replace("HMMA.16816.F32.BF16", "FFMA"))["PlainKernel"]
    assert (plain.instructions, plain.tensor, plain.shared_clocks) == (8, 0, 4 + 2 + 4)


def test_what_exceeds_a_budget():
    found = resources.parse(PTXAS)
    allowed = {"registers": [{"kernel": "^Plain", "registers": 96}],
               "spills": [{"kernel": "^Plain", "target": "sm_90", "bytes": 8}]}
    assert resources.excess(found, allowed) == []
    none = {"registers": [], "spills": [dict(allowed["spills"][0], target="sm_80")]}
    assert resources.excess(found, none) == ["PlainKernel for sm_90: 8 bytes are spilled, 0 are allowed"]
    few = {"registers": [{"kernel": "^Plain", "registers": 95}], "spills": allowed["spills"]}
    assert resources.excess(found, few) == ["PlainKernel for sm_90: 96 registers, 95 are allowed"]


def test_products_that_wait_for_each_other_are_told():
    told = ("ptxas info    : (C7513) Potential Performance Loss: wgmma.mma_async instructions are serialized due to non "
            "wgmma instructions defining input registers of a wgmma between start and end of the pipeline stage in the "
            f"function '{NAME}'")
    assert resources.serialized(told) == ["PlainKernel: products are serialized (C7513)"]
    assert resources.serialized(PTXAS) == []


def test_a_compilation_over_its_budget_fails_and_leaves_no_object(tmp_path):
    compiler = tmp_path / "nvcc"
    compiler.write_text(f"#!/bin/sh\necho object >object.o\ncat >&2 <<'END'\n{PTXAS}a warning\nEND\nexit $STATUS\n")
    compiler.chmod(0o755)

    def run(status):
        return subprocess.run([HERE / "check_resources", compiler, "-o", "object.o"], cwd=tmp_path, text=True,
                              capture_output=True, env={"STATUS": status, "PATH": "/usr/bin:/bin"})

    over = run("0")
    assert over.returncode == 1 and not (tmp_path / "object.o").exists()
    assert "PlainKernel for sm_90: 8 bytes are spilled" in over.stderr and "a warning" in over.stderr
    assert "ptxas info" not in over.stderr
    compiler.write_text(compiler.read_text().replace("8 bytes spill stores", "0 bytes spill stores"))
    assert run("0").returncode == 0 and (tmp_path / "object.o").exists()
    assert run("3").returncode == 3


def test_the_budget_names_kernels_once():
    budget = json.loads((HERE / "budget.json").read_text())
    names = [row["kernel"] for row in budget["registers"]]
    assert len(names) == len(set(names)) and all(0 < row["registers"] <= 255 for row in budget["registers"])
    assert all(row["bytes"] > 0 for row in budget["spills"])
    assert len({(row["kernel"], row["target"]) for row in budget["spills"]}) == len(budget["spills"])


def test_simulations_have_the_reported_rates():
    table = json.loads((HERE.parents[2] / "loadtest/results/cuda-sass/kernels.json").read_text())
    for target, file in {"sm_89": "rtx4090", "sm_90a": "h200", "sm_120f": "rtx5090-epyc9355"}.items():
        machine = json.loads((HERE.parents[2] / f"deploy/hardware/{file}.json").read_text())
        if machine["kernels"]["origin"] == "estimated":
            assert machine["kernels"] == table[target]["rates"], file


def test_kernels_of_int8_are_reported():
    table = json.loads((HERE.parents[2] / "loadtest/results/cuda-sass/kernels.json").read_text())
    for target, of in table.items():
        assert [row["kernel"] for row in of["products"] if "INT8" in row["kernel"]] == [
            "linear, INT8", "gate and up, INT8"], target
        assert all(row["tensor_instructions"] > 0 for row in of["products"] + of["int8"]), target
