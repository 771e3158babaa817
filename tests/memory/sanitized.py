"""Compiles the core with AddressSanitizer, and puts it in the place of the installed one.

python -m tests.memory.sanitized && python -m tests.memory.soak --sanitized
"""

import os
import subprocess
import sys
from multiprocessing import forkserver
from unittest import mock

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


class SanitizedServer(forkserver.ForkServer):
    """Its processes have AddressSanitizer's allocator, for all that they load."""

    def __init__(self) -> None:
        super().__init__()
        self.set_forkserver_preload(["tests.memory.sanitized_core", "hvdtune.torch"])

    def ensure_running(self) -> None:
        compiler = os.environ.get("CXX", "g++")
        found = [
            subprocess.run(
                [compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True
            ).stdout.strip()
            # Python does not link the latter, in which the former looks for what throws.
            for name in ("libasan.so", "libstdc++.so")
        ]
        variables = {
            "LD_PRELOAD": " ".join(found),
            "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1",
        }
        with mock.patch.dict(os.environ, variables):
            super().ensure_running()


if __name__ == "__main__":
    build()
