"""Compiles the core with failpoints and puts it in the place of the installed one."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pybind11

import hvdtune.core

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "failpoints"


def places() -> list[str]:
    """Every failpoint of the core, by its name."""
    sources = (ROOT / "csrc").glob("**/*.cc")
    found = [
        name
        for source in sorted(sources)
        for name in re.findall(r'FAILPOINT(?:_ON)?\("([^"]+)"', source.read_text())
    ]
    return sorted(found)


def build() -> None:
    """Compiles the core into a folder of its own, where nothing imports it by accident."""
    configure = [
        "cmake",
        f"-S{ROOT}",
        f"-B{BUILD}",
        "-GNinja",
        # What is tested is where it fails, not how fast: a third of the time to compile.
        "-DCMAKE_BUILD_TYPE=Debug",
        "-DCMAKE_CXX_FLAGS_DEBUG=-O0",
        "-DHVDTUNE_FAILPOINTS=ON",
        "-DHVDTUNE_PYTHON=ON",
        f"-DPython_EXECUTABLE={sys.executable}",
        f"-Dpybind11_DIR={pybind11.get_cmake_dir()}",
    ]
    subprocess.run(configure, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", str(BUILD)], check=True, stdout=subprocess.DEVNULL)


def install(build: Path = BUILD) -> None:
    """Before anything imports `hvdtune.core._native`, in every process."""
    path = next(build.glob("_native*.so"))
    spec = importlib.util.spec_from_file_location("hvdtune.core._native", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["hvdtune.core._native"] = module
    spec.loader.exec_module(module)
    hvdtune.core._native = module  # type: ignore[attr-defined]
