"""The kernels for TensorFlow that are in the wheel, one library for each release."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import downloads
from sbom import BuiltFrom
from target import Build

sys.path.append(str(Path(__file__).parents[2]))
from hvdtune.core.toolchain import op_library

VERSIONS: Final = (
    "2.16.1", "2.16.2", "2.17.0", "2.17.1", "2.18.0", "2.18.1", "2.19.0", "2.19.1", "2.20.0",
    "2.21.0",
)  # fmt: skip
LIBRARY: Final = "libtensorflow_framework.so.2"
# The smallest that there is for a machine; its headers and ABI are those of `tensorflow`.
_PACKAGES: Final = {"x86_64": "tensorflow-cpu", "aarch64": "tensorflow"}
# As tf.sysconfig.get_compile_flags() of these releases says; a TensorFlow with another ABI of
# std::string could not load what is compiled.
_FLAGS: Final = ("-D_GLIBCXX_USE_CXX11_ABI=1", "--std=c++17", "-DEIGEN_MAX_ALIGN_BYTES=64")
# Its headers do not depend on Python's version; this one has a wheel of every release.
_PYTHON: Final = ("--python-version", "3.11", "--implementation", "cp", "--abi", "cp311")
_PLATFORMS: Final = ("manylinux2014", "manylinux_2_17", "manylinux_2_27")


def make(build: Build, versions: Sequence[str]) -> list[BuiltFrom]:
    """Compile the kernels into the package's place."""
    folder = build.brought / "hvdtune" / "tensorflow" / "op_library"
    folder.mkdir(parents=True)
    files = op_library.sources_of(build.source / "csrc")
    options = [*_PYTHON, *build.target.of_pypi(*_PLATFORMS)]
    package = _PACKAGES[build.target.machine]
    for version in versions:
        kept = build.kept / "tensorflow" / version
        installed = downloads.unpack(f"{package}=={version}", kept, _place, options)
        include = installed / "include"
        target = folder / op_library.packaged_name(version, include)
        linked = [*build.linking, f"-L{installed}", f"-l:{LIBRARY}", "-Wl,--no-undefined"]
        flags = [f"-I{include}", *_FLAGS]
        command = op_library.compilation(build.compiler, files, flags, linked, target)
        subprocess.run(command, check=True)
    return [
        BuiltFrom(package, version, "headers that its kernels are compiled with")
        for version in versions
    ]


def _place(file: str) -> str | None:
    """TensorFlow's headers, and its library to link against."""
    name = file.removeprefix("tensorflow/")
    return name if name == LIBRARY or name.startswith("include/") else None
