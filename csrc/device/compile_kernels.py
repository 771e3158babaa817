"""Compiles kernels.cu to PTX and writes it into kernels_ptx.cc, which the core is compiled with.

PTX for sm_70 runs on every GPU from Volta on: the driver compiles it for the one that is there.
"""

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
OUT = FOLDER / "kernels_ptx.cc"
COMMAND = [
    *("clang++", "-x", "cuda", "--cuda-device-only", "--cuda-gpu-arch=sm_70"),
    *("-nocudainc", "-nocudalib", "-std=c++20", "-O2", "-fno-unroll-loops"),
    # The order of additions is a promise, and so is that each is rounded.
    *("-ffp-contract=off", "-Wno-unknown-cuda-version", "-Wall", "-S", "-o", "-"),
    *("-I", str(FOLDER.parent), str(FOLDER / "kernels.cu")),
]
HEAD = """// Made from device/kernels.cu by `make ptx`; do not edit.
#include "device/kernels_ptx.h"

namespace hvdtune {

const char* const kKernelsPtx = R"ptx("""
TAIL = ')ptx";\n\n}  // namespace hvdtune\n'


def compiled():
    """The text that belongs into kernels_ptx.cc."""
    ptx = subprocess.run(COMMAND, check=True, capture_output=True, text=True).stdout
    lines = [line.split("//")[0].rstrip().replace("\t", " ") for line in ptx.splitlines()]
    return HEAD + "\n".join(line for line in lines if line) + "\n" + TAIL


if __name__ == "__main__":
    try:
        OUT.write_text(compiled())
    except subprocess.CalledProcessError as error:
        sys.exit(error.stderr)
