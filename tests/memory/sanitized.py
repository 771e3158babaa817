"""Compiles the core with AddressSanitizer, and puts it in the place of the installed one.

    python -m tests.memory.sanitized && python -m tests.memory.soak --sanitized

Every disturbance of tests.memory.programs works there, on every framework: a program takes about a
second of a processor, five times as long as without. What AddressSanitizer sees is how the core
uses what `malloc` gives and `free` takes back, whoever calls them. It does not see what another
rank reads or writes here by process_vm_readv and process_vm_writev, pages that ranks share, and
stray accesses by code of the frameworks: for these, programs look at the values in memory.
"""

import os
import subprocess
import sys

import pybind11

from tests.parallel.failpoint_native import ROOT

BUILD = ROOT / "build" / "memory-address"


def build() -> None:
    configure = [
        "cmake", f"-S{ROOT}", f"-B{BUILD}", "-GNinja", "-DCMAKE_BUILD_TYPE=Debug",
        "-DCMAKE_CXX_FLAGS_DEBUG=-Og -g1", "-DHVDTUNE_SANITIZE=address", "-DHVDTUNE_MPI=OFF",
        f"-DPython_EXECUTABLE={sys.executable}", f"-Dpybind11_DIR={pybind11.get_cmake_dir()}",
    ]  # fmt: skip
    subprocess.run(configure, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", str(BUILD), "--target", "_native"], check=True)


def variables() -> dict[str, str]:
    """The environment of a process that has AddressSanitizer's allocator, for all that it loads."""
    compiler = os.environ.get("CXX", "g++")
    found = [
        subprocess.run(
            [compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        # Python does not link the latter, in which the former looks for what throws.
        for name in ("libasan.so", "libstdc++.so")
    ]
    return {"LD_PRELOAD": " ".join(found), "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1"}


if __name__ == "__main__":
    build()
