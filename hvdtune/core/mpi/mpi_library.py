"""Which MPI libraries and which plugins for them this machine has.

A plugin is bound to an ABI, which is the name that an MPI library has for the dynamic linker:
`libmpi.so.12` for MPICH, Intel MPI and all others of the common ABI, `libmpi.so.40` for Open MPI,
`libmpi_abi.so.1` for the ABI that MPI itself defines.
"""

from __future__ import annotations

import ctypes
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hvdtune.core.config.environment import cache_folder

PLUGIN_VERSION: Final = 1
_PACKAGE: Final = Path(__file__).parents[1] / "mpi_plugin"
_LIBRARY: Final = re.compile(r"lib(?:mpi|mpich|mpi_abi)\.so(?:\.\d+)*")
_ABI: Final = re.compile(r"lib(?:mpi|mpich|mpi_abi)\.so\.\d+")
_NEEDED: Final = re.compile(rb"\0(lib(?:mpi|mpich|mpi_abi)\.so\.\d+)\0")
_VERSIONS: Final = (
    ("openmpi", "Open MPI", re.compile(r"Open MPI v(\S+?),")),
    ("intelmpi", "Intel MPI", re.compile(r"Intel\(R\) MPI Library (\S+)")),
    ("mvapich", "MVAPICH", re.compile(r"MVAPICH\S* Version\s*:\s*(\S+)")),
    ("mpich", "MPICH", re.compile(r"MPICH Version:\s*(\S+)")),
)
_ASK_VERSION: Final = """
import ctypes, sys
text, length = ctypes.create_string_buffer(16384), ctypes.c_int()
ctypes.CDLL(sys.argv[1]).MPI_Get_library_version(text, ctypes.byref(length))
sys.stdout.buffer.write(text.value)
"""


@dataclass(frozen=True)
class MpiVersion:
    """What an MPI library says of itself, as in ("openmpi", "Open MPI", "5.0.11")."""

    flavour: str
    title: str
    number: str

    def __str__(self) -> str:
        return f"{self.title} {self.number}"


def parse_version(text: str) -> MpiVersion:
    """Parse the text of MPI_Get_library_version."""
    for flavour, title, pattern in _VERSIONS:
        if match := pattern.search(text):
            return MpiVersion(flavour, title, match[1])
    return MpiVersion("mpi", text.strip().partition("\n")[0][:60] or "an unknown MPI", "")


def ask_version(library: Path) -> MpiVersion | None:
    """Asks `library` for its version in a separate process; None when it cannot be loaded."""
    command = [sys.executable, "-I", "-S", "-c", _ASK_VERSION, str(library)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_version(done.stdout.decode(errors="replace")) if done.returncode == 0 else None


def abi_of(library: Path) -> str:
    """Reads the ABI from the file name of a library, "" when it tells none."""
    match = _ABI.match(library.name) or _ABI.match(library.resolve().name)
    return match[0] if match else ""


def is_of_flavour(abi: str, flavour: str) -> bool:
    """Return whether programs of a launcher's flavour ("openmpi", "mpich", or "") use this ABI."""
    is_openmpi = abi.startswith("libmpi.so") and int(abi.rpartition(".")[2]) >= 20
    return not flavour or abi.startswith("libmpi_abi") or is_openmpi == (flavour == "openmpi")


def loaded_library() -> Path | None:
    """The MPI library that this process has already, by mpi4py for instance."""
    try:
        maps = Path("/proc/self/maps").read_text()
    except OSError:
        return None
    for line in maps.splitlines():
        path = Path(line.partition("/")[2])
        if _LIBRARY.fullmatch(path.name):
            return Path("/") / path
    return None


def installed_libraries() -> list[Path]:
    """The MPI libraries this process could use, most likely first, one per file."""
    found: dict[Path, Path] = {}
    for folder in _folders():
        for path in sorted(folder.glob("libmpi*.so.*")):
            if abi_of(path) == path.name:
                found.setdefault(path.resolve(), path)
    return list(found.values())


def _folders() -> Iterator[Path]:
    yield Path(sys.prefix) / "lib"  # where the wheels of PyPI put theirs
    for program in ("mpicxx", "mpicc", "mpirun", "mpiexec"):
        if path := shutil.which(program):
            for start in dict.fromkeys((Path(path), Path(path).resolve())):
                yield from _lib_folders(start.parent.parent)
    yield from _lib_folders(Path("/usr"))
    yield from _lib_folders(Path("/usr/local"))


def _lib_folders(prefix: Path) -> Iterable[Path]:
    return [prefix / "lib", prefix / "lib64", prefix / "lib" / f"{platform.machine()}-linux-gnu"]


def plugin_path(abi: str, version: MpiVersion) -> Path:
    """Return where `hvdtune build mpi` puts the plugin for this MPI."""
    name = f"{version.flavour}-{version.number}" if version.number else version.flavour
    return cache_folder() / f"mpi-{PLUGIN_VERSION}" / abi / f"{name}.so"


def built_plugins() -> list[tuple[str, Path]]:
    """All plugins and their ABIs: those of this user newest first, then the package's own."""
    folder = cache_folder() / f"mpi-{PLUGIN_VERSION}"
    paths = sorted(folder.glob("*/*.so"), key=lambda path: path.stat().st_mtime, reverse=True)
    paths += sorted(_PACKAGE.glob("*.so"))
    return [(abi, path) for path in paths if (abi := _abi_needed(path))]


def _abi_needed(plugin: Path) -> str:
    match = _NEEDED.search(plugin.read_bytes())
    return match[1].decode() if match else ""


@dataclass(frozen=True)
class Choice:
    """The plugin that a process is to load, and the library to load before it (None: the one that
    the plugin was compiled against)."""

    plugin: Path
    library: Path | None


def choose_plugin(flavour: str) -> Choice | None:
    """Return the plugin for a process whose launcher has this flavour, None if none fits.

    A process can have one MPI only, so the one that is loaded decides.
    """
    plugins = built_plugins()
    if loaded := loaded_library():
        fitting = [path for abi, path in plugins if abi == abi_of(loaded)]
        return Choice(fitting[0], loaded) if fitting else None
    fitting_abis = [row for row in plugins if is_of_flavour(row[0], flavour)]
    for library in installed_libraries():
        for abi, path in fitting_abis:
            if abi == abi_of(library):
                return Choice(path, library)
    for _, path in fitting_abis:
        # A plugin of the package may be for an MPI that this machine has not.
        if path.parent != _PACKAGE or ask_version(path):
            return Choice(path, None)
    return None


def preload(library: Path) -> None:
    """Makes `library` the MPI of this process: a plugin of its ABI finds it by name."""
    ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
