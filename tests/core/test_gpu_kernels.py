"""The text of the kernels for GPUs: what is in it, and that a compiler takes it."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEVICE = ROOT / "csrc/device"
PTX = DEVICE.joinpath("kernels_ptx.cc").read_text().split('R"ptx(')[1].split(')ptx"')[0]
# bool is uint8 there
TEXT = ROOT.joinpath("csrc/base/dtype.h").read_text().split("Only moved")[0]
DTYPES = re.findall(r"^  k(\w+),", TEXT, re.MULTILINE)[1:]


@pytest.mark.parametrize("kernel", ["pack", "unpack", "reduce"])
@pytest.mark.parametrize("dtype", [name.lower() for name in DTYPES])
def test_every_dtype_has_its_kernels(kernel, dtype):
    assert f".entry hvdtune_{kernel}_{dtype}(" in PTX


def test_no_sum_is_contracted_or_flushed():
    """Fused or flushed operations would change the bits that exact mode promises."""
    assert not re.findall(r"\bfma\.|\bmad\.\w*f\d\d|\.ftz|\bdiv\.(?:full|approx)|\bcall\b", PTX)
    # Those without a rounding may be contracted by the driver's compiler.
    assert not re.findall(r"\b(?:add|sub|mul)\.f(?:32|64)\b", PTX)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["sm_70", "sm_80", "sm_90"])
def test_ptxas_takes_the_text(target, tmp_path):
    """Needs NVIDIA's assembler, of CUDA 12 for sm_70, as in the wheel nvidia-cuda-nvcc-cu12."""
    tools = [*Path(sys.prefix).glob("lib/python*/site-packages/nvidia/**/bin/ptxas")]
    found = shutil.which("ptxas")
    ptxas = str(tools[0]) if tools else found
    if ptxas is None:
        pytest.skip("there is no ptxas: pip install nvidia-cuda-nvcc-cu12 has it")
    text = tmp_path / "kernels.ptx"
    text.write_text(PTX)
    command = [ptxas, "--gpu-name", target, str(text), "-o", str(tmp_path / "kernels.cubin")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "is not defined for option 'gpu-name'" in done.stderr:
        pytest.skip(f"this ptxas compiles for newer GPUs than {target} only")
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_text_is_what_clang_makes_of_the_source():
    """With another clang than 14 the text may differ and be as good."""
    clang = shutil.which("clang++")
    version = clang and subprocess.run([clang, "--version"], capture_output=True, text=True).stdout
    if not version or "version 14." not in version:
        pytest.skip("there is no clang 14, with which the text was made")
    made = subprocess.run(
        [sys.executable, "-c", "import compile_kernels as c; print(c.compiled(), end='')"],
        cwd=DEVICE,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert made == DEVICE.joinpath("kernels_ptx.cc").read_text()
