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
    """Compile the kernels into the package's place; what is the same for releases is there once."""
    folder = build.brought / "hvdtune" / "tensorflow" / "op_library"
    folder.mkdir(parents=True)
    options = [*_PYTHON, *build.target.of_pypi(*_PLATFORMS)]
    package = _PACKAGES[build.target.machine]
    alike: dict[tuple[str, bytes], list[str]] = {}  # releases, by the end of the name and content
    for version in versions:
        kept = build.kept / "tensorflow" / version
        installed = downloads.unpack(f"{package}=={version}", kept, _place, options)
        end = op_library.packaged_name([], installed / "include")
        made = _compiled(build, installed, folder / end)
        alike.setdefault((end, made.read_bytes()), []).append(version)
        made.unlink()
    for (end, content), those in alike.items():
        target = folder / f"{'_'.join(those)}{end}"
        target.write_bytes(content)
        target.chmod(0o755)
    return [
        BuiltFrom(package, version, "headers that its kernels are compiled with")
        for version in versions
    ]


def _compiled(build: Build, installed: Path, target: Path) -> Path:
    linked = [*build.linking, f"-L{installed}", f"-l:{LIBRARY}", "-Wl,--no-undefined"]
    # Messages name the headers that they come from, alike for all releases.
    flags = [f"-I{installed / 'include'}", *_FLAGS, f"-ffile-prefix-map={installed}=tensorflow"]
    files = op_library.sources_of(build.source / "csrc")
    command = op_library.compilation(build.compiler, files, flags, linked, target)
    subprocess.run(command, check=True)
    return target


def _place(file: str) -> str | None:
    """TensorFlow's headers, and its library to link against."""
    name = file.removeprefix("tensorflow/")
    return name if name == LIBRARY or name.startswith("include/") else None
